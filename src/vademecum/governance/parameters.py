"""What an intent says against what the charter lets it say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vademecum.governance.model import MISSING, Parameter, Reason
from vademecum.governance.words import shown

_TYPES: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "string": (str,),
    "boolean": (bool,),
    "list": (list, tuple),
}


def fit(schema: Mapping[str, Parameter], said: Mapping[str, Any]) -> bool:
    """Whether parameters are what a schema lets them be."""
    return next(wrong_parameters(schema, said), None) is None


def wrong_parameters(schema: Mapping[str, Parameter], said: Any) -> Iterator[Reason]:
    """Every parameter that is wrong, with what it should be.

    >>> schema = {"amount": Parameter("number", min=0, required=True)}
    >>> [reason.message for reason in wrong_parameters(schema, {"amount": -1})]
    ["Parameter 'amount' must be at least 0 (it is -1)"]
    """
    if not isinstance(said, Mapping):
        yield _reason("parameters", said, "a mapping", f"Parameters must be a mapping (it is {shown(said)})")
        return
    for name in said:
        if name not in schema:
            known = ", ".join(schema) or "none"
            yield _reason(name, said[name], known, f"Parameter {name!r} is unknown (there are: {known})")
    for name, parameter in schema.items():
        value = said.get(name, MISSING)
        if value is MISSING:
            if parameter.required:
                yield _reason(name, MISSING, parameter.type, f"Parameter {name!r} is missing")
            continue
        required = objection(parameter, value)
        if required is not None:
            text = f"Parameter {name!r} must be {required} (it is {shown(value)})"
            yield _reason(name, value, required, text)


def objection(parameter: Parameter, value: Any) -> str | None:
    """What a value would have to be and is not."""
    if not isinstance(value, _TYPES[parameter.type]) or (
        isinstance(value, bool) and parameter.type != "boolean"
    ):
        return f"a {parameter.type}" if parameter.type != "integer" else "an integer"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if parameter.enum and value not in parameter.enum:
        return "one of " + ", ".join(map(repr, parameter.enum))
    size: Any = len(value) if isinstance(value, str | list | tuple) else value
    if parameter.min is not None and size < parameter.min:
        return f"at least {parameter.min:g}{_unit(value)}"
    if parameter.max is not None and size > parameter.max:
        return f"at most {parameter.max:g}{_unit(value)}"
    return None


def _unit(value: Any) -> str:
    return " characters long" if isinstance(value, str) else " items long" if isinstance(value, list) else ""


def _reason(name: str, observed: Any, required: str, message: str) -> Reason:
    return Reason("parameter", name, observed, required, message)
