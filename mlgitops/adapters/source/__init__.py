"""Checked-out commits of model repositories."""
