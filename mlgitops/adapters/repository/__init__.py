"""Environment repositories through git."""
