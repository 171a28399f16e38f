"""A file per verb, imported only when it is run."""
