"""Run evaluations and compare their results."""
