"""A skill's directory → one digest of all its files, the same on every machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator

from vademecum.errors import FileRefused
from vademecum.files import open_plain, read_up_to
from vademecum.skill.skill import Skill

MAX_DIGESTED_FILES = 10_000
_CHUNK = 1024 * 1024
# What an interpreter leaves behind: never part of a skill, and never run as one.
COMPILED = "__pycache__"


def skill_digest(skill: Skill) -> str:
    """Return the digest of all files of a skill."""
    return directory_digest(skill.location)


def directory_digest(location: str, *, without: Collection[str] = ()) -> str:
    """SHA-256 over ``path NUL sha256(content) LF`` of every other file, sorted by the bytes of the path.

    Files that an interpreter compiled are left out. A link counts with its target, and what
    cannot be read with that fact, so that either changes it.
    """
    whole = hashlib.sha256()
    for relative, content in file_digests(location).items():
        if relative not in without:
            whole.update(os.fsencode(relative) + b"\0" + content.encode() + b"\n")
    return f"sha256:{whole.hexdigest()}"


def file_digests(location: str) -> dict[str, str]:
    """Return every file below a directory with the digest of its content, sorted by the bytes of the path."""
    names = sorted(_files(location), key=os.fsencode)
    return {relative: _content(f"{location}/{relative}") for relative in names}


def _files(base: str) -> Iterator[str]:
    count = 0
    for directory, names, files in os.walk(base):
        names[:] = [name for name in names if name != COMPILED]
        links = [name for name in names if os.path.islink(f"{directory}/{name}")]
        for name in (*files, *links):
            count += 1
            if count > MAX_DIGESTED_FILES:
                raise FileRefused(
                    f"{base} holds more than {MAX_DIGESTED_FILES:,} files.", code="too-many-files"
                )
            yield os.path.relpath(f"{directory}/{name}", base)


def _content(path: str) -> str:
    if os.path.islink(path):
        return f"link {os.readlink(path)!r}"
    try:
        descriptor = open_plain(path)
    except (OSError, FileRefused):
        return "unreadable"
    digest = hashlib.sha256()
    try:
        while piece := read_up_to(descriptor, _CHUNK):
            digest.update(piece)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
