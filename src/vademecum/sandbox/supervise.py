"""A program of its own: starts one command, confined if asked, and ends everything when its time has come.

It runs like ``confine``, and imports as little. It speaks in lines of JSON on its second descriptor and
watches a third, the lifeline: when that is closed, the caller is gone or has cancelled the command.
"""

from __future__ import annotations

import _struct as struct
import posix as os
import sys

from vademecum.sandbox.confine import confine, in_memory, must, of_libc, prctl, problem
from vademecum.sandbox.tree import SIGKILL, end_all_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_setrlimit, _poll = of_libc("setrlimit"), of_libc("poll")
_SET_PDEATHSIG, _SET_SUBREAPER = 1, 36
_POLLIN, _NICE = 1, 10


def main(job: dict[str, Any]) -> None:
    """Do the job, and end."""
    status, lifeline = (int(word) for word in sys.argv[2:4])
    prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    fault, complain = os.pipe2(os.O_CLOEXEC)
    own = os.getpid()
    child = os.fork()
    if child == 0:
        prctl(_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        os.close(status)
        os.close(lifeline)
        _become(job, complain, parent=own)
    os.close(complain)
    with open(fault, "rb") as words:
        fault_words = words.read()  # ends when the command was started
    if fault_words:
        _say(status, problem(fault_words))
        os._exit(1)
    _say(status, b'{"started": true}\n')
    code = _wait(child, lifeline)
    while end_all_below(own):
        _reap()
    if code is not None:
        _say(status, b'{"exit-code": %d}\n' % code)
    os._exit(0)


def _say(status: int, words: bytes) -> None:
    """Tell the caller; if the caller is gone, the lifeline will show it."""
    try:
        os.write(status, words)
    except BrokenPipeError:
        return


def _wait(child: int, lifeline: int) -> int | None:
    """Return the command's exit code, or ``None`` if the lifeline was cut first."""
    watched = os.pidfd_open(child)
    while True:
        ended, cut = _ready(watched, lifeline)
        if ended:
            _, status = os.waitpid(child, 0)
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if cut:
            return None
        _reap(leave=child)


def _ready(*descriptors: int) -> list[bool]:
    """Return which descriptors have something to read, after a second at most."""
    asked = b"".join(struct.pack("iHH", descriptor, _POLLIN, 0) for descriptor in descriptors)
    entries = in_memory(asked)
    _poll(entries, len(descriptors), 1000)
    return [bool(found) for _, _, found in struct.iter_unpack("iHH", bytes(entries))]


def _reap(leave: int = 0) -> None:
    """Collect orphans that ended; they are our children now."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == leave:
                return
            os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            return


def _become(job: dict[str, Any], complain: int, *, parent: int) -> None:
    """Become the command; if something goes wrong, say so and run nothing."""
    try:
        for door in job["doors"]:
            with open(door, "w") as group:
                group.write(str(os.getpid()))
        os.nice(_NICE)
        os.chdir(job["directory"])
        for number, most in job["limits"]:
            must(_setrlimit(number, struct.pack("QQ", most, most)), "setrlimit")
        confine(job)
        prctl(_SET_PDEATHSIG, SIGKILL, 0, 0, 0)  # once more: a user namespace takes it away
        if os.getppid() != parent:
            os._exit(127)
        os.execve(job["argv"][0], job["argv"], job["environment"])
    except BaseException as error:  # noqa: BLE001 - this process may do nothing else any more
        os.write(complain, f"{type(error).__name__}: {error}".encode())
    os._exit(127)
