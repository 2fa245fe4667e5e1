"""A place that skills come from → their files, fetched within limits and inspected."""
