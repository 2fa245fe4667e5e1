"""Write HTML pages: templates and charts for runs, evaluations and simulations."""
