"""Bytes → Skill: read a skill's document, and find what is wrong with it."""
