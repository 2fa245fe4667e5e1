"""A command → the same command, in a place where it can do no harm."""
