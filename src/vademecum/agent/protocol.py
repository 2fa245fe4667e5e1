"""Parse replies: actions in order and a change of the plan, from JSON text or from native tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vademecum.agent.plan import Patch, Plan, PlanUpdate
from vademecum.errors import ToolRefused, VademecumError
from vademecum.models.base import Reply, Tool, ToolCall, Wire
from vademecum.nearest import meant, nearest
from vademecum.session.schemas import ALL_TOOLS
from vademecum.tools import calls

MAX_REPLY_CHARS = 2_000_000
MAX_CANDIDATES = 50
MAX_DEPTH = 64
# Calls without their own action.
CALLED_AS_TOOLS = (
    *calls.DIRECT_TOOLS,
    *("search_skills", "list_skill_assets", "get_skill_script_path", "unload_skill"),
)

_HALF = re.compile("[\ud800-\udfff]")
# A string, which is kept, or a trailing comma.
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*"?)|,(?=\s*[}\]])', re.DOTALL)
_START = re.compile(r'\{\s*(?:"|\})')
_OURS = re.compile(r'\{\s*"(?:action|plan_update|diagnostics)"')
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)

_HEAD_CHARS = 300  # in a reply, from its action to the first character of its answer
_ANSWER = re.compile(r'"type"\s*:\s*"final_answer"\s*,\s*"payload"\s*:\s*\{\s*"text"\s*:\s*"')
# An answer does not end with whitespace, and a character does not end with its first half.
_UNFINISHED = re.compile("(?:\\s|[\ud800-\udbff])+$")
# The complete beginning of a JSON string: before its closing quotation mark and before a cut escape.
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)

_CUT = (
    "The reply was cut at its length limit, so none of it was done. Do it in smaller steps: write a long "
    "file in parts (write_file, then edit_file), or answer more briefly."
)


class ReplyWrong(VademecumError):
    """A reply is not an action; the text lists every problem and what to write instead."""

    code = "reply-wrong"


class SelectSkills(calls.Parameters):
    """Load the instructions of these skills."""

    skills: Annotated[list[calls.UseSkill], Meta(min_length=1, max_length=10)]
    reason: str = ""


class CallTool(calls.Parameters):
    """Call a tool; scripts have an action of their own."""

    tool: Annotated[str, Meta(extra_json_schema={"enum": list(CALLED_AS_TOOLS)})]
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    skill: calls.SkillName = ""
    source: calls.Source = ""


class FinalAnswer(calls.Parameters):
    """The answer; the run ends with it. ``complete`` is false if the task could not be done."""

    text: str
    complete: bool = True


PAYLOADS: dict[str, type[calls.Parameters]] = {
    "select_skills": SelectSkills,
    "load_resource": calls.LoadSkillAsset,
    "run_script": calls.RunScript,
    "call_tool": CallTool,
    "final_answer": FinalAnswer,
}
_TYPES: dict[type, str] = {payload: name for name, payload in PAYLOADS.items()}


@dataclass(frozen=True, slots=True)
class Action:
    """One action. ``payload`` is its form in the record, ``about`` describes it in a few words.

    ``call`` is a payload of the protocol, a parsed call, or a ``ToolCall`` with wrong arguments, which the
    session reports. ``id`` is the provider's id of the call.
    """

    type: str
    call: Any
    payload: dict[str, Any]
    about: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One parsed reply: actions in order, and the change of the plan.

    ``plan_problem`` says what is wrong with a change of the plan; the actions are still carried out.
    ``plan_calls`` are the provider's ids of the calls that changed the plan.
    """

    actions: Sequence[Action]
    plan_update: PlanUpdate | None = None
    plan_problem: str = ""
    plan_calls: Sequence[str] = ()


def _action(call: Any, id_: str = "") -> Action:
    """Return an action with its payload: each skill is an object with its name and source."""
    type_ = _TYPES.get(type(call), "call_tool")
    if isinstance(call, ToolCall):
        said: dict[str, Any] = {"tool": call.name[:80], "arguments": call.arguments[:2000]}
    elif type(call) in _TYPES:
        said = calls.said(call)
    else:
        said = {"tool": calls.NAMES[type(call)], "arguments": calls.said(call)}
    source = said.pop("source", None)
    if "skill" in said:
        said["skill"] = {"name": said["skill"]} | ({"source": source} if source else {})
    about = ""
    match call:
        case SelectSkills(skills=skills):
            about = ", ".join(skill.name for skill in skills)
        case calls.LoadSkillAsset(skill=skill, relative_path=path):
            about = f"{skill}/{path}"
        case calls.RunScript(skill=skill, relative_path=path, args=args):
            about = f"{skill}/{path} {json.dumps(args, ensure_ascii=False)[:200]}"
        case _ if type_ == "call_tool":
            about = f"{said['tool']} {json.dumps(said.get('arguments', {}), ensure_ascii=False)[:200]}"
    return Action(type_, call, said, about, id_)


def decision_in(reply: Reply, wire: Wire) -> Turn:
    """Return the parsed reply, or raise ``ReplyWrong``.

    >>> decision_in(Reply("Four."), "tools").actions[0].payload
    {'text': 'Four.'}
    """
    if reply.cut:
        raise ReplyWrong(_CUT)
    text = mended(reply.text)
    return parse_turn(text) if wire == "json" else _called(text, reply.calls)


# As JSON text


@cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of a reply, generated from the types of the calls."""
    actions = [
        msgspec.defstruct(
            name, [("payload", payload)], tag_field="type", tag=name, forbid_unknown_fields=True
        )
        for name, payload in PAYLOADS.items()
    ]
    fields: list[Any] = [
        ("action", reduce(or_, actions)),
        ("plan_update", PlanUpdate | None, None),
        ("diagnostics", Any, None),
    ]
    return calls.schema_of(msgspec.defstruct("reply", fields, forbid_unknown_fields=True))


def tools_in_words() -> str:
    """Return the tools with their parameters, in the form of the rules for models.

    >>> tools_in_words().partition(", list_dir")[0]
    'read_file {path, first_line, lines}'
    """
    return ", ".join(
        f"{name} {{{', '.join(field for field in calls.CALLS[name].__struct_fields__ if field != 'source')}}}"
        for name in CALLED_AS_TOOLS
    )


def parse_turn(text: str) -> Turn:
    r"""Return the one action in a reply; prose and fences around it are ignored.

    >>> said = parse_turn('Sure!\n{"action": {"type": "final_answer", "payload": {"text": "hi"}},}')
    >>> said.actions[0].payload
    {'text': 'hi'}
    """
    if len(text) > MAX_REPLY_CHARS:
        raise ReplyWrong(f"The reply has more than {MAX_REPLY_CHARS:,} characters: answer more briefly.")
    found = _object_in(text)
    problems = [
        f"{key}: it is not known" for key in found if key not in {"action", "plan_update", "diagnostics"}
    ]
    call = _call(found["action"], problems)
    if problems or call is None:
        raise ReplyWrong(f"The reply does not fit the protocol: {'; '.join(dict.fromkeys(problems))}.")
    return Turn([_action(call)], *plan_in(found.get("plan_update")))


def _call(given: Any, problems: list[str]) -> calls.Parameters | None:
    if not isinstance(given, dict):
        problems.append("action: it is not an object")
        return None
    type_ = str(given.get("type"))
    payload = PAYLOADS.get(type_)
    problems += [f"action.{key}: it is not known" for key in given if key not in {"type", "payload"}]
    if payload is None:
        hint = meant(nearest(type_, PAYLOADS), otherwise=f"there are {', '.join(PAYLOADS)}")
        problems.append(f"action.type: there is no {type_[:80]!r}, {hint}")
        return None
    inside: list[str] = []
    value = given.get("payload")
    if payload is SelectSkills and isinstance(value, dict) and isinstance(value.get("skills"), list):
        named = [{"name": each} if isinstance(each, str) else each for each in value["skills"]]
        found = [calls.convert(each, calls.UseSkill, inside) for each in named]
        value = {**value, "skills": [calls.said(each) for each in found if each is not None]}
    call = None if inside else calls.convert(value, payload, inside)
    if not inside:
        return call
    problems += [
        f"action.payload: {problem}" if " " in problem.partition(":")[0] else f"action.payload.{problem}"
        for problem in inside
    ]
    return None


def _object_in(text: str) -> dict[str, Any]:
    """Return the one JSON object that contains an action."""
    objects = list(_objects(_THOUGHT.sub("", text) if "</" in text else text))
    actions = [each for each in objects if "action" in each]
    if any(each != actions[0] for each in actions):
        raise ReplyWrong("The reply has two different actions: answer with one.")
    if actions:
        return actions[0]
    if objects:
        raise ReplyWrong("The reply has a JSON object, but no 'action' in it: put the action under that key.")
    raise ReplyWrong(
        'The reply has no JSON object that can be read: answer with one object, {"action": {…}}, alone.'
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ReplyWrong("The reply cannot be used: a key appears twice.")
    return found


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_once)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, from left to right; ignore other braces.

    In an object of the protocol, trailing commas are tolerated.
    """
    place, tries = 0, 0
    while tries < MAX_CANDIDATES and (start := _START.search(text, place)):
        tries += 1
        place = start.start()
        try:
            read, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            repaired = _COMMA.sub(r"\1", text[place:]) if _OURS.match(text, place) else ""
            try:
                read, length = _DECODER.raw_decode(repaired)
            except (ValueError, RecursionError):
                place += 1
                continue
            text, place = text[:place] + repaired, place + length
        _check(read)
        yield read


def _check(value: Any, depth: int = 0) -> None:
    """Refuse very deep nesting and half a character."""
    if depth > MAX_DEPTH:
        raise ReplyWrong("The reply cannot be used: it is nested too deeply.")
    if isinstance(value, str) and not value.isascii() and _HALF.search(value):
        raise ReplyWrong("The reply cannot be used: it contains half a character.")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            _check(item, depth + 1)


# As native calls


class UpdatePlan(calls.Parameters):
    """Make or change the plan. Make one with your first call, and mark each step when it is done."""

    plan: Annotated[Plan | None, Meta(description="The whole plan, which replaces the one before.")] = None
    changes: Annotated[
        list[Patch] | None, Meta(description="Changes of the plan; used if there is no `plan`.")
    ] = None


class _Answer(FinalAnswer):
    """End the task. Needed only if it could not be done: any text without a call is the answer."""


@cache
def offered_tools() -> tuple[Tool, ...]:
    """Return every tool that a model is offered; they are the same in every run.

    >>> [tool.name for tool in offered_tools()][-3:]
    ['network_request', 'update_plan', 'final_answer']
    """
    types: dict[str, type[calls.Parameters]] = {name: calls.CALLS[name] for name in ALL_TOOLS}
    types |= {"update_plan": UpdatePlan, "final_answer": _Answer}
    words = {name: " ".join((type_.__doc__ or "").split()) for name, type_ in types.items()}
    return tuple(Tool(name, words[name], calls.schema_of(type_)) for name, type_ in types.items())


def _called(text: str, made: Sequence[ToolCall]) -> Turn:
    """Return the actions of a reply's calls; text without a call is the answer."""
    if not made:
        if not text.strip():
            raise ReplyWrong("The reply is empty: call a tool, or answer.")
        return Turn([_action(FinalAnswer(text.strip()))])
    changes = [call for call in made if call.name == "update_plan"]
    update, wrong = None, ""
    for call in changes:
        change = _read(call.arguments)
        given = change.get("plan") or change.get("changes")
        update, problem = plan_in(given)
        wrong = wrong or problem or ("" if given else "The plan was not changed: give `plan` or `changes`.")
    actions = [_native(call) for call in made if call.name != "update_plan"]
    return Turn(actions, update, wrong, [call.id for call in changes])


def _read(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}


def _native(call: ToolCall) -> Action:
    if call.name == "final_answer" and (answer := calls.convert(_read(call.arguments), FinalAnswer, [])):
        return _action(answer, call.id)
    arguments = call.arguments.strip() or "{}"
    try:
        parsed = calls.parse_call(call.name, arguments)
    except ToolRefused:
        return _action(ToolCall(call.id, call.name, arguments), call.id)
    return _action(SelectSkills([parsed]) if isinstance(parsed, calls.UseSkill) else parsed, call.id)


def plan_in(given: Any) -> tuple[PlanUpdate | None, str]:
    """Return a plan or its patches as their types, or the problem.

    >>> plan_in([{"op": "fly"}])
    (None, "The plan was not changed: Invalid enum value 'fly' - at `$[0].op`.")
    """
    try:
        return msgspec.convert(given, PlanUpdate | None), ""
    except (msgspec.ValidationError, ValueError) as error:
        return None, f"The plan was not changed: {error}."


# While it streams


class Watched:
    """Shows the answer in a reply while it is streamed. It only displays, and triggers no action.

    If ``is_plain``, the text is the answer itself; otherwise the answer is in a JSON object.
    """

    def __init__(self, tell: Callable[..., None], *, is_plain: bool = False) -> None:
        """Take a function that receives pieces of the answer, or learns that they are withdrawn."""
        self._tell = tell
        self.shown = ""
        self.restart(is_plain=is_plain)

    def restart(self, *, is_plain: bool) -> None:
        """Withdraw the pieces shown, because another reply follows."""
        self.finish(None)
        self._is_plain = is_plain
        self._head = ""
        self._waiting: str | None = "" if is_plain else None  # of the answer, once it has begun

    def __call__(self, piece: str) -> None:
        """Show the next piece."""
        if self._waiting is None:
            head = self._head + piece
            found = _ANSWER.search(head)
            if found is None:
                self._head = head[-_HEAD_CHARS:]
                return
            self._waiting, piece = "", head[found.end() :]
        text = self._waiting + piece
        if self._is_plain:
            text = text if self.shown else text.lstrip()
            shown = _UNFINISHED.sub("", text)
            self._waiting = text[len(shown) :]
        else:
            shown, self._waiting = _decoded(text)
        if shown:
            shown = mended(shown)
            self.shown += shown
            self._tell("answer_piece", text=shown)

    def finish(self, answer: str | None) -> None:
        """Show the rest of the answer; without an answer, withdraw the pieces shown."""
        if self.shown and (answer is None or not answer.startswith(self.shown)):
            self._tell("answer_withdrawn")
            self.shown = ""
        if answer is not None and answer != self.shown:
            self._tell("answer_piece", text=answer[len(self.shown) :])
            self.shown = answer


def mended(text: str) -> str:
    r"""Return a text that can be sent: join halves of a character, and replace a lone half.

    >>> mended("\ud83d\ude00"), mended("\ud83d") == "\ufffd"
    ('😀', True)
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _decoded(raw: str) -> tuple[str, str]:
    """Return the complete part of a JSON string, and the rest, which waits for the next piece."""
    whole = _WHOLE.match(raw)
    end = whole.end() if whole else 0
    try:
        return json.loads(f'"{raw[:end]}"', strict=False), '"' if raw[end : end + 1] == '"' else raw[end:]
    except ValueError:
        return "", raw
