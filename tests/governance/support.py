"""Share D1's own example and short ways to make charters and brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vademecum.governance import Actor, Audit, Broker, BrokerPolicy, Charter, Engine, Functions, load_charter
from vademecum.governance.charter import lint_text
from vademecum.governance.state import State

# As the design has it, word for word.
D1 = """\
skills:
  - skill_id: "do_nothing"
    description: "本回合不採取任何行動。"
    eligible_agent_types: ["*"]
    implementation_mapping: "pass_turn"

  - skill_id: "relocate"
    description: "永久搬遷到更安全的區域。"
    eligible_agent_types: ["resident"]
    preconditions: ["is_active"]
    institutional_constraints:
      cost: 50
    allowed_state_changes: ["location", "budget"]
    implementation_mapping: "execute_relocation"

  - skill_id: "build_levee"
    description: "建造防洪基礎設施。"
    eligible_agent_types: ["government"]
    preconditions: ["has_budget"]
    implementation_mapping: "construct_infrastructure"
"""


def problems(text: str) -> list[tuple[int | None, str]]:
    """Return the lines and codes of everything that is wrong with a charter; strictness is tested by itself."""
    found = lint_text(text).problems
    return [(problem.line, problem.code) for problem in found if problem.code != "not-strict"]


def charter(text: str, place: Path) -> Charter:
    """Return the charter of a real file."""
    file = place / "skill_registry.yaml"
    file.write_text(text, "utf-8")
    return load_charter(file)


def broker_of(
    text: str,
    functions: dict[str, Any] | Engine,
    policy: BrokerPolicy | None = None,
    *,
    world: State | None = None,
    audit: Audit | None = None,
) -> Broker:
    """Return a broker for a charter's text, with functions as its engine."""
    linted = lint_text(text)
    assert linted.registry is not None, linted.problems
    engine = Functions(functions) if isinstance(functions, dict) else functions
    return Broker(linted.registry, linted.roles, engine, policy or BrokerPolicy(), world=world, audit=audit)


def skill(**keys: Any) -> str:
    """Return a charter of one skill called ``act``."""
    import json

    whole = {"skill_id": "act", "eligible_agent_types": ["*"], "implementation_mapping": "act", **keys}
    return json.dumps({"skills": [whole]})


def resident(**state: Any) -> Actor:
    return Actor("r1", "resident", state)
