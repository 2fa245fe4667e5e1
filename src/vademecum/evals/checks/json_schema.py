"""A JSON schema of a case: nothing is fetched for it, and its patterns take time linear in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vademecum.errors import CaseRefused, ConfigError
from vademecum.evals.checks.constraints import regular

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def check_schema(schema: Any) -> None:
    """Refuse a schema that cannot be used as it is; needs nothing that is not here.

    >>> check_schema({"$ref": "https://example.com/x.json"})
    Traceback (most recent call last):
    ...
    ValueError: 'https://example.com/x.json' is outside the schema, and nothing is fetched: copy it in
    """
    has_patterns = unevaluated = False
    for key, value in _pairs(schema):
        if key in _REFERENCES and not (isinstance(value, str) and value.startswith("#")):
            raise ValueError(f"{value!r} is outside the schema, and nothing is fetched: copy it in")
        if key == "pattern" and isinstance(value, str):
            regular(value)
        if key == "patternProperties" and isinstance(value, Mapping):
            has_patterns = True
            for pattern in value:
                regular(str(pattern))
        unevaluated = unevaluated or key == "unevaluatedProperties"
    if has_patterns and unevaluated:
        raise ValueError("patternProperties together with unevaluatedProperties is not read here: use one")
    _check_by_library(schema)


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of every object, wherever it is; a key that looks like a keyword is one."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            yield from found.items()
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def _check_by_library(schema: Any) -> None:
    try:
        import jsonschema  # noqa: PLC0415 - an extra, and only where a case asks for it
    except ImportError:
        return  # the check itself will say so
    try:
        _validator(jsonschema, schema).check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError) as error:
        raise ValueError(f"the schema itself is wrong: {getattr(error, 'message', error)}") from error


def against(schema: dict[str, Any], value: Any) -> str:
    """Return the problems of a value according to a schema; empty if it is valid."""
    try:
        import jsonschema  # noqa: PLC0415
        import referencing  # noqa: PLC0415
    except ImportError as error:
        advice = "pip install 'vademecum[evals]'"
        raise ConfigError(f"Checking a JSON schema needs a package that is not here: {advice}.") from error
    linear = jsonschema.validators.extend(_validator(jsonschema, schema), _LINEAR)
    try:
        first = next(iter(linear(schema, registry=referencing.Registry()).iter_errors(value)), None)
    except (referencing.exceptions.Unresolvable, RecursionError) as error:
        raise CaseRefused(f"The schema of a JSON check cannot be followed ({error}): correct it.") from error
    if first is None:
        return ""
    where = ".".join(map(str, first.absolute_path))
    return f"{where or 'the value'}: {first.message}"


def _validator(jsonschema: Any, schema: Any) -> Any:
    """Return a validator for the draft that a schema names, or for the latest if it is unknown."""
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


def _pattern(_: Any, pattern: str, found: Any, __: Any) -> Iterator[Any]:
    from jsonschema import ValidationError  # noqa: PLC0415

    if isinstance(found, str) and not regular(pattern).search(found):
        yield ValidationError(f"{found!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, wanted: Any, found: Any, _: Any) -> Iterator[Any]:
    if not isinstance(found, Mapping):
        return
    for pattern, below in wanted.items():
        for key, value in found.items():
            if regular(pattern).search(key):
                yield from validator.descend(value, below, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, found: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError  # noqa: PLC0415

    if not isinstance(found, Mapping):
        return
    tests = [regular(pattern) for pattern in schema.get("patternProperties", {})]
    known = schema.get("properties", {})
    extra = [key for key in found if key not in known and not any(test.search(key) for test in tests)]
    if isinstance(wanted, Mapping):
        for key in extra:
            yield from validator.descend(found[key], wanted, path=key)
    elif wanted is False and extra:
        yield ValidationError(f"additional properties are not allowed: {', '.join(map(repr, extra))}")


_LINEAR = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
