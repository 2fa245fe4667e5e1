"""The command line. Each module parses the options of a group of commands and calls the library."""
