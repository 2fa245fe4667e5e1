"""A JSON schema of a case: nothing is fetched for it, and its patterns take time linear in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vademecum.errors import CaseRefused, ConfigError
from vademecum.evals.checks.patterns import regular

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def check_schema(schema: Any) -> None:
    """Refuse a schema that cannot be used as it is; needs nothing that is not here.

    >>> check_schema({"$ref": "https://example.com/x.json"})
    Traceback (most recent call last):
    ...
    ValueError: 'https://example.com/x.json' is outside the schema, and nothing is fetched: copy it in
    """
    for key, value in _pairs(schema):
        if key in _REFERENCES and not (isinstance(value, str) and value.startswith("#")):
            raise ValueError(f"{value!r} is outside the schema, and nothing is fetched: copy it in")
        if key == "pattern" and isinstance(value, str):
            regular(value)
        if key == "patternProperties":
            raise ValueError("patternProperties is not read here: name the properties")
    try:
        import jsonschema  # noqa: PLC0415 - an extra, and only where a case asks for it
    except ImportError:
        return  # the check itself will say so
    try:
        _validator(jsonschema, schema).check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError) as error:
        raise ValueError(f"the schema itself is wrong: {getattr(error, 'message', error)}") from error


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


def against(schema: dict[str, Any], value: Any) -> str:
    """Return the problems of a value according to a schema; empty if it is valid."""
    try:
        import jsonschema  # noqa: PLC0415
        import referencing  # noqa: PLC0415
    except ImportError as error:
        advice = "pip install 'vademecum[evals]'"
        raise ConfigError(f"Checking a JSON schema needs a package that is not here: {advice}.") from error
    linear = jsonschema.validators.extend(_validator(jsonschema, schema), {"pattern": _pattern})
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
