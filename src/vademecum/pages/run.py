"""Show one run on a page: its answer, its outputs, its time, its plan, its steps and its conversation."""

from __future__ import annotations

import base64
import csv
import json
import time
from collections.abc import Iterator
from io import StringIO
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markupsafe import Markup, escape

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_capped
from vademecum.pages.render import MAX_PAGE_BYTES, render, rich_text, said
from vademecum.paths import contained
from vademecum.runs.record import Event
from vademecum.runs.stored import SIGNS, Entry, PastRun, RunOutput, outputs_of, timeline, written

# Limit of a run's texts and pictures on its page; with the steps it stays below MAX_PAGE_BYTES.
MAX_CONTENT_BYTES = MAX_PAGE_BYTES // 2
MAX_CONVERSATION_BYTES = MAX_PAGE_BYTES // 6
MAX_ANSWER_CHARS = 60_000
MAX_TITLE_CHARS = 400
MAX_NAME_CHARS = 120
MAX_PLAN_STEPS = 100
MAX_SHOWN_BYTES = 60_000
MAX_PICTURE_BYTES = 240_000
MAX_SHOWN_LINES = 200
MAX_ROWS, MAX_COLUMNS = 51, 30
MAX_STEPS = 1000
MAX_STEP_CHARS = 4000
MAX_SPANS = 200
MAX_TURN_CHARS = 8000

Kind = Literal["model", "call", "wrong", "approval", "child"]

_PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_CELL, _HEAD_CELL = Markup("<td>{}</td>"), Markup("<th>{}</th>")
# The events that end a wait: the event that began it, its kind, and the words and the key for its name.
_WAITS: dict[str, tuple[str, Kind, str, str]] = {
    "model_replied": ("model_asked", "model", "model, turn ", "turn"),
    "model_failed": ("model_asked", "wrong", "model, turn ", "turn"),
    "approval_answered": ("approval_asked", "approval", "", "wanted"),
    "child_finished": ("child_started", "child", "", "skill"),
}


class Back(NamedTuple):
    """The case of an evaluation that a run belongs to, and the address of its report."""

    href: str
    case: str
    mark: str = ""


class Span(NamedTuple):
    """One bar of the waterfall: its kind and name, and its start and length as shares of the whole run."""

    kind: Kind
    name: str
    seconds: float
    left: float
    width: float


class PageBudget:
    """The bytes of content that still fit on a page."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, text: str, most: int) -> str:
        """Return the beginning of a text that still fits, and count its escaped size."""
        cut = text[: max(0, min(most, self.left))]
        self.left -= len(escape(cut).encode("utf-8", "replace"))
        return cut

    def read(self, path: Path | str, cap: int) -> bytes:
        """Return the content of a file, or nothing if it does not exist or does not fit."""
        try:
            data = read_capped(path, cap=max(0, min(cap, self.left)))
        except (OSError, FileRefused):
            return b""
        self.left -= 2 * len(data)  # base64, or escaped
        return data


def run_page(run: PastRun, *, back: Back | None = None) -> str:
    """Return the page of a run; ``back`` links to its case."""
    room, talk = PageBudget(MAX_CONTENT_BYTES), PageBudget(MAX_CONVERSATION_BYTES)
    answer = room.take(run.answer, MAX_ANSWER_CHARS)
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.events[0].time)) if run.events else ""
    entries = [entry for entry in timeline(run) if entry.mark != "plan"]
    bars = list(islice(spans(run), MAX_SPANS))
    outputs = [_shown_output(output, room) for event in run.events for output in outputs_of(event, run.place)]
    steps = [_step(entry, run, room) for entry in entries[:MAX_STEPS] if room.left > 0]
    turns = takewhile(lambda _: talk.left > 0, conversation(run))
    return render(
        "run",
        run=run,
        answer=answer,
        back=back,
        date=date,
        facts=_facts(run),
        spans=bars,
        kinds={bar.kind for bar in bars},
        plan=_plan(run),
        outputs=outputs,
        steps=steps,
        hidden=len(entries) - len(steps),
        messages=[(role, talk.take(text, MAX_TURN_CHARS)) for role, text in turns],
    )


def _facts(run: PastRun) -> dict[str, str]:
    first = {event.type: event.data for event in reversed(run.events)}
    started, stats = first.get("run_started", {}), first.get("run_finished", {}).get("stats")
    stats = stats if isinstance(stats, dict) else {}
    tokens = sum(n for n in map(stats.get, ("input_tokens", "output_tokens")) if isinstance(n, int))
    found = {
        "model": started.get("model"),
        "agent": started.get("agent"),
        "turns": stats.get("turns"),
        "calls": stats.get("tool_calls"),
        "tokens": f"{tokens:,}" if tokens else "",
        "seconds": f"{run.seconds:.1f}",
    }
    return {key: str(value) for key, value in found.items() if value not in {None, ""}}


def spans(run: PastRun) -> Iterator[Span]:
    """Yield model calls, tool calls, approvals and child runs, in the order in which they began."""
    start, whole = (run.events[0].time, max(run.seconds, 1e-6)) if run.events else (0.0, 1.0)
    for kind, name, began, seconds in sorted(_timed(run), key=lambda each: each[2]):
        left = min(max(0.0, (began - start) / whole), 1.0)
        width = min(seconds / whole, 1 - left)
        yield Span(kind, name[:MAX_NAME_CHARS], seconds, round(100 * left, 2), round(100 * width, 2))


def _timed(run: PastRun) -> Iterator[tuple[Kind, str, float, float]]:
    """Yield the kind, the name, the beginning and the seconds of everything that took time."""
    begun: dict[str, Event] = {}
    for event in run.events:
        begun[event.type] = event
        if event.type == "tool_called":
            seconds = event.data.get("seconds")
            took = float(seconds) if isinstance(seconds, int | float) else 0.0
            result = event.data.get("result")
            failed = isinstance(result, dict) and result.get("exit_code")
            wrong = failed or not event.data.get("ok")
            yield "wrong" if wrong else "call", _called(event.data), event.time - took, took
        elif event.type in _WAITS:
            first, kind, words, key = _WAITS[event.type]
            if asked := begun.pop(first, None):
                yield kind, f"{words}{asked.data.get(key, '')}", asked.time, event.time - asked.time


def _called(data: dict[str, Any]) -> str:
    parameters = data.get("parameters")
    given = parameters if isinstance(parameters, dict) else {}
    about = given.get("relative_path") or given.get("path") or given.get("url") or given.get("name") or ""
    return f"{data.get('tool', '')} {about}".strip()


def _plan(run: PastRun) -> dict[str, Any] | None:
    """Return the final plan, and each change of a step's status with its time."""
    changes: list[tuple[str, str, str, str]] = []
    known: dict[str, str] = {}
    found = None
    for event in run.events:
        match event.data:
            case {"plan": {"steps": list(steps), **rest}} if event.type == "plan":
                kept = [step for step in steps[:MAX_PLAN_STEPS] if isinstance(step, dict)]
                listed = [(_name(step.get("title", "")), _name(step.get("status", ""))) for step in kept]
                when = f"{event.time - run.events[0].time:.2f} s"
                for title, status in listed:
                    if found and known.get(title) != status:
                        changes.append((when, title, known.get(title, "new"), status))
                    known[title] = status
                goal = str(rest.get("goal", ""))[:MAX_TITLE_CHARS]
                found = {"goal": goal, "steps": listed, "changes": changes}
    del changes[MAX_PLAN_STEPS:]
    return found


def _name(value: object) -> str:
    return str(value)[:MAX_NAME_CHARS]


def conversation(run: PastRun) -> Iterator[tuple[Literal["user", "assistant", "tool"], str]]:
    """Yield the conversation: the request, each reply of the model, and each answer to the model."""
    for event in run.events:
        data = event.data
        match event.type:
            case "run_started":
                yield "user", str(data.get("request", ""))
            case "model_replied":
                yield "assistant", _reply(str(data.get("text") or ""))
            case "observation":
                kept = _kept(run, str(data.get("kept", "")), PageBudget(MAX_TURN_CHARS * 4))
                yield "tool", f"{data.get('line', '')}\n{kept}".strip()
            case "reply_wrong" | "model_failed":
                yield "tool", str(data.get("problem", ""))


def _reply(text: str) -> str:
    """Return a reply for people: the fields of a reply in the JSON protocol, any other reply unchanged."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    action = found.get("action") if isinstance(found, dict) else None
    if not isinstance(action, dict):
        return written(found)
    payload = action.get("payload")
    if action.get("type") == "final_answer" and isinstance(payload, dict):
        return str(payload.get("text", ""))
    return f"{action.get('type', '')}\n{written(payload if isinstance(payload, dict) else {})}".strip()


def _step(entry: Entry, run: PastRun, room: PageBudget) -> dict[str, Any]:
    kept = _kept(run, entry.kept, room) if entry.mark != "model" else ""
    detail = entry.detail if entry.mark != "end" else ""
    return {
        "number": entry.number,
        "mark": entry.mark,
        "sign": SIGNS[entry.mark][0],
        "when": f"{entry.seconds:.2f} s",
        "title": _said(entry.title, room),
        "rule": _said(entry.rule, room),
        "texts": [_said(detail, room, MAX_STEP_CHARS)] * bool(detail)
        + [room.take(kept, MAX_STEP_CHARS)] * bool(kept and kept != detail),
        "open": entry.mark in {"refused", "failed"},
    }


def _said(text: str, room: PageBudget, most: int = MAX_TITLE_CHARS) -> Markup | str:
    """Return a sentence in both languages if it is one of ours, cut to the room that is left."""
    shown = said(text, max(0, min(most, room.left)), depth=2)
    room.left -= len(escape(shown).encode("utf-8", "replace"))
    return shown


def _kept(run: PastRun, kept: str, room: PageBudget) -> str:
    if not kept:
        return ""
    try:
        return room.read(contained(Path(run.place), kept), MAX_SHOWN_BYTES).decode("utf-8", "replace")
    except VademecumError:
        return ""


def _shown_output(output: RunOutput, room: PageBudget) -> dict[str, Any]:
    """Return one output with its link and its preview."""
    return {
        "path": output.path,
        "bytes": f"{output.bytes:,}",
        "secret": output.secret,
        "href": "" if output.secret else Path(output.file).as_uri(),
        "preview": "" if output.secret else _preview(output, room),
    }


def _preview(output: RunOutput, room: PageBudget) -> Markup:
    """Return a picture, the first rows of a table, or the first lines of a text."""
    suffix = Path(output.file).suffix.lower()
    data = room.read(output.file, MAX_PICTURE_BYTES if suffix in _PICTURES else MAX_SHOWN_BYTES)
    if suffix in _PICTURES and data:
        source = f"data:{_PICTURES[suffix]};base64,{base64.b64encode(data).decode()}"
        return Markup('<img alt="{}" src="{}">').format(output.path, source)
    if not data or b"\0" in data:
        return Markup("")
    text = data.decode("utf-8-sig", "replace")
    if suffix in {".csv", ".tsv"}:
        return _table(text, "\t" if suffix == ".tsv" else ",")
    if suffix == ".md":
        return rich_text(text)
    shown = "".join(text.splitlines(keepends=True)[:MAX_SHOWN_LINES])
    return Markup('<pre tabindex="0">{}</pre>').format(shown)


def _table(text: str, between: str) -> Markup:
    try:
        rows = [row[:MAX_COLUMNS] for row in islice(csv.reader(StringIO(text), delimiter=between), MAX_ROWS)]
    except csv.Error:
        return Markup("<pre>{}</pre>").format(text[:MAX_STEP_CHARS])
    lines = [
        Markup("<tr>{}</tr>").format(Markup("").join(element.format(cell) for cell in row))
        for element, row in ((_CELL if number else _HEAD_CELL, row) for number, row in enumerate(rows))
    ]
    return Markup('<div class="scroll" tabindex="0"><table>{}</table></div>').format(Markup("").join(lines))
