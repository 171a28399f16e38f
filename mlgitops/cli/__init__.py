"""The command line: parses flags, calls one use case, renders the result."""
