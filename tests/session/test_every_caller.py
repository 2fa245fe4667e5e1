"""One table of calls, good, bad, refused and hostile: every caller gives the same code and the same effect."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from tests.support import VADE, Place, write_skill
from vademecum import Agent, Budget, Toolkit
from vademecum.errors import Declined
from vademecum.models.scripted_model import Scripted
from vademecum.policy.approval import Answer, Question
from vademecum.runs.stored import read_run
from vademecum.sandbox.available import probe
from vademecum.session.base import Place as SessionPlace
from vademecum.session.schemas import ALL_TOOLS
from vademecum.session.session import Session

OK = ""
KIT = {"skill": "tool-kit"}
# Whatever a script finds at its argument: names and contents.
READS = """
import os, sys
for word in sys.argv[1:]:
    path = word.removeprefix("--from=")
    for place, _, files in sorted(os.walk(path)):
        for file in sorted(files):
            print(os.path.join(place, file) if "runs/2" not in place else "", end=" ")
            text = open(os.path.join(place, file), "rb").read()
            print([word for word in ("KEY", "OTHER") if word in str(text) and "skills" not in place])
    print(os.path.isfile(path))
"""
# Whatever a script finds of its own skill.
OWN = """
import os, sys
skill = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
print(sorted(os.listdir(os.path.join(skill, "references"))))
try:
    print(open(os.path.join(skill, sys.argv[1])).read())
except OSError as error:
    print(type(error).__name__)
"""
# Whatever a command sees of the project: names and contents.
SEARCH = "find . -path ./.agent/runs -prune -o -type f -print | sort; grep -rsE --exclude-dir=skills 'KEY|OTHER' . | sort"
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
    ("run_script", KIT | {"relative_path": "ok.py", "args": ["data", "--from=data/c.csv", "none/x.txt"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["data/*.csv"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["*.none"]}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py", "files": ["../outside.txt"]}, "path-refused"),
    ("run_script", KIT | {"relative_path": "ok.py", "args": ["../outside.txt"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "copy": ["data"]}, OK),
    ("run_script", KIT | {"relative_path": "ok.py", "network": ["declined.example.org"]}, "declined"),
    ("run_script", KIT | {"relative_path": "ok.py", "network": ["not a host"]}, "url"),
    ("run_script", KIT | {"relative_path": "makes.py", "args": ["a.txt"]}, OK),
    ("read_file", {"path": "output:1/out/made.txt"}, OK),
    ("read_file", {"path": "output:1/../made.txt"}, "missing"),
    ("read_file", {"path": "output:9/out/made.txt"}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py", "args": ["output:1/out/made.txt"]}, OK),
    ("save_output", {"output": "output:1/out/made.txt", "path": "saved.txt"}, OK),
    ("save_output", {"output": "output:1/out/made.txt", "path": ".git/hooks/x"}, "denied"),
    ("save_output", {"output": "output:1/out/made.txt", "path": ".agent/skills/tool-kit/x"}, "denied"),
    ("save_output", {"output": "output:1/out/made.txt", "path": "declined.txt"}, "declined"),
    ("save_output", {"output": "output:1/gone.txt"}, "missing"),
    ("run_command", {"argv": ["cat", "a.txt"]}, OK),
    ("run_command", {"argv": ["cat", "secret.key", ".agent/skills/hidden/SKILL.md"]}, OK),
    ("run_command", {"argv": ["cat", "data/c.csv"], "reads": ["data"]}, OK),
    ("run_command", {"argv": ["no-such-program"]}, "no-program"),
    ("run_command", {"argv": ["declined"]}, "no-program"),
    ("run_command", {"argv": ["ls", "declined"]}, "declined"),
    ("run_command", {"argv": ["true"], "writes": [".git"]}, "denied"),
    ("run_command", {"argv": ["true"], "writes": ["."]}, "denied"),
    ("run_command", {"argv": ["true"], "reads": ["secret.key"]}, "missing"),
    ("run_command", {"argv": []}, "arguments"),
    ("edit_file", {"path": "b.txt", "old": "b", "new": "c"}, OK),
    ("edit_file", {"path": "b.txt", "old": "b", "new": "c"}, "not-unique"),
    ("edit_file", {"path": "secret.key", "old": "KEY", "new": "x"}, "missing"),
    ("edit_file", {"path": ".git/config", "old": "x", "new": "y"}, "denied"),
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
    # Ways round a rule. What is asked about is declined here by its name, which shows that it was asked.
    *(
        ("write_file", {"path": path, "content": "x"}, "denied")
        for path in (
            "sub/.git",
            "sub/.git/config",
            "data//.git",
            ".GIT/config",
            "\uff0egit/config",
            ".agent/new.json",
            ".agent/skills/tool-kit/SKILL.md",
            ".claude/skills/x/SKILL.md",
            "data/.codex/skills/x/SKILL.md",
            ".envrc",
            "data/.bashrc",
            ".vscode/tasks.json",
            ".claude/settings.json",
            "data/HEAD",
            "x.pth",
            "into-git/config",
            "locked/x",
            "./locked/./x",
            "caf\u00e9/x",
            "cafe\u0301/x",
            ".git/",
            ".Agent/skills/x/SKILL.md",
            ".agents/skills/x/SKILL.md",
            ".husky/pre-commit",
            "data/.yarnrc.yml",
            ".cargo/config.toml",
            ".devcontainer/devcontainer.json",
            ".ssh/authorized_keys",
            ".config/systemd/user/x.service",
            ".codex/config.toml",
            ".claude/hooks/x.sh",
            ".bash_aliases",
        )
    ),
    # Other spellings of a file that is denied, and of a skill that is.
    *(
        ("read_file", {"path": path}, "missing")
        for path in (
            "./secret.key",
            "secret.key/",
            "secret.key/.",
            "\uff53ecret.key",
            "secret.key\n",
            "/proc/self/cwd/secret.key",
            "output:../secret.key",
            "output:1/../../secret.key",
        )
    ),
    *(
        ("skill", {"name": name}, "skill-not-found")
        for name in (
            "project:hidden",
            "HIDDEN",
            "\uff48idden",
            "hid\u200bden",
            "hidden/",
            "tool-kit/../hidden",
        )
    ),
    ("get_skill_script_path", {"skill": "hidden", "relative_path": "x.py"}, "skill-not-found"),
    ("load_skill_asset", {"skill": "hidden", "relative_path": "SKILL.md"}, "skill-not-found"),
    ("unload_skill", {"skill": "hidden"}, "skill-not-found"),
    # A script brings its skill along, but not what a rule denies of it.
    *(
        ("run_script", KIT | {"relative_path": "own.py", "args": [word]}, OK)
        for word in ("references/secret.md", "references/alias.md", "references")
    ),
    ("run_script", KIT | {"relative_path": "scripts//denied.py"}, "missing"),
    ("run_script", KIT | {"relative_path": "ok.py", "copy": [".agent"]}, OK),
    ("delete_file", {"path": "data"}, "not-a-file"),
    ("delete_file", {"path": ".git"}, "denied"),
    ("write_file", {"path": "output:1/out/made.txt", "content": "x"}, "denied"),
    ("run_command", {"argv": ["//usr//bin//forbidden"]}, "denied"),
    ("run_command", {"argv": ["/usr/bin/../bin/forbidden"]}, "denied"),
    ("run_command", {"argv": ["true"], "network": ["*.example.org"]}, "url"),
    ("run_command", {"argv": ["true"], "network": ["\uff45vil.example.org"]}, "denied"),
    *(
        ("network_request", {"url": url}, code)
        for url, code in (
            ("HTTP://evil.example.org", "denied"),
            ("http://\uff45vil.example.org/", "denied"),
            ("http://evil\u3002example.org/", "denied"),
            ("http://evil.example.org#@good.org/", "denied"),
            ("http://a@evil.example.org/", "url"),
            ("http://good.org\\@evil.example.org/", "url"),
            ("http://%65vil.example.org/", "url"),
            ("http://0177.0.0.1/", "denied"),
            ("http://0x7f000001/", "denied"),
            ("http://127.1/", "denied"),
            ("http://0/", "denied"),
            ("http://[::]/", "denied"),
            ("http://localhost./", "denied"),
        )
    ),
    *(
        ("delete_file", {"path": path}, "denied")
        for path in (
            ".git/config",
            ".agent/skills/tool-kit/SKILL.md",
            "into-git/config",
            "locked/kept",
            "into-skill",
        )
    ),
    *(
        (tool, {"path": path, **more}, "missing")
        for path in (
            "hard-link.md",
            "into-skill",
            ".agent/skills/hidden",
            "caf\u00e9.txt",
            "cafe\u0301.txt",
            ".agent/skills/tool-kit/references/secret.md",
            ".agent/runs/20200101-000000-0000000/observations/x",
        )
        for tool, more in (("read_file", {}), ("grep", {"pattern": "."}), ("list_dir", {}))
    ),
    *(
        ("read_file", {"path": path}, "declined")
        for path in (
            ".env.declined",
            "data/declined.pem",
            ".aws/declined",
            "id_rsa.declined",
        )
    ),
    *(
        ("run_script", KIT | {"relative_path": "reads.py", "args": [word]}, OK)
        for word in (
            "secret.key",
            "--from=secret.key",
            "hard-link.md",
            "into-skill",
            ".agent",
            ".",
        )
    ),
    ("run_command", {"argv": ["sh", "-c", SEARCH]}, OK),
    ("run_command", {"argv": ["cat", "hard-link.md", "into-skill"], "reads": ["."]}, OK),
    ("run_command", {"argv": ["sh", "-c", "echo x > a.txt; echo x > .git/config; touch new"]}, OK),
    ("run_command", {"argv": ["forbidden", "x"]}, "denied"),
    ("run_command", {"argv": ["/usr/bin/forbidden"]}, "denied"),
    (
        "run_command",
        {"argv": ["sh", "-c", "mkdir free/.git; echo x > free/.git/config"], "writes": ["free"]},
        "denied",
    ),
    ("run_command", {"argv": ["sh", "-c", "echo x > free/HEAD"], "writes": ["free"]}, "denied"),
    ("run_command", {"argv": ["true"], "writes": ["linked"]}, "linked"),
    *(
        ("run_command", {"argv": ["true"], "network": [host]}, "denied")
        for host in (
            "evil.example.org",
            "EVIL.example.org.",
            "evil.example.org:8080",
            "*",
        )
    ),
    *(
        ("network_request", {"url": f"http://{host}/"}, "denied")
        for host in (
            "evil.example.org",
            "evil.example.org.:81",
            "2130706433",
            "[::ffff:127.0.0.1]",
            "localhost:1",
        )
    ),
    ("fly", {}, "no-tool"),
    ("unload_skill", KIT, OK),
    ("run_script", KIT | {"relative_path": "ok.py"}, "not-loaded"),
    ("skill", {"name": "narrow"}, OK),
    ("read_file", {"path": "a.txt"}, OK),
    ("write_file", {"path": "b.txt", "content": "x"}, "denied"),
    ("edit_file", {"path": "b.txt", "old": "c", "new": "d"}, "denied"),
    ("save_output", {"output": "output:1/out/made.txt", "path": "other.txt"}, "denied"),
    ("run_command", {"argv": ["ls"]}, "denied"),
    ("delete_file", {"path": "b.txt"}, "denied"),
]


@dataclass(frozen=True)
class Came:
    """What came of one call: its text without what is different each time, and what the project is after it."""

    text: str
    project: str


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Place]:
    """A project, the same for each caller, and rules of the user for it."""

    tmp_path = tmp_path_factory.mktemp("callers")

    def prepare(name: str) -> Place:
        place = Place(tmp_path / name / "project", tmp_path / name / "home")
        (place.cwd / ".git").mkdir(parents=True)
        (place.home / ".agent").mkdir(parents=True)
        for file, text in (
            ("a.txt", "one\ntwo\n"),
            ("b.txt", "b\n"),
            ("data/c.csv", "x,y\n1,2\n"),
            ("secret.key", "KEY\n"),
            ("locked/kept", "kept\n"),
            ("free/x", "x\n"),
            ("linked/x", "x\n"),
            ("cafe\u0301.txt", "KEY\n"),
            (".env.declined", "KEY\n"),
            ("data/declined.pem", "KEY\n"),
            (".aws/declined", "KEY\n"),
            ("id_rsa.declined", "KEY\n"),
            (".git/config", "old\n"),
            (".agent/runs/20200101-000000-0000000/observations/x", "OTHER\n"),
        ):
            (place.cwd / file).parent.mkdir(parents=True, exist_ok=True)
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
        (kit / "scripts/reads.py").write_text(READS)
        (kit / "scripts/own.py").write_text(OWN)
        for script in ("ok.py", "denied.py", "declined.py", "odd.xyz"):
            (kit / "scripts" / script).write_text(shows)
        (kit / "scripts/makes.py").write_text(
            "import os\nos.mkdir('out')\nopen('out/made.txt', 'w').write('made\\n')\n"
        )
        (kit / "scripts/fails.py").write_text("import sys\nsys.exit(3)\n")
        for other, fields in (
            ("hidden", ""),
            ("manual", "disable-model-invocation: true\n"),
            ("narrow", "allowed-tools: Read Grep\n"),
        ):
            write_skill(
                skills, other, f"---\nname: {other}\ndescription: The {other} one.\n{fields}---\n# {other}\n"
            )
        os.link(skills / "hidden/SKILL.md", place.cwd / "hard-link.md")
        os.link(place.cwd / ".git/config", place.cwd / "linked/config")
        (place.cwd / "into-skill").symlink_to(".agent/skills/hidden/SKILL.md")
        (place.cwd / "into-git").symlink_to(".git")
        denied = (
            ("read", "secret.key"),
            ("read", "caf\u00e9.txt"),
            ("write", "caf\u00e9/*"),
            ("write", "locked/*"),
            ("delete", "locked/*"),
            ("command", "forbidden *"),
            ("network", "evil.example.org"),
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
    plain = re.sub(r"(calls|trash)/\d{4}", r"\1/N", plain)
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


@pytest.fixture(scope="module")
def expected(prepared: Callable[[str], Place]) -> list[tuple[str, Came]]:
    """Return what a session itself gives."""
    return by_session(prepared("session"))


def test_the_table(expected: list[tuple[str, Came]]) -> None:
    assert len(TABLE) >= 60
    found = expected
    wrong = [(row, code, seen.text) for row, (code, seen) in zip(TABLE, found, strict=True) if code != row[2]]
    assert wrong == []
    for row, (_, seen) in zip(TABLE, found, strict=True):
        # Under Landlock a command can see the names of what it cannot read.
        names = "" if SEARCH in str(row) and not probe("bubblewrap").sandbox else "|hidden|hard-link|secret"
        if row[1].get("relative_path") == "reads.py" or SEARCH in str(row):
            assert not re.search(f"KEY|OTHER|Hidden|hush{names}", seen.text), row
        if row[1].get("relative_path") == "own.py":
            assert "['guide.md', 'out.md']" in seen.text, row
        # A text for a model never says how to get round a refusal.
        assert not re.search(r"--yes|--allow|~/.agent|vade (?!mcp)", seen.text), row
    projects = [seen.project for _, seen in found]
    changes = [number for number in range(1, len(TABLE)) if projects[number] != projects[number - 1]]
    assert [TABLE[number][1].get("path") for number in changes] == [
        "saved.txt",
        "b.txt",
        "new/out.txt",
        "a.txt",
        "new/out.txt",
    ]


def test_toolkit(prepared: Callable[[str], Place], expected: list[tuple[str, Came]]) -> None:
    place = prepared("toolkit")
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
LIMITS = Budget(turns=500, tool_calls=500, script_runs=500, context_tokens=10_000_000)


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


def test_agent(prepared: Callable[[str], Place], expected: list[tuple[str, Came]]) -> None:
    place = prepared("agent")
    rows = [row for row in TABLE if row[0] != "fly"]  # which is not an action, and would be sent back
    wanted_rows = [each for each, row in zip(expected, TABLE, strict=True) if row[0] != "fly"]
    model = Scripted([*(action(name, arguments) for name, arguments, _ in rows), FINAL])
    agent = Agent(
        model,
        place.build(),
        approver=Reader(),
        context=place.context,
        budget=LIMITS,
    )
    found = observations(place, agent)
    assert [code for code, _ in found] == [row[2] for row in rows]
    for (name, _, code), (_, seen), (_, wanted) in zip(rows, found, wanted_rows, strict=True):
        if name != "skill" or code:  # the instructions are elsewhere in the prompt
            assert seen.text == wanted.text, name
    last = came("", place).project
    assert last == expected[-1][1].project


def test_child_agent(prepared: Callable[[str], Place], expected: list[tuple[str, Came]]) -> None:
    """A child has one skill and is offered no other: its direct tools do what everybody's do."""
    direct = {"path", "url", "pattern", "argv"}  # of files and hosts, not of outputs, which it has none of
    numbers = [
        n for n, (_, given, _) in enumerate(TABLE) if direct & set(given) and "output:" not in str(given)
    ][:-5]
    rows = [TABLE[number] for number in numbers]
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
    )
    assert agent.run("do it").status in {"done", "refused"}
    runs = place.cwd / ".agent/runs"
    (child,) = [run for run in runs.glob("2*/events.jsonl") if b'"parent"' in run.read_bytes()]
    found = [event for event in read_run(runs, child.parent.name).events if event.type == "observation"]
    assert [event.data["code"] for event in found] == [row[2] for row in rows]
    for number, row, event in zip(numbers, rows, found, strict=True):
        if row[0] not in {"list_dir", "grep"} and SEARCH not in str(row):  # there is one skill more to see
            kept = (child.parent / event.data["kept"]).read_text()
            assert came(kept, place).text == expected[number][1].text


def test_mcp(prepared: Callable[[str], Place], expected: list[tuple[str, Came]]) -> None:
    place = prepared("mcp")

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


def test_exec(prepared: Callable[[str], Place], expected: list[tuple[str, Came]]) -> None:
    """The person names the skill, so it is active; what needs an answer has --yes."""
    place = prepared("exec")
    exits = {OK: 0, "denied": 3, "missing": 4, "path-refused": 3, "interpreter": 1}
    tried, before = 0, came("", place)
    for (name, arguments, code), (_, wanted) in zip(TABLE, expected, strict=True):
        # A file elsewhere is the person's to name; a command of its own has no outputs of others.
        apart = ("/etc/passwd", "outside.txt", "output:", "['.']")
        if name != "run_script" or code not in exits or any(word in str(arguments) for word in apart):
            continue
        tried += 1
        files = [word for file in arguments.get("files", ()) for word in ("--file", file)]
        files += [word for directory in arguments.get("copy", ()) for word in ("--copy", directory)]
        done = place.vade(
            "exec",
            "--yes",
            "--json",
            *files,
            "tool-kit",
            arguments["relative_path"],
            *arguments.get("args", ()),
        )
        if any(
            word in json.dumps(arguments) for word in ("denied.py", "secret.key", "hard-link", "into-skill")
        ):
            assert done.code == 3, arguments  # a person is told that a rule denies it, and which one
            assert "of the user's configuration: deny" in done.err
        elif code:
            assert done.code == exits[code], arguments
            assert came(done.err, place).text.removeprefix("vade: ").strip() == wanted.text, arguments
        else:
            assert came(done.json["text"], place).text == wanted.text, arguments
    assert tried >= 10
    assert came("", place) == before
