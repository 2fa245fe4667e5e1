"""A charter file's text → definitions and roles, with everything that is wrong with it and the lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from vademecum.governance import yaml_tree as yt
from vademecum.governance.model import EVERYBODY, MAX_CONDITIONS, Kind, Parameter, SkillDefinition
from vademecum.governance.parameters import objection
from vademecum.governance.roles import Role
from vademecum.governance.rules import conditions_of, constraints_of
from vademecum.skill.skill import Problem, Severity

TOP_KEYS = ("skills", "default_skill", "compat", "roles")
SKILL_KEYS = (
    "skill_id",
    "description",
    "eligible_agent_types",
    "preconditions",
    "institutional_constraints",
    "allowed_state_changes",
    "implementation_mapping",
    "output_schema",
    "conflicts_with",
    "depends_on",
)
REQUIRED = ("skill_id", "eligible_agent_types", "implementation_mapping")
ROLE_KEYS = ("skills", "reads", "writes")
PARAMETER_KEYS = ("type", "min", "max", "enum", "required")


@dataclass(frozen=True, slots=True)
class Placed:
    """A definition, and the line of each of its keys; ``preconditions[0]`` has one of its own."""

    definition: SkillDefinition
    lines: dict[str, int]

    def line(self, key: str) -> int:
        """The line of a key, or of the definition where the key is not there."""
        return self.lines.get(key, self.lines["skill_id"])


@dataclass(slots=True)
class Draft:
    """What a file says, as far as it could be read, and what is wrong with it."""

    skills: list[Placed] = field(default_factory=list)
    default_skill: str | None = None
    default_line: int = 1
    compat: bool = False
    roles: dict[str, Role] | None = None
    role_lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, code: str, message: str, line: int, *, severity: Severity = "error") -> None:
        """Note a problem."""
        self.problems.append(Problem(code=code, severity=severity, message=message, line=line))


def read_draft(text: str) -> Draft:
    r"""Read a charter file.

    >>> draft = read_draft("skills:\n  - skill_id: rest\n    costs: 5\n")
    >>> [(problem.line, problem.code) for problem in draft.problems]
    [(3, 'unknown-key'), (2, 'missing-key'), (2, 'missing-key')]
    """
    draft = Draft()
    tree = yt.read_tree(text)
    draft.problems += tree.problems
    if isinstance(tree.root, yt.Mapping):
        _read_top(tree.root, draft)
    elif not tree.problems:
        draft.wrong("not-a-mapping", "A charter is a mapping: begin it with skills:", 1)
    return draft


def read_definition(text: str) -> tuple[Placed | None, list[Problem]]:
    """Read a file with one definition, as a skill directory has it in ``governance.yaml``."""
    draft = Draft()
    tree = yt.read_tree(text)
    draft.problems += tree.problems
    if isinstance(tree.root, yt.Mapping):
        _read_skill(tree.root, draft)
    elif not tree.problems:
        draft.wrong("not-a-mapping", "governance.yaml is a mapping: begin it with skill_id:", 1)
    return (draft.skills[0] if draft.skills else None), draft.problems


def _read_top(root: yt.Mapping, draft: Draft) -> None:
    _known(root, TOP_KEYS, draft)
    for entry in root.entries:
        match entry.key:
            case "skills":
                if isinstance(entry.value, yt.Sequence) and not entry.value.items:
                    draft.wrong("value", "skills is empty: a charter has at least one skill.", entry.line)
                for item in _list(entry, draft):
                    if isinstance(item, yt.Mapping):
                        _read_skill(item, draft)
                    else:
                        draft.wrong(
                            "value", "A skill is a mapping: write - skill_id: and its keys.", item.line
                        )
            case "default_skill":
                draft.default_skill, draft.default_line = _text(entry, draft), entry.line
            case "compat":
                draft.compat = _boolean(entry, draft)
            case "roles":
                draft.roles = dict(_roles(entry, draft))
    if root.get("skills") is None:
        draft.wrong(
            "missing-key", "The key 'skills' is missing: a charter has at least one skill.", root.line
        )


def _read_skill(node: yt.Mapping, draft: Draft) -> None:
    _known(node, SKILL_KEYS, draft)
    lines = {entry.key: entry.line for entry in node.entries}
    lines.setdefault("skill_id", node.line)
    for key in REQUIRED:
        if node.get(key) is None:
            hint = f': write {key}: ["*"] for everybody' if key == "eligible_agent_types" else ""
            draft.wrong("missing-key", f"The key {key!r} is missing{hint}.", node.line)
    values: dict[str, Any] = {"skill_id": "", "eligible_agent_types": (EVERYBODY,)}
    for entry in node.entries:
        match entry.key:
            case "skill_id" | "description" | "implementation_mapping":
                values[entry.key] = _text(entry, draft)
            case "institutional_constraints":
                values[entry.key] = _plain_mapping(entry, draft, lines)
            case "output_schema":
                values[entry.key] = dict(_schema(entry, draft))
            case key if key in SKILL_KEYS:
                values[key] = tuple(_texts(entry, draft, lines))
    placed = Placed(SkillDefinition(**values), lines)
    _check_words(placed, draft)
    if values["skill_id"]:
        draft.skills.append(placed)


def _check_words(placed: Placed, draft: Draft) -> None:
    """Conditions and constraints are read to the end here, so that their problems have lines."""

    def note(key: str, code: str, text: str) -> None:
        draft.wrong(code, text, placed.line(key))

    conditions_of(placed.definition, note)
    constraints_of(placed.definition.institutional_constraints, note)
    if len(placed.definition.preconditions) > MAX_CONDITIONS:
        draft.wrong(
            "value",
            f"There are more than {MAX_CONDITIONS} preconditions: join some with and.",
            placed.line("preconditions"),
        )


def _schema(entry: yt.Entry, draft: Draft) -> Iterator[tuple[str, Parameter]]:
    for parameter in _mapping(entry, draft):
        if not isinstance(parameter.value, yt.Mapping):
            draft.wrong(
                "value",
                f"The parameter {parameter.key!r} is a mapping: write type: below it.",
                parameter.line,
            )
            continue
        _known(parameter.value, PARAMETER_KEYS, draft)
        yield parameter.key, _parameter(parameter.value, draft)


def _parameter(node: yt.Mapping, draft: Draft) -> Parameter:
    values: dict[str, Any] = {}
    for entry in node.entries:
        match entry.key:
            case "type":
                values["type"] = _choice(entry, draft, get_args(Kind))
            case "min" | "max":
                values[entry.key] = _number(entry, draft)
            case "required":
                values["required"] = _boolean(entry, draft)
            case "enum":
                values["enum"] = tuple(_choices(entry, draft))
    if node.get("type") is None:
        text = f"The key 'type' is missing: write one of {', '.join(get_args(Kind))}."
        draft.wrong("missing-key", text, node.line)
        return Parameter(**values)
    found = Parameter(**values)
    if found.min is not None and found.max is not None and found.min > found.max:
        draft.wrong(
            "contradiction", f"min {found.min:g} is more than max {found.max:g}: nothing fits.", node.line
        )
    for choice in found.enum:
        required = objection(replace(found, enum=()), choice)
        if required is not None:
            text = f"enum has {choice!r}, which must be {required}: nobody could ever say it."
            draft.wrong("contradiction", text, node.line)
    return found


def _choices(entry: yt.Entry, draft: Draft) -> Iterator[Any]:
    items = _list(entry, draft)
    if not items and isinstance(entry.value, yt.Sequence):
        draft.wrong("value", "enum is empty: write what may be said, or leave it out.", entry.line)
    for item in items:
        if isinstance(item, yt.Scalar) and item.value is not None:
            yield item.value
        else:
            draft.wrong("value", "enum is a list of texts and numbers: this is none.", item.line)


def _roles(entry: yt.Entry, draft: Draft) -> Iterator[tuple[str, Role]]:
    for role in _mapping(entry, draft):
        draft.role_lines[role.key] = role.line
        if not isinstance(role.value, yt.Mapping):
            draft.wrong(
                "value",
                f"The role {role.key!r} is a mapping: write skills, reads, writes below it.",
                role.line,
            )
            continue
        _known(role.value, ROLE_KEYS, draft)
        lists: dict[str, tuple[str, ...]] = {}
        for key in role.value.entries:
            if key.key in ROLE_KEYS:
                lines: dict[str, int] = {}
                lists[key.key] = tuple(_texts(key, draft, lines))
                draft.role_lines |= {f"{role.key}.{name}": line for name, line in lines.items()}
        yield role.key, Role(**lists)


def _known(node: yt.Mapping, keys: tuple[str, ...], draft: Draft) -> None:
    for entry in node.entries:
        if entry.key not in keys:
            text = f"There is no key {entry.key!r} here: there are {', '.join(keys)}."
            draft.wrong("unknown-key", text, entry.line)


def _text(entry: yt.Entry, draft: Draft) -> str:
    if (
        isinstance(entry.value, yt.Scalar)
        and isinstance(entry.value.value, str)
        and entry.value.value.strip()
    ):
        return entry.value.value
    if isinstance(entry.value, yt.Scalar) and isinstance(entry.value.value, int | float):
        return entry.value.written
    draft.wrong("value", f"{entry.key} is not a text: write one.", entry.line)
    return ""


def _texts(entry: yt.Entry, draft: Draft, lines: dict[str, int]) -> Iterator[str]:
    for number, item in enumerate(_list(entry, draft)):
        lines[f"{entry.key}[{number}]"] = item.line
        if isinstance(item, yt.Scalar) and item.value is not None:
            yield item.written
        else:
            draft.wrong("value", f"{entry.key} is a list of texts: this is none.", item.line)


def _list(entry: yt.Entry, draft: Draft) -> tuple[yt.Node, ...]:
    if isinstance(entry.value, yt.Sequence):
        return entry.value.items
    draft.wrong("value", f"{entry.key} is not a list: write each of its values after a dash.", entry.line)
    return ()


def _mapping(entry: yt.Entry, draft: Draft) -> tuple[yt.Entry, ...]:
    if isinstance(entry.value, yt.Mapping):
        return entry.value.entries
    draft.wrong("value", f"{entry.key} is not a mapping: write keys with values below it.", entry.line)
    return ()


def _plain_mapping(entry: yt.Entry, draft: Draft, lines: dict[str, int]) -> dict[str, Any]:
    """Constraints as they are written: numbers, texts, and one mapping of numbers."""
    found: dict[str, Any] = {}
    for each in _mapping(entry, draft):
        lines[each.key] = each.line
        match each.value:
            case yt.Scalar(value=value):
                found[each.key] = value
            case yt.Mapping(entries=entries):
                lines |= {item.key: item.line for item in entries}
                found[each.key] = dict(_plain_values(entries, draft))
            case yt.Sequence():
                draft.wrong("value", f"{each.key} is a list: write one value.", each.line)
    return found


def _plain_values(entries: tuple[yt.Entry, ...], draft: Draft) -> Iterator[tuple[str, Any]]:
    for entry in entries:
        if isinstance(entry.value, yt.Scalar):
            yield entry.key, entry.value.value
        else:
            draft.wrong("value", f"{entry.key} is a list or a mapping: write one value.", entry.line)


def _boolean(entry: yt.Entry, draft: Draft) -> bool:
    if isinstance(entry.value, yt.Scalar) and isinstance(entry.value.value, bool):
        return entry.value.value
    draft.wrong("value", f"{entry.key} is neither true nor false: write one of them.", entry.line)
    return False


def _number(entry: yt.Entry, draft: Draft) -> float | None:
    value = entry.value.value if isinstance(entry.value, yt.Scalar) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    draft.wrong("value", f"{entry.key} is not a number: write one.", entry.line)
    return None


def _choice(entry: yt.Entry, draft: Draft, choices: tuple[str, ...]) -> str:
    value = entry.value.value if isinstance(entry.value, yt.Scalar) else None
    if isinstance(value, str) and value in choices:
        return value
    draft.wrong("value", f"{entry.key} is {value!r}: write one of {', '.join(choices)}.", entry.line)
    return choices[0]
