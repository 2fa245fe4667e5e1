"""Request → Decision: may it happen, and why."""
