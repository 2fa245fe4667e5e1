"""Build a filter for the kernel (classic BPF) that blocks system calls that no script needs.

The kernel runs the filter on every system call of the script: the number, and for some calls the arguments,
are compared with lists. A call that is not allowed fails with an error, or does nothing and reports success.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache
from typing import Literal

from vademecum.errors import SandboxFailed

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER = 0x15, 0x25
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE, _PRETEND, _LACK = _ERRNO | errno.EPERM, _ERRNO, _ERRNO | errno.ENOTSUP
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _ARGUMENT_BYTES = 0, 4, 16, 8
_X32_BIT = 0x40000000
_NAMESPACES = 0x7E020000  # all CLONE_NEW* flags
_ALL_BITS = 0xFFFFFFFF
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_KIND_OF_SOCKET, _STREAM, _TCP = 0xF, 1, 6

SIGNALS_SCOPED = 6  # the first Landlock that keeps signals inside

# The allowed sockets of a command: none, internet sockets, or one to its proxy.
Sockets = Literal["none", "all", "proxy"]


def _calls(table: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of system calls on x86_64 and on aarch64, by name; -1 if there is none."""
    rows = (row.split() for row in table.split(","))
    return {name: (int(on_x86_64), int(on_aarch64)) for name, on_x86_64, on_aarch64 in rows}


# Attack surface that no script needs, in any sandbox.
ADMINISTRATION = _calls(
    """
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_getfd 438 438,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429, open_tree 428 428,
    fsopen 430 430, fsconfig 431 431, fsmount 432 432, mount_setattr 442 442, unshare 272 97, setns 308 268,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425,
    io_uring_enter 426 426, io_uring_register 427 427, keyctl 250 219, add_key 248 217, request_key 249 218,
    open_by_handle_at 304 265, name_to_handle_at 303 264, init_module 175 105, finit_module 313 273,
    delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294, reboot 169 142, swapon 167 224,
    swapoff 168 225, acct 163 89, settimeofday 164 170, clock_settime 227 112, adjtimex 159 171,
    sethostname 170 161, setdomainname 171 162, syslog 103 116, quotactl 179 60, lookup_dcookie 212 18,
    vhangup 153 58, iopl 172 -1, ioperm 173 -1, memfd_create 319 279, memfd_secret 447 447, vmsplice 278 75
    """
)
# Landlock does not control modes, owners, times and attributes of the user's files. Programs that copy files
# set them, so these calls report success.
METADATA = _calls(
    """
    chmod 90 -1, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -1, fchown 93 55, lchown 94 -1,
    fchownat 260 54, utime 132 -1, utimes 235 -1, futimesat 261 -1, utimensat 280 88, setxattr 188 5,
    lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
    setxattrat 463 463, removexattrat 466 466, file_setattr 469 469
    """
)
# These read attributes of any file of the user by path. Programs that copy files expect this error from file
# systems without attributes.
ATTRIBUTES = _calls(
    """
    getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
    flistxattr 196 13, getxattrat 464 464, listxattrat 465 465
    """
)
# These watch any directory of the user for changes, with the names of the files.
WATCHING = _calls("inotify_add_watch 254 27, fanotify_init 300 262, fanotify_mark 301 263")
# Memory that need not be mapped by a process, so it is not counted; under Landlock, all processes of the
# machine share it.
SHARED_MEMORY = _calls(
    """
    shmget 29 194, shmat 30 196, shmctl 31 195, msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187,
    semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192, mq_open 240 180
    """
)
# For commands that can reach only a proxy.
SERVING = _calls("bind 49 200, listen 50 201")
# For a Landlock that is too old to keep signals inside.
SIGNALS = _calls(
    """
    kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
    pidfd_send_signal 424 424, tgkill 234 131
    """
)


@dataclass(frozen=True, slots=True)
class ArgBound:
    """A condition on an argument of a call: its number from 0, and its allowed values under a mask."""

    argument: int
    values: tuple[int, ...]
    mask: int = _ALL_BITS


@dataclass(frozen=True, slots=True)
class Check:
    """A call that depends on its arguments: ``then`` if all bounds are met, ``otherwise`` if not."""

    numbers: tuple[int, int]
    bounds: tuple[ArgBound, ...]
    then: int = _ALLOW
    otherwise: int = _REFUSE


_ITSELF = (0,)
_STREAMS_ONLY = ArgBound(1, (_STREAM,), _KIND_OF_SOCKET)
_ALWAYS = (
    Check((56, 220), (ArgBound(0, (0,), _NAMESPACES),)),  # clone
    Check((302, 261), (ArgBound(0, _ITSELF),)),  # prlimit64
    # A pair of streams stays a pair; a datagram socket of a pair can send to other sockets.
    Check((53, 199), (_STREAMS_ONLY,)),  # socketpair
    # Buffers of sockets are not in the memory of a process: with their usual size they can be counted.
    Check((54, 208), (ArgBound(1, (1,)), ArgBound(2, (7, 8, 32, 33))), _PRETEND, _ALLOW),  # SO_*BUF*
)
# Under Landlock, a process could change the scheduling of all processes of the user, permanently.
_SCHEDULING = (
    Check((141, 140), (ArgBound(0, (0,)), ArgBound(1, _ITSELF))),  # setpriority of a process
    Check((251, 30), (ArgBound(0, (1,)), ArgBound(1, _ITSELF))),  # ioprio_set of a process
    Check((142, 118), (ArgBound(0, _ITSELF),)),  # sched_setparam
    Check((144, 119), (ArgBound(0, _ITSELF),)),  # sched_setscheduler
    Check((203, 122), (ArgBound(0, _ITSELF),)),  # sched_setaffinity
    Check((314, 274), (ArgBound(0, _ITSELF),)),  # sched_setattr
)
# fcntl with F_SETOWN, F_SETSIG, F_SETOWN_EX: these make the kernel send signals.
_OWNERSHIP = Check((72, 25), (ArgBound(1, (8, 10, 15)),), _REFUSE, _ALLOW)
# The allowed arguments of ``socket``.
_SOCKETS: dict[Sockets, tuple[ArgBound, ...]] = {
    "none": (ArgBound(0, ()),),
    "all": (ArgBound(0, (_AF_INET, _AF_INET6, _AF_NETLINK)),),
    "proxy": (ArgBound(0, (_AF_INET, _AF_INET6)), _STREAMS_ONLY, ArgBound(2, (0, _TCP))),
}
_SOCKET, _CLONE3 = (41, 198), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@cache
def filter_of(sockets: Sockets, *, landlock: int | None) -> bytes:
    """Return the filter for a command.

    ``landlock`` is the version of Landlock if only that confines the command; ``None`` is for namespaces.
    """
    if platform.machine() not in _ARCHITECTURES:
        raise SandboxFailed(f"System calls cannot be filtered on this processor ({platform.machine()}).")
    column, architecture = _ARCHITECTURES[platform.machine()]
    answers = [(ADMINISTRATION, _REFUSE), (SHARED_MEMORY, _REFUSE)]
    if sockets == "proxy":
        answers.append((SERVING, _REFUSE))
    checks = [*_ALWAYS, Check(_SOCKET, _SOCKETS[sockets])]
    if landlock is not None:
        answers += [(WATCHING, _REFUSE), (METADATA, _PRETEND), (ATTRIBUTES, _LACK)]
        checks += _SCHEDULING
        if landlock < SIGNALS_SCOPED:
            answers.append((SIGNALS, _REFUSE))
            checks.append(_OWNERSHIP)
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if column == 0:  # the x32 numbers reach the same calls
        code += [_step(_JUMP_GREATER, _X32_BIT - 1, 0, 1), _step(_RETURN, _KILL)]
    for calls, answer in answers:
        for numbers in calls.values():
            if numbers[column] >= 0:
                code += [_step(_JUMP_EQUAL, numbers[column], 0, 1), _step(_RETURN, answer)]
    # The flags of clone3 lie in memory, where a filter cannot look: programs fall back to clone.
    code += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    for check in checks:
        code += _checked(check, column)
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _checked(check: Check, column: int) -> list[bytes]:
    steps: list[bytes] = []
    for bound in check.bounds:
        steps.append(_step(_LOAD, _FIRST_ARGUMENT + _ARGUMENT_BYTES * bound.argument))
        if bound.mask != _ALL_BITS:
            steps.append(_step(_AND, bound.mask))
        for left, value in zip(range(len(bound.values), 0, -1), bound.values, strict=True):
            steps.append(_step(_JUMP_EQUAL, value, left, 0))
        steps.append(_step(_RETURN, check.otherwise))
    steps.append(_step(_RETURN, check.then))
    return [_step(_JUMP_EQUAL, check.numbers[column], 0, len(steps)), *steps]


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
