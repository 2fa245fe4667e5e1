"""Read a charter file into definitions and roles, and find every problem, with its line.

The YAML becomes plain data, and a table with the line of every path, such as ``skills[0].preconditions[1]``.
Anchors, aliases and tags are refused; depth and size are capped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

from vademecum.governance.check import CONSTRAINTS, LIKE, SkillCheck
from vademecum.governance.conditions import strict_differs
from vademecum.governance.definitions import EVERYBODY, KINDS, Parameter, SkillDefinition
from vademecum.governance.roles import UNRESTRICTED, Role, RoleEnforcer
from vademecum.nearest import nearest
from vademecum.skill.skill import Problem, Severity
from vademecum.wildcards import matches_exactly

# Takes a value, its place and the draft; returns the value to keep.
_Read = Callable[[Any, str, "Draft"], Any]
MAX_DEPTH = 16
MAX_NODES = 2_000_000
MAX_SHOWN = 12
_WRONG: Any = object()  # a value that was noted as wrong

# A PyYAML without LibYAML is slower and gives the same nodes.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?"
)
SCRIPT = re.compile(r"skill:(?P<skill>[^/\s]+)/(?P<script>scripts/\S.*)")
TOOL = re.compile(r"tool:(?P<tool>\w+)")
FUNCTION = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(slots=True)
class Draft:
    """The readable content of a charter file, with the line of every path."""

    skills: dict[str, SkillCheck] = field(default_factory=dict)  # by their places: ``skills[0]``
    default_skill: str | None = None
    strict: bool = False
    roles: dict[str, Role] | None = None
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # numbers and booleans as the file spells them

    def wrong(self, code: str, message: str, place: str, *, severity: Severity = "error") -> None:
        """Add a problem at a path; a path that is not in the file gets the line of its parent."""
        while place not in self.lines and place:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        line = self.lines.get(place, 1)
        self.problems.append(Problem(code=code, severity=severity, message=message, line=line))


def read_draft(text: str) -> Draft:
    r"""Read a charter file, and find every problem in it.

    >>> draft = read_draft("skills:\n  - skill_id: rest\n    season: dry\n")
    >>> [(problem.line, problem.code) for problem in draft.problems]
    [(2, 'missing-key'), (2, 'missing-key'), (3, 'unknown-key')]
    """
    draft, document = Draft(), None
    try:
        _refuse(text, draft)
        if not draft.problems:
            document = _plain(yaml.compose(text, Loader=_Loader), "", draft)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        draft.lines[""] = mark.line + 1 if mark is not None else 1
        draft.wrong("invalid-yaml", f"This is not YAML: {error.problem}. Correct this line.", "")
    except (yaml.YAMLError, UnicodeError):
        text = "This is not YAML: it contains a character that is not allowed. Remove it."
        draft.wrong("invalid-yaml", text, "")
    if isinstance(document, dict):
        values, _ = _keys(document, "", draft, _TOP)
        draft.default_skill, draft.strict = values.get("default_skill"), values.get("strict", False)
        draft.roles = values.get("roles")
        if "skills" not in document:
            draft.wrong("missing-key", "The key 'skills' is missing: a charter has at least one skill.", "")
    elif not draft.problems:
        draft.wrong("not-a-mapping", "A charter is a mapping: begin it with skills:", "")
    _lint(draft)
    return draft


def _refuse(text: str, draft: Draft) -> None:
    """Note each anchor, alias and tag; raise if the text is too deep or too large."""
    depth, left = 0, MAX_NODES
    events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        left -= isinstance(event, NodeEvent)
        if depth > MAX_DEPTH or left < 0:
            raise yaml.MarkedYAMLError(problem="it is too deep or too large", problem_mark=event.start_mark)
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            draft.lines[""] = event.start_mark.line + 1
            draft.wrong("invalid-yaml", "Anchors, aliases and tags are not allowed: write the value.", "")


def _plain(node: Any, place: str, draft: Draft) -> Any:
    """Return a node as plain data, and note the line of everything in it."""
    if node is None:
        return None
    draft.lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            inner = f"{place}.{name}" if place else name
            draft.lines[inner] = key.start_mark.line + 1
            if name in found:
                text = f"The key {name!r} occurs twice: remove one of them."
                draft.wrong("duplicate-key", text, inner)
            found[name] = _plain(value, inner, draft)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, f"{place}[{number}]", draft) for number, item in enumerate(node.value)]
    value = node.value if node.style else _typed(node.value)
    if not isinstance(value, str):
        draft.words[place] = node.value
    return value


def _typed(text: str) -> str | int | float | bool | None:
    """Return the value of a word without quotes; ``08`` and numbers that are too large are texts.

    >>> _typed("8"), _typed("1e3"), _typed("08"), _typed("True"), _typed("1e999")
    (8, 1000.0, '08', True, '1e999')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and isfinite(float(text)) else text


def _keys(
    written: Any, place: str, draft: Draft, known: Mapping[str, _Read], other: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the valid values of known keys, and the unknown keys with their values.

    A misspelled key is an error; ``other`` are keys that belong elsewhere.
    """
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in _mapping(written, place, draft).items():
        inner = f"{place}.{key}" if place else key
        if key in known:
            found = known[key](value, inner, draft)
            values |= {} if found is _WRONG else {key: found}
            continue
        extra[key] = value
        if key in other:
            draft.wrong("unknown-key", f"{key} belongs under institutional_constraints: move it.", inner)
        elif near := nearest(key, (*known, *other), like=LIKE):
            draft.wrong("unknown-key", f"There is no key {key!r}: did you mean {near!r}?", inner)
        else:
            text = f"The key {key!r} is not known: it is kept and has no effect."
            draft.wrong("unknown-key", text, inner, severity="warning")
    return values, extra


def _skill(written: Any, place: str, draft: Draft) -> None:
    extra: dict[str, Any] = {}
    schema = written.get("output_schema") if isinstance(written, dict) else None
    if isinstance(schema, dict) and ("properties" in schema or isinstance(schema.get("type"), str)):
        text = "output_schema is a JSON Schema and has no effect: write NAME: {type, min, max, enum}."
        draft.wrong("unknown-key", text, f"{place}.output_schema", severity="warning")
        extra["json_schema"] = written.pop("output_schema")
    values, unknown = _keys(written, place, draft, _SKILL, CONSTRAINTS)
    if not isinstance(written, dict):
        return
    values = {"skill_id": "", "eligible_agent_types": (EVERYBODY,), **values}
    if "implementation_mapping" not in written:
        name = values["implementation_mapping"] = values["skill_id"]
        text = f"implementation_mapping is missing: the engine will run {name!r}."
        draft.wrong("missing-key", text, place, severity="warning")
    if "skill_id" not in written:
        draft.wrong("missing-key", "The key 'skill_id' is missing.", place)
    if "eligible_agent_types" not in written:
        text = "The key 'eligible_agent_types' is missing: write eligible_agent_types: [\"*\"] for all types."
        draft.wrong("missing-key", text, place)
    if not values["skill_id"]:
        return
    found = SkillDefinition(**values, extra=extra | unknown)
    mapping = found.implementation_mapping
    if mapping and not any(form.fullmatch(mapping) for form in (SCRIPT, TOOL, FUNCTION)):
        forms = "a function's name, skill:NAME/scripts/FILE or tool:NAME"
        text = f"implementation_mapping is {mapping!r}: write {forms}."
        draft.wrong("value", text, f"{place}.implementation_mapping")
    # Conditions and constraints are parsed here, so that their problems have lines.
    check = SkillCheck(found)
    for key, code, text in check.problems:
        draft.wrong(code, text, f"{place}.{key}")
    draft.skills[place] = check


def _constraints(written: Any, place: str, draft: Draft) -> dict[str, Any]:
    values, extra = _keys(written, place, draft, dict.fromkeys(CONSTRAINTS, _scalar))
    return values | extra


def _parameter(written: Any, place: str, draft: Draft) -> Parameter:
    values, _ = _keys(written, place, draft, _PARAMETER)
    if "type" not in values and isinstance(written, dict) and "type" not in written:
        text = f"The key 'type' is missing: write one of {', '.join(KINDS)}."
        draft.wrong("missing-key", text, place)
    return Parameter(**values)


def _list_of(read: _Read, *, empty: str = "") -> _Read:
    """Return a function that reads a list; ``empty`` is the problem of an empty list."""

    def read_all(written: Any, place: str, draft: Draft) -> Any:
        if not isinstance(written, list):
            return _wrong("is not a list: write each of its values after a dash", place, draft)
        if empty and not written:
            draft.wrong("value", empty, place)
        found = [read(value, f"{place}[{number}]", draft) for number, value in enumerate(written)]
        return [each for each in found if each is not _WRONG]

    return read_all


def _mapping_of(read: _Read) -> _Read:
    return lambda written, place, draft: {
        name: read(value, f"{place}.{name}", draft) for name, value in _mapping(written, place, draft).items()
    }


def _value(accepts: Callable[[Any], bool], otherwise: str) -> _Read:
    """Return a function that returns an accepted value, or notes the problem ``otherwise``."""
    return lambda value, place, draft: value if accepts(value) else _wrong(otherwise, place, draft)


def _text(value: Any, place: str, draft: Draft) -> Any:
    """Return a text, or a number or boolean as the file spells it."""
    if isinstance(value, str | int | float) and str(value).strip():
        return draft.words.get(place, str(value))
    return _wrong("is not a text: write one", place, draft)


def _kind(value: Any, place: str, draft: Draft) -> Any:
    return value if value in KINDS else _wrong(f"is {value!r}: write one of {', '.join(KINDS)}", place, draft)


def _mapping(written: Any, place: str, draft: Draft) -> dict[str, Any]:
    if not isinstance(written, dict):
        _wrong("is not a mapping: write keys with values below it", place, draft)
        return {}
    return written


def _wrong(what: str, place: str, draft: Draft) -> Any:
    draft.wrong("value", f"{place.rpartition('.')[2]} {what}.", place)
    return _WRONG


_texts = _list_of(_text)
_scalar = _value(lambda value: not isinstance(value, list | dict), "is a list or a mapping: write one value")
_flag = _value(lambda value: isinstance(value, bool), "is not true or false: write one")
_number = _value(lambda value: type(value) in {int, float}, "is not a number: write one")
_TOP: dict[str, _Read] = {
    "skills": _list_of(_skill, empty="skills is empty: a charter has at least one skill."),
    "default_skill": _text,
    "strict": _flag,
    "roles": _mapping_of(lambda written, place, draft: Role(**_keys(written, place, draft, _ROLE)[0])),
}
_SKILL: dict[str, _Read] = {
    "skill_id": _text,
    "description": _text,
    "eligible_agent_types": _texts,
    "preconditions": _texts,
    "institutional_constraints": _constraints,
    "allowed_state_changes": _texts,
    "implementation_mapping": _text,
    "output_schema": _mapping_of(_parameter),
}
_ROLE: dict[str, _Read] = dict.fromkeys(("skills", "reads", "writes"), _texts)
_PARAMETER: dict[str, _Read] = {
    "type": _kind,
    "min": _number,
    "max": _number,
    "enum": _list_of(_scalar, empty="enum is empty: write the choices, or leave it out."),
    "required": _flag,
}


def _lint(draft: Draft) -> None:
    """Add the problems that appear only when the parts of a draft are compared."""
    places: dict[str, str] = {}  # of the skills, by their ids
    for place, check in draft.skills.items():
        name = check.skill.skill_id
        first = places.setdefault(name, place)
        if first != place:
            line = draft.lines[f"{first}.skill_id"]
            text = f"The skill {name!r} exists already, on line {line}: choose another skill_id."
            draft.wrong("duplicate-id", text, f"{place}.skill_id")
    _references(places, draft)
    _reach(places, draft)
    _strictness(draft)
    draft.problems.sort(key=lambda problem: problem.line or 0)


def _references(skills: Mapping[str, str], draft: Draft) -> None:
    """Find names of skills that do not exist."""
    name = draft.default_skill
    if name is not None and name not in skills:
        text = f"default_skill names {name!r}, which is not a skill of this charter."
        draft.wrong("unknown-reference", text, "default_skill")
    for name, role in (draft.roles or {}).items():
        for number, pattern in enumerate(role.skills):
            if pattern not in skills and not any(matches_exactly(pattern, skill) for skill in skills):
                text = f"The role {name!r} names the skill {pattern!r}, which does not exist."
                draft.wrong("unknown-reference", text, f"roles.{name}.skills[{number}]")


def _reach(skills: Mapping[str, str], draft: Draft) -> None:
    """Find skills that no type can use, and types that can use no skill."""
    roles = UNRESTRICTED if draft.roles is None else RoleEnforcer(draft.roles)
    first: dict[str, str] = {}  # every type that the charter names, with its place
    eligible = defaultdict[str, list[str]](list)
    for name, skill in skills.items():
        for number, type_ in enumerate(draft.skills[skill].skill.eligible_agent_types):
            first.setdefault(type_, f"{skill}.eligible_agent_types[{number}]")
            eligible[type_].append(name)
    first |= {type_: f"roles.{type_}" for type_ in draft.roles or ()}
    used: set[str] = set()
    for type_, place in first.items():
        own = {name for name in eligible[type_] + eligible[EVERYBODY] if roles.check_skill(type_, name)}
        used |= own
        if not own and type_ != EVERYBODY and skills:
            text = f"The agent type {type_!r} has no feasible skill: give it one, such as doing nothing."
            draft.wrong("no-feasible-skill", text, place)
    for name in skills.keys() - used:
        text = f"No agent type can ever use {name!r}: no role that may propose it is eligible for it."
        draft.wrong("unreachable", text, f"{skills[name]}.skill_id")


def _strictness(draft: Draft) -> None:
    """Warn about conditions that ``strict: true`` could decide differently."""
    if draft.strict:
        return
    places = [
        f"{place}.preconditions[{number}]"
        for place, check in draft.skills.items()
        for number, condition in enumerate(check.conditions)
        if strict_differs(condition.tree)
    ]
    if places:
        lines = dict.fromkeys(str(draft.lines[place]) for place in places[:MAX_SHOWN])
        shown = ", ".join(lines) + (" …" if len(places) > MAX_SHOWN else "")
        text = f"strict: true could deny more if a field is missing or not a boolean: lines {shown}."
        draft.wrong("not-strict", text, places[0], severity="warning")
