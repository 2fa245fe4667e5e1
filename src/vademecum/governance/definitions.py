"""Define the values: skills, parameters, intents, agents, reasons, results and outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct, structs

from vademecum.errors import CharterRefused

EVERYBODY = "*"
MAX_SHOWN_CHARS = 80
HIDDEN = "not readable in this role"
EMPTY: Mapping[str, Any] = {}

Kind = Literal["number", "integer", "string", "boolean", "list"]
KINDS = get_args(Kind)
_TYPES: dict[Kind, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "string": (str,),
    "boolean": (bool,),
    "list": (list, tuple),
}


@dataclass(frozen=True, slots=True)
class SkillDefinition:
    """One skill: who may use it, when, at what cost, what it may change, and its implementation.

    Lists and mappings are copied, and cannot be changed. ``extra`` keeps the keys of a charter file that this
    version does not know; nothing reads them. A value of the wrong type raises ``CharterRefused``.

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
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types, and keep immutable copies."""
        name: Any = self.skill_id
        if not isinstance(name, str) or not name:
            raise CharterRefused(f"skill_id is {shown(name)}: write a text that is not empty.")
        for key in ("eligible_agent_types", "preconditions", "allowed_state_changes"):
            object.__setattr__(self, key, texts(key, getattr(self, key)))
        for key in ("institutional_constraints", "output_schema", "extra"):
            if not isinstance(getattr(self, key), Mapping):
                raise CharterRefused(f"{key} is {shown(getattr(self, key))}: write a mapping.")
            object.__setattr__(self, key, _frozen(getattr(self, key)))
        for key, parameter in self.output_schema.items():
            if not isinstance(parameter, Parameter):
                raise CharterRefused(f"The parameter {key!r} is {shown(parameter)}: write a Parameter.")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SkillDefinition:
        """Return the definition from the form that ``to_json`` writes."""
        known = {each.name for each in fields(cls)} - {"extra"}
        values: dict[str, Any] = {"eligible_agent_types": (), "extra": {}}
        for key, value in document.items():
            (values if key in known else values["extra"])[key] = value
        schema = values.get("output_schema", {})
        return cls(**values | {"output_schema": {name: Parameter(**keys) for name, keys in schema.items()}})

    def to_json(self) -> dict[str, Any]:
        """Return the definition in the form of a charter file, without empty values."""
        whole = {each.name: _thawed(getattr(self, each.name)) for each in fields(self)}
        extra: dict[str, Any] = whole.pop("extra")
        return {key: value for key, value in whole.items() if value not in ("", [], {})} | extra


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an intent: its type, its bounds, its choices.

    >>> Parameter("number", min=0, max=1, required=True).to_json()
    {'type': 'number', 'min': 0, 'max': 1, 'required': True}
    """

    type: Kind = "string"
    min: float | None = None
    max: float | None = None
    enum: Sequence[Any] = ()
    required: bool = False

    def __post_init__(self) -> None:
        """Keep immutable copies."""
        for key in ("min", "max", "enum"):
            object.__setattr__(self, key, _frozen(getattr(self, key)))

    def to_json(self) -> dict[str, Any]:
        """Return the parameter in the form of a charter file, without empty values."""
        whole = {each.name: _thawed(getattr(self, each.name)) for each in fields(self)}
        return {key: value for key, value in whole.items() if value not in (None, []) and value is not False}

    def objection(self, value: Any) -> str | None:
        """Return the requirement that a value does not meet, or ``None`` if it is allowed."""
        if not isinstance(value, _TYPES[self.type]) or (isinstance(value, bool) and self.type != "boolean"):
            return f"a {self.type}" if self.type != "integer" else "an integer"
        if isinstance(value, float) and not isfinite(value):
            return "a finite number"
        if self.enum and value not in self.enum:
            return "one of " + ", ".join(map(repr, self.enum))
        size: Any = len(value) if isinstance(value, str | list | tuple) else value
        unit = {"string": " characters long", "list": " items long"}.get(self.type, "")
        if self.min is not None and size < self.min:
            return f"at least {self.min:g}{unit}"
        if self.max is not None and size > self.max:
            return f"at most {self.max:g}{unit}"
        return None


def texts(name: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return a list of texts as a tuple, or raise ``CharterRefused``.

    Python would treat a text as a list of letters, and could read a generator only once.

    >>> texts("eligible_agent_types", "resident")
    Traceback (most recent call last):
    ...
    vademecum.errors.CharterRefused: eligible_agent_types is the text 'resident': write a list, ['resident'].
    """
    if isinstance(written, str):
        raise CharterRefused(f"{name} is the text {written!r}: write a list, [{written!r}].")
    if not isinstance(written, list | tuple) or not all(isinstance(each, str) for each in written):
        raise CharterRefused(f"{name} is {shown(written)}: write a list of texts.")
    return tuple(written)


def _frozen(written: Any) -> Any:
    """Return an immutable copy, in which every number is Python's own ``int`` or ``float``."""
    match written:
        case Mapping():
            return MappingProxyType({key: _frozen(value) for key, value in written.items()})
        case list() | tuple():
            return tuple(map(_frozen, written))
        case bool():
            return written
        case Integral():
            return int(written)
        case Real():
            return float(written)
    return written


def _thawed(value: Any) -> Any:
    if isinstance(value, Parameter):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _thawed(each) for key, each in value.items()}
    return list(map(_thawed, value)) if isinstance(value, list | tuple) else value


class Intent(Struct, frozen=True):
    """The skill that an agent wants to use, with parameters. An intent is not yet an action.

    >>> Intent("set_premium", {"rate": 0.05}).parameters["rate"]
    0.05
    """

    skill_id: str
    parameters: Mapping[str, Any] = {}


class GovernedAgent(Protocol):
    """An id, a type that eligibility and roles refer to, and a state of plain data.

    Each agent has its own state, a dictionary. Any object with these three is a governed agent, such as an
    agent of a simulation; ``Actor`` is the simplest.

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
        """Return the agent's id."""

    @property
    def type(self) -> str:
        """Return the agent's type."""

    @property
    def state(self) -> dict[str, Any]:
        """Return the agent's current state."""


@dataclass(slots=True)
class Actor:
    """An agent with only an id, a type and a state.

    >>> Actor("mayor", "government", {"budget": 800}).state["budget"]
    800
    """

    id: str
    type: str
    state: dict[str, Any] = field(default_factory=dict)


class Missing(Struct, frozen=True):
    """The value of a field that does not exist."""

    def __repr__(self) -> str:
        """Return the word that messages use."""
        return "missing"


MISSING = Missing()


class Reason(Struct, frozen=True):
    """Why an intent is denied: the clause, what was observed, what is required, and a sentence.

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
        """Return the reason as every command prints it."""
        return structs.asdict(self) | {"observed": None if self.observed is MISSING else self.observed}


# Returns whether a reader may see the value of a state key.
MayRead = Callable[[str], bool]
# Makes the reasons for some bits from the observed values, without those that the reader may not see.
Explain = Callable[[int, tuple[Any, ...], MayRead], Iterable[Reason]]


class Clause:
    """The bits of a ``ValidationResult``, one for each clause and each precondition."""

    UNKNOWN, ROLE, TYPE, PARAMETERS, COST, COOLDOWN = 1, 2, 4, 8, 16, 32
    AFTERWARDS = 2048  # found after the engine had acted
    FIRST_CONDITION = 1 << 16
    CONDITIONS = -FIRST_CONDITION  # the bits of all preconditions


class ValidationResult(Struct, frozen=True):
    """The result of a check: valid, or every reason why not. Its truth value is ``valid``.

    The texts of the reasons are made when they are read, from the values observed at the check.

    >>> from vademecum.governance import SkillRegistry
    >>> registry = SkillRegistry([SkillDefinition("build", "", ["government"])])
    >>> result = registry.check_eligibility("build", "resident")
    >>> bool(result), result.message
    (False, "Agent type 'resident' not eligible for skill 'build'")
    """

    bits: int = 0
    explain: Explain | None = None
    observed: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it is valid."""
        return not self.bits

    @property
    def valid(self) -> bool:
        """Return whether it is valid."""
        return not self.bits

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return every reason, in the order of the checks."""
        return self.reasons_for(lambda _: True)

    def reasons_for(self, may: MayRead) -> tuple[Reason, ...]:
        """Return every reason, without the values that the reader may not see."""
        return () if self.explain is None else tuple(self.explain(self.bits, self.observed, may))

    def only(self, bits: int) -> ValidationResult:
        """Return the part of the result for these clauses."""
        left = self.bits & bits
        return ValidationResult(left, self.explain, self.observed) if left else VALID

    def plus(self, other: ValidationResult) -> ValidationResult:
        """Return both results combined, with the reasons of this one first."""
        if not other.bits:
            return self

        def explain(bits: int, _: tuple[Any, ...], may: MayRead) -> Iterable[Reason]:
            return (*self.only(bits).reasons_for(may), *other.only(bits).reasons_for(may))

        return ValidationResult(self.bits | other.bits, explain)

    @property
    def message(self) -> str:
        """Return all reasons in one text, empty if it is valid."""
        return "; ".join(reason.message for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return the result as the commands print it."""
        return {
            "valid": self.valid,
            "message": self.message,
            "reasons": [reason.to_json() for reason in self.reasons],
        }


VALID = ValidationResult()


def refusal(*reasons: Reason, bits: int = 1) -> ValidationResult:
    """Return a result that is not valid for known reasons."""
    return ValidationResult(bits, lambda *_: reasons)


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """How a broker handles denials.

    ``retries`` is how often ``negotiate`` asks again for an intent that can be corrected. With ``feedback``
    each denial has a text for a model. With ``shadow`` the broker decides and records, but enforces nothing.

    >>> BrokerPolicy(shadow=True)
    BrokerPolicy(retries=1, feedback=True, shadow=True)
    """

    retries: int = 1
    feedback: bool = True
    shadow: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative number of retries."""
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}: write 0 to ask only once.")


class ActionOutcome(Struct, frozen=True):
    """The result of an intent: the proposal, whether it was approved, and the action that was executed.

    ``charged`` is the state key that the charter took the cost from.

    >>> from vademecum.governance import Actor, Broker, Functions, SkillRegistry
    >>> outcome = Broker(SkillRegistry(), None, Functions({})).propose(Actor("a1", "resident"), "fly")
    >>> outcome.proposed.skill_id, outcome.approved, outcome.executed, outcome.reasons[0].message
    ('fly', False, None, "Skill 'fly' not found in registry")
    """

    step: int
    agent_id: str
    agent_type: str
    proposed: Intent
    approved: bool
    executed: str | None
    result: ValidationResult
    changes: tuple[tuple[str, Any, Any], ...] = ()
    output: Any = None
    feedback: str = ""
    correctable: bool = False
    rolled_back: bool = False
    shadow: bool = False
    charged: str | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return every reason against the intent, found before or after it was executed."""
        return self.result.reasons


def shown(value: Any) -> str:
    """Return a value for a message, shortened.

    >>> shown(0.1 + 0.2), shown("x" * 200)[-3:], shown(10**5000)
    ('0.3', 'xx…', 'a number of 16610 bits')
    """
    try:
        text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    except ValueError:  # Python does not print integers with that many digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a value too large"
    except Exception as error:  # noqa: BLE001 - repr of an object that a caller passed
        text = f"a {type(value).__name__} ({type(error).__name__})"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"
