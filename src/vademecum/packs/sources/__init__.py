"""Fetch the files of skills from their sources, within limits, and inspect them."""
