"""A request in words → the files it names, and the skills it calls by name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vademecum.errors import VademecumError
from vademecum.tools.workspace import Workspace

MAX_FILES = 50
MAX_NAME_CHARS = 255

# What stands between quotation marks of any kind, and what stands between blanks and punctuation.
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|“([^”\n]+)”|「([^」\n]+)」|《([^》\n]+)》")
_WORD = re.compile(r"[^\s,;:'\"`()<>（）《》「」“”，。；：、！？]+")
_LIKE_A_FILE = re.compile(r"[\w./~-]*\w\.[A-Za-z][A-Za-z0-9]{1,4}")
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_IN = re.compile(
    r"\b(?:in|under|below|inside|within|from|of|over|directory|folder)\s+(?:the\s+|my\s+)?$", re.IGNORECASE
)
_FOLDER = re.compile(
    r"\s*(?:directory|directories|folder|dir\b|目录|文件夹|資料夾|目錄|里|下|中)", re.IGNORECASE
)
_LATIN = re.compile(r"[A-Za-z0-9_./-]+")
_CALLED = re.compile(r"(?:^/|(?<!\S)\$)([\w-]+(?:/[\w-]+)?)(?![\w/.-])")


@dataclass(frozen=True, slots=True)
class Mentions:
    """Paths that are there, names that look like files and are not, and the request without its paths."""

    files: tuple[str, ...]
    absent: tuple[str, ...]
    rest: str


def files_in(request: str, paths: Workspace, *, given: Sequence[str] = ()) -> Mentions:
    """Find the files and directories that a request names, in the order it names them, after those given."""
    places: list[tuple[int, str]] = []
    absent: list[tuple[int, str]] = []
    rest = request
    for pattern in (_QUOTED, _WORD):
        for found in pattern.finditer(rest):
            word = next(part for part in (*found.groups(), found[0]) if part)
            start, end = found.span()
            is_marked = bool(_IN.search(rest, max(0, start - 40), start) or _FOLDER.match(rest, end))
            names = _named_by(word, paths, is_marked=is_marked or pattern is _QUOTED)
            if not names:
                # It stays in the request: Node.js and Next.js look like files as well.
                if pattern is _WORD and (like := _LIKE_A_FILE.fullmatch(word.rstrip(".?!"))):
                    absent.append((start, like[0]))
                continue
            places += [(start + n, name) for n, name in enumerate(names)]
            left = found[0]
            for name in names if names[0] in word else (word,):  # what a glob matches is not in it
                left = left.replace(name, " " * len(name), 1)
            rest = rest[:start] + left + rest[end:]
    files = tuple(dict.fromkeys([*given, *(name for _, name in sorted(places))]))[:MAX_FILES]
    missing = tuple(dict.fromkeys(name for _, name in sorted(absent)))[:MAX_FILES]
    return Mentions(files, missing, re.sub(r" {3,}", "  ", rest))


def called_in(request: str) -> list[str]:
    """Return the words written as ``/name`` at the beginning or as ``$name`` anywhere, known or not.

    >>> called_in("/pdf-forms fill it with $other and $org/more")
    ['pdf-forms', 'other', 'org/more']
    """
    return _CALLED.findall(request)


def _named_by(word: str, paths: Workspace, *, is_marked: bool) -> list[str]:
    """Return what a word names: a file, a directory, the files of a glob, or names inside of it.

    A language that writes without blanks has names inside its words. A plain word such as ``docs`` names a
    directory only if quotation marks or the words around it mark it as one.
    """
    if len(word) > MAX_NAME_CHARS:
        return []
    for name in dict.fromkeys((word, word.rstrip(".?!"))):
        if paths.is_file(name):
            return [name]
        if name and (is_marked or "/" in name or name == ".") and paths.is_directory(name):
            return [name.rstrip("/") or name]
    if any(sign in word for sign in "*?["):
        with contextlib.suppress(VademecumError):
            return paths.matches(word.rstrip(".!"))
    return [] if word.isascii() else _inside(word, paths)


def _inside(word: str, paths: Workspace) -> list[str]:
    """Return the names of files and directories inside a word of a language without blanks."""
    found, start = [], 0
    for ending in _ENDING.finditer(word):
        whole = word[start : ending.end()]
        inside = next((whole[n:] for n in range(len(whole)) if paths.is_file(whole[n:])), None)
        if inside is not None:
            found.append(inside)
            start = ending.end()
    for piece in _LATIN.finditer(word):
        name = piece[0].rstrip("/")
        called = "/" in piece[0] or _FOLDER.match(word[piece.end() :]) or word[: piece.start()].endswith("在")
        if name and called and paths.is_directory(name):
            found.append(name)
    return found
