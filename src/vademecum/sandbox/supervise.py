"""A program of its own: starts one command, confined if asked, and ends everything when its time has come.

It runs in a fresh interpreter, whose start is most of what a sandbox costs: it imports little (``json``,
``signal``, ``typing``, ``ctypes`` would double its time, ``os`` alone is a tenth of it). Its code and its job
come on one descriptor; it speaks about them in lines of JSON on another, and watches a third, the lifeline:
when that is closed, whoever wanted the command is gone or has had enough.
"""

from __future__ import annotations

import _ctypes
import _struct as struct
import posix as os
import sys

from vademecum.sandbox.tree import SIGKILL, end_all_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Function(_ctypes.CFuncPtr):
    """A function of the C library; numbers are passed as C longs, bytes as pointers.

    All of them answer -1 for a fault, and most as an ``int``: read as a ``long``, that would be no fault.
    """

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def _of_libc(name: str) -> Callable[..., int]:
    itself: Any = None
    found = _Function(_ctypes.dlsym(_ctypes.dlopen(itself, 0), name))
    return lambda *words: found(*(_Long(word) if isinstance(word, int) else word for word in words))


_prctl, _syscall, _capset = _of_libc("prctl"), _of_libc("syscall"), _of_libc("capset")
_setrlimit, _poll = _of_libc("setrlimit"), _of_libc("poll")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
_SECCOMP_FILTER, _PATH_BENEATH, _POLLIN = 2, 1, 1
_NICE = 10
_CAPABILITY_VERSION = 0x20080522
_READ, _FILE_ONLY, _DEVICES = 0b1101, 0b1100000000000111, (1 << 6) | (1 << 11)
_KIND, _DIRECTORY = 0o170000, 0o040000
_ALL_FS, _ALL_NET, _ALL_SCOPES = 0xFFFF, 0b11, 0b11

# Nothing that would end a text in JSON, or is none.
_PLAIN = bytes(byte if 32 <= byte < 127 and byte not in b'"\\' else 63 for byte in range(256))


def _copy(content: bytes) -> Any:
    """The same bytes at a place in memory that has an address, and that a function may write to."""
    kind: Any = type("_Bytes", (_ctypes.Array,), {"_length_": len(content), "_type_": _Char})
    return kind.from_buffer_copy(content)


def landlock_version() -> int:
    """Which Landlock this kernel has; 0 for none."""
    return max(0, int(_syscall(_CREATE_RULESET, None, 0, 1)))


def main(job: dict[str, Any]) -> None:
    """Do the job, and end."""
    status, lifeline = (int(word) for word in sys.argv[2:4])
    _prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    fault, complain = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(status)
        os.close(lifeline)
        _become(job, complain)
    os.close(complain)
    with open(fault, "rb") as words:
        fault_words = words.read()  # ends when the command was started
    if fault_words:
        _say(status, b'{"error": "%s"}\n' % fault_words.translate(_PLAIN))
        os._exit(1)
    _say(status, b'{"started": true}\n')
    code = _wait(child, lifeline)
    while end_all_below(os.getpid()):
        _reap()
    if code is not None:
        _say(status, b'{"exit-code": %d}\n' % code)
    os._exit(0)


def _say(status: int, words: bytes) -> None:
    """Say it to whoever wanted the command; if nobody is there any more, the lifeline will tell."""
    try:
        os.write(status, words)
    except BrokenPipeError:
        return


def _wait(child: int, lifeline: int) -> int | None:
    """The command's exit code, or nothing when the lifeline was cut first."""
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
    """Which of these have something to say, after a second at most."""
    asked = b"".join(struct.pack("iHH", descriptor, _POLLIN, 0) for descriptor in descriptors)
    entries = _copy(asked)
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


def _become(job: dict[str, Any], complain: int) -> None:
    """Turn into the command; whatever goes wrong is said, and nothing runs."""
    try:
        _prctl(_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        for door in job["doors"]:
            with open(door, "w") as group:
                group.write(str(os.getpid()))
        os.nice(_NICE)
        os.chdir(job["directory"])
        for number, most in job["limits"]:
            _must(_setrlimit(number, struct.pack("QQ", most, most)), "setrlimit")
        if job["confined"]:
            _confine(job)
        os.execve(job["argv"][0], job["argv"], job["environment"])
    except BaseException as error:  # noqa: BLE001 - this process may do nothing else any more
        os.write(complain, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _confine(job: dict[str, Any]) -> None:
    _must(_prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    _landlock(job)
    program = job["filter"]
    code = _copy(program)
    wanted = struct.pack("HxxxxxxP", len(program) // 8, _ctypes.addressof(code))
    _must(_prctl(_SET_SECCOMP, _SECCOMP_FILTER, wanted, 0, 0), "seccomp")


def _drop_capabilities() -> None:
    """Root in a sandbox is nobody special."""
    if os.geteuid() != 0:
        return
    for number in range(64):
        if _prctl(_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel has no more of them
    header, none = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
    _must(_capset(header, none), "capset")


def _landlock(job: dict[str, Any]) -> None:
    version = landlock_version()
    fs = _ALL_FS if version >= 5 else (1 << 15) - 1
    net = _ALL_NET if version >= 4 and not job["network"] else 0
    scoped = _ALL_SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", fs, net, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    _must(ruleset, "landlock_create_ruleset")
    own = [f"/proc/{os.getpid()}"]
    for paths, rights in ((job["readable"] + own, _READ), (job["writable"], fs & ~_DEVICES)):
        for path in paths:
            _allow(ruleset, path, rights & fs)
    _must(_syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if os.fstat(target).st_mode & _KIND != _DIRECTORY:
        rights &= _FILE_ONLY
    rule = struct.pack("=Qi", rights, target)
    done = _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    _must(done, f"landlock_add_rule for {path}")
    os.close(target)


def _must(result: int, what: str) -> None:
    if result < 0:
        raise OSError(_ctypes.get_errno(), f"{what}: {os.strerror(_ctypes.get_errno())}")
