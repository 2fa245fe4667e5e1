"""Query → ranked skills: find the skill that fits."""
