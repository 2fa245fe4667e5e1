"""Skill → text: the catalogue, the body, one resource."""
