"""Output through pipes: append-only, seen while the command runs, capped; standard input; the end of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.support import Cell
from vademecum.errors import ToolRefused
from vademecum.sandbox.available import Real
from vademecum.sandbox.base import Limits
from vademecum.sandbox.process import MAX_STDIN_BYTES, Streams


def test_what_was_printed_stays(cell: Cell) -> None:
    cell.run(
        [
            "/bin/sh",
            "-c",
            "echo one; echo two > /dev/stdout; echo three >> /dev/stdout; echo four; : > /dev/stdout",
        ]
    )
    assert cell.streams.out.read_text() == "one\ntwo\nthree\nfour\n"
    code = """
        import os
        os.write(1, b'kept')
        for attempt in (lambda: os.ftruncate(1, 0), lambda: os.lseek(1, 0, 0)):
            try:
                attempt()
            except OSError as error:
                os.write(2, b'refused ')
        """
    cell.python(code)
    assert (cell.streams.out.read_text(), cell.streams.err.read_text()) == ("kept", "refused refused ")


def test_output_is_seen_while_the_command_runs(cell: Cell) -> None:
    """The command goes on only when its first line was seen."""
    seen = {"out": b"", "err": b""}

    def on_output(stream: str, data: bytes) -> None:
        seen[stream] += data
        if stream == "out":
            (cell.work / "go").touch()

    code = """
        import os, sys, time
        print('first')
        while not os.path.exists('go'):
            time.sleep(0.01)
        print('second', file=sys.stderr)
        """
    ended = cell.python(code, on_output=on_output)
    assert (ended.reason, ended.exit_code) == ("exited", 0)
    assert seen == {"out": b"first\n", "err": b"second\n"}


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """An event for a listener to wait for; it is set at the end, so that its thread ends too."""
    event = threading.Event()
    yield event
    event.set()


def test_a_display_that_does_not_take_it_delays_nothing(cell: Cell, blocked: threading.Event) -> None:
    cell.limits = Limits(seconds=60)
    stopped = threading.Event()

    def on_output(stream: str, data: bytes) -> None:
        stopped.set()
        blocked.wait()

    ended = cell.run(["/usr/bin/head", "-c", "20000000", "/dev/zero"], on_output=on_output)
    assert (ended.reason, ended.exit_code) == ("exited", 0)
    assert cell.streams.out.stat().st_size == 20_000_000
    assert stopped.is_set()


def test_a_display_gets_all_of_it(cell: Cell) -> None:
    seen = {"out": b"", "err": b""}

    def on_output(stream: str, data: bytes) -> None:
        seen[stream] += data

    cell.run(["/bin/sh", "-c", "seq 200000; seq 100000 >&2"], on_output=on_output)
    assert seen == {"out": cell.streams.out.read_bytes(), "err": cell.streams.err.read_bytes()}
    assert seen["out"].endswith(b"200000\n")


@pytest.mark.parametrize("words", [["/usr/bin/yes"], ["/bin/sh", "-c", "yes & yes >&2"]])
def test_output_has_a_cap(cell: Cell, words: list[str]) -> None:
    cell.limits = Limits(seconds=60, output_bytes=3_000_001)
    ended = cell.run(words)
    assert (ended.reason, ended.exit_code) == ("output", None)
    assert sum(stream.stat().st_size for stream in (cell.streams.out, cell.streams.err)) == 3_000_001


def test_exactly_the_cap_is_not_too_much(cell: Cell) -> None:
    cell.limits = Limits(seconds=60, output_bytes=1_000_000)
    ended = cell.run(["/usr/bin/head", "-c", "1000000", "/dev/zero"])
    assert (ended.reason, ended.exit_code) == ("exited", 0)


def test_a_disk_that_is_full(cell: Cell) -> None:
    cell.streams = Streams(Path("/dev/full"), cell.place / "err")
    ended = cell.run(["/bin/echo", "lost"])
    assert (ended.reason, ended.exit_code) == ("disk", None)


def test_a_grandchild_that_keeps_the_pipe_open(cell: Cell) -> None:
    ended = cell.run(["/bin/sh", "-c", "setsid sleep 1000 & echo done"])
    assert (ended.reason, ended.exit_code) == ("exited", 0)
    assert cell.streams.out.read_text() == "done\n"


def test_standard_input(cell: Cell) -> None:
    text = b"x" * 5_000_000 + b"end"
    cell.run(["/bin/cat"], stdin=text)
    assert cell.streams.out.read_bytes() == text
    cell.run(["/bin/cat", "/dev/stdin"], stdin=b"by name")
    assert cell.streams.out.read_bytes() == b"by name"
    ended = cell.run(["/bin/true"], stdin=text)  # which reads nothing of it
    assert ended.exit_code == 0
    cell.run(["/bin/cat"], stdin=b"")
    cell.run(["/bin/cat"])
    assert cell.streams.out.read_bytes() == b""


def test_standard_input_is_not_a_place_to_write_to(cell: Cell) -> None:
    code = """
        import glob, os
        for name in os.listdir('/proc/self/fd'):
            try:
                descriptor = os.open(f'/proc/self/fd/{name}', os.O_RDWR)
                if 'memfd' in os.readlink(f'/proc/self/fd/{name}'):
                    os.write(descriptor, b'y'), print('written')
            except OSError:
                pass
        print(open(0).read())
        """
    assert cell.printed(code, stdin=b"given") == ["given"]


def test_standard_input_has_a_cap(cell: Cell) -> None:
    with pytest.raises(ToolRefused, match="standard input is longer than"):
        cell.run(["/bin/cat"], stdin=bytes(MAX_STDIN_BYTES + 1))


LOUD = "import sys\nwhile True: sys.stdout.write('x' * 1000)"
QUIET = "import time; print('up'); time.sleep(1000)"


@pytest.mark.parametrize("code", [LOUD, QUIET])
def test_cancelling(cell: Cell, code: str) -> None:
    cell.limits = Limits(seconds=60, output_bytes=10**9)
    ended = cell.python(code, cancelled=lambda: cell.streams.out.stat().st_size > 0)
    assert (ended.reason, ended.exit_code) == ("cancelled", None)


def test_cancelling_before_it_began(cell: Cell) -> None:
    ended: list[str] = []

    def run() -> None:
        for _ in range(10):
            cell.limits = Limits(seconds=0.001)
            ended.append(cell.run(["/bin/true"]).reason)

    working = threading.Thread(target=run, daemon=True)
    working.start()
    working.join(timeout=60)  # a supervisor that does not notice is killed after ten seconds
    assert not working.is_alive()
    assert set(ended) <= {"time", "exited"}


@pytest.mark.parametrize("code", [LOUD, QUIET])
def test_ctrl_c(tmp_path: Path, sandbox: Real, code: str) -> None:
    driver = (
        "import sys, pathlib\nfrom tests.sandbox.support import Cell\n"
        "from vademecum.sandbox.base import Limits\n"
        "cell = Cell(pathlib.Path(sys.argv[1]), sys.argv[2], Limits(seconds=600, output_bytes=10**11))\n"
        "def seen(stream, data):\n"
        "    print('up', flush=True)\n"
        "    cell.streams.out.write_bytes(b'')\n"
        "try:\n    cell.python(sys.argv[3], on_output=seen)\nexcept KeyboardInterrupt:\n    print('ended')\n"
    )
    words = [sys.executable, "-c", driver, str(tmp_path), sandbox, code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().splitlines()[-1] == "ended"
        assert process.wait() == 0
