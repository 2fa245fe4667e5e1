"""Ask a model for an agent's intent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vademecum.governance import Broker, GovernedAgent, Intent
from vademecum.models.base import Message, Model

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


def ask_model(model: Model, broker: Broker, agent: GovernedAgent) -> Callable[[str], Intent]:
    """Return a function for ``Broker.negotiate`` that gives a model the agent's view and the feedback."""

    def ask(said: str) -> Intent:
        messages = [Message("system", _RULES), Message("user", _situation(broker, agent, said))]
        return parse_intent(model.reply(messages, schema=_SCHEMA).text)

    return ask


def parse_intent(text: str) -> Intent:
    """Return the intent in a reply; a reply without JSON is taken for a skill's name.

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
