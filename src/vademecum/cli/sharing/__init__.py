"""Install skills, pack them, and link them into the directories of other agents."""
