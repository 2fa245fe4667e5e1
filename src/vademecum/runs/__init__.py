"""Events ↔ disk: write and read the records of runs."""
