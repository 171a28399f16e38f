"""Implementations of the ports, a folder per port."""
