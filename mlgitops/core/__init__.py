"""Pure: no I/O, no clock, no environment variables, no SDK."""
