"""Implementations of the notifier."""
