"""One agent in one conversation: the way through for everything that serves a model."""
