"""One table of calls, good, bad, refused and hostile: every caller gives the same code and the same effect."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from tests.support import VADE, Place, write_skill
from vademecum import Agent, Budget, Toolkit
from vademecum.agent.loop import Settings
from vademecum.errors import Declined
from vademecum.models.by_script import Scripted
from vademecum.policy.approval import Answer, Question
from vademecum.runs.reading import read_run
from vademecum.session.place import Place as SessionPlace
from vademecum.session.schemas import ALL_TOOLS
from vademecum.session.session import Session

OK = ""
KIT = {"skill": "tool-kit"}
# Name, arguments, and the code that comes of it, in the order in which every caller makes them.
TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("search_skills", {"query": "useful things"}, OK),
    ("list_skill_assets", KIT, OK),
    ("list_skill_assets", {"skill": "hidden"}, "skill-not-found"),
    ("load_skill_asset", KIT | {"relative_path": "references/guide.md"}, OK),
    ("load_skill_asset", KIT | {"relative_path": "references/guide.md", "section_hint": "Two"}, OK),
    ("load_skill_asset", KIT | {"relative_path": "references/guide.md", "section_hint": "No"}, "no-section"),
    ("load_skill_asset", KIT | {"relative_path": "references/secret.md"}, "missing"),
    ("load_skill_asset", KIT | {"relative_path": "references/./secret.md"}, "missing"),
    ("load_skill_asset", KIT | {"relative_path": "references/alias.md"}, "missing"),
    ("load_skill_asset", KIT | {"relative_path": "references/../SKILL.md"}, "path-refused"),
    ("load_skill_asset", KIT | {"relative_path": "/etc/passwd"}, "path-refused"),
    ("load_skill_asset", KIT | {"relative_path": "references/out.md"}, "path-refused"),
    ("load_skill_asset", KIT | {"relative_path": "references/gone.md"}, "missing"),
    ("get_skill_script_path", KIT | {"relative_path": "ok.py"}, OK),
    ("get_skill_script_path", KIT | {"relative_path": "gone.py"}, "missing"),
    ("get_skill_script_path", KIT | {"relative_path": "scripts/denied.py"}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py"}, "not-loaded"),
    ("unload_skill", KIT, "not-loaded"),
    ("skill", {"name": "no-such"}, "skill-not-found"),
    ("skill", {"name": "hidden"}, "skill-not-found"),
    ("skill", {"name": "manual"}, "skill-not-found"),
    ("skill", {"name": "../tool-kit"}, "skill-not-found"),
    ("skill", {"name": "Tool-Kit"}, OK),
    ("skill", {"name": "tool-kit", "source": "project"}, OK),
    ("skill", {"name": "tool-kit", "source": "user"}, "skill-not-found"),
    ("run_script", KIT | {"relative_path": "ok.py", "args": ["a b", "--x=1"]}, OK),
    ("run_script", KIT | {"relative_path": "scripts/ok.py", "args": ["a.txt"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["data/c.csv"]}, OK),
    ("run_script", KIT | {"relative_path": "fails.py"}, OK),
    ("run_script", KIT | {"relative_path": "denied.py"}, "missing"),
    ("run_script", KIT | {"relative_path": "./scripts/denied.py"}, "missing"),
    ("run_script", KIT | {"relative_path": "declined.py"}, "declined"),
    ("run_script", KIT | {"relative_path": "gone.py"}, "missing"),
    ("run_script", KIT | {"relative_path": "../SKILL.md"}, "path-refused"),
    ("run_script", KIT | {"relative_path": "odd.xyz"}, "interpreter"),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["secret.key"]}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py", "args": ["secret.key"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["gone.txt"]}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["/etc/passwd"]}, "missing"),
    ("read_file", {"path": "a.txt"}, OK),
    ("read_file", {"path": "a.txt", "first_line": 2, "lines": 1}, OK),
    ("read_file", {"path": "gone.txt"}, "missing"),
    ("read_file", {"path": "../outside.txt"}, "path-refused"),
    ("read_file", {"path": "/etc/passwd"}, "missing"),
    ("read_file", {"path": "data"}, "not-a-file"),
    ("read_file", {"path": "binary"}, "not-text"),
    ("read_file", {"path": "out"}, "path-refused"),
    ("read_file", {"path": "secret.key"}, "missing"),
    ("read_file", {"path": ".agent/skills/hidden/SKILL.md"}, "missing"),
    ("read_file", {"path": 7}, "arguments"),
    ("read_file", {"pth": "a.txt"}, "arguments"),
    ("list_dir", {"path": "."}, OK),
    ("list_dir", {"path": "a.txt"}, "not-a-directory"),
    ("list_dir", {"path": "gone"}, "missing"),
    ("grep", {"pattern": "x.y", "path": "data"}, OK),
    ("grep", {"pattern": "KEY", "path": "."}, OK),
    ("grep", {"pattern": "("}, "pattern"),
    ("write_file", {"path": "new/out.txt", "content": "made\n"}, OK),
    ("write_file", {"path": "a.txt", "content": "changed\n"}, OK),
    ("write_file", {"path": ".git/config", "content": "x"}, "denied"),
    ("write_file", {"path": "../outside.txt", "content": "x"}, "path-refused"),
    ("write_file", {"path": "data", "content": "x"}, "not-a-file"),
    ("write_file", {"path": "declined.txt", "content": "x"}, "declined"),
    ("delete_file", {"path": "new/out.txt"}, OK),
    ("delete_file", {"path": "gone.txt"}, "missing"),
    ("delete_file", {"path": ".agent/config.json"}, "denied"),
    ("network_request", {"url": "http://127.0.0.1:9/"}, "denied"),
    ("network_request", {"url": "ftp://example.org/"}, "url"),
    ("network_request", {"url": "http://example.org/", "headers": {"Host": "x"}}, "header"),
    ("fly", {}, "no-tool"),
    ("unload_skill", KIT, OK),
    ("run_script", KIT | {"relative_path": "ok.py"}, "not-loaded"),
    ("skill", {"name": "narrow"}, OK),
    ("read_file", {"path": "a.txt"}, OK),
    ("write_file", {"path": "b.txt", "content": "x"}, "denied"),
    ("delete_file", {"path": "b.txt"}, "denied"),
]


@dataclass(frozen=True)
class Came:
    """What came of one call: its text without what is different each time, and what the project is after it."""

    text: str
    project: str


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[[str], Place]:
    """A project, the same for each caller, and rules of the user for it."""

    def prepare(name: str) -> Place:
        place = Place(tmp_path / name / "project", tmp_path / name / "home")
        (place.cwd / ".git").mkdir(parents=True)
        (place.home / ".agent").mkdir(parents=True)
        for file, text in (
            ("a.txt", "one\ntwo\n"),
            ("b.txt", "b\n"),
            ("data/c.csv", "x,y\n1,2\n"),
            ("secret.key", "KEY\n"),
        ):
            (place.cwd / file).parent.mkdir(exist_ok=True)
            (place.cwd / file).write_text(text)
        (place.cwd / "binary").write_bytes(b"a\0b")
        (place.cwd / "out").symlink_to("/etc/passwd")
        (place.cwd.parent / "outside.txt").write_text("outside")
        skills = place.cwd / ".agent" / "skills"
        kit = write_skill(
            skills, "tool-kit", "---\nname: tool-kit\ndescription: Useful things.\n---\n# Kit\n"
        )
        (kit / "references").mkdir()
        (kit / "references/guide.md").write_text("# One\nfirst\n# Two\nsecond\n")
        (kit / "references/secret.md").write_text("hush\n")
        (kit / "references/alias.md").symlink_to("secret.md")
        (kit / "references/out.md").symlink_to("/etc/passwd")
        (kit / "scripts").mkdir()
        shows = "import os, sys\nprint(sys.argv[1:], sorted(os.listdir('.')))\n"
        for script in ("ok.py", "denied.py", "declined.py", "odd.xyz"):
            (kit / "scripts" / script).write_text(shows)
        (kit / "scripts/fails.py").write_text("import sys\nsys.exit(3)\n")
        for other, fields in (
            ("hidden", ""),
            ("manual", "disable-model-invocation: true\n"),
            ("narrow", "allowed-tools: Read Grep\n"),
        ):
            write_skill(
                skills, other, f"---\nname: {other}\ndescription: The {other} one.\n{fields}---\n# {other}\n"
            )
        denied = (
            ("read", "secret.key"),
            ("skill", "hidden"),
            ("script", "tool-kit/scripts/denied.py"),
            ("resource", "tool-kit/references/secret.md"),
        )
        rules = [{"permission": kind, "pattern": pattern, "effect": "deny"} for kind, pattern in denied]
        (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
        return place

    return prepare


class Reader:
    """Says no to what is called "declined", with a reason, and yes to everything else."""

    def ask(self, question: Question) -> Answer:
        return Answer("reject", "not that one") if "declined" in question.wanted else Answer("once")


def came(text: str, place: Place) -> Came:
    plain = text.replace(str(place.cwd), "PROJECT").replace(str(place.home), "HOME")
    plain = re.sub(r"runs/\d{8}-\d{6}-\w+", "runs/RUN", re.sub(r"after \d+\.\d\d s", "after T s", plain))
    plain = re.sub(r"calls/\d{4}", "calls/N", plain)
    digest = hashlib.sha256()
    for path in sorted(place.cwd.rglob("*")):
        if ".agent/runs" not in str(path) and path.is_file() and not path.is_symlink():
            digest.update(f"{path.relative_to(place.cwd)}\0".encode() + path.read_bytes() + b"\0")
    return Came(plain, digest.hexdigest()[:16])


def session_of(place: Place) -> Session:
    return Session(place.build(), place=SessionPlace.at(place.context), approver=Reader(), agent="default")


def by_session(place: Place) -> list[tuple[str, Came]]:
    session, found = session_of(place), []
    for name, arguments, _ in TABLE:
        try:
            result = session.call_named(name, arguments, offered=ALL_TOOLS)
            found.append((result.code, came(result.text, place)))
        except Declined as error:
            found.append((error.code, came(str(error), place)))
    session.close()
    return found


def test_the_table(prepared: Callable[[str], Place]) -> None:
    assert len(TABLE) >= 60
    found = by_session(prepared("session"))
    wrong = [(row, code, seen.text) for row, (code, seen) in zip(TABLE, found, strict=True) if code != row[2]]
    assert wrong == []
    projects = [seen.project for _, seen in found]
    changes = [number for number in range(1, len(TABLE)) if projects[number] != projects[number - 1]]
    assert [TABLE[number][1].get("path") for number in changes] == ["new/out.txt", "a.txt", "new/out.txt"]


def test_toolkit(prepared: Callable[[str], Place]) -> None:
    expected, place = by_session(prepared("session")), prepared("toolkit")
    kit = Toolkit(place.build(), context=place.context, approver=Reader(), tools=ALL_TOOLS)
    for (name, arguments, _), wanted in zip(TABLE, expected, strict=True):
        try:
            result = kit.call(name, arguments)
            found = result.code, came(result.text, place)
        except Declined as error:
            found = error.code, came(str(error), place)
        assert found == wanted, name
    kit.close()


def action(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The call as an action of the agent's protocol."""
    payload: dict[str, Any]
    match name:
        case "skill":
            type_, payload = "select_skills", {"skills": [arguments]}
        case "load_skill_asset":
            type_, payload = "load_resource", arguments
        case "run_script":
            type_, payload = name, arguments
        case _:
            type_, payload = "call_tool", {"tool": name, "arguments": arguments}
    return {"action": {"type": type_, "payload": payload}}


FINAL = {"action": {"type": "final_answer", "payload": {"text": "done"}}}
LIMITS = Budget(turns=500, tool_calls=500, script_runs=500, context_chars=10_000_000)


def observations(place: Place, agent: Agent) -> list[tuple[str, Came]]:
    outcome = agent.run("do it")
    assert outcome.status in {"done", "refused"}, outcome
    runs = place.cwd / ".agent/runs"
    found = []
    for event in read_run(runs, outcome.run_id).events:
        if event.type == "observation":
            kept = (runs / outcome.run_id / event.data["kept"]).read_text()
            found.append((event.data["code"], came(kept, place)))
    return found


def test_agent(prepared: Callable[[str], Place]) -> None:
    place = prepared("agent")
    rows = [row for row in TABLE if row[0] != "fly"]  # which is not an action, and would be sent back
    expected = [
        each for each, row in zip(by_session(prepared("session")), TABLE, strict=True) if row[0] != "fly"
    ]
    model = Scripted([*(action(name, arguments) for name, arguments, _ in rows), FINAL])
    agent = Agent(
        model,
        place.build(),
        approver=Reader(),
        context=place.context,
        budget=LIMITS,
        settings=Settings(same_failures=1000),
    )
    found = observations(place, agent)
    assert [code for code, _ in found] == [row[2] for row in rows]
    for (name, _, code), (_, seen), (_, wanted) in zip(rows, found, expected, strict=True):
        if name != "skill" or code:  # the instructions are elsewhere in the prompt
            assert seen.text == wanted.text, name
    last = came("", place).project
    assert last == expected[-1][1].project


def test_child_agent(prepared: Callable[[str], Place]) -> None:
    """A child has one skill and is offered no other: its direct tools do what everybody's do."""
    numbers = [n for n, (_, given, _) in enumerate(TABLE) if {"path", "url", "pattern"} & set(given)][:-3]
    rows = [TABLE[number] for number in numbers]
    expected = by_session(prepared("session"))
    place = prepared("child")
    write_skill(
        place.cwd / ".agent/skills",
        "apart",
        "---\nname: apart\ndescription: By itself.\nrun-mode: subagent\n---\n# Apart\n",
    )
    start = {"action": {"type": "select_skills", "payload": {"skills": ["apart"]}}}
    model = Scripted([start, *(action(name, arguments) for name, arguments, _ in rows), FINAL, FINAL])
    agent = Agent(
        model,
        place.build(),
        approver=Reader(),
        context=place.context,
        budget=LIMITS,
        settings=Settings(same_failures=1000),
    )
    assert agent.run("do it").status in {"done", "refused"}
    runs = place.cwd / ".agent/runs"
    (child,) = [run for run in sorted(runs.glob("2*")) if b'"parent"' in (run / "events.jsonl").read_bytes()]
    found = [event for event in read_run(runs, child.name).events if event.type == "observation"]
    assert [event.data["code"] for event in found] == [row[2] for row in rows]
    for number, row, event in zip(numbers, rows, found, strict=True):
        if row[0] not in {"list_dir", "grep"}:  # there is one skill more to see
            kept = (runs / child.name / event.data["kept"]).read_text()
            assert came(kept, place).text == expected[number][1].text


def test_mcp(prepared: Callable[[str], Place]) -> None:
    expected, place = by_session(prepared("session")), prepared("mcp")

    async def answer(_context: object, params: Any) -> types.ElicitResult:
        said: dict[str, Any] = {"answer": "allow once"}
        if "declined" in params.message:
            said = {"answer": "decline", "reason": "not that one"}
        return types.ElicitResult(action="accept", content=said)

    async def work() -> None:
        words = ["mcp", "--direct-tools", "--agent", "default"]
        server = StdioServerParameters(command=VADE, args=words, cwd=place.cwd, env=place.env)
        options: dict[str, Any] = {"elicitation_callback": answer}
        async with Client(stdio_client(server), mode="legacy", **options) as client:
            for (name, arguments, code), (_, wanted) in zip(TABLE, expected, strict=True):
                try:
                    result = await client.call_tool(name, arguments)
                    failed, text = result.is_error, result.content[0].text  # type: ignore[union-attr]
                except MCPError as error:
                    failed, text = True, error.error.message
                assert (failed, came(text, place)) == (bool(code), wanted), name

    async def limited() -> None:
        with anyio.fail_after(120):
            await work()

    anyio.run(limited)


def test_exec(prepared: Callable[[str], Place]) -> None:
    """The person names the skill, so it is active; what needs an answer has --yes."""
    expected, place = by_session(prepared("session")), prepared("exec")
    exits = {OK: 0, "denied": 3, "missing": 4, "path-refused": 1, "interpreter": 1}
    tried = 0
    for (name, arguments, code), (_, wanted) in zip(TABLE, expected, strict=True):
        # A file elsewhere is the person's to name.
        if name != "run_script" or code not in exits or "/etc/passwd" in arguments.get("files", ()):
            continue
        tried += 1
        files = [word for file in arguments.get("files", ()) for word in ("--file", file)]
        done = place.vade(
            "exec",
            "--yes",
            "--json",
            *files,
            "tool-kit",
            arguments["relative_path"],
            *arguments.get("args", ()),
        )
        if "denied.py" in arguments["relative_path"] or "secret.key" in json.dumps(arguments):
            assert done.code == 3, arguments  # a person is told that a rule denies it, and which one
            assert "of the user's configuration: deny" in done.err
        elif code:
            assert done.code == exits[code], arguments
            assert came(done.err, place).text.removeprefix("vade: ").strip() == wanted.text, arguments
        else:
            assert came(done.json["text"], place) == wanted, arguments
    assert tried >= 10
