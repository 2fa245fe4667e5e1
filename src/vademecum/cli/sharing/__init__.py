"""Install and pack skills, and link them into the directories of other agents."""
