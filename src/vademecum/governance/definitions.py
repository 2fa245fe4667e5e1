"""Define the values of a charter: skills, parameters, intents, agents, reasons and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, Protocol

from msgspec import Struct

from vademecum.errors import CharterRefused

EVERYBODY = "*"
MAX_SHOWN_CHARS = 80
EMPTY: Mapping[str, Any] = {}

Kind = Literal["number", "integer", "string", "boolean", "list"]


@dataclass(frozen=True, slots=True)
class SkillDefinition:
    """Define one skill: who may use it, when, at what cost, what it may change, and what carries it out.

    ``extra`` keeps the keys of a charter file that this version does not know; nothing reads them.

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

    def frozen(self) -> SkillDefinition:
        """Return an immutable copy, or raise ``CharterRefused`` if a value is of the wrong type."""
        name: Any = self.skill_id
        constraints: Any = self.institutional_constraints
        if not isinstance(name, str) or not name:
            raise CharterRefused(f"skill_id is {shown(name)}: write a text that is not empty.")
        if not isinstance(constraints, Mapping):
            raise CharterRefused(f"institutional_constraints is {shown(constraints)}: write a mapping.")
        schema = {}
        for key, parameter in self.output_schema.items():
            if not isinstance(parameter, Parameter):
                raise CharterRefused(f"The parameter {key!r} is {shown(parameter)}: write a Parameter.")
            schema[key] = parameter.frozen()
        return SkillDefinition(
            self.skill_id,
            self.description,
            texts("eligible_agent_types", self.eligible_agent_types),
            texts("preconditions", self.preconditions),
            _frozen(self.institutional_constraints),
            texts("allowed_state_changes", self.allowed_state_changes),
            self.implementation_mapping,
            MappingProxyType(schema),
            _frozen(self.extra),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SkillDefinition:
        """Return the definition that ``to_json`` wrote; it was checked when it was written."""
        known = {each.name for each in fields(cls)} - {"extra"}
        values = {key: value for key, value in document.items() if key in known}
        values["output_schema"] = {
            name: Parameter(**{**keys, "enum": tuple(keys.get("enum", ()))})
            for name, keys in document.get("output_schema", {}).items()
        }
        extra = {key: value for key, value in document.items() if key not in known}
        return cls(**{"eligible_agent_types": (), **values}, extra=extra).frozen()

    def to_json(self) -> dict[str, Any]:
        """Return the definition as a charter file has it, without empty values."""
        whole = {
            "skill_id": self.skill_id,
            "description": self.description,
            "eligible_agent_types": list(self.eligible_agent_types),
            "preconditions": list(self.preconditions),
            "institutional_constraints": _thawed(self.institutional_constraints),
            "allowed_state_changes": list(self.allowed_state_changes),
            "implementation_mapping": self.implementation_mapping,
            "output_schema": {name: parameter.to_json() for name, parameter in self.output_schema.items()},
        }
        extra: dict[str, Any] = _thawed(self.extra)
        return {key: value for key, value in whole.items() if value not in ("", [], {})} | extra


@dataclass(frozen=True, slots=True)
class Parameter:
    """Say what an intent may give under one name: its type, its bounds, its choices.

    >>> Parameter("number", min=0, max=1, required=True).to_json()
    {'type': 'number', 'min': 0, 'max': 1, 'required': True}
    """

    type: Kind = "string"
    min: float | None = None
    max: float | None = None
    enum: tuple[Any, ...] = ()
    required: bool = False

    def frozen(self) -> Parameter:
        """Return an immutable copy."""
        return Parameter(self.type, plain(self.min), plain(self.max), tuple(self.enum), self.required)

    def to_json(self) -> dict[str, Any]:
        """Return the parameter as a charter file has it."""
        whole = {"type": self.type, "min": self.min, "max": self.max, "required": self.required or None}
        found = {key: value for key, value in whole.items() if value is not None}
        return found | ({"enum": list(self.enum)} if self.enum else {})


def texts(name: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return a list of texts as a tuple, or raise ``CharterRefused``.

    Python would take a text for a list of letters, and could go through a generator only once.

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


def plain(value: Any) -> Any:
    """Return a number as Python's own ``int`` or ``float``, and any other value as it is.

    >>> import fractions
    >>> plain(fractions.Fraction(5, 2)), plain(True), plain("x")
    (2.5, True, 'x')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _frozen(written: Any) -> Any:
    if isinstance(written, Mapping):
        return MappingProxyType({key: _frozen(value) for key, value in written.items()})
    return tuple(map(_frozen, written)) if isinstance(written, list | tuple) else plain(written)


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(each) for key, each in value.items()}
    return list(map(_thawed, value)) if isinstance(value, list | tuple) else value


class Intent(Struct, frozen=True):
    """Name the skill that an agent wants to use, with parameters. An intent is not yet an action.

    >>> Intent("set_premium", {"rate": 0.05}).parameters["rate"]
    0.05
    """

    skill_id: str
    parameters: Mapping[str, Any] = {}


class GovernedAgent(Protocol):
    """Have an id, a type that eligibility and roles refer to, and a state of plain data.

    The state is a dictionary of the agent's own. Any object with these three is a governed agent, such as an
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
        ...

    @property
    def type(self) -> str:
        """Return the agent's type."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """Return the agent's present state."""
        ...


@dataclass(slots=True)
class Actor:
    """Be an agent with an id, a type and a state, and nothing else.

    >>> Actor("mayor", "government", {"budget": 800}).state["budget"]
    800
    """

    id: str
    type: str
    state: dict[str, Any] = field(default_factory=dict)


class Missing(Struct, frozen=True):
    """Stand for a value that does not exist."""

    def __repr__(self) -> str:
        """Return the word that messages use."""
        return "missing"


MISSING = Missing()


class Reason(Struct, frozen=True):
    """Say why an intent is denied: the clause, what was observed, what is required, and a sentence.

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
        return {
            "code": self.code,
            "clause": self.clause,
            "observed": None if self.observed is MISSING else self.observed,
            "required": self.required,
            "message": self.message,
        }


# Returns whether a reader may see the value of a state key.
MayRead = Callable[[str], bool]
# Makes reasons for a reader from what was observed at a check.
Explain = Callable[[int, tuple[Any, ...], MayRead], tuple[Reason, ...]]


def may_read_all(key: str) -> bool:  # noqa: ARG001 - every key
    """Return true: the record contains every value."""
    return True


class ValidationResult(Struct, frozen=True):
    """Say whether something is valid, with every reason if it is not. It is true or false in a condition.

    Reasons are put into words when they are read, from what was observed at the check.

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
        return self.reasons_for(may_read_all)

    def reasons_for(self, may: MayRead) -> tuple[Reason, ...]:
        """Return every reason, without the values that the reader may not see."""
        return () if self.explain is None else self.explain(self.bits, self.observed, may)

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
