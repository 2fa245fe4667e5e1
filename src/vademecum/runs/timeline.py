"""Turn the events of a run into what a person reads: one entry for each thing that mattered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from vademecum.runs.record import Event
from vademecum.runs.stored import PastRun, RunOutput, outputs_of

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
# Events that are told in the words of their own fields.
_TOLD: dict[str, tuple[Mark, str, str]] = {
    "run_started": ("start", "asked: {request}", "model {model}, {skills} skills"),
    "approval_asked": ("asked", "asked for approval: {wanted}", "{reason}\n{about}"),
    "child_started": ("note", "a run of its own for {skill}: {run}", ""),
    "child_finished": ("note", "that run ended: {status}", ""),
    "compacted": ("note", "left out of the prompt: {observations} results", ""),
    "run_finished": ("end", "{status} ({stop_reason})", "{answer}"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline: when, its mark, its title, and what can be unfolded below it.

    ``rule`` says why it was allowed or refused.
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
            entries = list(_entries(event))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            title = f"event {event.number} ({event.type}) is damaged"
            entries = [("failed", title, f"{type(error).__name__}: {error}")]
        more = str(event.data.get("kept", "")), _rule(event), outputs_of(event, run.place)
        found += [Entry(event.number, event.time - start, *entry, *more) for entry in entries]
    return found


def _entries(event: Event) -> Iterator[tuple[Mark, str, str]]:  # noqa: PLR0912 - one for each type
    data = event.data
    match event.type:
        case "model_replied":
            tokens = f"{data.get('input_tokens', 0)} + {data.get('output_tokens', 0)} tokens"
            yield "model", f"the model replied in {data['seconds']:.2f} s ({tokens})", ""
        case "reply_wrong" | "model_failed":
            yield "failed", str(data["problem"]).splitlines()[0], str(data["problem"])
        case "action":
            answered = data["action"] == "final_answer"
            yield "action", f"{data['action']} {_about(data)}", "" if answered else written(data["payload"])
        case "plan":
            steps = data["plan"]["steps"]
            done = sum(step["status"] == "completed" for step in steps)
            lines = "\n".join(f"[{step['status']}] {step['title']}" for step in steps)
            yield "plan", f"plan: {data['plan']['goal']} ({done} of {len(steps)} steps done)", lines
        case "skill_loaded":
            yield "ok", f"loaded skill {data['skill']}", written(data["report"])
        case "resource_loaded":
            yield "ok", f"read {data['path']} of {data['skill']}", written(data["report"])
        case "approval_answered":
            mark: Mark = "refused" if data["verdict"] == "reject" else "ok"
            yield mark, f"answered: {data['verdict']}", str(data.get("message") or "")
        case "tool_called":
            yield from _called(data)
        case "charter":
            yield "note", f"charter {str(data['digest'])[:19]}… holds, {data['skills']} skills", ""
        case "charter_asked":
            mark = "ok" if data["allowed"] else "refused"
            verdict = "lets it be selected" if data["allowed"] else "does not let it be selected"
            yield mark, f"the charter {verdict}: {data['skill']}", _reasons(data)
        case "outcome":
            yield _outcome(data)
        case "observation" if data["code"]:
            yield "failed", str(data["line"]), ""
        case type_ if type_ in _TOLD:
            plain, title, detail = _TOLD[type_]
            yield plain, title.format_map(data), detail.format_map(data)


def _called(data: dict[str, Any]) -> Iterator[tuple[Mark, str, str]]:
    by = f", approved: {data['approved_by']}" if data.get("approved_by") else ""
    result = data["result"]
    text, code = str(result["text"]), result.get("exit_code")
    if data["code"] in {"denied", "declined"}:
        yield "refused", f"{data['tool']} was refused", text
    elif not data["ok"]:
        yield "failed", f"{data['tool']} failed: {data['code']}", text
    else:
        said = "" if code is None else f", exit code {code}"
        title = f"{data['tool']} ran in {data['seconds']:.2f} s{said} (risk {data['risk']}{by})"
        yield "failed" if code else "ok", title, text


def _rule(event: Event) -> str:
    """Return the rule behind a decision: what it says, and where it stands."""
    decision = event.data.get("decision")
    if not isinstance(decision, dict):
        return ""
    return f"{decision.get('effect', '?')}: {decision.get('reason', '')}"


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
    skills = payload.get("skills") or ([payload["skill"]] if payload.get("skill") else [])
    names = ", ".join(
        str(skill.get("name", skill)) if isinstance(skill, dict) else str(skill) for skill in skills
    )
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
