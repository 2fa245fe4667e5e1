"""One agent in one conversation: everything that serves a model uses a session."""
