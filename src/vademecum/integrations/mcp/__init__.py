"""Serve skills over the Model Context Protocol: the server, its clients, and their questions."""
