"""Query → ranked skills: which skill fits."""
