"""Turn results into statistics and reports."""
