"""Request → Run: the loop that plans, chooses, acts and observes."""
