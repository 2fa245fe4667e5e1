"""Case → verdict: cases, trajectories, statistics, reports."""
