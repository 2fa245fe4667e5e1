"""Read a charter file's text into definitions and roles, with every problem and its line.

The YAML becomes plain data, and a table of the line of every path, such as ``skills[0].preconditions[1]``.
Anchors, aliases and tags are refused; depth and size are capped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, get_args

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

from vademecum.governance.definitions import EVERYBODY, Kind, Parameter, SkillDefinition
from vademecum.governance.roles import Role
from vademecum.governance.rules.typed import CONSTRAINTS, conditions_of, constraints_of, misspelled, objection
from vademecum.skill.skill import Problem, Severity

MAX_DEPTH = 16
MAX_NODES = 2_000_000
TOP_KEYS = ("skills", "default_skill", "strict", "roles")
TEXTS = ("skill_id", "description", "implementation_mapping")
LISTS = ("eligible_agent_types", "preconditions", "allowed_state_changes")
SKILL_KEYS = (*TEXTS, *LISTS, "institutional_constraints", "output_schema")
ROLE_KEYS = ("skills", "reads", "writes")
PARAMETER_KEYS = ("type", "min", "max", "enum", "required")

# A PyYAML without LibYAML is slower and gives the same nodes.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?"
)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True, slots=True)
class Placed:
    """A definition, and where it is: ``skills[0]``."""

    definition: SkillDefinition
    place: str


@dataclass(slots=True)
class Draft:
    """The content of a charter file, as far as it could be read, with the line of every path."""

    skills: list[Placed] = field(default_factory=list)
    default_skill: str | None = None
    strict: bool = False
    roles: dict[str, Role] | None = None
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # numbers and booleans as they are written

    def wrong(self, code: str, message: str, place: str, *, severity: Severity = "error") -> None:
        """Add a problem at a path; what is not in the file has the line of what should contain it."""
        while place not in self.lines and place:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        line = self.lines.get(place, 1)
        self.problems.append(Problem(code=code, severity=severity, message=message, line=line))


def read_draft(text: str) -> Draft:
    r"""Read a charter file.

    >>> draft = read_draft("skills:\n  - skill_id: rest\n    season: dry\n")
    >>> [(problem.line, problem.code, problem.severity) for problem in draft.problems][:2]
    [(3, 'unknown-key', 'warning'), (2, 'missing-key', 'warning')]
    """
    draft = Draft()
    try:
        _refuse(text, draft)
        document = None if draft.problems else _plain(yaml.compose(text, Loader=_Loader), "", draft)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        draft.lines[""] = mark.line + 1 if mark is not None else 1
        draft.wrong("invalid-yaml", f"This is not YAML: {error.problem}. Correct this line.", "")
        return draft
    except (yaml.YAMLError, UnicodeError):
        text = "This is not YAML: it contains a character that is not allowed. Remove it."
        draft.wrong("invalid-yaml", text, "")
        return draft
    if isinstance(document, dict):
        _read_top(document, draft)
    elif not draft.problems:
        draft.wrong("not-a-mapping", "A charter is a mapping: begin it with skills:", "")
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
            draft.wrong("invalid-yaml", "Anchors, aliases and tags are not used: write the value itself.", "")


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
                text = f"The key {name!r} is there twice: remove one of them."
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


def _read_top(document: dict[str, Any], draft: Draft) -> None:
    for key, value in document.items():
        match key:
            case "skills":
                _read_skills(value, draft)
            case "default_skill":
                draft.default_skill = _text(value, key, draft)
            case "strict":
                draft.strict = _is_a(bool, value, key, draft, "true or false") or False
            case "roles":
                draft.roles = dict(_roles(value, draft))
            case _:
                _unknown(key, key, TOP_KEYS, draft)
    if "skills" not in document:
        draft.wrong("missing-key", "The key 'skills' is missing: a charter has at least one skill.", "")


def _read_skills(written: Any, draft: Draft) -> None:
    if written == []:
        draft.wrong("value", "skills is empty: a charter has at least one skill.", "skills")
    for number, skill in enumerate(_list(written, "skills", draft)):
        place = f"skills[{number}]"
        if isinstance(skill, dict):
            _read_skill(skill, place, draft)
        else:
            draft.wrong("value", "A skill is a mapping: write - skill_id: and its keys.", place)


def _read_skill(written: dict[str, Any], place: str, draft: Draft) -> None:
    values: dict[str, Any] = {"skill_id": "", "eligible_agent_types": (EVERYBODY,)}
    extra: dict[str, Any] = {}
    for key, value in written.items():
        inner = f"{place}.{key}"
        if key in TEXTS:
            values[key] = _text(value, inner, draft)
        elif key in LISTS:
            listed = tuple(_texts(value, inner, draft))
            values |= {key: listed} if isinstance(value, list) else {}
        elif key == "institutional_constraints":
            values[key] = _constraints(value, inner, draft)
        elif key == "output_schema" and _is_json_schema(value):
            text = "output_schema is a JSON Schema and is kept aside: write NAME: {type, min, max, enum}."
            draft.wrong("unknown-key", text, inner, severity="warning")
            extra["json_schema"] = value
        elif key == "output_schema":
            values[key] = dict(_schema(value, inner, draft))
        else:
            _unknown(key, inner, (*SKILL_KEYS, *CONSTRAINTS), draft)
            extra[key] = value
    _missing(written, values, place, draft)
    found = SkillDefinition(**values, extra=extra)
    constraints = f"{place}.institutional_constraints"
    # Conditions and constraints are parsed here, so that their problems have lines.
    conditions_of(found, lambda key, code, text: draft.wrong(code, text, f"{place}.{key}"))
    constraints_of(
        found.institutional_constraints,
        lambda key, code, text: draft.wrong(code, text, f"{constraints}.{key}"),
    )
    if found.skill_id:
        draft.skills.append(Placed(found, place))


def _missing(written: dict[str, Any], values: dict[str, Any], place: str, draft: Draft) -> None:
    """Note required keys that are missing; without a mapping the engine is asked for the skill's id."""
    if "implementation_mapping" not in written:
        name = values["implementation_mapping"] = values["skill_id"]
        text = f"implementation_mapping is missing: the engine is asked for {name!r}."
        draft.wrong("missing-key", text, place, severity="warning")
    if "skill_id" not in written:
        draft.wrong("missing-key", "The key 'skill_id' is missing.", place)
    if "eligible_agent_types" not in written:
        text = "The key 'eligible_agent_types' is missing: write eligible_agent_types: [\"*\"] for everybody."
        draft.wrong("missing-key", text, place)


def _unknown(key: str, place: str, known: Iterable[str], draft: Draft) -> None:
    """Refuse a misspelled key; keep any other unknown key aside, with a remark."""
    if key in CONSTRAINTS:
        draft.wrong("unknown-key", f"{key} belongs under institutional_constraints: move it.", place)
    elif near := misspelled(key, known):
        draft.wrong("unknown-key", f"There is no key {key!r}: did you mean {near!r}?", place)
    else:
        text = f"The key {key!r} is not known: it is kept aside and enforces nothing."
        draft.wrong("unknown-key", text, place, severity="warning")


def _constraints(written: Any, place: str, draft: Draft) -> dict[str, Any]:
    found = {}
    for key, value in _mapping(written, place, draft).items():
        if key not in CONSTRAINTS:
            _unknown(key, f"{place}.{key}", CONSTRAINTS, draft)
        elif isinstance(value, list | dict):
            draft.wrong("value", f"{key} is a list or a mapping: write one value.", f"{place}.{key}")
            continue
        found[key] = value
    return found


def _is_json_schema(written: Any) -> bool:
    return isinstance(written, dict) and (
        "properties" in written or ("type" in written and not isinstance(written["type"], dict | list))
    )


def _schema(written: Any, place: str, draft: Draft) -> Iterator[tuple[str, Parameter]]:
    for name, value in _mapping(written, place, draft).items():
        inner = f"{place}.{name}"
        if isinstance(value, dict):
            yield name, _parameter(value, inner, draft)
        else:
            draft.wrong("value", f"The parameter {name!r} is a mapping: write type: below it.", inner)


def _parameter(written: dict[str, Any], place: str, draft: Draft) -> Parameter:
    values: dict[str, Any] = {}
    for key, value in written.items():
        inner = f"{place}.{key}"
        match key:
            case "type":
                known = ", ".join(get_args(Kind))
                values["type"] = value if value in get_args(Kind) else "string"
                if value not in get_args(Kind):
                    draft.wrong("value", f"type is {value!r}: write one of {known}.", inner)
            case "min" | "max":
                values[key] = _is_a(int | float, value, inner, draft, "a number")
            case "required":
                values[key] = _is_a(bool, value, inner, draft, "true or false") or False
            case "enum":
                values[key] = tuple(_choices(value, inner, draft))
            case _:
                _unknown(key, inner, PARAMETER_KEYS, draft)
    found = Parameter(**values)
    if "type" not in values:
        text = f"The key 'type' is missing: write one of {', '.join(get_args(Kind))}."
        draft.wrong("missing-key", text, place)
        return found
    if found.min is not None and found.max is not None and found.min > found.max:
        text = f"min {found.min:g} is more than max {found.max:g}: nothing fits."
        draft.wrong("contradiction", text, place)
    for choice in found.enum:
        if (required := objection(replace(found, enum=()), choice)) is not None:
            text = f"enum has {choice!r}, which must be {required}: no intent could say it."
            draft.wrong("contradiction", text, place)
    return found


def _choices(written: Any, place: str, draft: Draft) -> Iterator[Any]:
    if written == []:
        draft.wrong("value", "enum is empty: write the choices, or leave it out.", place)
    for number, value in enumerate(_list(written, place, draft)):
        if value is None or isinstance(value, list | dict):
            text = "enum is a list of texts and numbers: this is neither."
            draft.wrong("value", text, f"{place}[{number}]")
        else:
            yield value


def _roles(written: Any, draft: Draft) -> Iterator[tuple[str, Role]]:
    for name, role in _mapping(written, "roles", draft).items():
        place = f"roles.{name}"
        if not isinstance(role, dict):
            text = f"The role {name!r} is a mapping: write skills, reads, writes below it."
            draft.wrong("value", text, place)
            continue
        lists: dict[str, tuple[str, ...]] = {}
        for key, value in role.items():
            if key in ROLE_KEYS:
                lists[key] = tuple(_texts(value, f"{place}.{key}", draft))
            else:
                _unknown(key, f"{place}.{key}", ROLE_KEYS, draft)
        yield name, Role(**lists)


def _name_of(place: str) -> str:
    return place.rpartition(".")[2]


def _text(value: Any, place: str, draft: Draft) -> str:
    if isinstance(value, str | int | float) and str(value).strip():
        return draft.words.get(place, str(value))
    draft.wrong("value", f"{_name_of(place)} is not a text: write one.", place)
    return ""


def _texts(written: Any, place: str, draft: Draft) -> Iterator[str]:
    for number, value in enumerate(_list(written, place, draft)):
        if isinstance(value, str | int | float):
            yield draft.words.get(f"{place}[{number}]", str(value))
        else:
            text = f"{_name_of(place)} is a list of texts: this is not a text."
            draft.wrong("value", text, f"{place}[{number}]")


def _list(written: Any, place: str, draft: Draft) -> list[Any]:
    if isinstance(written, list):
        return written
    text = f"{_name_of(place)} is not a list: write each of its values after a dash."
    draft.wrong("value", text, place)
    return []


def _mapping(written: Any, place: str, draft: Draft) -> dict[str, Any]:
    if isinstance(written, dict):
        return written
    text = f"{_name_of(place)} is not a mapping: write keys with values below it."
    draft.wrong("value", text, place)
    return {}


def _is_a(kind: Any, value: Any, place: str, draft: Draft, what: str) -> Any:
    """Return a value of a kind, or note that it is not one."""
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    draft.wrong("value", f"{_name_of(place)} is not {what}: write {what}.", place)
    return None
