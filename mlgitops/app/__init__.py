"""Use cases: what the commands and the engine do, through ports only."""
