"""A skill's own document, read again after it was found."""

from __future__ import annotations

import os

from vademecum.errors import FileRefused, PathRefused
from vademecum.files import read_capped, read_up_to
from vademecum.paths import open_contained
from vademecum.skill.document import parse_document
from vademecum.skill.model import Reading
from vademecum.skill.skill import Skill


def read_manifest(skill: Skill, *, cap: int) -> bytes:
    """The document's first ``cap`` bytes.

    Discovery follows a linked document, so it is read here too; but one that leads out of the skill must
    still be the document of that name, or a link swapped since then could make any file readable.
    """
    try:
        descriptor = open_contained(skill.location, skill.file)
    except PathRefused:
        return _linked(skill, cap)
    try:
        return read_up_to(descriptor, cap)
    finally:
        os.close(descriptor)


def _linked(skill: Skill, cap: int) -> bytes:
    data = read_capped(f"{skill.location}/{skill.file}", cap=cap)
    directory = skill.location.rpartition("/")[2]
    if parse_document(data, directory=directory, reading=Reading(lenient=True)).name != skill.name:
        raise FileRefused(
            f"{skill.location}/{skill.file} is no longer the document of {skill.name!r}.", code="changed"
        )
    return data
