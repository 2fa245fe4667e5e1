"""Print what the commands have to say, and read what people type."""
