"""Turn the events of a run into steps, and match steps, texts and values with the patterns of cases."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import re2
from msgspec import Struct, structs

from vademecum.nearest import there_is_no
from vademecum.policy.base import RISKS
from vademecum.runs.record import Event
from vademecum.wildcards import is_plain, matches_exactly

MAX_PATTERN_CHARS = 2000
_INDEX = re.compile(r"[0-9]{1,9}")

# The actions of a model, as its replies name them.
ACTIONS = frozenset({"select_skills", "load_resource", "run_script", "call_tool", "final_answer"})
# Also their effects, as cases name them, and all types of recorded events (docs/agent.md).
KINDS = ACTIONS | frozenset(
    (
        *("load_skill", "read_resource", "tool", "approval"),
        *("run_started", "run_finished", "child_started", "child_finished"),
        *("model_asked", "model_replied", "model_failed", "reply_wrong", "compacted"),
        *("action", "plan", "skill_loaded", "resource_loaded", "tool_called", "observation"),
        *("approval_asked", "approval_answered", "charter_asked"),
    )
)
# The names in the source designs.
_OTHER_KINDS = {"select_skill": "select_skills", "answer": "final_answer"}

# Kind, name, arguments and outcome of a step.
_Told = tuple[str, str, Mapping[str, Any], str]


class TakenStep(Struct, frozen=True):
    """One step of a run: its position, the number of its event, and its content.

    An action is a step when it is attempted, without an outcome, and again when its outcome is known. ``run``
    is the id of the child run that the step belongs to.
    """

    place: int
    event: int
    kind: str
    name: str
    arguments: Mapping[str, Any]
    outcome: str
    run: str


class Steps:
    """Turn the events of one run into steps, live or from a record.

    The answer of a child run and the loading of its skill are not steps: the parent's record has both. Each
    event is also a step, whose kind is the type of the event.
    """

    def __init__(self, run: str = "") -> None:
        self._run = run
        self._count = 0
        self._pending: list[_Told] = []

    def of(self, event: Event) -> Iterator[TakenStep]:
        """Yield the steps of one event."""
        for told in self._told(event):
            self._count += 1
            yield TakenStep(self._count, event.number, *told, self._run)

    def _told(self, event: Event) -> Iterator[_Told]:
        data = event.data
        match event.type:
            case "action":
                kind = str(data.get("action", ""))
                attempts = _attempts(kind, data.get("payload") or {})
                is_answer = self._run and kind == "final_answer"
                self._pending = [] if is_answer else [(kind, *each, "") for each in attempts]
                yield from self._pending
            case "observation":
                if not str(data.get("line", "")).partition("] ")[2].startswith("plan_update"):
                    code = str(data.get("code") or "ok")
                    yield from ((kind, name, arguments, code) for kind, name, arguments, _ in self._pending)
                    self._pending = []
            case "skill_loaded" | "child_started":
                if not self._run or data.get("origin") != "nested":
                    yield "load_skill", skill_of(data), data, "ok"
            case "resource_loaded":
                yield "read_resource", f"{skill_of(data)}/{data.get('path', '')}", data, "ok"
            case "tool_called":
                outcome = "ok" if data.get("ok") else str(data.get("code") or "failed")
                yield "tool", str(data.get("tool", "")), data.get("parameters") or {}, outcome
            case "approval_answered":
                verdict = str(data.get("verdict", ""))
                yield "approval", verdict, data, verdict
        yield event.type, str(data.get("wanted", "")) if event.type == "approval_asked" else "", data, ""


def skill_of(data: Mapping[str, Any]) -> str:
    """Return the name in an event's skill id, ``source:name@version``."""
    whole = str(data.get("skill", ""))
    return whole.partition(":")[2].partition("@")[0] or whole


def _attempts(kind: str, payload: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a name and arguments for each attempt of an action, such as each of several skills."""
    match kind:
        case "select_skills":
            return [(_named(named), payload) for named in payload.get("skills") or []]
        case "run_script" | "load_resource":
            return [(f"{_named(payload.get('skill'))}/{payload.get('relative_path', '')}", payload)]
        case "call_tool":
            return [(str(payload.get("tool", "")), payload.get("arguments") or {})]
        case _:
            return [("", payload)]


def _named(skill: Any) -> str:
    return str(skill.get("name", "")) if isinstance(skill, Mapping) else str(skill or "")


class Pattern(Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern of kind, name, arguments and outcome; without an outcome it matches attempts."""

    kind: str
    name: str = "*"
    arguments: dict[str, Any] = {}
    outcome: str = ""

    def __str__(self) -> str:
        """Return the pattern as a person writes it."""
        words = self.kind if self.name == "*" else f"{self.kind}:{self.name}"
        given = ", ".join(f"{key}={_text(value)}" for key, value in self.arguments.items())
        return f"{words}{f'({given})' if given else ''}{f' → {self.outcome}' if self.outcome else ''}"

    def compiled(self) -> Callable[[TakenStep], bool]:
        """Return a function that tests whether a step of this kind matches."""
        name = lru_cache(maxsize=1024)(text_test(self.name))  # a run has few names, and many steps
        outcome = text_test(self.outcome) if self.outcome else None
        arguments = [(tuple(key.split(".")), _value_test(value)) for key, value in self.arguments.items()]

        def fits(step: TakenStep) -> bool:
            if outcome is None:
                counts = not step.outcome or step.kind not in ACTIONS
            else:
                counts = bool(step.outcome) and outcome(step.outcome)
            return (
                counts and name(step.name) and all(test(at(step.arguments, key)) for key, test in arguments)
            )

        return fits


def parse_pattern(value: Any) -> Pattern:
    """Parse a pattern: ``"run_script"``, ``"load_skill:file-*"``, or an object.

    Raise ``ValueError`` if it can never match.

    >>> print(parse_pattern({"kind": "call_tool", "name": "re:^(read|write)_file$", "outcome": "ok"}))
    call_tool:re:^(read|write)_file$ → ok
    >>> print(parse_pattern("write_file"))
    call_tool:write_file
    """
    if isinstance(value, str) and value.strip():
        kind, _, name = value.strip().partition(":")
        value = {"kind": kind, "name": name}
    try:
        found = msgspec.convert(value, Pattern)
    except msgspec.ValidationError as error:
        raise ValueError(f"a pattern is a text such as 'load_skill:NAME', or an object ({error})") from error
    given = (text for text in found.arguments.values() if isinstance(text, str))
    for text in (found.name, found.outcome, *given):
        if len(text) > MAX_PATTERN_CHARS:
            raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS:,} characters")
        text_test(text)
    kind, name = _OTHER_KINDS.get(found.kind, found.kind), found.name
    if kind in RISKS and kind != "run_script":  # a tool alone means a call of it
        if name not in {"", "*"}:
            advice = f'write {{"kind": "call_tool", "name": "{kind}", "arguments": …}}'
            raise ValueError(f"{kind!r} is a tool, and has no name after it: {advice}")
        kind, name = "call_tool", kind
    if kind not in KINDS:
        raise ValueError(there_is_no("kind of step", kind, sorted({*KINDS, *RISKS})))
    is_literal = name and is_plain(name) and not name.startswith("re:")
    if kind in {"call_tool", "tool"} and is_literal and name not in RISKS:
        raise ValueError(there_is_no("tool", name, sorted(RISKS)))
    return structs.replace(found, kind=kind, name=name or "*")


def text_test(pattern: str) -> Callable[[str], bool]:
    """Return a test for a pattern: literal, with ``*`` and ``?``, or a regular expression after ``re:``.

    The search for a regular expression takes time linear in the text.
    """
    if pattern.startswith("re:"):
        found = regular(pattern[3:])
        return lambda text: found.search(text) is not None
    if is_plain(pattern):
        return pattern.__eq__
    return lambda text: matches_exactly(pattern, text)


@lru_cache(maxsize=1024)
def regular(expression: str) -> Any:
    """Compile a regular expression with RE2, whose search takes time linear in the text."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace")
        raise ValueError(f"the regular expression {expression[:80]!r} is not valid in RE2: {said}") from error


# What `at` returns if nothing is at the path; it differs from every value in a case.
ABSENT = object()


def at(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path of keys and numbers, or ``ABSENT``."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def same(found: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1.

    >>> same(True, 1), same([1.0], [1]), same({"a": [None]}, {"a": [None]})
    (False, True, True)
    """
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def _value_test(wanted: Any) -> Callable[[Any], bool]:
    if not isinstance(wanted, str):
        return lambda found: same(found, wanted)
    test = text_test(wanted)
    return lambda found: found is not ABSENT and test(_text(found))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
