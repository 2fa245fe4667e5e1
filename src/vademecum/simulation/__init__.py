"""Run a simulation under a charter: what ``simulation.py`` gets and returns, a model's intents, a report."""

from vademecum.simulation.setting import Chart, Setting, Simulated, ask_model, load_simulation

__all__ = ["Chart", "Setting", "Simulated", "ask_model", "load_simulation"]
