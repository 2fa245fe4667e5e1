"""The demo shows one task from the request to the record, in either sandbox, and the commands it names work."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

from tests.e2e.documents import TOP
from tests.support import VADE, Place
from vademecum.sandbox.available import Real

DEMO = TOP / "examples" / "demo.sh"
# Everything the demo runs besides vade; bubblewrap is what makes the difference.
PROGRAMS = ["sh", "cat", "grep", "mkdir", "mktemp", "rm"]


def demo(place: Place, programs: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the demo with nothing on the PATH but these programs and vade."""
    tools = place.home / "tools"
    tools.mkdir()
    (tools / "vade").symlink_to(VADE)
    for name in programs:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    env = place.env | {"PATH": str(tools), "TMPDIR": str(place.cwd)}
    words = [str(tools / "sh"), str(DEMO)]
    return subprocess.run(
        words, cwd=place.cwd, env=env, capture_output=True, text=True, check=False, timeout=60
    )


def test_one_task_from_the_request_to_the_record(place: Place, sandbox: Real) -> None:
    done = demo(place, [*PROGRAMS, "bwrap"] if sandbox == "bubblewrap" else PROGRAMS)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = iter(done.stdout.splitlines())
    for expected in (
        "Summarise sales.csv",
        "$ cat sales.csv",
        "$ vade search",
        "csv-summary  builtin",
        "$ vade run 'Summarise sales.csv' --yes",
        "**sales.csv**: 4 rows, 3 columns",
        "$ vade runs show",
        "loaded skill builtin:csv-summary",
        f"sandbox: {sandbox} · no network",
        "run_script ran in",
        "done (final_answer)",
        "Five commands to try next",
    ):
        assert any(expected in line for line in shown), expected
    assert [path.name for path in place.cwd.iterdir()] == [".git"]


def test_where_no_script_can_run_it_says_so(place: Place) -> None:
    refusing = place.home / "vade"
    refusing.write_text(f'#!/bin/sh\ntest "$1" != run || exit 1\nexec {VADE} "$@"\n')
    refusing.chmod(0o755)
    env = place.env | {"PATH": f"{place.home}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", str(DEMO)], cwd=place.cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "The script did not run" in done.stdout
    assert "sandbox: " in done.stdout
    assert "Five commands" not in done.stdout


def test_the_five_commands_work(place: Place) -> None:
    shutil.copytree(TOP / "examples", place.cwd / "examples")
    commands = re.findall(r"^  \.venv/bin/vade (.+?)(?:  .*)?$", DEMO.read_text(), re.MULTILINE)
    assert len(commands) == 5
    codes = {command: place.vade(*shlex.split(command)).code for command in commands}
    # Nobody is there to ask, and one skill is broken; both are what the command is shown for.
    assert sorted(codes.values()) == [0, 0, 0, 1, 3], codes
    assert place.vade(*shlex.split(commands[1]), "--yes").code == 0
