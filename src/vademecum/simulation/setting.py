"""Load a ``simulation.py``, define its input and its result, and ask a model for intents."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from vademecum.errors import CharterRefused
from vademecum.governance import Broker, BrokerPolicy, Charter, GovernedAgent, Intent
from vademecum.governance.audit import Audit
from vademecum.models.base import Message, Model

PROGRAM = "simulation.py"
MAX_STATE_CHARS = 20_000

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"skill": {"type": "string"}, "parameters": {"type": "object"}},
    "required": ["skill"],
}
_RULES = (
    "You are one agent of a simulation. Choose what to do in this step: one of the possible skills. "
    'Answer with one JSON object: {"skill": "…", "parameters": {…}}, without other words.'
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The input of a simulation: the number of agents and steps, the seed and the charter.

    If ``enforced`` is false, the charter decides and records, but enforces nothing. ``model`` decides for the
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
    """Import the simulation of a directory, which runs its Python code, and return it."""
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


def ask_model(model: Model, broker: Broker, agent: GovernedAgent) -> Callable[[str], Intent]:
    """Return a function for ``Broker.negotiate`` that gives a model the agent's view and the feedback."""

    def ask(said: str) -> Intent:
        messages = [Message("system", _RULES), Message("user", _situation(broker, agent, said))]
        return parse_intent(model.reply(messages, schema=_SCHEMA).text)

    return ask


def parse_intent(text: str) -> Intent:
    """Return the intent in a reply; a reply without JSON is treated as the name of a skill.

    >>> parse_intent('I think: {"skill": "elevate", "parameters": {"metres": 2}}')
    Intent(skill_id='elevate', parameters={'metres': 2})
    >>> parse_intent("elevate").skill_id
    'elevate'
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1]) if start >= 0 else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("skill"), str):
        parameters = found.get("parameters")
        return Intent(found["skill"], parameters if isinstance(parameters, dict) else {})
    return Intent(text.strip()[:100])


def _situation(broker: Broker, agent: GovernedAgent, said: str) -> str:
    view = json.dumps(broker.view(agent), ensure_ascii=False, default=str)[:MAX_STATE_CHARS]
    lines = [
        f"You are {agent.id}, a {agent.type}. Step {broker.step}.",
        f"What you know: {view}",
        "Possible now:",
    ]
    for name in broker.feasible(agent):
        skill = broker.charter.skills[name]
        schema = {key: value.to_json() for key, value in skill.output_schema.items()}
        parameters = f" parameters {json.dumps(schema, ensure_ascii=False)}" if schema else ""
        lines.append(f"- {name}: {skill.description}{parameters}")
    return "\n".join([*lines, *([said] if said else [])])
