"""Check a run: its steps, its answer, and the files that it left."""
