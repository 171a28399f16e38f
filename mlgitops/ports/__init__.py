"""One Protocol per outside system, with its value types."""
