"""Check skills for a whole population at once, from the agents of a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vademecum.governance import Broker, GovernedAgent
from vademecum.governance.batch import batch
from vademecum.governance.definitions import MISSING


def open_shares(
    broker: Broker, agents: Sequence[GovernedAgent], skill_ids: Iterable[str]
) -> dict[str, float]:
    """Return, for each skill, the share of agents that the charter would allow to use it now.

    >>> from vademecum.governance import Actor, Functions, SkillDefinition, SkillRegistry
    >>> lift = SkillDefinition("lift", preconditions=["not elevated"], institutional_constraints={"cost": 5})
    >>> broker = Broker(SkillRegistry([lift]), None, Functions({}))
    >>> agents = [Actor(f"h{n}", "household", {"budget": n, "elevated": n == 9}) for n in range(10)]
    >>> open_shares(broker, agents, ["lift"])
    {'lift': 0.4}
    """
    states, last = [agent.state for agent in agents], broker.ledger.agents
    columns: dict[str, Any] = {
        key: [state.get(key, MISSING) for state in states]
        for key in dict.fromkeys(k for s in states for k in s)
    }
    columns["type"] = [agent.type for agent in agents]
    shares = {}
    for skill_id in skill_ids:
        columns[f"last.{skill_id}"] = [last.get(agent.id, {}).get(skill_id, -1) for agent in agents]
        found = batch(broker.charter, skill_id, columns, step=broker.step, world=broker.world)
        shares[skill_id] = float(found.allowed.mean())
    return shares
