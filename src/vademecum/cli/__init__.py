"""Words → calls: one module for each group of commands; wiring only."""
