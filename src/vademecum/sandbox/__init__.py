"""Run a command where it can do no harm."""
