"""intent → Outcome: the charter that says who may do what, when, at what cost, and changing what.

>>> from vademecum.governance import Actor, Broker, Functions, SkillDefinition, SkillRegistry
>>> registry = SkillRegistry([SkillDefinition("rest", implementation_mapping="rest")])
>>> broker = Broker(registry, None, Functions({"rest": lambda agent: None}))
>>> broker.propose(Actor("a1", "resident"), "rest").executed
'rest'
"""

from vademecum.errors import CharterRefused, ConditionWrong
from vademecum.governance.audit import Audit
from vademecum.governance.base import BrokerPolicy, Engine, Outcome
from vademecum.governance.broker import Broker
from vademecum.governance.charter import Charter
from vademecum.governance.engine import Engines, Functions, Scripts
from vademecum.governance.ledger import Ledger
from vademecum.governance.loading import Linted, lint_charter, load_charter
from vademecum.governance.model import (
    Actor,
    Agent,
    Intent,
    Parameter,
    Reason,
    SkillDefinition,
    ValidationResult,
)
from vademecum.governance.registry import SkillRegistry
from vademecum.governance.replay import replay_outcomes
from vademecum.governance.roles import Role, RoleEnforcer

__all__ = [
    "Actor",
    "Agent",
    "Audit",
    "Broker",
    "BrokerPolicy",
    "Charter",
    "CharterRefused",
    "ConditionWrong",
    "Engine",
    "Engines",
    "Functions",
    "Intent",
    "Ledger",
    "Linted",
    "Outcome",
    "Parameter",
    "Reason",
    "Role",
    "RoleEnforcer",
    "Scripts",
    "SkillDefinition",
    "SkillRegistry",
    "ValidationResult",
    "lint_charter",
    "load_charter",
    "replay_outcomes",
]
