"""Write a new skill from a template, either completely or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from vademecum.errors import SkillRefused
from vademecum.files import write_atomic
from vademecum.skill import names
from vademecum.skill.document import parse_document
from vademecum.skill.skill import MANIFEST
from vademecum.wildcards import comparable

DEFAULT_DESCRIPTION = "TODO: what this skill does. Use when a request asks for it in these words."


def write_skill(parent: Path, name: str, *, template: str, description: str | None = None) -> Path:
    """Create ``parent/name`` from a template; raise `SkillRefused` if it exists or would not be valid."""
    target = parent / checked_name(name)
    if os.path.lexists(target):
        raise SkillRefused(f"{target} exists already: choose another name, or edit it.", code="exists")
    text = json.dumps(description or DEFAULT_DESCRIPTION, ensure_ascii=False)
    for key, value in (("name", name), ("title", name.replace("-", " ").capitalize()), ("description", text)):
        template = template.replace("{{" + key + "}}", value)
    try:
        data = template.encode()
    except UnicodeEncodeError as error:
        raise SkillRefused(
            "The description is not valid text: write it in UTF-8.", code="not-utf8"
        ) from error
    document = parse_document(data, directory=name)
    if document.problems:
        raise SkillRefused(f"{document.problems[0].message}.", code=document.problems[0].code)
    staging = parent / f".new-{os.urandom(6).hex()}"
    try:
        write_atomic(staging / MANIFEST, data)
        os.rename(staging, target)
    except OSError as error:
        raise SkillRefused(f"{target} cannot be made ({error.strerror}): choose another place.") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(staging)
    return target


def checked_name(name: str) -> str:
    """Return a name for a new skill; raise `SkillRefused` if it is not valid.

    >>> checked_name("pdf-forms")
    'pdf-forms'
    """
    problems = names.check(name) if name else []
    if not name or problems or comparable(name) != name:
        reason = problems[0].message if problems else "A skill needs a name such as pdf-forms"
        raise SkillRefused(f"{reason.replace('Write: name:', 'Run: vade new')}.", code="name")
    return name
