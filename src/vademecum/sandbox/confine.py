"""A program of its own: confines itself, then becomes a command.

It runs in a fresh interpreter, whose start is most of what a sandbox costs: it imports little (``json``,
``signal``, ``typing``, ``ctypes`` would double its time, ``os`` alone is a tenth of it). Its code and its job
come on one descriptor; what went wrong is written to another.
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


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Function(_ctypes.CFuncPtr):
    """A function of the C library; numbers are passed as C longs, bytes as pointers.

    All of them return -1 for a fault, and most as an ``int``: read as a ``long``, that would be no fault.
    """

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def of_libc(name: str) -> Callable[..., int]:
    """Return a function of the C library."""
    itself: Any = None
    found = _Function(_ctypes.dlsym(_ctypes.dlopen(itself, 0), name))
    return lambda *words: found(*(_Long(word) if isinstance(word, int) else word for word in words))


prctl = of_libc("prctl")
_syscall, _capset, _unshare = of_libc("syscall"), of_libc("capset"), of_libc("unshare")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_SECCOMP, _CAPBSET_DROP, _NO_NEW_PRIVS = 22, 24, 38
_SECCOMP_FILTER, _PATH_BENEATH = 2, 1
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_INTERFACE_FLAGS, _UP, _BACKLOG = 0x8914, 1, 128
_CAPABILITY_VERSION = 0x20080522
_FILE_ONLY = 0b1000000000000111 | 1 << 14  # execute, write, read, truncate, control of devices
_KIND, _DIRECTORY, _PLAIN_FILE = 0o170000, 0o040000, 0o100000
_ALL_FS, _ALL_NET, _ALL_SCOPES = 0xFFFF, 0b11, 0b11

# Nothing that would end a text in JSON, or is not ASCII.
_PLAIN = bytes(byte if 32 <= byte < 127 and byte not in b'"\\' else 63 for byte in range(256))


def in_memory(content: bytes) -> Any:
    """Return the same bytes at a place in memory that has an address, and that a function may write to."""
    kind: Any = type("_Bytes", (_ctypes.Array,), {"_length_": len(content), "_type_": _Char})
    return kind.from_buffer_copy(content)


def landlock_version() -> int:
    """Return which Landlock this kernel has; 0 for none."""
    return max(0, int(_syscall(_CREATE_RULESET, None, 0, 1)))


def main(job: dict[str, Any]) -> None:
    """Become the command, inside a sandbox that did the rest."""
    status = int(sys.argv[2])
    try:
        os.set_inheritable(status, False)  # noqa: FBT003
        confine(job)
        os.execve(job["argv"][0], job["argv"], os.environ)
    except BaseException as error:  # noqa: BLE001 - this process may do nothing else any more
        os.write(status, problem(f"{type(error).__name__}: {error}".encode()))
    os._exit(127)


def problem(words: bytes) -> bytes:
    """Return a line of JSON that says what went wrong."""
    return b'{"error": "%s"}\n' % words.translate(_PLAIN)


def confine(job: dict[str, Any]) -> None:
    """Give up everything that the job does not allow."""
    if job["doorway"] is not None:
        if job["alone"]:
            _own_network()
        _open_doorway(job["doorway"], job["port"])
    if job["filter"] is None:
        return
    must(prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    if job["rules"]:
        _landlock(job)
    program = job["filter"]
    code = in_memory(program)
    wanted = struct.pack("HxxxxxxP", len(program) // 8, _ctypes.addressof(code))
    must(prctl(_SET_SECCOMP, _SECCOMP_FILTER, wanted, 0, 0), "seccomp")


def _own_network() -> None:
    """Enter a network namespace, with a user namespace if our rights do not suffice; bring ``lo`` up."""
    import _socket  # noqa: PLC0415 - for a proxy alone
    import fcntl  # noqa: PLC0415

    user, group = os.getuid(), os.getgid()
    if _unshare(_NEW_NETWORK) < 0:
        must(_unshare(_NEW_USER | _NEW_NETWORK), "a network namespace is not allowed here, unshare")
        own = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
        for name, content in own:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(control.fileno(), _SET_INTERFACE_FLAGS, struct.pack("16sH22x", b"lo", _UP))
    control.close()


def _open_doorway(doorway: int, port: int) -> None:
    """Listen on a port inside, and hand the listening socket out."""
    import _socket  # noqa: PLC0415 - for a proxy alone

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    way = _socket.socket(fileno=doorway)
    handed = struct.pack("i", listener.fileno())
    way.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    listener.close()
    way.close()


def _drop_capabilities() -> None:
    """Give up the rights of root, here and in a user namespace, for good."""
    for number in range(64):
        if prctl(_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel has no more of them, or we have no rights
    header, none = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
    must(_capset(header, none), "capset")


def _landlock(job: dict[str, Any]) -> None:
    version = landlock_version()
    fs = _ALL_FS if version >= 5 else (1 << 15) - 1
    net = _ALL_NET if version >= 4 and not job["network"] else 0
    scoped = _ALL_SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", fs, net, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    must(ruleset, "landlock_create_ruleset")
    for path, rights, may_be_link in job["rules"]:
        _allow(ruleset, path, rights & fs, may_be_link=may_be_link)
    must(_syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, *, may_be_link: bool) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if may_be_link else os.O_NOFOLLOW))
    except (FileNotFoundError, NotADirectoryError):
        return
    kind = os.fstat(target).st_mode & _KIND
    if kind != _DIRECTORY:
        rights &= _FILE_ONLY
    if may_be_link or kind in (_DIRECTORY, _PLAIN_FILE):
        rule = struct.pack("=Qi", rights, target)
        must(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock_add_rule for {path}")
    os.close(target)


def must(result: int, what: str) -> None:
    """Raise the error of a function of the C library, if it returned one."""
    if result < 0:
        raise OSError(_ctypes.get_errno(), f"{what}: {os.strerror(_ctypes.get_errno())}")
