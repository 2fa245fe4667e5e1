"""System calls that no script needs → a filter for the kernel (classic BPF), as bytes.

The kernel runs the filter on every system call of the script: the number is compared with a list, and what
is on it fails with an error, or does nothing and reports success.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_SET = 0x15, 0x25, 0x45
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_1 = 0, 4, 16, 24
_X32_BIT = 0x40000000
_NAMESPACES = 0x7E020000  # all CLONE_NEW* flags
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

# The numbers of a system call on x86_64 and on aarch64; -1 where there is none.
Calls = dict[str, tuple[int, int]]

# Attack surface that a script has no business with, in any sandbox.
ADMINISTRATION: Calls = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
# What Landlock does not watch: modes, owners, times and attributes of any file of the user. Programs that
# copy files set them, so they are told that it worked.
METADATA: Calls = {
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
# What is shared by all of a machine, outlives whoever made it, and Landlock does not watch.
SHARED_MEMORY: Calls = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
}
# Where Landlock is too old to keep signals inside.
SIGNALS: Calls = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "tgkill": (234, 131),
}
_SOCKET, _SOCKETPAIR, _FCNTL = (41, 198), (53, 199), (72, 25)
_CLONE, _CLONE3, _PRLIMIT64 = (56, 220), (435, 435), (302, 261)
_OWNERSHIP = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: ways to have the kernel send a signal
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def supported() -> bool:
    """Whether there is a filter for this machine."""
    return platform.machine() in _ARCHITECTURES


def filter_program(
    *, refused: Calls, pretended: Calls | None = None, families: Iterable[int] | None = None
) -> bytes:
    """The filter: ``refused`` calls fail, ``pretended`` ones do nothing and report success.

    ``families`` are the kinds of sockets that may be made; ``None`` leaves sockets alone.
    """
    column, architecture = _ARCHITECTURES[platform.machine()]
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if column == 0:  # the x32 numbers are another way to the same calls
        code += [_step(_JUMP_GREATER, _X32_BIT - 1, 0, 1), _step(_RETURN, _KILL)]
    for calls, answer in ((refused, _ERRNO | errno.EPERM), (pretended or {}, _ERRNO)):
        for numbers in calls.values():
            if numbers[column] >= 0:
                code += [_step(_JUMP_EQUAL, numbers[column], 0, 1), _step(_RETURN, answer)]
    # The flags of clone3 lie in memory, where a filter cannot look: programs fall back to clone.
    code += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    code += _if_called(_CLONE[column], _step(_JUMP_SET, _NAMESPACES, 0, 1))
    code += _if_called(_PRLIMIT64[column], _step(_JUMP_EQUAL, 0, 1, 0))  # its own limits only
    if "kill" in refused:
        code += _without_ownership(_FCNTL[column])
    if families is not None:
        if AF_UNIX not in families:
            code += _streams_only(_SOCKETPAIR[column])
        code += _sockets(_SOCKET[column], tuple(families))
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _if_called(number: int, test: bytes) -> list[bytes]:
    """Refuse a call when ``test`` of its first argument does not jump over the refusal."""
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    return [
        _step(_JUMP_EQUAL, number, 0, 4),
        _step(_LOAD, _ARGUMENT_0),
        test,
        refuse,
        _step(_RETURN, _ALLOW),
    ]


def _streams_only(number: int) -> list[bytes]:
    """A pair of streams is for ever a pair; a pair of datagram sockets can still turn to others."""
    return [
        _step(_JUMP_EQUAL, number, 0, 5),
        _step(_LOAD, _ARGUMENT_1),
        _step(_AND, 0xF),
        _step(_JUMP_EQUAL, 1, 1, 0),
        _step(_RETURN, _ERRNO | errno.EACCES),
        _step(_RETURN, _ALLOW),
    ]


def _without_ownership(number: int) -> list[bytes]:
    checks = [_step(_JUMP_EQUAL, which, len(_OWNERSHIP) - n, 0) for n, which in enumerate(_OWNERSHIP)]
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    return [
        _step(_JUMP_EQUAL, number, 0, len(checks) + 3),
        _step(_LOAD, _ARGUMENT_1),
        *checks,
        _step(_RETURN, _ALLOW),
        refuse,
    ]


def _sockets(number: int, families: tuple[int, ...]) -> list[bytes]:
    checks = [
        step for family in families for step in (_step(_JUMP_EQUAL, family, 0, 1), _step(_RETURN, _ALLOW))
    ]
    refuse = _step(_RETURN, _ERRNO | errno.EACCES)
    return [_step(_JUMP_EQUAL, number, 0, len(checks) + 2), _step(_LOAD, _ARGUMENT_0), *checks, refuse]


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
