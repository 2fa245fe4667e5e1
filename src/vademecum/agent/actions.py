"""A model's reply → one action, checked; or a list of everything that is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vademecum.agent.plan import PLAN_UPDATE, PlanUpdate
from vademecum.errors import VademecumError

MAX_REPLY_CHARS = 2_000_000
MAX_CANDIDATES = 50
MAX_DEPTH = 64

_HALF = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)


class ReplyWrong(VademecumError):
    """A reply that is no action; the text lists every problem and what to write instead."""

    code = "reply-wrong"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SkillReference(_Strict):
    """A skill by its name, and where namesakes exist, by its source."""

    name: Annotated[str, Field(min_length=1, max_length=300)]
    source: Annotated[str, Field(max_length=64)] | None = None


def _by_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[SkillReference, BeforeValidator(_by_name)]


class SelectSkills(_Strict):
    """Load the instructions of these skills."""

    skills: Annotated[list[Named], Field(min_length=1, max_length=10)]
    reason: str = ""


class LoadResource(_Strict):
    """Read one file of a skill, or one section of it."""

    skill: Named
    relative_path: Annotated[str, Field(max_length=4096)]
    section_hint: str = ""


class RunScript(_Strict):
    """Run a script of a skill; files of the project that are arguments can be read by it."""

    skill: Named
    relative_path: Annotated[str, Field(max_length=4096)]
    args: Annotated[list[str], Field(max_length=20_000)] = []
    files: Annotated[list[str], Field(max_length=1000)] = []
    network: bool = False


class CallTool(_Strict):
    """Call a tool; scripts have an action of their own."""

    tool: Literal["read_file", "list_dir", "grep", "write_file", "delete_file", "network_request"]
    arguments: dict[str, Any] = {}
    skill: Named | None = None


class FinalAnswer(_Strict):
    """The answer; the run ends with it. ``complete`` is false where the task could not be done."""

    text: str
    complete: bool = True


class _SelectSkills(_Strict):
    type: Literal["select_skills"]
    payload: SelectSkills


class _LoadResource(_Strict):
    type: Literal["load_resource"]
    payload: LoadResource


class _RunScript(_Strict):
    type: Literal["run_script"]
    payload: RunScript


class _CallTool(_Strict):
    type: Literal["call_tool"]
    payload: CallTool


class _FinalAnswer(_Strict):
    type: Literal["final_answer"]
    payload: FinalAnswer


Action = SelectSkills | LoadResource | RunScript | CallTool | FinalAnswer


class Turn(_Strict):
    """One reply: what to do next, what changes in the plan, and whatever else the model wants to say."""

    action: Annotated[
        _SelectSkills | _LoadResource | _RunScript | _CallTool | _FinalAnswer, Field(discriminator="type")
    ]
    plan_update: PlanUpdate | None = None
    diagnostics: Any = None

    @property
    def type(self) -> str:
        """The action's type."""
        return self.action.type

    @property
    def payload(self) -> Action:
        """The action itself."""
        return self.action.payload


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of a reply."""
    return Turn.model_json_schema()


def parse_turn(text: str) -> Turn:
    r"""The one action in a reply that may have prose and fences around it.

    >>> parse_turn('Sure!\n{"action": {"type": "final_answer", "payload": {"text": "hi"}},}').payload.text
    'hi'
    """
    if len(text) > MAX_REPLY_CHARS:
        raise ReplyWrong(f"The reply has more than {MAX_REPLY_CHARS:,} characters: answer more briefly.")
    found = _object_in(text)
    # A plan that is wrong must not cost the action: it is checked by itself, later.
    update = found.pop("plan_update", None)
    try:
        turn = Turn.model_validate(found)
    except ValidationError as error:
        raise ReplyWrong(_problems(error)) from error
    if update is None:
        return turn
    try:
        return turn.model_copy(update={"plan_update": PLAN_UPDATE.validate_python(update)})
    except ValidationError as error:
        raise ReplyWrong(_problems(error, "plan_update")) from error


def _object_in(text: str) -> dict[str, Any]:
    """The one JSON object with an action in it."""
    objects = 0
    found: dict[str, Any] = {}
    for candidate in _candidates(text):
        try:
            read = json.loads(candidate, strict=False, object_pairs_hook=_once)
            _check(read)
        except _Unfit as error:
            raise ReplyWrong(f"The reply cannot be taken: {error}.") from error
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            objects += 1
            if "action" in read and found and read != found:
                raise ReplyWrong("The reply has two different actions: answer with one.")
            if "action" in read:
                found = read
                if candidate is text:
                    break
    if found:
        return found
    if objects:
        raise ReplyWrong("The reply has a JSON object, but no 'action' in it: put the action under that key.")
    raise ReplyWrong(
        'The reply has no JSON object that can be read: answer with one object, {"action": {…}}, alone.'
    )


class _Unfit(Exception):
    """An object that is JSON and still cannot be taken."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unfit("a key is there twice")
    return found


def _check(value: Any, depth: int = 0) -> None:
    """Refuse what nobody means: very deep nesting, and half a character."""
    if depth > MAX_DEPTH:
        raise _Unfit("it is nested too deeply")
    match value:
        case str():
            if not value.isascii() and _HALF.search(value):
                raise _Unfit("it holds half a character")
        case dict():
            for key, item in value.items():
                _check(key, depth)
                _check(item, depth + 1)
        case list():
            for item in value:
                _check(item, depth + 1)


def _candidates(text: str) -> Iterator[str]:
    """Texts that might be the object: the whole, what is between fences, every balanced pair of braces."""
    yield text
    for place in (*(found[1] for found in _FENCE.finditer(text)), text):
        start, tries = place.find("{"), 0
        while start >= 0 and tries < MAX_CANDIDATES:
            end, repaired = _balanced(place, start)
            if end == start:  # it never closes, and neither does what begins inside of it
                break
            yield repaired
            tries += 1
            start = place.find("{", end)


def _balanced(text: str, start: int) -> tuple[int, str]:
    """From an opening brace to its closing one, without commas that nothing follows."""
    depth, inside, out = 0, False, []
    place = start
    while place < len(text):
        char = text[place]
        out.append(char)
        if inside:
            if char == "\\" and place + 1 < len(text):
                place += 1
                out.append(text[place])
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            _drop_comma(out)
            depth -= 1
            if depth == 0:
                return place + 1, "".join(out)
        place += 1
    return start, "".join(out)


def _drop_comma(out: list[str]) -> None:
    """Remove a comma that stands before the bracket just written."""
    before = len(out) - 2
    while before >= 0 and out[before].isspace():
        before -= 1
    if before >= 0 and out[before] == ",":
        del out[before]


def _problems(error: ValidationError, *place: str) -> str:
    """Every problem, where it is and what is expected."""
    sentences = []
    for detail in error.errors(include_url=False)[:20]:
        where = ".".join(str(step) for step in (*place, *detail["loc"]) if not str(step).startswith("_"))
        sentences.append(f"{where or 'the object'}: {detail['msg']}")
    return f"The reply does not fit the protocol: {'; '.join(dict.fromkeys(sentences))}."
