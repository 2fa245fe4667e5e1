"""Bytes → Skill: what a skill is, how its document is read, and what is wrong with it."""
