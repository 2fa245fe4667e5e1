"""The values of this package: definitions, intents, agents, and why something may not happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, Protocol

from msgspec import Struct

EVERYBODY = "*"
DEFAULT_PURSE = "budget"
MAX_CONDITIONS = 48  # a condition has one bit of a 64-bit number, and the stages have sixteen

Kind = Literal["number", "integer", "string", "boolean", "list"]


@dataclass(frozen=True, slots=True)
class SkillDefinition:
    """What the charter says of one skill: whether it exists, for whom, when, at what cost, changing what.

    >>> levee = SkillDefinition("build_levee", "Build.", ["government"], ["has_budget"], {"cost": 500})
    >>> levee.skill_id, levee.institutional_constraints["cost"]
    ('build_levee', 500)
    """

    skill_id: str
    description: str = ""
    eligible_agent_types: Sequence[str] = (EVERYBODY,)
    preconditions: Sequence[str] = ()
    institutional_constraints: Mapping[str, Any] = field(default_factory=dict)
    allowed_state_changes: Sequence[str] = ()
    implementation_mapping: str = ""
    output_schema: Mapping[str, Parameter] = field(default_factory=dict)
    conflicts_with: Sequence[str] = ()
    depends_on: Sequence[str] = ()

    def frozen(self) -> SkillDefinition:
        """The same with lists and mappings of its own that nobody changes: what decides, stays."""
        schema = {name: parameter.frozen() for name, parameter in self.output_schema.items()}
        return SkillDefinition(
            self.skill_id,
            self.description,
            tuple(self.eligible_agent_types),
            tuple(self.preconditions),
            frozen_mapping(self.institutional_constraints),
            tuple(self.allowed_state_changes),
            self.implementation_mapping,
            MappingProxyType(schema),
            tuple(self.conflicts_with),
            tuple(self.depends_on),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SkillDefinition:
        """What ``to_json`` gave, read again; it was checked when it was written."""
        schema = {
            name: Parameter(**{**keys, "enum": tuple(keys.get("enum", ()))})
            for name, keys in document.get("output_schema", {}).items()
        }
        lists = {key: tuple(value) for key, value in document.items() if isinstance(value, list)}
        return cls(**{"eligible_agent_types": (), **document, **lists, "output_schema": schema}).frozen()

    def to_json(self) -> dict[str, Any]:
        """The definition as a charter file has it; what is empty is left out."""
        schema = {name: parameter.to_json() for name, parameter in self.output_schema.items()}
        whole = {
            "skill_id": self.skill_id,
            "description": self.description,
            "eligible_agent_types": list(self.eligible_agent_types),
            "preconditions": list(self.preconditions),
            "institutional_constraints": {
                key: dict(value) if isinstance(value, Mapping) else value
                for key, value in self.institutional_constraints.items()
            },
            "allowed_state_changes": list(self.allowed_state_changes),
            "implementation_mapping": self.implementation_mapping,
            "output_schema": schema,
            "conflicts_with": list(self.conflicts_with),
            "depends_on": list(self.depends_on),
        }
        return {key: value for key, value in whole.items() if value not in ("", [], {})}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What an intent may say under one name: its type, its bounds, its choices.

    >>> Parameter("number", min=0, max=1, required=True).to_json()
    {'type': 'number', 'min': 0, 'max': 1, 'required': True}
    """

    type: Kind = "string"
    min: float | None = None
    max: float | None = None
    enum: tuple[Any, ...] = ()
    required: bool = False

    def frozen(self) -> Parameter:
        """The same with choices that nobody changes."""
        return Parameter(self.type, plain(self.min), plain(self.max), tuple(self.enum), self.required)

    def to_json(self) -> dict[str, Any]:
        """The parameter as a charter file has it."""
        whole = {"type": self.type, "min": self.min, "max": self.max, "required": self.required or None}
        found = {key: value for key, value in whole.items() if value is not None}
        return found | ({"enum": list(self.enum)} if self.enum else {})


def plain(value: Any) -> Any:
    """A number as Python's own ``int`` or ``float``, whatever kind it came as; all else as it is.

    >>> import fractions
    >>> plain(fractions.Fraction(5, 2)), plain(True), plain("x")
    (2.5, True, 'x')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def frozen_mapping(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mapping of its own that nobody changes, with plain numbers."""
    return MappingProxyType(
        {
            key: frozen_mapping(value) if isinstance(value, Mapping) else plain(value)
            for key, value in written.items()
        }
    )


class Intent(Struct, frozen=True):
    """What an agent wants: a skill by its id, and what it says with it. It is not an action yet.

    >>> Intent("set_premium", {"rate": 0.05}).parameters["rate"]
    0.05
    """

    skill_id: str
    parameters: Mapping[str, Any] = {}


class Agent(Protocol):
    """Whoever proposes: an id of its own, a type that roles and eligibility go by, and a state.

    The state is a dictionary of the agent's own; nobody else changes it while a proposal is decided. An
    agent of a simulation that has these three is one; ``Actor`` is the plainest.

    >>> class Household:
    ...     id, type = "h1", "household"
    ...     def __init__(self):
    ...         self.state = {"savings": 100}
    >>> from vademecum.governance import Charter, SkillRegistry
    >>> Charter(SkillRegistry([SkillDefinition("rest")])).feasible(Household())
    ['rest']
    """

    @property
    def id(self) -> str:
        """Who it is."""
        ...

    @property
    def type(self) -> str:
        """What kind of agent it is."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """What is true of it now."""
        ...


@dataclass(slots=True)
class Actor:
    """An agent that is nothing but its id, type and state.

    >>> Actor("mayor", "government", {"budget": 800}).state["budget"]
    800
    """

    id: str
    type: str
    state: dict[str, Any] = field(default_factory=dict)


class Missing(Struct, frozen=True):
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        """As messages say it."""
        return "missing"


MISSING = Missing()


class Reason(Struct, frozen=True):
    """One thing that speaks against an intent: which clause, what was found, what it would take.

    >>> from vademecum.governance import Charter, SkillRegistry
    >>> registry = SkillRegistry([SkillDefinition("build", institutional_constraints={"cost": 500})])
    >>> (reason,) = Charter(registry).check("build", Actor("mayor", "government", {"budget": 300})).reasons
    >>> reason.code, reason.observed, reason.required, reason.message
    ('cost', 300, 500, "Cost 500 exceeds 'budget' (300)")
    """

    code: str
    clause: str
    observed: Any
    required: Any
    message: str

    def to_json(self) -> dict[str, Any]:
        """The reason as every command prints it."""
        return {
            "code": self.code,
            "clause": self.clause,
            "observed": None if self.observed is MISSING else self.observed,
            "required": self.required,
            "message": self.message,
        }


# Whether somebody may read the key of a state.
May = Callable[[str], bool]


def may_read_all(key: str) -> bool:  # noqa: ARG001 - whatever it is
    """For those who keep the record."""
    return True


class Explains(Protocol):
    """Turns the bits of a check into reasons, from what was observed when it was made."""

    def reasons(self, bits: int, observed: tuple[Any, ...], may: May = may_read_all) -> tuple[Reason, ...]:
        """Every reason, in the order of the gate; the words hold no value that may not be read."""
        ...


class ValidationResult(Struct, frozen=True):
    """Whether it may be, and every reason why not. True or false in a condition.

    The reasons are put into words when somebody asks for them, from what was observed at the check.

    >>> from vademecum.governance import SkillRegistry
    >>> registry = SkillRegistry([SkillDefinition("build", "", ["government"])])
    >>> result = registry.check_eligibility("build", "resident")
    >>> bool(result), result.message
    (False, "Agent type 'resident' not eligible for skill 'build'")
    """

    bits: int = 0
    explains: Explains | None = None
    observed: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        """Whether it is valid."""
        return not self.bits

    @property
    def valid(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.bits

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Everything that speaks against it, in the order of the gate."""
        return self.reasons_for(may_read_all)

    def reasons_for(self, may: May) -> tuple[Reason, ...]:
        """The same in words for somebody who may not read everything."""
        if self.explains is None:
            return ()
        return self.explains.reasons(self.bits, self.observed, may)

    @property
    def message(self) -> str:
        """All reasons in words; empty where it is valid."""
        return "; ".join(reason.message for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """The result as the commands print it."""
        return {
            "valid": self.valid,
            "message": self.message,
            "reasons": [reason.to_json() for reason in self.reasons],
        }


class Said(Struct, frozen=True):
    """Reasons that are known already."""

    known: tuple[Reason, ...]

    def reasons(self, bits: int, observed: tuple[Any, ...], may: May = may_read_all) -> tuple[Reason, ...]:  # noqa: ARG002 - as asked
        """The reasons, as they are."""
        return self.known


class Together(Struct, frozen=True):
    """What was found before something was executed, and what was found after it, each with its own words."""

    before: ValidationResult
    after: Callable[[May], tuple[Reason, ...]]

    def reasons(self, bits: int, observed: tuple[Any, ...], may: May = may_read_all) -> tuple[Reason, ...]:  # noqa: ARG002 - as asked
        """The reasons of both."""
        return (*self.before.reasons_for(may), *self.after(may))


VALID = ValidationResult()
