"""Let a charter decide who may do what, when, at what cost, and with which changes.

Read the modules in this order: ``definitions`` (the values), ``conditions`` (their language), ``state``
(compare and undo changes), ``check`` (the rules of one skill), ``roles``, ``charter`` (all skills and roles)
with ``reading`` (its file), ``broker`` (carry out intents), ``audit`` (the record), ``guard`` (an agent with
real skills) and ``batch`` (a whole population).

>>> from vademecum.governance import Actor, Broker, Functions, SkillDefinition, SkillRegistry
>>> registry = SkillRegistry([SkillDefinition("rest", implementation_mapping="rest")])
>>> broker = Broker(registry, None, Functions({"rest": lambda agent: None}))
>>> broker.propose(Actor("a1", "resident"), "rest").executed
'rest'
"""

from vademecum.errors import CharterRefused, ConditionWrong
from vademecum.governance.audit import Audit, replay_outcomes
from vademecum.governance.broker import Broker, Engine, Functions
from vademecum.governance.charter import Charter, Linted, SkillRegistry, lint_charter, load_charter
from vademecum.governance.definitions import (
    ActionOutcome,
    Actor,
    BrokerPolicy,
    GovernedAgent,
    Intent,
    Parameter,
    Reason,
    SkillDefinition,
    ValidationResult,
)
from vademecum.governance.roles import Role, RoleEnforcer
from vademecum.governance.state import Ledger

__all__ = [
    "ActionOutcome",
    "Actor",
    "Audit",
    "Broker",
    "BrokerPolicy",
    "Charter",
    "CharterRefused",
    "ConditionWrong",
    "Engine",
    "Functions",
    "GovernedAgent",
    "Intent",
    "Ledger",
    "Linted",
    "Parameter",
    "Reason",
    "Role",
    "RoleEnforcer",
    "SkillDefinition",
    "SkillRegistry",
    "ValidationResult",
    "lint_charter",
    "load_charter",
    "replay_outcomes",
]
