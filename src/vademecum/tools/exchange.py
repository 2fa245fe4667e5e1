"""Give files to a script or command, and collect the files that it leaves.

A script gets a private copy of each file that its arguments name, under the same name. A directory is shown
read-only in place. It is copied if the call asks for a copy, or if the sandbox cannot hide parts of it. A
file that the script leaves or changes is an output, called ``output:N/NAME``.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vademecum.errors import FileRefused, PathRefused, ToolRefused, VademecumError
from vademecum.files import copy_opened, sha256_of
from vademecum.masking import Secrets
from vademecum.nearest import meant, nearest
from vademecum.paths import check_relative
from vademecum.tools.workspace import Located, Workspace, open_located

if TYPE_CHECKING:
    from vademecum.runs.stored import RunOutput
    from vademecum.sandbox.base import Mount, Sandbox

MAX_INPUTS = 1000
MAX_INPUT_BYTES = 1024 * 1024 * 1024
MAX_COPIED_FILES = 20_000
MAX_ENTRIES = 200_000
MAX_WORDS_WITH_PARENTS = 50
MAX_OUTPUTS = 1000
PREFIX = "output:"

Kind = Literal["file", "directory", "copy"]
# The inode, size and times of a file; any change of the file changes one of them.
Stamp = tuple[int, int, int, int]
Inode = tuple[int, int]

# Caches of programs.
_CACHES = re.compile(r"__pycache__|\.(?:pytest_|mypy_|ruff_)?cache|\.ipynb_checkpoints|node_modules")
_REFERENCE = re.compile(r"output:(\d{1,9})/(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Input:
    """A file or directory that a script gets: as typed, where it is, and its hidden parts."""

    typed: str
    located: Located
    kind: Kind
    hidden: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in the script's directory; a path that leads elsewhere keeps only its last part."""
        name = self.located.name.replace(":", "-", 1) if self.typed.startswith(PREFIX) else self.typed
        steps = [step for step in name.split("/") if step not in {"", "."}]
        if name.startswith("/") or ".." in steps:
            return steps[-1] if steps else "root"
        return "/".join(steps)


def parts_of(word: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a word that can be a path, each with the text before it.

    >>> list(parts_of("--data=a.csv"))
    [('', '--data=a.csv'), ('--data=', 'a.csv')]
    """
    yield "", word
    before, equals, after = word.partition("=")
    if equals and after:
        yield f"{before}=", after


def matching(pattern: str, workspace: Workspace) -> list[str]:
    """Return the files that a text names: an output of the conversation, a path, or those of a glob."""
    return [pattern] if pattern.startswith(PREFIX) else workspace.named(pattern)


def find_inputs(  # noqa: PLR0913 - the paths of a call, and who decides about them
    words: Sequence[str],
    files: Sequence[str],
    copies: Sequence[str],
    *,
    workspace: Workspace,
    locate: Callable[[str], Located],
    known: Callable[[Located], bool],
) -> tuple[list[Input], list[str]]:
    """Return the distinct inputs that a call names, and the words that lead out of the project.

    ``files`` can be globs and must exist. ``known`` returns whether the caller may know of a path; a word
    that names any other path is a plain word.
    """
    found: dict[str, Input] = {}
    for typed in copies:
        found.setdefault(typed, replace(_input(typed, locate(typed)), kind="copy"))
    for pattern in files:
        matched = matching(pattern, workspace)
        shown = [name for name in matched if name == pattern or known(locate(name))]
        if not shown:
            raise ToolRefused(f"No file matches {pattern!r} here.", code="missing")
        for typed in shown:
            found.setdefault(typed, _input(typed, locate(typed)))
    outside = []
    for part in (part for word in words for _, part in parts_of(word)):
        try:
            located = locate(part)
            there = os.path.lexists(located.path) and known(located)
        except (VademecumError, OSError, ValueError):
            outside += [part] if part.startswith(("../", "/")) else []
            continue
        if there:
            found.setdefault(part, _input(part, located))
    if len(found) > MAX_INPUTS:
        raise ToolRefused(
            f"{len(found):,} files are named, at most {MAX_INPUTS:,} can be: name a directory.",
            code="too-many",
        )
    above = tuple(f"{given.located.path}/" for given in found.values() if given.kind != "file")
    # A directory in the call includes everything below it.
    kept = [
        each for each in found.values() if each.typed == "." or not str(each.located.path).startswith(above)
    ]
    return kept, outside


def _input(typed: str, located: Located) -> Input:
    try:
        mode = os.stat(located.path).st_mode
    except OSError as error:
        raise ToolRefused(f"There is no {located.name!r} here.", code="missing") from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        text = f"{located.name!r} is neither a file nor a directory: name another."
        raise ToolRefused(text, code="not-a-file")
    return Input(typed, located, "directory" if stat.S_ISDIR(mode) else "file")


def listed_below(base: str | Path) -> tuple[list[str], list[str]]:
    """Return the paths below a directory: files and directories, and those that are neither.

    Links are files here; FIFOs, sockets and devices are neither.
    """
    found: list[str] = []
    special: list[str] = []
    todo = [""]
    while todo:
        place = todo.pop()
        with os.scandir(f"{base}/{place}") as listing:
            for entry in listing:
                relative = f"{place}{entry.name}"
                found.append(relative)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{relative}/")
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    special.append(relative)
        if len(found) > MAX_ENTRIES:
            raise ToolRefused(
                f"{base} contains more than {MAX_ENTRIES:,} files: name a directory below it.",
                code="too-many",
            )
    return found, special


def shown_below(base: str | Path, hidden: Iterable[str]) -> list[tuple[str, int]]:
    """Return the visible paths below a directory with their modes, parents before children."""
    gone, shown = set(hidden), []
    for name in sorted(listed_below(base)[0]):
        if name in gone or name.rpartition("/")[0] in gone:
            gone.add(name)
        else:
            shown.append((name, os.lstat(f"{base}/{name}").st_mode))
    return shown


def hidden_below(base: str, names: Iterable[str], may_show: Callable[[str, Inode | None], bool]) -> list[str]:
    """Return the names below a directory that must be hidden.

    ``may_show`` gets the path and, for a file with several names (hard links), its device and inode: if one
    name is hidden, all of them are.
    """
    inodes: dict[str, Inode | None] = {}
    hidden: set[str] = set()
    gone: set[str] = set()  # hidden paths, and everything below them
    for name in names:
        if name.rpartition("/")[0] in gone:
            gone.add(name)
            continue
        about = os.lstat(f"{base}/{name}")
        several = about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode)
        inodes[name] = inode = (about.st_dev, about.st_ino) if several else None
        if not may_show(name, inode):
            hidden.add(name)
            gone.add(name)
    secret = {inodes[name] for name in hidden} - {None}
    return sorted(hidden | {name for name, inode in inodes.items() if inode in secret})


@dataclass(frozen=True, slots=True)
class Furnished:
    """The part of the project that a program sees, and its arguments with the names there."""

    words: tuple[str, ...]
    mounted: tuple[Mount, ...] = ()
    hidden: tuple[Path, ...] = ()
    copies: dict[str, Stamp] = field(default_factory=dict)
    left_out: int = 0


def furnish(work: Path, inputs: Sequence[Input], words: Sequence[str], sandbox: Sandbox) -> Furnished:
    """Put the inputs where the program finds them: copy files, and show directories in place."""
    from vademecum.sandbox.base import Mount  # noqa: PLC0415 - 4 ms of a start, for scripts alone

    left, names = [MAX_INPUT_BYTES], {}
    placed: dict[Path, str] = {}
    copies: dict[str, Stamp] = {}
    mounted, hidden, left_out = [], [], 0
    for given in inputs:
        real = Path(os.path.realpath(given.located.path))
        if real in placed:  # under another spelling
            names[given.typed] = placed[real]
            continue
        left_out += len(given.hidden)
        if given.kind != "directory" or _is_better_copied(given, sandbox):
            name = _free_name(work, given.name)
            copies |= _copy_into(work, given, name, left)
            placed[real] = name or "."
        else:
            hidden += [real / name for name in given.hidden]
            at_a_name = given.name and not given.typed.startswith("/") and ".." not in given.typed.split("/")
            mounted.append(Mount(real, work / given.name if at_a_name else real))
            placed[real] = given.typed if at_a_name else str(real)
            if at_a_name and (sandbox.name != "bubblewrap" or given.hidden):
                # It may be a link, which programs such as find follow only with a slash after it.
                placed[real] = f"{given.typed.rstrip('/')}/"
        names[given.typed] = placed[real]
    # The directories of the script's output files, such as ``out`` for ``out/chart.png``.
    parts = (part for word in words[:MAX_WORDS_WITH_PARENTS] for _, part in parts_of(word))
    for part in (part for part in parts if "/" in part and "://" not in part):
        with contextlib.suppress(PathRefused, OSError):
            check_relative(work, part)
            parent = (work / part).parent
            if not any(parent.is_relative_to(each.name) for each in mounted):
                parent.mkdir(parents=True, exist_ok=True)
    return Furnished(renamed(words, names), tuple(mounted), tuple(hidden), copies, left_out)


def _is_better_copied(given: Input, sandbox: Sandbox) -> bool:
    """Return whether to copy a directory because the sandbox cannot hide parts of it completely."""
    if not sandbox.hides:
        return True
    if not given.hidden or sandbox.name == "bubblewrap":
        return False
    return len(listed_below(given.located.path)[0]) <= MAX_COPIED_FILES


def renamed(words: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with the paths in them, whole or after ``name=``, replaced by other names."""
    return tuple(
        next((f"{head}{names[part]}" for head, part in parts_of(word) if part in names), word)
        for word in words
    )


def _free_name(work: Path, name: str) -> str:
    """Return an unused name: the name itself, or the same name in a numbered directory."""
    number, free = 2, name
    while name and os.path.lexists(work / free):
        free, number = f"{number}/{name}", number + 1
    return free


def _copy_into(work: Path, given: Input, name: str, left: list[int]) -> dict[str, Stamp]:
    """Copy an input into the script's directory and return the copies; ``left`` is the bytes that remain."""
    files, stamps = {name: given.located}, {}
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    if given.kind != "file":
        base = Path(os.path.realpath(given.located.path))
        shown = [("", stat.S_IFDIR), *shown_below(base, given.hidden)]
        for inside in (inside for inside, mode in shown if stat.S_ISDIR(mode)):
            (work / name / inside).mkdir(exist_ok=True)
        plain = (inside for inside, mode in shown if stat.S_ISREG(mode))
        files = {str(Path(name, each)): Located(base, each, f"{given.typed}/{each}", "") for each in plain}
        if len(files) > MAX_COPIED_FILES:
            text = f"{given.typed!r} has more than {MAX_COPIED_FILES:,} files to copy: name a smaller one."
            raise ToolRefused(text, code="too-many")
    for copied, located in files.items():
        # The opened file is copied, so that no link can lead elsewhere later.
        left[0] -= copy_opened(open_located(located), work / copied, most=left[0])
        if left[0] < 0:
            text = f"The inputs are larger than {MAX_INPUT_BYTES:,} bytes together: name fewer."
            raise ToolRefused(text, code="too-large")
        stamps[copied] = stamp_of(work / copied)
    return stamps


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file, which changes when the file is written."""
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def digests(work: Path, copies: dict[str, Stamp]) -> list[tuple[str, str]]:
    """Return the digest of every copy; an approval applies to these digests."""
    return [(name, sha256_of(work / name)) for name in sorted(copies)]


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a script left or changed: its name, its path, its size and digest.

    ``secret`` is true if it contains the value of a secret, so no model may see it.
    """

    number: int
    name: str
    file: Path
    bytes: int
    sha256: str
    since: float
    secret: bool = False

    @property
    def reference(self) -> str:
        """The name for later calls of the conversation."""
        return f"{PREFIX}{self.number}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the output in the form of ``--json`` and the record."""
        found: dict[str, Any] = {
            "path": self.name,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "output": self.reference,
            "file": str(self.file),
        }
        return found | ({"secret": True} if self.secret else {})


class Outputs:
    """The outputs of one conversation, by the number of the call that created them."""

    def __init__(self, made: Iterable[Output] = ()) -> None:
        self._lock = threading.Lock()
        self._made = {output.reference: output for output in made}
        self._calls = max((output.number for output in self._made.values()), default=0)
        self._saved: set[str] = set()

    @property
    def all(self) -> list[Output]:
        """All outputs, oldest first."""
        return list(self._made.values())

    def take(
        self, work: Path, given: Mapping[str, Stamp], place: Path, *, since: float, secrets: Secrets
    ) -> tuple[list[Output], int]:
        """Move new and changed files of a directory to ``place``; the run began at ``since``.

        Return the outputs and the number of files beyond ``MAX_OUTPUTS``, which are not kept.
        """
        names = _left(work, given)
        if not names:
            return [], 0
        with self._lock:
            self._calls = number = self._calls + 1
        made: dict[str, Output] = {}
        for found in names[:MAX_OUTPUTS]:
            name = secrets.mask_values(found)
            kept = place / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / found, kept)
            size = kept.stat().st_size
            masked = secrets.masks_file(kept)
            made[name] = Output(number, name, kept, size, sha256_of(kept), since, masked)
        with self._lock:
            self._made |= {output.reference: output for output in made.values()}
        return list(made.values()), max(0, len(names) - MAX_OUTPUTS)

    def find(self, reference: str) -> Output:
        """Return the output of that name; raise `ToolRefused` if there is none."""
        found = self._made.get(reference)
        if found is None:
            hint = meant(
                nearest(reference, [output.reference for output in self.all]),
                otherwise="run the script that makes it first.",
            )
            raise ToolRefused(f"There is no output {reference[:200]!r}: {hint}", code="missing")
        return found

    def overwrites_newer(self, output: Output, target: Path, digest: str) -> bool:
        """Return whether saving an output would replace a file that something else wrote during the run."""
        if not digest or digest in self._saved:
            return False
        return os.lstat(target).st_ctime > output.since

    def saved(self, output: Output) -> None:
        """Remember that an output was saved, so that a later one can replace it."""
        self._saved.add(output.sha256)

    def locate(self, reference: str) -> Located:
        """Return the location of an output, for the tools that read files."""
        output = self.find(reference)
        if output.secret:
            raise ToolRefused(f"{reference[:200]!r} contains a secret, so it cannot be read.", code="secret")
        root = output.file.parents[output.name.count("/")]
        return Located(root, output.name, output.reference, output.reference)


def recorded(listed: Iterable[RunOutput], since: float) -> Iterator[Output]:
    """Yield the outputs in a record that exist and are unchanged."""
    for each in listed:
        found, file = _REFERENCE.fullmatch(each.output), Path(each.file)
        with contextlib.suppress(OSError, FileRefused):
            if found is not None and sha256_of(file) == each.sha256:
                yield Output(int(found[1]), found[2], file, each.bytes, each.sha256, since, each.secret)


def _left(work: Path, given: Mapping[str, Stamp]) -> list[str]:
    """Return the new and changed plain files below a directory, sorted by name."""
    found = []
    for place, directories, files in os.walk(work):
        directories[:] = sorted(name for name in directories if not _CACHES.fullmatch(name))
        for file in sorted(files):
            path = Path(place, file)
            name = str(path.relative_to(work))
            if not stat.S_ISREG(path.lstat().st_mode) or file.endswith(".pyc"):
                continue
            if given.get(name) != stamp_of(path):
                found.append(name)
    return found
