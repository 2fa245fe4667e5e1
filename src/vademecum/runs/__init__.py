"""Events ↔ disk: the record of what was done."""
