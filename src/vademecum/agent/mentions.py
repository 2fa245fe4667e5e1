"""A request in words → the files it names, and the skills it calls by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_FILES = 50
MAX_NAME_CHARS = 255

# What stands between quotation marks of any kind, and what stands between blanks and punctuation.
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|“([^”\n]+)”|「([^」\n]+)」|《([^》\n]+)》")
_WORD = re.compile(r"[^\s,;:'\"`()<>（）《》「」“”，。；：、！？]+")
_LIKE_A_FILE = re.compile(r"[\w./~-]*\w\.[A-Za-z][A-Za-z0-9]{1,4}")
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_CALLED = re.compile(r"(?:^/|(?<!\S)\$)([\w-]+(?:/[\w-]+)?)(?![\w/.-])")
_FIRST = re.compile(r"/([\w-]+)(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Mentions:
    """Files that are there, names that look like files and are not, and the request without its files."""

    files: tuple[str, ...]
    absent: tuple[str, ...]
    rest: str


def files_in(request: str, is_file: Callable[[str], bool]) -> Mentions:
    """Find the files that a request names, in the order it names them.

    >>> found = files_in('compare "my notes.txt" with b.txt', {"my notes.txt"}.__contains__)
    >>> found.files, found.absent, found.rest
    (('my notes.txt',), ('b.txt',), 'compare "  " with b.txt')
    """
    places: list[tuple[int, str]] = []
    absent: list[tuple[int, str]] = []
    rest = request
    for pattern in (_QUOTED, _WORD):
        for found in pattern.finditer(rest):
            word = next(part for part in (*found.groups(), found[0]) if part)
            names = _files_at(word, is_file)
            if not names:
                # It stays in the request: Node.js and Next.js look like files as well.
                if pattern is _WORD and (like := _LIKE_A_FILE.fullmatch(word.rstrip(".?!"))):
                    absent.append((found.start(), like[0]))
                continue
            places += [(found.start() + n, name) for n, name in enumerate(names)]
            left = found[0]
            for name in names:
                left = left.replace(name, " " * len(name), 1)
            rest = rest[: found.start()] + left + rest[found.end() :]
    files = tuple(dict.fromkeys(name for _, name in sorted(places)))[:MAX_FILES]
    return Mentions(
        files, tuple(dict.fromkeys(name for _, name in sorted(absent)))[:MAX_FILES], _squeezed(rest)
    )


def called_in(request: str) -> list[str]:
    """The names that stand as ``/name`` at the beginning or as ``$name`` anywhere, whether or not they exist.

    >>> called_in("/pdf-forms fill it with $other and $org/more")
    ['pdf-forms', 'other', 'org/more']
    """
    return _CALLED.findall(request)


def commanded(request: str) -> str | None:
    """The one name that a request begins with as ``/name``, if it does."""
    found = _FIRST.match(request)
    return found[1] if found else None


def _files_at(word: str, is_file: Callable[[str], bool]) -> list[str]:
    """The file that a word is, or those that stand inside of it where a language writes without blanks."""
    if len(word) > MAX_NAME_CHARS:
        return []
    for name in (word, word.rstrip(".?!")):
        if is_file(name):
            return [name]
    if word.isascii():
        return []
    found, start = [], 0
    for ending in _ENDING.finditer(word):
        whole = word[start : ending.end()]
        inside = next((whole[n:] for n in range(len(whole)) if is_file(whole[n:])), None)
        if inside is not None:
            found.append(inside)
            start = ending.end()
    return found


def _squeezed(text: str) -> str:
    return re.sub(r" {3,}", "  ", text)
