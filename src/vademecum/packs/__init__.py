"""Archive ↔ root: skills that arrive whole, or not at all."""
