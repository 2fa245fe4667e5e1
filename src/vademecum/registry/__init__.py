"""Roots → SkillIndex: which skills there are, which are left out, and why."""
