"""Request → Decision: what is allowed, and why."""
