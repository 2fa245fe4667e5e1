"""Run a simulation under a charter: the interface of ``simulation.py``, intents of a model, a report."""

from vademecum.simulation.setting import Chart, Setting, Simulated, ask_model, load_simulation

__all__ = ["Chart", "Setting", "Simulated", "ask_model", "load_simulation"]
