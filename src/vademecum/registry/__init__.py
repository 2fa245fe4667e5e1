"""Roots → SkillIndex: which skills exist, which are left out, and why."""
