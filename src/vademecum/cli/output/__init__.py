"""Print answers, progress and skills in the same way for every command."""
