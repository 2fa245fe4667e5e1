"""Collect the files that a script or command left, as outputs called ``output:N/NAME``."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vademecum.errors import ToolRefused
from vademecum.files import sha256_of
from vademecum.masking import Secrets
from vademecum.nearest import meant, nearest
from vademecum.tools.inputs import Stamp, stamp_of
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.runs.stored import RunOutput

MAX_OUTPUTS = 1000
PREFIX = "output:"

# What programs keep for themselves.
_CACHES = re.compile(r"__pycache__|\.(?:pytest_|mypy_|ruff_)?cache|\.ipynb_checkpoints|node_modules")
_REFERENCE = re.compile(r"output:(\d{1,9})/(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a script left or changed: its name, where it is kept, its size and digest.

    ``secret`` says that it contains the value of a secret, so that no model gets to see it.
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
        """The name by which later calls of the conversation refer to it."""
        return f"{PREFIX}{self.number}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` and the record have it."""
        found: dict[str, Any] = {
            "path": self.name,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "output": self.reference,
            "file": str(self.file),
        }
        return found | ({"secret": True} if self.secret else {})


class Outputs:
    """The outputs of one conversation, by the number of the call that made them."""

    def __init__(self, made: Iterable[Output] = ()) -> None:
        self._lock = threading.Lock()
        self._made = {output.reference: output for output in made}
        self._calls = max((output.number for output in self._made.values()), default=0)
        self._saved: set[str] = set()

    @property
    def all(self) -> list[Output]:
        """All of them, in the order in which they were made."""
        return list(self._made.values())

    def take(
        self, work: Path, given: Mapping[str, Stamp], place: Path, *, since: float, secrets: Secrets
    ) -> tuple[list[Output], int]:
        """Move what was left or changed in a directory to ``place``; the run began at ``since``.

        Returns the outputs and the number of files beyond ``MAX_OUTPUTS``, which are not kept.
        """
        names = _left(work, given)
        if not names:
            return [], 0
        with self._lock:
            self._calls = number = self._calls + 1
        made = []
        for found in names[:MAX_OUTPUTS]:
            name = secrets.mask_values(found)
            kept = place / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / found, kept)
            size = kept.stat().st_size
            masked = secrets.masks_file(kept)
            made.append(Output(number, name, kept, size, sha256_of(kept), since, masked))
        with self._lock:
            self._made |= {output.reference: output for output in made}
        return made, max(0, len(names) - MAX_OUTPUTS)

    def find(self, reference: str) -> Output:
        """Return the output of that name; refused if there is none."""
        found = self._made.get(reference)
        if found is None:
            hint = meant(
                nearest(reference, [output.reference for output in self.all]),
                otherwise="run the script that makes it first.",
            )
            raise ToolRefused(f"There is no output {reference[:200]!r}: {hint}", code="missing")
        return found

    def overwrites_newer(self, output: Output, target: Path, digest: str) -> bool:
        """Return whether a file was written since the run began, other than by saving an output."""
        if not digest or digest in self._saved:
            return False
        return os.lstat(target).st_ctime > output.since

    def saved(self, output: Output) -> None:
        """Remember that an output was saved, so that a later one may replace it."""
        self._saved.add(output.sha256)

    def locate(self, reference: str) -> Located:
        """Return where an output is, for the tools that read files."""
        output = self.find(reference)
        if output.secret:
            raise ToolRefused(f"{reference[:200]!r} contains a secret, so it cannot be read.", code="secret")
        root = output.file.parents[output.name.count("/")]
        return Located(root, output.name, output.reference, output.reference)


def recorded(listed: Iterable[RunOutput], since: float) -> Iterator[Output]:
    """Yield the outputs that a record lists, as far as they are there and unchanged."""
    for each in listed:
        found, file = _REFERENCE.fullmatch(each.output), Path(each.file)
        with contextlib.suppress(OSError):
            if found is not None and sha256_of(file) == each.sha256:
                yield Output(int(found[1]), found[2], file, each.bytes, each.sha256, since, each.secret)


def _left(work: Path, given: Mapping[str, Stamp]) -> list[str]:
    """Return the plain files below a directory that are new or were written, in the order of their names."""
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
