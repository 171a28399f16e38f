"""Evaluation in processes of this machine: bounded in time and memory, without credentials."""
