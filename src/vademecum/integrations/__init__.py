"""Offer skills to other programs: tools for a model in any framework."""
