"""The rules of a skill in a charter: parsed, compiled, checked for one agent or for many at once."""
