"""Call → Observation: carry out a call, with least privilege."""
