"""The Model Context Protocol: skills as tools, resources and prompts for any client, on the official SDK."""
