"""Judging a canary: counts, evidence, estimates, plans, verdicts. Pure."""
