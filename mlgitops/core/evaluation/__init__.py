"""Evaluating a model offline: metrics, intervals, the comparison with the champion, and gates. Pure."""
