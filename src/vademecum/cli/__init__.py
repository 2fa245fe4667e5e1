"""The command line: one module for each group of commands, which only connects words to calls."""
