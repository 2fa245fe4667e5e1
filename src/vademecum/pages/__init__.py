"""Values → HTML: templates and charts for runs, evaluations and simulations."""
