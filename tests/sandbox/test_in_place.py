"""Directories shown in place: read-only, with hidden files that stay hidden, and with writable paths."""

from __future__ import annotations

import contextlib
import os
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.support import Cell
from vademecum.errors import SandboxFailed
from vademecum.sandbox.available import choose_sandbox
from vademecum.sandbox.base import Mount

READS = """
    import os, sys
    for path in sys.argv[1:]:
        try:
            print(open(path).read())
        except OSError as error:
            print('kept out')
    """
WRITES = """
    import os, sys
    for path in sys.argv[1:]:
        try:
            open(path, 'a').write('x')
            print('wrote')
        except OSError as error:
            print('kept out')
    """


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with something in it that must not be read."""
    project = tmp_path / "project"
    for name in ("a.txt", "docs/b.txt", "docs/deep/c.txt", ".env", "docs/.env", "keys/one/id", "out/old.txt"):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"SECRET {name}" if ".env" in name or "keys" in name else f"content of {name}")
    return project


@pytest.fixture
def hidden(project: Path) -> tuple[Path, ...]:
    return (project / ".env", project / "docs/.env", project / "keys")


def test_a_directory_at_another_name(cell: Cell, project: Path) -> None:
    jail = cell.jail(mounted=(Mount(project, cell.work / "given/project"),))
    paths: tuple[str, ...] = ("given/project/a.txt", "given/project/docs/deep/c.txt")
    assert cell.printed(READS, *paths, jail=jail) == ["content of a.txt", "content of docs/deep/c.txt"]
    paths += ("given/project/new", "given/project/docs/new")
    assert cell.printed(WRITES, *paths, jail=jail) == ["kept out"] * 4
    assert (project / "a.txt").read_text() == "content of a.txt"
    assert not (cell.work / "given/project").exists()
    assert not (cell.work / "given/project").is_symlink()


def test_programs_descend_into_it(cell: Cell, project: Path) -> None:
    jail = cell.jail(mounted=(Mount(project, cell.work / "project"),))
    walk = "import os; print(sorted(f for _, _, files in os.walk('project/') for f in files))"
    (line,) = cell.printed(walk, jail=jail)
    assert "c.txt" in line
    if cell.name == "bubblewrap":  # Landlock can only put a link there
        cell.run(["/bin/sh", "-c", "find . -name c.txt; tar cf all.tar ."], jail=jail)
        assert cell.streams.out.read_text() == "./project/docs/deep/c.txt\n"
        with tarfile.open(cell.work / "all.tar") as archive:
            assert "./project/docs/deep/c.txt" in archive.getnames()


def test_names_outside_the_working_directory_are_refused(cell: Cell, project: Path) -> None:
    for name in (cell.work, cell.place / "elsewhere", Path("/usr/project")):
        with pytest.raises(SandboxFailed, match="not below the working directory"):
            cell.run(["/bin/true"], jail=cell.jail(mounted=(Mount(project, name),)))


def test_hidden_files(cell: Cell, project: Path, hidden: tuple[Path, ...]) -> None:
    for jail, base in (
        (cell.jail(mounted=(Mount(project, cell.work / "project"),), hidden=hidden), "project"),
        (
            cell.jail(readable=(project,), mounted=(Mount(project, cell.work / "p"),), hidden=hidden),
            str(project),
        ),
        (cell.jail(readable=(project,), hidden=hidden), str(project)),
    ):
        names = ("a.txt", "docs/b.txt", "docs/deep/c.txt", ".env", "docs/.env", "keys/one/id")
        printed = cell.printed(READS, *(f"{base}/{name}" for name in names), jail=jail)
        assert printed[:3] == ["content of a.txt", "content of docs/b.txt", "content of docs/deep/c.txt"]
        assert printed[3:] == ["kept out"] * 3
        ways = (f"{base}/docs/../.env", f"{base}/./keys/../docs/.env")
        assert cell.printed(READS, *ways, jail=jail) == ["kept out"] * 2


def test_links_do_not_reach_hidden_files(cell: Cell, project: Path, hidden: tuple[Path, ...]) -> None:
    (project / "link").symlink_to(".env")
    (project / "docs/up").symlink_to("../keys")
    (project / "out/away").symlink_to(cell.place)
    (cell.place / "outside").write_text("SECRET")
    os.link(project / ".env", project / "hard")
    names = ("link", "docs/up/one/id", "out/away/outside", "hard")
    jail = cell.jail(
        mounted=(Mount(project, cell.work / "project"),), hidden=(*hidden, project / "hard"), writable=()
    )
    assert cell.printed(READS, *(f"project/{name}" for name in names), jail=jail) == ["kept out"] * 4
    code = """
        import os
        for where in ('taken', 'project/out/taken'):
            for take in (os.link, os.rename):
                try:
                    take('project/.env', where)
                    print(open(where).read())
                except OSError:
                    print('kept out')
        """
    assert cell.printed(code, jail=jail) == ["kept out"] * 4


KEEPS_READING = """
    import time
    seen = set()
    print('up')
    while True:
        for path in ('project/.env', 'project/hard', 'project/new.txt', 'project/docs/.env'):
            try:
                seen.add(open(path).read()[:6])
            except OSError:
                pass
        try:
            open('project/docs/deep/done').close()
            break
        except OSError:
            pass
    print(sorted(seen))
    """


def test_hidden_files_that_are_replaced_while_it_runs(
    cell: Cell, project: Path, hidden: tuple[Path, ...]
) -> None:
    jail = cell.jail(mounted=(Mount(project, cell.work / "project"),), hidden=hidden)
    up = threading.Event()

    def replace() -> None:
        up.wait(60)
        os.link(project / ".env", project / "hard")
        for n in range(20):
            for name in (".env", "docs/.env", "new.txt"):
                (project / "next").write_text(f"SECRET {n}")
                os.replace(project / "next", project / name)
            time.sleep(0.005)
        (project / "docs/deep/done").touch()

    thread = threading.Thread(target=replace)
    thread.start()
    printed = cell.printed(KEEPS_READING, jail=jail, on_output=lambda *_: up.set())
    thread.join()
    assert printed == ["up", "[]"]


def test_writable_paths_in_place(cell: Cell, project: Path, hidden: tuple[Path, ...]) -> None:
    mounted = (Mount(project, cell.work / "project"),)
    jail = cell.jail(mounted=mounted, hidden=hidden, writable=(project / "out", project / "a.txt"))
    for base in ("project", str(project)):
        names = ("out/new.txt", "out/old.txt", "a.txt", "docs/b.txt", "docs/new", ".env", "new")
        printed = cell.printed(WRITES, *(f"{base}/{name}" for name in names), jail=jail)
        assert printed == ["wrote"] * 3 + ["kept out"] * 4
    assert (project / "a.txt").read_text() == "content of a.txtxx"
    assert (project / "out/new.txt").read_text() == "xx"


def test_hidden_below_writable(cell: Cell, project: Path, hidden: tuple[Path, ...]) -> None:
    jail = cell.jail(hidden=hidden, writable=(project,))
    names = ("a.txt", "out/new.txt", "docs/deep/new", ".env", "docs/.env", "keys/one/id", "keys/new")
    printed = cell.printed(WRITES, *(f"{project}/{name}" for name in names), jail=jail)
    assert printed == ["wrote"] * 3 + ["kept out"] * 4
    code = """
        import os, shutil, sys
        os.chdir(sys.argv[1])
        for attempt in (
            lambda: print(open('.env').read()),
            lambda: os.remove('.env'),
            lambda: os.truncate('.env', 0),
            lambda: os.rename('.env', 'out/x'),
            lambda: os.link('.env', 'out/x'),
            lambda: os.rename('keys', 'out/keys'),
            lambda: os.rename('keys/one/id', 'out/id'),
            lambda: os.rename('docs', 'out/docs'),
            lambda: os.rename('a.txt', '.env'),
            lambda: print(open('out/x').read()),
        ):
            try:
                attempt()
                print('done')
            except OSError:
                print('kept out')
        """
    assert cell.printed(code, str(project), jail=jail) == ["kept out"] * 10
    assert (project / ".env").read_text() == "SECRET .env"
    assert (project / "keys/one/id").exists()


def test_its_own_place_below_a_hidden_directory(cell: Cell, project: Path) -> None:
    """A run keeps its files in `.agent`, which is hidden, in the project, which is shown."""
    agent = project / ".agent"
    inside = agent / "runs" / "1" / "tmp"
    inside.mkdir(parents=True)
    (agent / "secret").write_text("SECRET")
    mounted = (Mount(project, cell.work / "project"),)
    (agent / "copies").mkdir()
    (agent / "copies/skill").write_text("a copy")
    jail = cell.jail(
        readable=(agent / "copies", project), mounted=mounted, hidden=(agent,), writable=(inside,)
    )
    assert cell.printed(READS, f"{agent}/copies/skill", f"{agent}/secret", jail=jail) == [
        "a copy",
        "kept out",
    ]
    paths = (f"{inside}/x", "project/.agent/runs/1/tmp/y", "project/.agent/z", f"{agent}/runs/z")
    assert cell.printed(WRITES, *paths, jail=jail) == ["wrote", "wrote", "kept out", "kept out"]
    assert cell.printed(READS, "project/.agent/secret", "project/a.txt", jail=jail) == [
        "kept out",
        "content of a.txt",
    ]


def test_many_hidden_files(cell: Cell, project: Path) -> None:
    for n in range(300):
        (project / f"docs/{n}.txt").write_text("content")
        (project / f"docs/{n}.key").write_text("SECRET")
    hidden = tuple(project / f"docs/{n}.key" for n in range(300))
    jail = cell.jail(mounted=(Mount(project, cell.work / "project"),), hidden=hidden)
    code = """
        import glob
        for kind in ('txt', 'key'):
            count = 0
            for path in glob.glob(f'project/docs/*.{kind}'):
                try:
                    open(path).close()
                    count += 1
                except OSError:
                    pass
            print(count)
        """
    assert cell.printed(code, jail=jail) == ["301", "0"]


@pytest.fixture
def talking(project: Path) -> Iterator[list[bytes]]:
    """A FIFO and a socket in the project, on which somebody outside listens."""
    heard: list[bytes] = []
    os.mkfifo(project / "out/fifo")
    keep = os.open(project / "out/fifo", os.O_RDWR | os.O_NONBLOCK)
    server = socket.socket(socket.AF_UNIX)
    here = os.open(project, os.O_PATH)
    server.bind(f"/proc/self/fd/{here}/out/socket")
    server.listen()
    yield heard
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        heard.append(os.read(keep, 100))
    with contextlib.suppress(BlockingIOError):
        server.accept()[0].close()
        heard.append(b"connected")
    server.close()
    os.close(keep)
    os.close(here)
    assert heard == []


@pytest.mark.parametrize("also_hidden", [False, True])
def test_fifos_and_sockets_do_not_lead_out(
    cell: Cell, project: Path, hidden: tuple[Path, ...], talking: list[bytes], also_hidden: bool
) -> None:
    code = """
        import os, socket
        for flags in (os.O_WRONLY | os.O_NONBLOCK, os.O_RDWR | os.O_NONBLOCK):
            try:
                os.write(os.open('project/out/fifo', flags), b'hello')
                print('wrote')
            except OSError:
                print('kept out')
        try:
            socket.socket(socket.AF_UNIX).connect('project/out/socket')
            print('connected')
        except OSError:
            print('kept out')
        """
    mounted = (Mount(project, cell.work / "project"),)
    if cell.name == "bubblewrap":
        with pytest.raises(SandboxFailed, match="fifo is a FIFO in a directory to show"):
            cell.run(["/bin/true"], jail=cell.jail(mounted=mounted, hidden=hidden))
        hidden += (project / "out/fifo",)
    elif also_hidden:
        hidden += (project / "out/fifo",)
    assert cell.printed(code, jail=cell.jail(mounted=mounted, hidden=hidden)) == ["kept out"] * 3


def test_what_was_there_does_not_count_as_written(cell: Cell, project: Path) -> None:
    (project / "large").write_bytes(bytes(8_000_000))
    cell.limits = type(cell.limits)(seconds=60, disk_bytes=4_000_000)
    code = "import time; time.sleep(0.3); open('x', 'w').write('x')"
    assert cell.python(code, jail=cell.jail(writable=(project,))).reason == "exited"
    code = f"import time\nopen({str(project / 'new')!r}, 'wb').write(bytes(8_000_000))\ntime.sleep(1000)"
    assert cell.python(code, jail=cell.jail(writable=(project,))).reason == "disk"


def test_without_a_sandbox_nothing_is_hidden_and_it_says_so(tmp_path: Path, project: Path) -> None:
    cell = Cell(tmp_path, "none")
    assert not choose_sandbox("none").hides
    jail = cell.jail(mounted=(Mount(project, cell.work / "project"),))
    assert cell.printed(READS, "project/a.txt", jail=jail) == ["content of a.txt"]
    with pytest.raises(SandboxFailed, match="cannot hide files"):
        cell.run(["/bin/true"], jail=cell.jail(readable=(project,), hidden=(project / ".env",)))
