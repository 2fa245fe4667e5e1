"""F5: a skill's ``allowed-tools`` is an upper bound that holds; F6: risk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import write_skill
from tests.tools.support import Bench
from vademecum.allowed_tools import Bound, Bounds
from vademecum.policy.base import RISKS
from vademecum.tools.calls import DIRECT_TOOLS


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("read_file", [Bound("read_file")]),
        ("Read", [Bound("read_file")]),
        ("ReadFile", [Bound("read_file")]),
        ("Bash", [Bound("run_command"), Bound("run_script")]),
        ("Bash(*)", [Bound("run_command"), Bound("run_script")]),
        ("Bash(python:*)", [Bound("run_command", "python *"), Bound("run_script", "scripts/*.py")]),
        (
            "Bash(python scripts/fill.py:*)",
            [Bound("run_command", "python scripts/fill.py *"), Bound("run_script", "scripts/fill.py")],
        ),
        (
            "Bash({baseDir}/scripts/fill.sh)",
            [Bound("run_command", "{baseDir}/scripts/fill.sh"), Bound("run_script", "scripts/fill.sh")],
        ),
        ("Bash(git:*)", [Bound("run_command", "git *")]),
        ("Bash(python -c:*)", [Bound("run_command", "python -c *")]),
        ("Bash(myscripts/x.py)", [Bound("run_command", "myscripts/x.py")]),
        ("WebFetch(domain:example.com)", [Bound("network_request", "example.com")]),
        ("Read(docs/**)", [Bound("read_file", "docs/*")]),
        ("Glob", [Bound("list_dir")]),
        ("LS", [Bound("list_dir")]),
        ("Edit", [Bound("write_file"), Bound("edit_file"), Bound("save_output")]),
        (
            "Write(./out/*.md)",
            [Bound(tool, "out/*.md") for tool in ("write_file", "edit_file", "save_output")],
        ),
        ("*", [Bound("*")]),
        ("", []),
    ],
)
def test_entries(entry: str, expected: list[Bound]) -> None:
    bounds = Bounds.of([entry])
    assert (list(bounds.allowed), bounds.unknown) == (expected, ())


@pytest.mark.parametrize("entry", ["mcp__server__tool", "Task", ")"])
def test_entries_that_mean_nothing_here(entry: str) -> None:
    """They allow nothing; if none is understood, the reading tools stay."""
    reading = tuple(map(Bound, ("read_file", "list_dir", "grep")))
    assert Bounds.of([entry]) == Bounds(reading, (entry,))
    assert Bounds.of([entry, "Read"]) == Bounds((Bound("read_file"),), (entry,))


def test_entries_that_were_split_at_blanks() -> None:
    assert Bounds.of(["Bash(python", "scripts/a.py:*)", "Read"]) == Bounds(
        (
            Bound("run_command", "python scripts/a.py *"),
            Bound("run_script", "scripts/a.py"),
            Bound("read_file"),
        )
    )


def test_every_tool_has_a_risk() -> None:
    assert {*DIRECT_TOOLS, "run_script"} == set(RISKS)
    assert [name for name, risk in RISKS.items() if risk == "high"] == [
        "write_file",
        "edit_file",
        "save_output",
        "delete_file",
        "network_request",
    ]


@pytest.mark.parametrize(
    ("allowed", "script", "let_through"),
    [
        (None, "a.py", True),
        ("[]", "a.py", False),
        ("Read", "a.py", False),
        ("run_script", "a.py", True),
        ("Bash(python scripts/a.py:*)", "a.py", True),
        ("Bash(python scripts/a.py:*)", "b.py", False),
        ("Bash(git:*)", "a.py", False),
    ],
)
def test_the_bound_holds_for_scripts(
    tmp_path: Path, allowed: str | None, script: str, let_through: bool
) -> None:
    bench = Bench(tmp_path)
    tools = "" if allowed is None else f"allowed-tools: {allowed}\n"
    write_skill(tmp_path / "root", "tried", f"---\nname: tried\ndescription: y\n{tools}---\n")
    bench.script("print('ran')", script)
    seen = bench.run(name=script)
    assert seen.ok is let_through
    if not let_through:
        assert seen.text.startswith("deny tool 'run_script'")
        assert "because 'allowed-tools' of skill 'tried' does not name 'run_script' for this" in seen.text


def test_the_bound_of_an_active_skill_holds_for_tools(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_skill(
        tmp_path / "root",
        "tried",
        "---\nname: tried\ndescription: y\nallowed-tools: Read(docs/**) Grep\n---\n",
    )
    (bench.project / "docs").mkdir()
    (bench.project / "docs/a.md").write_text("a")
    (bench.project / "b.md").write_text("b")
    outcomes = {path: bench.call("read_file", {"path": path}).ok for path in ("docs/a.md", "b.md")}
    assert outcomes == {"docs/a.md": True, "b.md": False}
    assert not bench.call("list_dir", {}).ok
    assert bench.call("unload_skill", {"skill": "tried"}).ok
    assert bench.call("read_file", {"path": "b.md"}).ok
