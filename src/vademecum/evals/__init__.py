"""Evaluate skills: cases, checks of runs, statistics and reports."""
