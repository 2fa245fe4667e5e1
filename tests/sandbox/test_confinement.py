"""Ways out of a sandbox that were found: other processes, watched directories, uncounted memory, sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sandbox.support import Cell
from vademecum.sandbox.base import Limits

ATTEMPTS = """
    import ctypes, os, struct, sys
    libc = ctypes.CDLL(None, use_errno=True)
    pid = int(sys.argv[1])
    def attempt(what, result):
        print(what, 'done' if result == 0 else 'refused')
    def syscall(number, *words):
        return libc.syscall(number, *(ctypes.c_long(w) if isinstance(w, int) else w for w in words))
    SETPRIORITY, IOPRIO_SET, SETPARAM, SETSCHEDULER, SETAFFINITY, SETATTR = (
        (141, 251, 142, 144, 203, 314) if os.uname().machine == 'x86_64' else (140, 30, 118, 119, 122, 274)
    )
    batch = struct.pack('IIQiIQQQ', 48, 3, 0, 0, 0, 0, 0, 0)
    attempt('setpriority', syscall(SETPRIORITY, 0, pid, 19))
    attempt('setpriority of the user', syscall(SETPRIORITY, 2, 0, 19))
    attempt('ioprio_set', syscall(IOPRIO_SET, 1, pid, 3 << 13))
    attempt('ioprio_set of the user', syscall(IOPRIO_SET, 3, os.getuid(), 3 << 13))
    attempt('sched_setparam', syscall(SETPARAM, pid, struct.pack('i', 0)))
    attempt('sched_setscheduler', syscall(SETSCHEDULER, pid, 3, struct.pack('i', 0)))
    attempt('sched_setaffinity', syscall(SETAFFINITY, pid, 8, struct.pack('Q', 1)))
    attempt('sched_setattr', syscall(SETATTR, pid, batch, 0))
    """
NAMES = [
    "setpriority",
    "setpriority of the user",
    "ioprio_set",
    "ioprio_set of the user",
    "sched_setparam",
    "sched_setscheduler",
    "sched_setaffinity",
    "sched_setattr",
]


def scheduling(pid: int) -> tuple[object, ...]:
    return os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid), os.sched_getaffinity(pid)


# Without capabilities, so that the kernel treats it like a process of an ordinary user, also for root.
VICTIM = """
import ctypes, struct, time
assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def victim() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def test_scheduling_of_other_processes(cell: Cell, victim: int) -> None:
    before = scheduling(victim)
    lines = cell.printed(ATTEMPTS, str(victim))
    assert scheduling(victim) == before
    if cell.name == "landlock":
        assert lines == [f"{name} refused" for name in NAMES]


def test_scheduling_of_itself(cell: Cell) -> None:
    code = """
        import os
        os.nice(1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        print(len(os.sched_getaffinity(0)), os.sched_getscheduler(0) == os.SCHED_BATCH)
        """
    assert cell.printed(code) == ["1 True"]


WATCHES = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    print('watched' if libc.inotify_add_watch(watch, sys.argv[1].encode(), 0xFFF) >= 0 else 'refused')
    print('marked' if libc.fanotify_init(0x200, 0) >= 0 and os.path.exists(sys.argv[1]) else 'refused')
    for attempt in (os.listxattr, lambda path: os.getxattr(path, 'user.x')):
        try:
            print(attempt(sys.argv[1]))
        except OSError:
            print('refused')
    """


def test_watching_a_directory_that_was_not_given(cell: Cell) -> None:
    home = cell.place / "home"
    home.mkdir()
    with contextlib.suppress(OSError):  # if the file system has no attributes, the rest is tried all the same
        os.setxattr(home, "user.x", b"secret")
    assert cell.printed(WATCHES, str(home)) == ["refused"] * 4


def test_copies_work_without_attributes(cell: Cell) -> None:
    code = """
        import pathlib, shutil, subprocess
        pathlib.Path('a').write_text('a')
        shutil.copy2('a', 'b')
        subprocess.run(['cp', '-a', 'a', 'c'], check=True)
        subprocess.run(['ls', '-l'], check=True, stdout=subprocess.DEVNULL)
        print(pathlib.Path('b').read_text() + pathlib.Path('c').read_text())
        """
    assert cell.printed(code) == ["aa"]


FILLS = """
    import os, socket, sys, time
    held = []
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            break
    try:
        while True:
            pair = socket.socketpair()
            held.append(pair)
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
                end.setblocking(False)
                try:
                    while True:
                        end.send(bytes(65536))
                except BlockingIOError:
                    pass
    except OSError:
        pass
    time.sleep(1000)
    """


def test_memory_in_sockets_is_counted(cell: Cell) -> None:
    cell.limits = Limits(seconds=60, memory_bytes=200 * 1024 * 1024)
    assert cell.python(FILLS, "6").reason == "memory"


def test_asyncio_works(cell: Cell) -> None:
    code = """
        import asyncio
        async def main():
            process = await asyncio.create_subprocess_exec('echo', 'hello', stdout=-1)
            print((await process.communicate())[0].decode().strip())
        asyncio.run(main())
        """
    assert cell.printed(code) == ["hello"]


CONNECTS = """
    import socket, sys
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(sys.argv[1])
            print('connected')
        except OSError:
            print('refused')
    try:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        left.sendto(b'x', sys.argv[1])
        print('sent')
    except OSError:
        print('refused')
    """


@pytest.mark.parametrize("network", ["none", "all"])
def test_a_unix_socket_in_a_directory_that_is_shown(cell: Cell, network: str) -> None:
    shown = cell.place / "s"
    shown.mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters:
        server.bind(str(shown / "stream"))
        server.listen()
        letters.bind(str(shown / "letters"))
        jail = cell.jail(readable=(shown,), network=network)
        assert cell.printed(CONNECTS, str(shown / "stream"), jail=jail) == ["refused"] * 3
        assert cell.printed(CONNECTS, str(shown / "letters"), jail=jail) == ["refused"] * 3


def test_memory_that_nobody_maps(cell: Cell) -> None:
    code = """
        import ctypes
        libc = ctypes.CDLL(None)
        print(libc.shmget(0, 1 << 20, 0o1600), libc.memfd_create(b'x', 0), libc.vmsplice(1, None, 0, 0))
        """
    assert cell.printed(code) == ["-1 -1 -1"]
