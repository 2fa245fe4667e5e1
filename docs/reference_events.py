"""Runs that are made for it → a page: every kind of event, its fields, and a real example."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.reference_words import Say, table
from vademecum import BUILTIN_ROOT, Agent, Context, IndexOptions, Policy, Root, build_index, models
from vademecum.agent.plan import Budget
from vademecum.errors import ModelUnavailable
from vademecum.governance import load_charter
from vademecum.models.scripted_model import Turn
from vademecum.policy.approval import Consent
from vademecum.runs.record import Event
from vademecum.runs.stored import read_run
from vademecum.session.base import Place
from vademecum.session.session import Session
from vademecum.session.view import View
from vademecum.tools.calls import UnloadSkill, UseSkill

MAX_TEXT = 110

# Kind → what happened, and each field with its meaning. A field in brackets is not always there.
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "run_started": (
        "A run began: what was asked, of which model, with which skills.",
        {
            "request": "what was asked, in the person's words",
            "model": "which model decides; `none` for `vade exec`",
            "agent": "whose rules hold",
            "skills": "how many skills the model is offered",
            "index_hash": "the hash of the index; `index.json` beside the events has the index itself",
            "budget": "the limits of the run",
            "skills_named": "the skills that the person named, by `--skill`, `/name` or `$name`",
            "ranked": "the skills that search put first for this request",
            "skills_active": "the skills that earlier requests of the conversation loaded",
            "parent": "in a child's record: the run it belongs to",
        },
    ),
    "model_asked": (
        "A prompt was sent.",
        {
            "turn": "the number of the turn, from one",
            "prompt_sha256": "the hash of the prompt",
            "characters": "its length",
            "tokens": "its size by the provider's last count, and an estimate of what came after",
        },
    ),
    "model_failed": (
        "The model could not be reached; it is asked again after the pause, three times in all.",
        {
            "problem": "what it said",
            "code": "the [error code](errors.md)",
            "wait": "the pause it asked for, in seconds",
        },
    ),
    "model_replied": (
        "A reply came back.",
        {
            "text": "the reply; where `runs.keep_model_text` is off there are `sha256` and `characters` instead",
            "sha256": "the hash of the reply, where its text is not kept",
            "characters": "the length of the reply, where its text is not kept",
            "calls": "the native tool calls in it, with their arguments",
            "cut": "true if its length limit ended it",
            "seconds": "how long it took",
            "input_tokens": "as the model counts them; 0 where it does not",
            "output_tokens": "the same for the reply",
        },
    ),
    "reply_wrong": (
        "The reply was not one valid action; it was sent back with all that is wrong with it.",
        {
            "problem": "everything that is wrong",
            "attempt": "which attempt it was; after the third the run ends",
        },
    ),
    "action": (
        "A whole, valid action: what the model wants to do now.",
        {
            "action": "`select_skills`, `load_resource`, `run_script`, `call_tool` or `final_answer`",
            "payload": "what it wants, without what is the default",
            "turn": "the number of the turn",
        },
    ),
    "plan": (
        "The plan changed; this is the plan as it is now.",
        {"plan": "goal, steps with their status, assumptions"},
    ),
    "approval_asked": (
        "A rule says ask, and somebody is asked.",
        {
            "id": "the number of the question",
            "wanted": "what is wanted",
            "reason": "the rule because of which it is asked",
            "about": "what the person sees: the command, the risk, the sandbox, the script's first lines or what changed in it",
        },
    ),
    "approval_answered": (
        "The answer to that question.",
        {
            "id": "the number of the question",
            "verdict": "`once`, `always`, `reject`, or `interrupted`",
            "scope": "for `always`: `run`, `project` or `user`",
            "message": "what the person said to the model with a no",
        },
    ),
    "skill_loaded": (
        "The body of a skill went into the prompt.",
        {
            "skill": "source, name and version",
            "origin": "who chose it: `model`, `user` or `nested`",
            "effect": "what the rules said: `allow`, or `ask` and somebody approved",
            "report": "path, hash and size of what was read, whether it was cut, how many hidden characters were removed",
        },
    ),
    "skill_unloaded": (
        "A skill is not active any more.",
        {"skill": "source, name and version"},
    ),
    "resource_loaded": (
        "A file of a skill was read.",
        {
            "skill": "source, name and version",
            "path": "the file, relative to the skill",
            "report": "as above",
        },
    ),
    "tool_called": (
        "A tool was called: the whole audit record, whether it was allowed or not.",
        {
            "call": "the number of the call in this run",
            "tool": "its name",
            "skill_id": "source, name and version of the skill, if there is one",
            "risk": "`low`, `medium` or `high`",
            "agent": "who called",
            "skill": "on whose behalf, or whose script it is",
            "parameters": "the arguments, masked and shortened",
            "started": "when, in seconds since 1970",
            "seconds": "how long it took",
            "decision": "the effect, the rule that made it, and what would allow it",
            "asked": "each permission that was asked for, with its resources and effect",
            "approved_by": "how it was approved: `once`, `always`, a remembered answer, or nobody had to",
            "ok": "whether it worked",
            "code": "the [error code](errors.md), empty where it worked",
            "result": "the beginning and the end of what came out, the exit code, where the files are",
            "hashes": "of what was read, written, run and printed",
        },
    ),
    "observation": (
        "What the model is told about what came of its action.",
        {
            "line": "the line that stays when the rest is left out of the prompt",
            "code": "the [error code](errors.md), empty where it worked",
            "kept": "where the whole text is, below the record's directory",
            "characters": "its length",
        },
    ),
    "compacted": (
        "The conversation neared its limit: everything before the last exchange became a summary.",
        {
            "observations": "how many results became lines",
            "tokens_before": "the size of the conversation before",
            "tokens_after": "its size now",
            "kept": "the files with the full texts, which `read_file` reads",
        },
    ),
    "child_started": (
        "A skill with `run-mode: subagent` began a run of its own.",
        {
            "run": "the id of that run",
            "skill": "source, name and version",
            "budget": "its share of what was left",
        },
    ),
    "child_finished": ("That run ended.", {"run": "its id", "status": "how it ended"}),
    "index_changed": (
        "Skills came or went while another program's agent was served ([MCP](../mcp.md)).",
        {"index_hash": "the hash of the index from here on", "skills": "how many skills there are now"},
    ),
    "charter": (
        "A [charter](../governance.md) holds from here on.",
        {
            "digest": "its hash",
            "charter": "its text, without secrets",
            "skills": "how many skills it defines",
        },
    ),
    "charter_asked": (
        "The charter was asked whether a skill may be selected.",
        {"skill": "its name", "allowed": "the answer", "reasons": "every reason against it"},
    ),
    "outcome": (
        "What came of one intent under a charter.",
        {
            "charter": "the beginning of the charter's hash",
            "step": "the step of the simulation, or of the run",
            "agent": "who",
            "agent_type": "of which type",
            "proposed": "which skill it wanted",
            "approved": "whether the charter let it",
            "executed": "which skill was carried out: that one, the default, or none",
            "parameters": "what the intent said",
            "state": "what the charter looked at",
            "last": "the step at which the agent did the skill before, if it did",
            "changes": "what changed: before and after",
            "reasons": "every reason against it: code, clause, observed, required, message",
            "rolled_back": "true where it was undone, because something changed that may not",
            "shadow": "true where the charter was only watching",
        },
    ),
    "run_finished": (
        "The run ended. A record without this event is of a run that was killed.",
        {
            "status": "how it ended, below",
            "stop_reason": "why, below",
            "answer": "the answer",
            "stats": "turns, calls, tokens, seconds, skills; for a simulation its figures",
        },
    ),
}

_ENDINGS = [
    ("`done`", "`final_answer`", "0", "it was answered"),
    ("`degraded`", "`incomplete`", "1", "the model says that it could not be done"),
    (
        "`degraded`",
        "`max_turns`, `max_tool_calls`, `max_script_runs`, `max_context`",
        "1",
        "a limit was reached",
    ),
    ("`degraded`", "`bad_replies`", "1", "the model gave no valid action three times"),
    ("`degraded`", "`repeated_failure`", "1", "the same failure three times in a row"),
    ("`refused`", "`refused`", "3", "the last thing it tried was refused by a rule"),
    ("`declined`", "`declined`", "3", "a person said no"),
    ("`failed`", "an [error code](errors.md)", "1, 3 or 4", "the model or the run failed"),
    ("`interrupted`", "`interrupted`", "130", "Ctrl-C"),
    ("any", "`exec`", "", "a single script, run by `vade exec`"),
    ("`done`", "`simulated`", "", "a simulation, run by `vade govern simulate`"),
]

_CHARTER = """\
skills:
  - skill_id: compare
    description: Compare two files.
    eligible_agent_types: [clerk]
    institutional_constraints: {cost: 5}
    implementation_mapping: skill:file-diff/scripts/compare.py
"""
_WORKER = """\
---
name: proof-reader
description: Read a text and list its mistakes.
run-mode: subagent
---
Read it, and list the mistakes.
"""


def events_page(say: Say, found: dict[str, list[dict[str, Any]]]) -> str:
    """The whole page, from events by their kind."""
    intro = (
        "Every kind of event in `.agent/runs/<run_id>/events.jsonl`, one JSON object a line. The examples are from runs "
        "that were made to write this page; digests, times and long texts are shortened. "
        "[The record](../explanation/the-record.md) says what they are for."
    )
    common = [
        ("`n`", "whole number", "its number in the run, from one"),
        (
            "`time`",
            "number",
            "when, in seconds since 1970; 0 in simulations, so that the same seed gives the same bytes",
        ),
        ("`type`", "text", "the kind"),
    ]
    passing = [
        ("`answer_piece`", "`text`: a piece of the answer, as it streams"),
        (
            "`output_piece`",
            "`call`, `stream` (`out` or `err`), `data`: bytes that a script or command prints",
        ),
        ("`progress`", "`call`, `text`: what is being prepared for a script, such as its packages"),
        ("`answer_withdrawn`", "the pieces so far do not count: the reply was not valid"),
    ]
    parts = [f"# {say('Events')}\n", say(intro) + "\n", f"## {say('Every event')}\n"]
    parts.append(table("field | type | meaning", common))
    for kind, (meaning, fields) in KINDS.items():
        rows = [(f"`{name}`", _types(found[kind], name), said) for name, said in fields.items()]
        parts += [f"## {kind}\n", say(meaning) + "\n", table("field | type | meaning", rows)]
        parts.append(f"```json\n{_written(_example(found[kind]))}\n```\n")
    parts += [f"## {say('How a run ends')}\n"]
    parts.append(
        say("The `status` and `stop_reason` of `run_finished`, and the exit code of `vade run`.") + "\n"
    )
    parts.append(table("status | stop_reason | exit | meaning", _ENDINGS))
    parts += [f"## {say('Passing by')}\n"]
    parts.append(say("A `listener` hears these as well; they are not written down.") + "\n")
    parts.append(table("kind | what it says", passing))
    return "\n".join(parts)


def recorded_events() -> dict[str, list[dict[str, Any]]]:
    """Events of real runs by their kind: with a scripted model, a child, a charter, and a prompt that is too long."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory).resolve()
        context = _prepared(home)
        runs = context.cwd / ".agent" / "runs"
        waiting = [agent.run("Compare monday.txt with tuesday.txt").run_id for agent in _agents(context)]
        waiting.append(_handed_out(context))
        found: dict[str, list[dict[str, Any]]] = {}
        while waiting:
            for event in read_run(runs, waiting.pop(0)).events:
                found.setdefault(event.type, []).append(_plain(event, home))
                if event.type == "child_started":
                    waiting.append(str(event.data["run"]))
        return found


def _prepared(home: Path) -> Context:
    project = home / "project"
    (project / ".agent" / "runs").mkdir(parents=True)
    (project / "skills" / "proof-reader").mkdir(parents=True)
    (project / "skills" / "proof-reader" / "SKILL.md").write_text(_WORKER, "utf-8")
    (project / "skill_registry.yaml").write_text(_CHARTER, "utf-8")
    (project / "monday.txt").write_text("apples 3\n")
    (project / "tuesday.txt").write_text("apples 4\n")
    (project / "long.txt").write_text("all work and no play\n" * 1200)
    env = {"PATH": os.environ.get("PATH", ""), "VADE_CACHE_DIR": str(home / "cache")}
    return Context(cwd=project, home=home, env=env)


def _agents(context: Context) -> Iterable[Agent]:
    roots = [Root(BUILTIN_ROOT, "builtin"), Root(context.cwd / "skills", "project")]
    index = build_index(roots, IndexOptions())
    compare = {
        "skill": "file-diff",
        "relative_path": "scripts/compare.py",
        "args": ["monday.txt", "tuesday.txt"],
    }
    plan = {"goal": "Compare", "steps": [{"id": "s1", "title": "Run the script", "status": "pending"}]}
    answer = _does("final_answer", text="They differ in one line.")
    first: list[Turn] = [
        ModelUnavailable("The server is busy (HTTP 503).", wait=0.0),
        "Let me see.",
        {**_does("select_skills", skills=["file-diff", "skill-author"]), "plan_update": plan},
        _does("run_script", **compare),
        _does("load_resource", skill="skill-author", relative_path="references/descriptions.md"),
        _does("select_skills", skills=["proof-reader"]),
        answer,
        answer,
    ]
    common = {"index": index, "policy": Policy.load(context), "approver": Consent(), "context": context}
    yield Agent(models.scripted(first), **common)  # type: ignore[arg-type]
    chartered: list[Turn] = [
        _does("select_skills", skills=["file-diff"]),
        _does("run_script", **compare),
        _does("run_script", **compare),
        answer,
    ]
    yield Agent(
        models.scripted(chartered),
        **common,  # type: ignore[arg-type]
        guard=load_charter(context.cwd / "skill_registry.yaml").guard("clerk", {"budget": 8}),
    )
    read = _does("call_tool", tool="read_file", arguments={"path": "long.txt"})
    yield Agent(
        models.scripted([read, read, answer]),
        **common,  # type: ignore[arg-type]
        budget=Budget(context_tokens=8_000),
    )


def _handed_out(context: Context) -> str:
    """A run of another program's agent, while the skills change."""
    builtin = build_index([Root(BUILTIN_ROOT, "builtin")], IndexOptions())
    policy = Policy.load(context)
    place = Place.at(context)
    session = Session(builtin, place=place, policy=policy, agent="claude-code", client="mcp")
    session.call(UseSkill("file-diff"))
    session.call(UnloadSkill("file-diff"))
    other = build_index([Root(context.cwd / "skills", "project")], IndexOptions())
    session.adopt(policy, View(other, policy), place)
    run_id = session.run_id
    session.close()
    return run_id


def _does(type_: str, **payload: Any) -> dict[str, Any]:
    return {"action": {"type": type_, "payload": payload}}


def _plain(event: Event, home: Path) -> dict[str, Any]:
    """An event as it is in the file, without what is different each time."""
    data = {"n": event.number, "time": 1794900000.0, "type": event.type, **event.data}
    shortened: dict[str, Any] = _short(data, home)
    return shortened


def _short(value: Any, home: Path, key: str = "") -> Any:
    match value:
        case dict():
            return {name: _short(item, home, name) for name, item in value.items()}
        case list() | tuple():
            return [_short(item, home) for item in value]
        case str():
            return "bubblewrap" if key == "sandbox" else _cut(value, home)
        case float():
            return 1794900000.0 if key == "started" else 0.05 if key == "seconds" else value
        case int() if key in {"characters", "input_tokens", "output_tokens", "memory_mb", "max_memory_mb"}:
            return 1234
    return value


def _cut(text: str, home: Path) -> str:
    text = text.replace(str(BUILTIN_ROOT), "…/builtin").replace(str(home), "~")
    text = re.sub(r"\b([0-9a-f]{8})[0-9a-f]{8,56}\b", "0a1b2c3d…", text)
    text = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{7}\b", "20261117-090000-0a1b2c3", text)
    text = re.sub(r"after \d+\.\d\d s", "after 0.05 s", text)
    text = re.sub(r"sandbox: \w+", "sandbox: bubblewrap", text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT].rstrip()}…"


def _example(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The event that shows most."""
    return max(events, key=lambda event: len([value for value in event.values() if value]))


def _written(event: dict[str, Any]) -> str:
    """An event, one field a line."""
    fields = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in event.items()]
    return "{" + ",\n ".join(fields) + "}"


def _types(events: list[dict[str, Any]], name: str) -> str:
    names = {
        str: "text",
        bool: "true or false",
        int: "whole number",
        float: "number",
        dict: "object",
        list: "list",
    }
    found = sorted(
        {"none" if event[name] is None else names[type(event[name])] for event in events if name in event}
    )
    always = all(name in event for event in events)
    if not found:
        return "not always there"
    return " or ".join(found) + ("" if always else ", not always there")
