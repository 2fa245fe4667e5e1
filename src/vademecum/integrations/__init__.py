"""Other programs’ way in: the tools a model uses, for any framework."""
