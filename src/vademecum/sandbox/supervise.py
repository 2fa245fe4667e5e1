"""A separate program that starts one command, confined if asked, and ends everything in time.

It runs in a new interpreter, whose start takes most of a sandbox's time. Therefore it imports little
(``json``, ``signal``, ``typing``, ``ctypes`` would double the time, ``os`` alone is a tenth of it). It reads
its code and its job from one descriptor, and reports to another, in lines of JSON.
"""

from __future__ import annotations

import _ctypes
import _struct as struct
import posix as os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Linux's numbers on every supported machine; the module `signal` takes long to import.
_SIGKILL, _SIGSTOP = 9, 19
_SET_PDEATHSIG, _SET_SUBREAPER = 1, 36
_ALL = 1 << 30
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_SECCOMP, _CAPBSET_DROP, _NO_NEW_PRIVS = 22, 24, 38
_SECCOMP_FILTER, _PATH_BENEATH = 2, 1
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_INTERFACE_FLAGS, _UP, _BACKLOG = 0x8914, 1, 128
_CAPABILITY_VERSION = 0x20080522
_FILE_ONLY = 0b1000000000000111 | 1 << 14  # execute, write, read, truncate, control of devices
_KIND, _DIRECTORY, _PLAIN_FILE = 0o170000, 0o040000, 0o100000
_ALL_FS, _ALL_NET, _ALL_SCOPES = 0xFFFF, 0b11, 0b11

# Safe characters: ASCII, and nothing that ends a string in JSON.
_PLAIN = bytes(byte if 32 <= byte < 127 and byte not in b'"\\' else 63 for byte in range(256))


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    """A function of the C library; numbers are passed as C longs, bytes as pointers.

    All of them return -1 for an error, most as an ``int``, which as a ``long`` would not be -1.
    """

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def _of_libc(name: str) -> Callable[..., int]:
    """Return a function of the C library, looked up when called."""
    itself: Any = None

    def call(*words: Any) -> int:
        function: Callable[..., int] = _Function(_ctypes.dlsym(_ctypes.dlopen(itself, 0), name))
        return function(*(_Long(word) if isinstance(word, int) else word for word in words))

    return call


_prctl, _syscall = _of_libc("prctl"), _of_libc("syscall")
_capset, _unshare = _of_libc("capset"), _of_libc("unshare")


def _must(result: int, what: str) -> None:
    """Raise the error that a function of the C library returned, if any."""
    if result < 0:
        raise OSError(_ctypes.get_errno(), f"{what}: {os.strerror(_ctypes.get_errno())}")


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 for none."""
    return max(0, int(_syscall(_CREATE_RULESET, None, 0, 1))) if sys.platform == "linux" else 0


def descendants(pid: int, most: int) -> list[int]:
    """Return the descendants of a process, parents before children; at most about ``most``."""
    found, done = [pid], 0
    while done < len(found) <= most:
        place, done = f"/proc/{found[done]}/task", done + 1
        try:
            threads = os.listdir(place)
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"{place}/{thread}/children", "rb") as file:
                    found += [int(word) for word in file.read().split()]
            except OSError:
                continue
    return found[1:]


def main(job: dict[str, Any]) -> None:
    """Start the command and supervise it; or become it, inside a sandbox that does the rest."""
    complain, *pipes = (int(word) for word in sys.argv[2:])
    parent = os.getpid() if pipes else 0
    if pipes:
        complain = _supervise(complain, *pipes)  # continues in a child
    try:
        os.set_inheritable(complain, False)  # noqa: FBT003
        if parent:
            os.chdir(job["directory"])
        _confine(job)
        if parent:
            _prctl(_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # again, because a user namespace resets it
            if os.getppid() != parent:
                os._exit(127)
        os.execve(job["argv"][0], job["argv"], job.get("environment", os.environ))
    except BaseException as error:  # noqa: BLE001 - this process must do nothing else
        os.write(
            complain, b'{"error": "%s"}\n' % f"{type(error).__name__}: {error}".encode().translate(_PLAIN)
        )
    os._exit(127)


def _supervise(status: int, lifeline: int, release: int) -> int:
    """Wait for the end of a child, then exit; return only in the child, with a descriptor for errors.

    The child waits until its limits are set. Exit also when the lifeline is closed: the caller is gone, or
    cancelled the command.
    """
    _prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    fault, complain = os.pipe2(os.O_CLOEXEC)
    own = os.getpid()
    child = os.fork()
    if child == 0:
        _prctl(_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        if not _is_released(release, lifeline):
            os._exit(127)
        for descriptor in (status, lifeline, release):
            os.close(descriptor)
        return complain
    _say(status, b'{"child-pid": %d}\n' % child)
    os.close(complain)
    with open(fault, "rb") as words:
        fault_words = words.read()  # ends when the command starts
    if fault_words:
        _say(status, fault_words)
        os._exit(1)
    _say(status, b'{"started": true}\n')
    code = _wait(child, lifeline)
    while _end_all_below(own):
        _reap()
    if code is not None:
        _say(status, b'{"exit-code": %d}\n' % code)
    os._exit(0)


def _is_released(release: int, lifeline: int) -> bool:
    """Wait for the release; return false if the caller is gone or cancelled first."""
    import select  # noqa: PLC0415 - while the limits are set

    poll = select.poll()
    poll.register(release, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    return lifeline not in dict(poll.poll()) and bool(os.read(release, 1))


def _say(status: int, words: bytes) -> None:
    """Report to the caller; if the caller is gone, the lifeline will show it."""
    try:
        os.write(status, words)
    except BrokenPipeError:
        return


def _wait(child: int, lifeline: int) -> int | None:
    """Return the command's exit code, or ``None`` if the lifeline closes first."""
    import select  # noqa: PLC0415 - while the child begins

    watched, poll = os.pidfd_open(child), select.poll()
    for descriptor in (watched, lifeline):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = dict(poll.poll(1000))
        if watched in ready:
            _, status = os.waitpid(child, 0)
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if ready:
            return None
        _reap(leave=child)


def _reap(leave: int = 0) -> None:
    """Reap orphans that ended; they are our children now."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == leave:
                return
            os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            return


def _end_all_below(pid: int) -> bool:
    """Stop all descendants of a process, then kill them; return whether there were any.

    They are stopped first, so that none can start another while the rest is killed.
    """
    found = descendants(pid, _ALL)
    for number in (_SIGSTOP, _SIGKILL):
        for process in found:
            try:
                os.kill(process, number)
            except (ProcessLookupError, PermissionError):
                continue
    return bool(found)


def _confine(job: dict[str, Any]) -> None:
    """Drop all rights that the job does not allow."""
    if job["doorway"] is not None:
        _open_doorway(job["doorway"], job["port"], alone=job["alone"])
    if job["filter"] is None:
        return
    _must(_prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for number in range(64):  # root's capabilities, here and in a user namespace, permanently
        if _prctl(_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel has no more of them, or we have none
    _must(_capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)), "capset")
    if job["rules"]:
        _landlock(job)
    program = job["filter"]
    array: Any = type("_Steps", (_ctypes.Array,), {"_length_": len(program) // 8, "_type_": _Long})
    code = array.from_buffer_copy(program)  # an array has an address
    wanted = struct.pack("HxxxxxxP", len(program) // 8, _ctypes.addressof(code))
    _must(_prctl(_SET_SECCOMP, _SECCOMP_FILTER, wanted, 0, 0), "seccomp")


def _open_doorway(doorway: int, port: int, *, alone: bool) -> None:
    """If ``alone``, enter an own network; then listen on a port, and hand out the listening socket."""
    import _socket  # noqa: PLC0415 - for a proxy alone

    if alone:
        _own_network()
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    way = _socket.socket(fileno=doorway)
    handed = struct.pack("i", listener.fileno())
    way.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    listener.close()
    way.close()


def _own_network() -> None:
    """Enter a network namespace, with a user namespace if that needs more rights; bring ``lo`` up."""
    import _socket  # noqa: PLC0415 - for a proxy alone
    import fcntl  # noqa: PLC0415

    user, group = os.getuid(), os.getgid()
    if _unshare(_NEW_NETWORK) < 0:
        _must(_unshare(_NEW_USER | _NEW_NETWORK), "a network namespace is not allowed here, unshare")
        own = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
        for name, content in own:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(control.fileno(), _SET_INTERFACE_FLAGS, struct.pack("16sH22x", b"lo", _UP))
    control.close()


def _landlock(job: dict[str, Any]) -> None:
    version = landlock_version()
    fs = _ALL_FS if version >= 5 else (1 << 15) - 1
    net = _ALL_NET if version >= 4 and not job["network"] else 0
    scoped = _ALL_SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", fs, net, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    _must(ruleset, "landlock_create_ruleset")
    for path, rights, may_be_link in job["rules"]:
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if may_be_link else os.O_NOFOLLOW))
        except (FileNotFoundError, NotADirectoryError):
            continue
        kind = os.fstat(target).st_mode & _KIND
        possible = rights & fs if kind == _DIRECTORY else rights & fs & _FILE_ONLY
        if may_be_link or kind in (_DIRECTORY, _PLAIN_FILE):
            rule = struct.pack("=Qi", possible, target)
            _must(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock_add_rule for {path}")
        os.close(target)
    _must(_syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
