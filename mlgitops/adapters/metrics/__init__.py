"""Counts of what users met."""
