"""Stores of data and model artifacts."""
