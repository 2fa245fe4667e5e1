"""Request → Run: the loop that plans, selects, acts and observes."""
