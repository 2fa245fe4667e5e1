"""G2: what a script declares, how it is copied, and what the record says of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support import index_of
from tests.tools.support import Bench
from vademecum.sandbox import seccomp
from vademecum.sandbox.available import Landlock, Real, probe
from vademecum.sandbox.base import BASE_PYTHON, Jail, home_of, own_python
from vademecum.sandbox.process import Streams, run_command
from vademecum.skill.assets import directory_digest, skill_digest
from vademecum.tools.job import take_snapshot


def test_a_snapshot_is_the_skill(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.script("print(1)")
    (bench.skill / "run.sh").write_text("exit 0")
    (bench.skill / "run.sh").chmod(0o755)
    (bench.skill / "inner").symlink_to("scripts/x.py")
    (bench.skill / "outer").symlink_to("/etc/passwd")
    os.mkfifo(bench.skill / "fifo")
    skill = index_of(tmp_path / "root").get("tried")
    first = take_snapshot(skill, tmp_path / "first")
    assert {p.relative_to(first).as_posix() for p in first.rglob("*")} == {
        "SKILL.md",
        "inner",
        "outer",
        "run.sh",
        "scripts",
        "scripts/x.py",
    }
    assert os.access(first / "run.sh", os.X_OK)
    assert os.readlink(first / "outer") == "/etc/passwd"
    (bench.skill / "fifo").unlink()
    again = take_snapshot(skill, tmp_path / "again")
    assert directory_digest(str(again)) == skill_digest(skill)
    bench.script("print(2)")
    changed = take_snapshot(skill, tmp_path / "changed")
    assert directory_digest(str(changed)) != directory_digest(str(again))


def test_the_record_of_a_script(tmp_path: Path) -> None:
    bench = Bench(tmp_path, env={"MY_TOKEN": "hunter2hunter2"})
    bench.script("import sys; print(sys.argv[1])")
    bench.run("hunter2hunter2")
    (record,) = bench.records
    assert set(record.hashes) == {"digest", "script_sha256", "stdout_sha256", "stderr_sha256"}
    assert (record.skill, record.risk, record.result["exit_code"]) == ("tried", "medium", 0)
    assert "hunter2" not in repr(record)
    assert Path(record.result["files"][0]).read_text() == "[secret]\n"


def test_output_is_clean_for_a_model(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.script(r"import sys; sys.stdout.buffer.write(b'\x1b[2Jclear \xff \xe2\x80\x8bend')")
    assert "It printed:\n[2Jclear \ufffd end" in bench.run().text


def test_scripts_of_the_skill_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.script("print(1)")
    (bench.skill / "other.py").write_text("print(2)")
    for name in ("../other.py", "/etc/passwd", "", "x", "scripts/../other.py"):
        assert not bench.run(name=name).ok
    (bench.skill / "scripts/way").symlink_to("/bin")
    assert not bench.run(name="way/true").ok
    assert bench.call("run_script", {"skill": "none", "script": "x.py"}).code == "skill-not-found"


def test_filters_hold_together() -> None:
    calls = [*seccomp.ADMINISTRATION.values(), *seccomp.METADATA.values(), *seccomp.SIGNALS.values()]
    calls += [*seccomp.ATTRIBUTES.values(), *seccomp.WATCHING.values(), *seccomp.SHARED_MEMORY.values()]
    for column in (0, 1):
        numbers = [call[column] for call in calls if call[column] >= 0]
        assert len(numbers) == len(set(numbers))
    kinds: tuple[seccomp.Sockets, ...] = ("none", "all", "proxy")
    for sockets in kinds:
        for landlock in (None, 5, 6):
            program = seccomp.filter_of(sockets, landlock=landlock)
            assert len(program) % 8 == 0
            assert len(program) // 8 < 4096


def test_signals_are_refused_where_landlock_cannot_keep_them_inside(tmp_path: Path) -> None:
    found = probe("landlock")
    if found.sandbox is None:
        pytest.skip(found.problem)
    (tmp_path / "work").mkdir()
    code = (
        "import fcntl, os, signal\n"
        "r, w = os.pipe()\n"
        "for attempt in (lambda: os.kill(os.getppid(), 0), lambda: fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())):\n"
        "    try:\n        attempt(); print('reached')\n    except PermissionError:\n        print('kept in')\n"
        "print(fcntl.fcntl(r, fcntl.F_GETFD) >= 0, os.path.exists('/usr'))"
    )
    python = own_python()
    jail = Jail(tmp_path / "work", {}, python.readable, (tmp_path / "work",))
    streams = Streams(tmp_path / "out", tmp_path / "err")
    ended = run_command(Landlock(version=5), [*python.words, "-c", code], jail, streams=streams)
    assert ended.exit_code == 0, streams.err.read_text()
    assert streams.out.read_text().splitlines() == ["kept in", "kept in", "True True"]


def test_an_interpreter_behind_several_links_is_found(tmp_path: Path, sandbox: Real) -> None:
    """``venv/bin/python`` leads to a link in a third directory, as with an interpreter from ``~/.local/bin``."""
    between = tmp_path / "local/bin/python3"
    between.parent.mkdir(parents=True)
    between.symlink_to(BASE_PYTHON)
    subprocess.run([between, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (tmp_path / "work").mkdir()
    program = """
        import sys
        from pathlib import Path
        from vademecum.sandbox.available import choose_sandbox
        from vademecum.sandbox.base import Jail, own_python
        from vademecum.sandbox.process import Streams, run_command

        place, name = Path(sys.argv[1]), sys.argv[2]
        python = own_python()
        jail = Jail(place / "work", {}, python.readable, (place / "work",))
        words = [*python.words, "-c", "import sys; print(sys.prefix)"]
        run_command(choose_sandbox(name), words, jail, streams=Streams(place / "out", place / "err"))
        print((place / "out").read_text() + (place / "err").read_text())
    """
    words: list[str | Path] = [
        tmp_path / "venv/bin/python",
        "-c",
        textwrap.dedent(program),
        tmp_path,
        sandbox,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, env=environment, check=False, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "venv"), done.stderr


def test_a_link_in_a_linked_directory_leads_where_the_system_says(tmp_path: Path) -> None:
    """Joined as text, ``bin/tool`` would lead to ``.ssh`` beside the project, which a script must not see."""
    project = tmp_path / "project"
    (project / "a/b/c/d").mkdir(parents=True)
    (project / "bin").symlink_to("a/b/c/d")
    for place in (project / "a/b/.ssh", tmp_path / ".ssh"):
        place.mkdir()
        (place / "id_rsa").write_text("x")
    (project / "a/b/c/d/tool").symlink_to("../../.ssh/id_rsa")
    shown = home_of(str(project / "bin/tool"))
    assert shown == (project / "bin/tool", project / "a/b/.ssh/id_rsa")
