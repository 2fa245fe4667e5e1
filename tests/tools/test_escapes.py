"""G2: scripts that try to get out, in every sandbox. Each is stopped, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import write_skill
from tests.tools.support import Bench
from vademecum.config import ExecutionSettings
from vademecum.errors import SandboxFailed
from vademecum.policy.approval import Answer, Question
from vademecum.policy.base import Effect, Rule
from vademecum.policy.engine import Policy
from vademecum.sandbox.available import Landlock, Real, choose_sandbox
from vademecum.sandbox.base import Jail
from vademecum.sandbox.process import Streams, run_command

READS = """
    import sys
    for path in sys.argv[1:]:
        try:
            print(open(path, 'rb').read(20))
        except OSError as error:
            print('kept out', type(error).__name__)
"""
WRITES = """
    import sys
    for path in sys.argv[1:]:
        try:
            open(path, 'a').write('x')
            print('wrote')
        except OSError as error:
            print('kept out', type(error).__name__)
"""


def test_reading_what_it_was_not_given(bench: Bench) -> None:
    secrets = [bench.place / "home/.ssh/id_rsa", bench.place / "project/private.txt"]
    for secret in secrets:
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("secret")
    other = write_skill(bench.place / "root", "other")
    bench.script(READS)
    wanted = [
        *map(str, secrets),
        "/etc/shadow",
        "/etc/passwd",
        str(other / "SKILL.md"),
        str(Path.home() / ".bashrc"),
    ]
    wanted += ["/proc/1/environ", f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/cmdline"]
    bench.script(READS.replace("sys.argv[1:]", repr(wanted)))  # as an argument, a file would be given
    lines = bench.printed().splitlines()
    # Inside of its own namespace, 1 is the sandbox's first process, which has nothing but the script's own.
    own = [line for line in lines if not line.startswith("kept out")]
    assert len(lines) == len(wanted)
    assert all(b"secret" not in line.encode() for line in own)
    assert len(own) <= (1 if bench.sandbox == "bubblewrap" else 0), lines
    assert bench.goes_on()


def test_the_environment_of_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VADE_TEST_SECRET", "do-not-leak")
    bench.script(
        """
        import os, glob
        print(sorted(os.environ))
        for file in glob.glob('/proc/*/environ'):
            try:
                print(b'do-not-leak' in open(file, 'rb').read())
            except OSError:
                pass
        """
    )
    printed = bench.printed()
    assert "VADE_TEST_SECRET" not in printed
    assert "True" not in printed
    names = set(eval(printed.splitlines()[0]))
    assert names <= {
        "GIT_CONFIG_NOSYSTEM",
        "HOME",
        "LANG",
        "LC_CTYPE",
        "PATH",
        "PWD",
        "PYTHONUNBUFFERED",
        "TMPDIR",
    }


def test_the_environment_it_is_given(tmp_path: Path, sandbox: Real) -> None:
    settings = ExecutionSettings(environment=("WANTED", "ABSENT"))
    bench = Bench(tmp_path, sandbox, execution=settings, env={"WANTED": "yes", "OTHER": "no"})
    bench.script(
        "import os; print(os.environ.get('WANTED'), os.environ.get('OTHER'), os.environ.get('ABSENT'))"
    )
    assert bench.printed() == "yes None None"


def test_writing_where_it_may_not(bench: Bench) -> None:
    home = bench.place / "home"
    home.mkdir()
    outside = Path("/tmp") / f"vade-escape-{os.getpid()}-{bench.sandbox}"
    bench.script(WRITES)
    skill = bench.skill / "SKILL.md"
    before = skill.read_bytes()
    snapshot = "import os, sys; print(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0]))))"
    bench.script(snapshot, "where.py")
    copy = Path(bench.printed(name="where.py"))
    bench.script(WRITES)
    targets = [
        skill,
        copy / "SKILL.md",
        copy / "new",
        home / "x",
        outside,
        Path("/usr/x"),
        Path("/etc/x"),
        Path("/x"),
    ]
    lines = bench.printed(*map(str, targets)).splitlines()
    # bubblewrap has a /tmp of its own; what is written there is gone afterwards.
    allowed = {outside} if bench.sandbox == "bubblewrap" else set()
    assert [target for target, line in zip(targets, lines, strict=True) if line == "wrote"] == sorted(allowed)
    assert skill.read_bytes() == before
    assert not any(path.exists() for path in (copy / "new", home / "x", outside))
    assert bench.goes_on()


def test_its_own_places_are_writable(bench: Bench) -> None:
    bench.script(
        """
        import os, pathlib, shutil, tempfile
        pathlib.Path('out').mkdir()
        pathlib.Path('out/made.txt').write_text('made')
        shutil.copy2('out/made.txt', 'copy.txt')
        pathlib.Path.home().joinpath('x').write_text('x')
        tempfile.NamedTemporaryFile(mode='w').write('x')
        print(os.getcwd() == os.path.realpath('.'), os.environ['HOME'] != os.getcwd())
        """
    )
    seen = bench.run()
    assert [output.name for output in seen.outputs] == ["copy.txt", "out/made.txt"]
    assert seen.outputs[1].file.read_text() == "made"


def test_inputs_are_readable_by_name_and_nothing_else_is(bench: Bench) -> None:
    (bench.project / "data").mkdir()
    for name in ("a.txt", "data/b.txt", "c.txt"):
        (bench.project / name).write_text(f"content of {name}")
    wanted = ["a.txt", "data/b.txt", "c.txt", str(bench.project / "c.txt")]
    bench.script(READS.replace("sys.argv[1:]", repr(wanted)))
    lines = bench.printed("a.txt", files=("data/b.txt",))
    assert lines.splitlines() == [
        "b'content of a.txt'",
        "b'content of data/b.tx'",
        "kept out FileNotFoundError",
        "kept out PermissionError" if bench.sandbox == "landlock" else "kept out FileNotFoundError",
    ]
    bench.script(WRITES)
    seen = bench.run("a.txt")  # a copy of its own
    assert [output.name for output in seen.outputs] == ["a.txt"]
    assert (bench.project / "a.txt").read_text() == "content of a.txt"


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """A server on loopback, TCP and UDP, that notes who came."""
    came: list[str] = []
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", port))

    def accept() -> None:
        while True:
            try:
                tcp.accept()[0].close()
            except OSError:
                return
            came.append("tcp")

    def receive() -> None:
        while True:
            try:
                if not udp.recvfrom(100)[0]:
                    return
            except OSError:
                return
            came.append("udp")

    threads = [threading.Thread(target=accept, daemon=True), threading.Thread(target=receive, daemon=True)]
    for thread in threads:
        thread.start()
    yield port, came
    tcp.shutdown(socket.SHUT_RDWR)
    tcp.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(b"", ("127.0.0.1", port))
    for thread in threads:
        thread.join(timeout=5)
    udp.close()


REACHES = """
    import socket, sys
    port = int(sys.argv[1])
    def attempt(what, do):
        try:
            do()
            print(what, 'reached')
        except OSError as error:
            print(what, 'kept in')
    attempt('tcp', lambda: socket.create_connection(('127.0.0.1', port), timeout=5))
    attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port)))
    attempt('name', lambda: socket.getaddrinfo('vademecum.example.org', 80))
    attempt('unix', lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[2]))
"""


def test_the_network(bench: Bench, server: tuple[int, list[str]], tmp_path: Path) -> None:
    port, came = server
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "s"))
    local.listen()
    bench.script(REACHES)
    lines = bench.printed(str(port), str(tmp_path / "s")).splitlines()
    # A datagram may be sent inside a network of its own; it arrives nowhere.
    assert [line for line in lines if not line.startswith("udp")] == [
        "tcp kept in",
        "name kept in",
        "unix kept in",
    ]
    assert came == []
    assert "tcp reached" in bench.printed(str(port), str(tmp_path / "s"), network=True)
    local.close()


def test_forking_without_end(bench: Bench) -> None:
    bench.script("import os\nwhile True:\n    os.fork()")
    seen = bench.run()
    assert seen.facts["reason"] in {"processes", "memory"}  # whichever limit so many interpreters reach first
    assert bench.goes_on()


def test_forking_without_end_and_without_complaint(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, execution=ExecutionSettings(seconds=1, processes=10))
    bench.script(
        """
        import os
        while True:
            try:
                os.fork()
                open('heartbeat', 'a').write('x')
            except OSError:
                pass
        """
    )
    seen = bench.run()
    assert seen.facts["reason"] in {"processes", "time"}
    assert stops(seen.outputs[0].file)
    assert Bench(tmp_path / "next", sandbox).goes_on()


HEARTBEAT = """
    import os, sys, time, signal
    if {daemon}:
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        with open('heartbeat', 'a') as file:
            file.write('x')
        time.sleep(0.01)
"""


def stops(heartbeat: Path) -> bool:
    """Whether a file that something appends to all the time stops growing."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before = heartbeat.stat().st_size if heartbeat.exists() else -1
        time.sleep(0.3)
        if (heartbeat.stat().st_size if heartbeat.exists() else -1) == before:
            return True
    return False


def still_runs(place: Path) -> bool:
    """Whether a process goes on that was started with a script below this place."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"{place}/runs/".encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                return True
    return False


def beats(place: Path) -> Path:
    """The file of a script that runs, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for found in place.glob("runs/*/calls/*/work/heartbeat"):
            return found
        time.sleep(0.01)
    raise AssertionError("the script never ran")


def test_a_daemon_does_not_outlive_its_script(bench: Bench) -> None:
    bench.script(HEARTBEAT.format(daemon=True))
    seen = bench.run()
    assert (seen.facts["reason"], seen.facts["exit_code"]) == ("exited", 0)
    assert not still_runs(bench.place)
    assert bench.goes_on()


def test_ignoring_sigterm_does_not_help(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, execution=ExecutionSettings(seconds=1))
    bench.script(HEARTBEAT.format(daemon=False))
    seen = bench.run()
    assert (seen.code, seen.facts["reason"], seen.facts["exit_code"]) == ("stopped-time", "time", None)
    assert "it took more than its time (execution.seconds)" in seen.text
    assert stops(seen.outputs[0].file)
    assert Bench(tmp_path / "next", sandbox).goes_on()


@pytest.mark.parametrize(("number", "daemon"), [(signal.SIGKILL, True), (signal.SIGINT, False)])
def test_when_we_die_so_does_the_script(tmp_path: Path, sandbox: Real, number: int, daemon: bool) -> None:
    bench = Bench(tmp_path, sandbox)
    # The daemon's first process stays as well, or its end would be the script's.
    text = HEARTBEAT.format(daemon=daemon).replace("os._exit(0)", "time.sleep(1000)", 1)
    bench.script(text)
    code = (
        "import sys; from pathlib import Path; from tests.tools.support import Bench\n"
        "place = Path(sys.argv[1])\n"
        "bench = object.__new__(Bench); from vademecum.config import ExecutionSettings; from vademecum.policy.engine import AllowAll\n"
        "bench.place, bench.sandbox, bench.project, bench.approver, bench.env, bench.records = place, sys.argv[2], place / 'project', None, {}, []\n"
        "bench.execution, bench.policy = ExecutionSettings(), AllowAll()\n"
        "bench.run()"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), sandbox], stderr=subprocess.DEVNULL)
    heartbeat = beats(tmp_path)
    driver.send_signal(number)
    assert driver.wait(timeout=60) != 0
    assert stops(heartbeat)


def of_place(place: Path) -> list[str]:
    """The processes that have to do with a place, by what they were started with."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes()
            words += Path(f"/proc/{number}/environ").read_bytes()
        except OSError:
            continue
        if str(place).encode() in words and int(number) != os.getpid():
            found.append(f"{number}: {words[:60]!r}")
    return found


def test_when_we_die_while_it_is_being_started(tmp_path: Path, sandbox: Real) -> None:
    """All that the kernel does of our death is to close what we held, so that is done here, at the worst moment."""
    jail = Jail(tmp_path, {"OF": str(tmp_path)}, (), (tmp_path,))
    launch = choose_sandbox(sandbox).launch(["/bin/sleep", "1000"], jail)
    started = subprocess.Popen(
        launch.words,
        env={"OF": str(tmp_path)},
        stdin=launch.stdin,
        stderr=subprocess.DEVNULL,
        pass_fds=launch.pass_on,
        start_new_session=True,
    )
    for end in (launch.status, launch.lifeline, launch.release):
        end.close()
    for descriptor in (launch.stdin, *launch.pass_on):
        if descriptor is not None:
            os.close(descriptor)
    started.wait(timeout=60)
    deadline = time.monotonic() + 60
    while (left := of_place(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_printing_without_end(bench: Bench) -> None:
    bench.script(
        """
        import sys
        line = 'x' * 1_000_000
        for _ in range(1000):
            sys.stdout.write(line)
        """
    )
    seen = bench.run()
    assert Path(seen.files[0]).stat().st_size <= 16 * 1024 * 1024
    assert seen.facts["exit_code"] != 0
    assert len(seen.text) < 25_000
    assert "bytes left out, kept in" in seen.text
    assert bench.goes_on()


def test_eating_memory(bench: Bench) -> None:
    bench.script("data = []\nwhile True:\n    data.append(bytearray(16 * 1024 * 1024))")
    seen = bench.run()
    assert seen.facts["reason"] == "memory" or "MemoryError" in seen.text
    assert bench.goes_on()


def test_eating_memory_together(bench: Bench) -> None:
    bench.script(
        """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                data = bytearray(100 * 1024 * 1024)
                for i in range(0, len(data), 4096):
                    data[i] = 1
                time.sleep(100)
        time.sleep(100)
        """
    )
    assert bench.run().facts["reason"] == "memory"
    assert bench.goes_on()


def test_filling_the_disk(bench: Bench) -> None:
    bench.script(
        """
        import itertools, time
        for n in itertools.count():
            with open(f'file{n}', 'wb') as file:
                file.write(b'x' * 4_000_000)
            time.sleep(0.01)
        """
    )
    assert bench.run().facts["reason"] == "disk"
    assert bench.goes_on()


def test_a_background_child_that_holds_the_output(bench: Bench) -> None:
    bench.script("import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('done')")
    seen = bench.run()
    assert (seen.facts["reason"], seen.facts["exit_code"]) == ("exited", 0)
    assert "done" in seen.text


class Swapping:
    """Says yes, and changes the script while the person is looking at it."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        self._script.write_text("print('another')")
        return Answer("once")


def test_what_was_approved_is_what_runs(tmp_path: Path, sandbox: Real) -> None:
    rules = [Rule("*", "*", Effect.ALLOW, "test", 1), Rule("script", "*", Effect.ASK, "test", 2)]
    bench = Bench(tmp_path, sandbox, policy=Policy(rules))
    script = bench.script("print('approved')")
    bench.approver = swapping = Swapping(script)
    assert bench.printed() == "approved"
    assert "print('approved')" in swapping.asked[0].about
    assert bench.printed() == "another"  # which was approved by then
    assert "print('another')" in swapping.asked[1].about


def test_a_script_that_changes_itself_changes_nothing(bench: Bench) -> None:
    bench.script(
        """
        import sys
        try:
            open(sys.argv[0], 'w').write('print(1)')
        except OSError:
            print('kept out')
        """
    )
    assert bench.printed() == "kept out"
    assert bench.printed() == "kept out"


def test_ten_thousand_arguments(bench: Bench) -> None:
    bench.script("import sys; print(len(sys.argv), sys.argv[-1])")
    assert bench.printed(*map(str, range(10_000))) == "10001 9999"
    seen = bench.run(*["x" * 100_000] * 100)
    assert (seen.code, seen.text) == (
        "tool-refused",
        "The arguments are longer than the system takes: pass fewer or shorter ones.",
    )
    assert bench.goes_on()


def test_arguments_are_never_read_by_a_shell(bench: Bench) -> None:
    bench.script("import sys; print(sys.argv[1:])")
    words = ["$(touch x)", "; rm -rf /", "a b", "*", "--help", ""]
    assert eval(bench.printed(*words)) == words


def test_exit_codes_are_results(bench: Bench) -> None:
    bench.script("import sys; print('no'); sys.exit(3)")
    seen = bench.run()
    assert (seen.ok, seen.facts["exit_code"]) == (True, 3)
    bench.script("import os; os.kill(os.getpid(), 9)")
    assert bench.run().facts["exit_code"] == 137


def test_without_execute_bit_and_with_windows_line_ends(bench: Bench) -> None:
    bench.script(b"#!/bin/sh\r\nexit 0\n", "crlf.sh")
    bench.script(b"#!/usr/bin/env -S bash -e\necho $BASH_VERSION\n", "plain")
    bench.script(b"#!/usr/bin/env python3\r\nprint('crlf')\r\n", "crlf.py")
    assert not os.access(bench.skill / "scripts/plain", os.X_OK)
    assert bench.run(name="crlf.sh").facts["exit_code"] == 0
    assert bench.printed(name="plain")
    assert bench.printed(name="crlf.py") == "crlf"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "x.sh",
            "#!/opt/none/such-interpreter\n",
            "'x.sh' needs 'such-interpreter', which is not installed here.",
        ),
        ("x.rb", "puts 1\n", "It is unclear how to run 'x.rb'"),
        ("x", "#!\n", "The first line of 'x' names no interpreter."),
        ("x", "#!'\n", "The first line of 'x' names no interpreter."),
        ("x.bin", b"\x7fELF....", "'x.bin' is a program without its execute bit."),
    ],
)
def test_scripts_that_cannot_be_started(bench: Bench, name: str, text: str | bytes, reason: str) -> None:
    bench.script(text, name)
    seen = bench.run(name=name)
    assert (seen.code, seen.text[: len(reason)]) == ("interpreter", reason)


def test_a_sandbox_that_cannot_start_is_an_error(bench: Bench, tmp_path: Path) -> None:
    jail = Jail(tmp_path / "missing", {}, readable=(tmp_path / "missing",), writable=())
    streams = Streams(tmp_path / "out", tmp_path / "err")
    with pytest.raises(SandboxFailed, match=r"could not start the command .*: nothing ran"):
        run_command(choose_sandbox(bench.sandbox), ["/bin/true"], jail, streams=streams)
    assert (streams.out.read_bytes(), streams.err.read_bytes()) == (b"", b"")


def test_a_filter_that_the_kernel_does_not_take_is_an_error(tmp_path: Path) -> None:
    class WithoutFilter(Landlock):
        def _confinement(self, jail: Jail) -> dict[str, object]:
            return super()._confinement(jail) | {"filter": b""}

    jail = Jail(tmp_path, {}, readable=(), writable=(tmp_path,))
    streams = Streams(tmp_path / "out", tmp_path / "err")
    with pytest.raises(SandboxFailed, match="seccomp: Invalid argument"):
        run_command(WithoutFilter(), ["/usr/bin/touch", "ran"], jail, streams=streams)
    assert not (tmp_path / "ran").exists()


def test_other_processes_are_out_of_reach(bench: Bench) -> None:
    victim = subprocess.Popen(["sleep", "100"])
    try:
        bench.script(
            """
            import ctypes, os, sys, resource
            pid = int(sys.argv[1])
            for attempt in (
                lambda: os.kill(pid, 9),
                lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)),
                lambda: open(f'/proc/{pid}/mem', 'rb').read(1),
            ):
                try:
                    attempt()
                    print('reached')
                except OSError:
                    print('kept in')
            libc = ctypes.CDLL(None)
            print(libc.ptrace(16, pid, 0, 0), libc.unshare(0x10000000), libc.mount(b'/', b'/mnt', None, 4096, None))
            """
        )
        assert bench.printed(str(victim.pid)).splitlines() == ["kept in"] * 3 + ["-1 -1 -1"]
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_metadata_of_other_files_stays(bench: Bench) -> None:
    victim = bench.project / "a.txt"
    victim.write_text("x")
    victim.chmod(0o600)
    bench.script(
        """
        import os, sys
        for path in sys.argv[1:]:
            for attempt in (lambda: os.chmod(path, 0o777), lambda: os.utime(path, (1, 1)), lambda: os.truncate(path, 0)):
                try:
                    attempt()
                except OSError:
                    pass
        """
    )
    bench.printed("a.txt", str(victim), "/usr/bin/env", files=("a.txt",))
    found = victim.stat()
    assert (found.st_mode & 0o777, found.st_mtime > 1, found.st_size) == (0o600, True, 1)
    assert os.stat("/usr/bin/env").st_mtime > 1


def test_none_is_only_by_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    bench.script(HEARTBEAT.format(daemon=True))
    seen = bench.run()
    assert seen.facts["sandbox"] == "none"
    assert not still_runs(bench.place)
    assert choose_sandbox("auto").name != "none"


def test_nothing_to_read_on_standard_input(bench: Bench) -> None:
    bench.script("import sys; print(repr(sys.stdin.read()))")
    assert bench.printed() == "''"


def test_opening_files_without_end(bench: Bench) -> None:
    bench.script("held = []\nwhile True:\n    held.append(open('/dev/null'))")
    seen = bench.run()
    assert (seen.facts["exit_code"], "Too many open files" in seen.text) == (1, True)
    assert bench.goes_on()


def test_javascript_where_node_is(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, execution=ExecutionSettings(seconds=30))
    bench.script(
        "console.log(process.argv.slice(2).join('+'), Object.keys(process.env).includes('HOME'))", "x.js"
    )
    seen = bench.run("a", "b", name="x.js")
    if seen.code == "interpreter":
        pytest.skip(seen.text)
    assert "a+b true" in seen.text
