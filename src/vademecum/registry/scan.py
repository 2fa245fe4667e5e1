"""Find the documents in one root, and what could not be searched."""

from __future__ import annotations

import errno
import os
import stat
from itertools import product
from operator import attrgetter

from vademecum.config import ScanSettings
from vademecum.skill.skill import MANIFEST, Problem

# Directories that never contain skills and can be huge.
_PASSED_OVER = frozenset({"node_modules", "__pycache__"})
_SPELLINGS = frozenset(map("".join, product(*((c.upper(), c.lower()) for c in MANIFEST))))


# Identifies a version of a file: the times of its last change and of its inode's, its size and inode.
Signature = tuple[int, int, int, int]
# A document: its directory below the root, its file's name and its signature. Plain tuples of plain values:
# there can be a hundred thousand of them, and the garbage collector soon ignores such tuples.
Found = tuple[str, str, Signature]


def signature_of(about: os.stat_result) -> Signature:
    """Return the signature of a file."""
    return (about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino)


class Walk:
    """A walk through one root, never below a document: its documents, and what could not be searched.

    An unchanged tree costs one listing for each group of skills and one ``stat`` for each skill.
    """

    def __init__(self, root: str, settings: ScanSettings) -> None:
        self._root = root
        self._settings = settings
        self._stat = os.stat if settings.follow_links else os.lstat
        self._entered: set[tuple[int, int]] = set()
        self._directories_left = settings.max_directories
        self._first_beyond = ""
        self._hidden = 0
        self.documents: list[Found] = []
        self.obstacles: list[tuple[str, Problem]] = []
        try:
            about = os.stat(root)
        except OSError:
            return  # the root was removed meanwhile: it contains nothing
        self._entered.add((about.st_dev, about.st_ino))
        self._visit("", root, 0)
        if self._first_beyond:
            self.obstacles.append((self._first_beyond, Problem("too-many", "error", self._beyond())))

    def _beyond(self) -> str:
        """Return what the limit on directories hid. Those beyond it are counted up to twice the limit."""
        most = self._settings.max_directories
        least = "at least " if self._directories_left < -most else ""
        hidden = f"{least}{self._hidden:,} {'skill was' if self._hidden == 1 else 'skills were'} not read"
        return (
            f"{self._root} contains more than {most:,} directories, so {hidden}: "
            "split it, or raise scan.max_directories"
        )

    def _visit(self, directory: str, path: str, depth: int) -> None:
        """Take the document of a directory, which costs one ``stat``, or else list the directory."""
        document = f"{path}/{MANIFEST}"
        try:
            about = self._stat(document)
        except FileNotFoundError:  # no document, another spelling, or a link to nowhere: list the directory
            self._list(directory, path, depth)
        except OSError as error:
            self._object(document, *_unreachable(document, error))
        else:
            self._take(directory or ".", MANIFEST, document, about)

    def _list(self, directory: str, path: str, depth: int) -> None:
        """Search a directory without a document of the usual name."""
        if depth > self._settings.max_depth:
            limit = f"lies deeper than {self._settings.max_depth} directories: raise scan.max_depth"
            self._object(path, "too-deep", f"{path} {limit}")
            return
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=attrgetter("name"))
        except FileNotFoundError:
            return  # it was removed meanwhile
        except OSError as error:
            self._object(path, "unreadable-directory", _cannot("list", path, error))
            return
        unusual = [entry for entry in entries if entry.name in _SPELLINGS]
        if unusual:  # another spelling of the name, or a link to nowhere
            file, document = unusual[0].name, unusual[0].path
            try:
                self._take(directory or ".", file, document, self._stat(document))
            except OSError as error:
                self._object(document, *_unreachable(document, error))
            return
        prefix = f"{directory}/" if directory else ""
        for entry in entries:
            name = entry.name
            if name[0] == "." or name in _PASSED_OVER:
                continue
            if not entry.is_dir(follow_symlinks=False) and not (
                entry.is_symlink() and self._leads_to_new_directory(entry)
            ):
                continue
            self._directories_left -= 1
            if self._directories_left < 0:
                self._first_beyond = self._first_beyond or entry.path
                if self._directories_left < -self._settings.max_directories:
                    return
            self._visit(prefix + name, entry.path, depth + 1)

    def _take(self, directory: str, file: str, path: str, about: os.stat_result) -> None:
        if stat.S_ISLNK(about.st_mode):
            why = "is a link, and scan.follow_links is off: replace it with a file"
            self._object(path, "link", f"{path} {why}")
        elif not stat.S_ISREG(about.st_mode):
            self._object(path, "not-a-file", f"{path} is not a plain file: replace it with one")
        elif self._directories_left >= 0:
            self.documents.append((directory, file, signature_of(about)))
        else:
            self._hidden += 1

    def _leads_to_new_directory(self, entry: os.DirEntry[str]) -> bool:
        """Return whether to follow a link: to each directory once, so that loops end."""
        path = entry.path
        try:
            about = entry.stat()
            if not stat.S_ISDIR(about.st_mode):
                return False
            identity = (about.st_dev, about.st_ino)
            entered = identity in self._entered or self._is_around(path, identity)
        except OSError as error:
            self._object(path, *_unreachable(path, error))
            return False
        if not self._settings.follow_links:
            why = "is a link, and scan.follow_links is off: replace it with a directory"
            self._object(path, "link", f"{path} {why}")
        elif entered:
            why = "links to a directory that is searched already: remove the link"
            self._object(path, "link-loop", f"{path} {why}")
        self._entered.add(identity)
        return self._settings.follow_links and not entered

    def _is_around(self, path: str, identity: tuple[int, int]) -> bool:
        """Return whether the directory of that identity contains ``path``."""
        while len(path := os.path.dirname(path)) >= len(self._root):
            about = os.stat(path)
            if (about.st_dev, about.st_ino) == identity:
                return True
        return False

    def _object(self, path: str, code: str, message: str) -> None:
        if self._directories_left >= 0:
            self.obstacles.append((path, Problem(code, "error", message)))


def _unreachable(path: str, error: OSError) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError):
        return "dangling-link", f"{path} links to something that does not exist: repair or remove the link"
    if error.errno == errno.ELOOP:
        return "link-loop", f"{path} links to itself: remove the link"
    return "unreadable", _cannot("read", path, error)


def _cannot(verb: str, path: str, error: OSError) -> str:
    return f"Cannot {verb} {path} ({error.strerror}): check its permissions"
