"""The demo: a user of the tool, with real data."""
