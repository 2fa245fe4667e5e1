"""Read records of runs: all events except an incomplete last line, or a timeline of the important ones."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from vademecum.errors import FileRefused, RecordDamaged, VademecumError
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.runs.record import EVENTS, Event, check_place

MAX_EVENTS_BYTES = 512 * 1024 * 1024

_RUN_ID = re.compile(r"[\w-]{1,100}")

Mark = Literal["start", "model", "action", "ok", "refused", "failed", "asked", "plan", "end", "note"]

# The sign of each mark, and its style on a terminal.
SIGNS: dict[Mark, tuple[str, str]] = {
    "start": ("▶", "bold"),
    "model": ("·", "dim"),
    "action": ("→", "cyan"),
    "ok": ("✓", "green"),
    "refused": ("✗", "red"),
    "failed": ("!", "yellow"),
    "asked": ("?", "magenta"),
    "plan": ("≡", "blue"),
    "end": ("■", "bold"),
    "note": ("·", "dim"),
}
# Events whose title and text are made of their fields.
_TOLD: dict[str, tuple[Mark, str, str]] = {
    "run_started": ("start", "asked: {request}", "model {model}, {skills} skills"),
    "approval_asked": ("asked", "asked for approval: {wanted}", "{reason}\n{about}"),
    "child_started": ("note", "a run of its own for {skill}: {run}", ""),
    "child_finished": ("note", "that run ended: {status}", ""),
    "compacted": ("note", "left out of the prompt: {observations} results", ""),
    "run_finished": ("end", "{status} ({stop_reason})", "{answer}"),
}


class PastRun(msgspec.Struct, frozen=True):
    """One run, as recorded."""

    run_id: str
    place: str
    events: tuple[Event, ...]

    def first(self, type_: str) -> Event | None:
        """Return the first event of a type, if there is one."""
        return next((event for event in self.events if event.type == type_), None)

    def _told(self, type_: str, key: str) -> str:
        event = self.first(type_)
        return str(event.data.get(key, "")) if event else ""

    @property
    def request(self) -> str:
        """Return the user's request."""
        return self._told("run_started", "request")

    @property
    def status(self) -> str:
        """How the run ended; ``unfinished`` if its record has no end."""
        return self._told("run_finished", "status") or "unfinished"

    @property
    def answer(self) -> str:
        """The answer, or an empty text."""
        return self._told("run_finished", "answer")

    @property
    def seconds(self) -> float:
        """The seconds from the first event to the end of the run, or to the last event if it has none."""
        if not self.events:
            return 0.0
        return (self.first("run_finished") or self.events[-1]).time - self.events[0].time


class RunOutput(msgspec.Struct, frozen=True):
    """A file that a script or command left, as recorded."""

    path: str
    file: str
    bytes: int
    sha256: str
    output: str = ""
    secret: bool = False


def outputs_of(event: Event, place: str) -> tuple[RunOutput, ...]:
    """Return the outputs that an event lists, if they are in the record of that run."""
    result = event.data.get("result")
    listed = result.get("outputs", ()) if event.type == "tool_called" and isinstance(result, dict) else ()
    found = []
    for each in listed:
        with contextlib.suppress(msgspec.ValidationError, VademecumError, OSError, ValueError):
            output = msgspec.convert(each, type=RunOutput)
            file = contained(Path(place), os.path.relpath(output.file, place))
            found.append(msgspec.structs.replace(output, file=str(file)))
    return tuple(found)


class Difference(msgspec.Struct, frozen=True):
    """One step that would be different now: its event, the recorded result, and the new one."""

    event: int
    what: str
    then: str
    now: str


class Replayed(msgspec.Struct, frozen=True):
    """The number of compared steps of a run, and those that would be different now."""

    compared: int
    differences: tuple[Difference, ...]


def run_ids(directory: Path) -> list[str]:
    """Return the ids of all runs in a directory, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(
        name
        for name in names
        if _RUN_ID.fullmatch(name)
        and not (directory / name).is_symlink()
        and (directory / name / EVENTS).exists()
    )


def read_run(directory: Path, run_id: str) -> PastRun:
    """Return one run, without an incomplete last line."""
    place = contained(directory, run_id)
    check_place(directory)
    try:
        data = read_capped(place / EVENTS, cap=MAX_EVENTS_BYTES)
    except (OSError, FileRefused) as error:
        known = run_ids(directory)
        advice = f"the latest is {known[-1]}" if known else "there are none"
        raise RecordDamaged(f"There is no run {run_id!r} in {directory}: {advice}.", code="no-run") from error
    whole, _, _ = data.rpartition(b"\n")
    events: list[Event] = []
    try:
        for line in whole.splitlines():
            found = msgspec.json.decode(line, type=dict[str, Any])
            head = int(found.pop("n")), float(found.pop("time")), str(found.pop("type"))
            events.append(Event(*head, found))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise RecordDamaged(f"Line {len(events) + 1} of {place / EVENTS} is damaged ({error}).") from error
    return PastRun(run_id, str(place), tuple(events))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline: its time, mark and title, and the text below it.

    ``rule`` is the reason why it was allowed or refused.
    """

    number: int
    seconds: float
    mark: Mark
    title: str
    detail: str = ""
    kept: str = ""
    rule: str = ""
    outputs: tuple[RunOutput, ...] = ()


def timeline(run: PastRun) -> list[Entry]:
    """Return the entries of a run, in order."""
    start = run.events[0].time if run.events else 0.0
    found: list[Entry] = []
    for event in run.events:
        try:
            entry = _entry(event)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            title = f"event {event.number} ({event.type}) is damaged"
            entry = "failed", title, f"{type(error).__name__}: {error}"
        if entry is not None:
            rule = event.data.get("decision")
            said = f"{rule.get('effect', '?')}: {rule.get('reason', '')}" if isinstance(rule, dict) else ""
            more = str(event.data.get("kept", "")), said, outputs_of(event, run.place)
            found.append(Entry(event.number, event.time - start, *entry, *more))
    return found


def _entry(event: Event) -> tuple[Mark, str, str] | None:  # noqa: PLR0912 - one for each type
    data = event.data
    match event.type:
        case "model_replied":
            tokens = f"{data.get('input_tokens', 0)} + {data.get('output_tokens', 0)} tokens"
            return "model", f"the model replied in {data['seconds']:.2f} s ({tokens})", ""
        case "reply_wrong" | "model_failed":
            return "failed", str(data["problem"]).splitlines()[0], str(data["problem"])
        case "action":
            answered = data["action"] == "final_answer"
            return "action", f"{data['action']} {_about(data)}", "" if answered else written(data["payload"])
        case "plan":
            steps = data["plan"]["steps"]
            done = sum(step["status"] == "completed" for step in steps)
            lines = "\n".join(f"[{step['status']}] {step['title']}" for step in steps)
            return "plan", f"plan: {data['plan']['goal']} ({done} of {len(steps)} steps done)", lines
        case "skill_loaded":
            return "ok", f"loaded skill {data['skill']}", written(data["report"])
        case "resource_loaded":
            return "ok", f"read {data['path']} of {data['skill']}", written(data["report"])
        case "approval_answered":
            mark: Mark = "refused" if data["verdict"] == "reject" else "ok"
            return mark, f"answered: {data['verdict']}", str(data.get("message") or "")
        case "tool_called":
            return _called(data)
        case "charter":
            return "note", f"charter {str(data['digest'])[:19]}… is in force, {data['skills']} skills", ""
        case "charter_asked":
            mark, verdict = ("ok", "lets") if data["allowed"] else ("refused", "does not let")
            return mark, f"the charter {verdict} it be selected: {data['skill']}", _reasons(data)
        case "outcome":
            return _outcome(data)
        case "observation" if data["code"]:
            return "failed", str(data["line"]), ""
        case type_ if type_ in _TOLD:
            plain, title, detail = _TOLD[type_]
            return plain, title.format_map(data), detail.format_map(data)
    return None


def _called(data: dict[str, Any]) -> tuple[Mark, str, str]:
    by = f", approved: {data['approved_by']}" if data.get("approved_by") else ""
    result = data["result"]
    text, code = str(result["text"]), result.get("exit_code")
    if data["code"] in {"denied", "declined"}:
        return "refused", f"{data['tool']} was refused", text
    if not data["ok"]:
        return "failed", f"{data['tool']} failed: {data['code']}", text
    said = "" if code is None else f", exit code {code}"
    title = f"{data['tool']} ran in {data['seconds']:.2f} s{said} (risk {data['risk']}{by})"
    return "failed" if code else "ok", title, text


def _outcome(data: dict[str, Any]) -> tuple[Mark, str, str]:
    who = f"step {data['step']}: {data['agent']} ({data['agent_type']})"
    if data["executed"]:
        return "ok", f"{who} did {data['executed']}", written(data.get("changes", {}))
    verb = "was rolled back" if data.get("rolled_back") else "was denied"
    return "refused", f"{who} {verb}: {data['proposed']}", _reasons(data)


def _reasons(data: dict[str, Any]) -> str:
    return "\n".join(str(reason["message"]) for reason in data.get("reasons", ()))


def _about(data: dict[str, Any]) -> str:
    payload = data["payload"]
    names = _inline(payload.get("skills") or payload.get("skill") or "")
    rest = payload.get("relative_path") or payload.get("tool") or ""
    return f"{names}{'/' if names and rest else ''}{rest}".strip()


def written(value: object) -> str:
    """Return a JSON value for people: one line for each field, no brackets and no quotes.

    >>> print(written({"skill": {"name": "diff"}, "args": ["a.txt", "b c.txt"], "dry": True}))
    skill: diff
    args: a.txt, b c.txt
    dry: yes
    """
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_inline(item)}" for key, item in value.items())
    return _inline(value)


def _inline(value: object) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case {"name": str(name)}:
            return name
        case dict():
            return "; ".join(f"{key} {_inline(item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(map(_inline, value))
    return str(value)
