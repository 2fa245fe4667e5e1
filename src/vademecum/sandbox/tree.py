"""A process → all that it started, as ``/proc`` has it now. The supervisor needs this: nothing heavy here."""

from __future__ import annotations

import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# As Linux numbers them on every machine we support; the module `signal` takes long to import.
SIGKILL, SIGSTOP = 9, 19


def descendants(pid: int) -> Iterator[int]:
    """Return every process below this one, parents before children."""
    todo = [pid]
    while todo:
        found = _children(todo.pop())
        yield from found
        todo += found


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process uses now; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def end_all_below(pid: int) -> bool:
    """Stop everything below a process, then kill it; says whether there was anything.

    Stopping comes first, so that nothing can be started while the rest is being killed.
    """
    found = list(descendants(pid))
    for number in (SIGSTOP, SIGKILL):
        for process in found:
            try:
                os.kill(process, number)
            except (ProcessLookupError, PermissionError):
                continue
    return bool(found)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found
