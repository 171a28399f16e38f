"""Training images: the embedded builder, and reading what it built."""
