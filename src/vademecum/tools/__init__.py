"""Call → Observation: doing it, with least privilege."""
