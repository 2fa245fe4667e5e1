"""Load a ``simulation.py``, and define what it gets and what it returns."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from vademecum.errors import CharterRefused
from vademecum.governance import BrokerPolicy, Charter
from vademecum.governance.audit import Audit
from vademecum.models.base import Model

PROGRAM = "simulation.py"


@dataclass(frozen=True, slots=True)
class Setting:
    """The input of a simulation: the number of agents and steps, the seed and the charter.

    If ``enforced`` is false, the charter decides and records, and enforces nothing. ``model`` decides for the
    agents; without one they follow their own rules.
    """

    charter: Charter
    agents: int = 100
    steps: int = 50
    seed: int = 1
    enforced: bool = True
    model: Model | None = None
    audit: Audit | None = None
    progress: Callable[[], None] = lambda: None

    @property
    def policy(self) -> BrokerPolicy:
        """Return the policy for the broker of this run."""
        return BrokerPolicy(shadow=not self.enforced, feedback=self.model is not None)


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot: its title, its unit, and one value a step for each line."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a run: figures for a table, and plots.

    ``chinese`` gives the names of figures, plots, units and lines for a page in Chinese.
    """

    figures: Mapping[str, str | int | float]
    charts: Sequence[Chart] = field(default_factory=list)
    chinese: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result as ``vade govern simulate`` prints it."""
        charts = [{**asdict(chart), "lines": dict(chart.lines)} for chart in self.charts]
        return {"figures": dict(self.figures), "charts": charts}


# The function ``simulate`` of a ``simulation.py``; the same setting gives the same result.
Simulate = Callable[[Setting], Simulated]


def load_simulation(directory: Path) -> Simulate:
    """Return the simulation of a directory. Its Python code is run."""
    file = directory / PROGRAM
    if not file.is_file():
        raise CharterRefused(
            f"There is no {PROGRAM} in {directory}: name a simulation's directory.", code="no-charter"
        )
    name = f"vademecum_simulation_{directory.name}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise CharterRefused(
            f"{file} needs {error.name!r}, which is not installed: pip install {error.name}"
        ) from error
    except (Exception, SystemExit) as error:
        raise CharterRefused(
            f"{file} cannot be loaded ({type(error).__name__}: {error}): correct it."
        ) from error
    if not callable(getattr(module, "simulate", None)):
        raise CharterRefused(f"{file} has no function simulate(setting): write one.")
    return cast("Simulate", module.simulate)
