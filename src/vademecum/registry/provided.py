"""Turn the skills that a source announced into skills of an index, and fetch their files when needed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from vademecum.errors import IntegrityFailed, VademecumError
from vademecum.registry.base import Fetch, ProvidedFile, ProvidedSkill, Provider
from vademecum.registry.index import LeftOut
from vademecum.registry.scan import Signature, signature_of
from vademecum.skill.assets import file_digests
from vademecum.skill.document import parse_document
from vademecum.skill.skill import MANIFEST, Reading, Skill
from vademecum.skill.yaml_subset import frontmatter_values


def provided(provider: Provider) -> tuple[list[tuple[Skill, Signature, Fetch]], list[LeftOut]]:
    """Return the skills of a source, the signature of each, and the function that gets its files."""
    root = provider.root
    skills, problems, about = provider.listing()
    signature = signature_of(about)
    found: list[tuple[Skill, Signature, Fetch]] = []
    left_out = [LeftOut(root.source, str(root.path), (problem,)) for problem in problems]
    for each in skills:
        document = parse_document(
            _written(each.frontmatter), directory=each.name, reading=Reading(lenient=True)
        )
        if not document.valid:
            left_out.append(LeftOut(root.source, each.uri, document.problems))
            continue
        directory = f"{each.name}@{each.digest[:16]}"
        skill = Skill.at(document, root.source, str(root.path), directory, MANIFEST, hash(each.digest))
        found.append((skill, signature, partial(fetch, provider, each, skill.path)))
    return found, left_out


def fetch(provider: Provider, skill: ProvidedSkill, place: Path) -> None:
    """Fetch the files of a skill unless they exist, and verify all of them before one is used."""
    wanted = {file.path: file.sha256 for file in skill.files}
    if file_digests(str(place)) == dict(sorted(wanted.items(), key=lambda item: os.fsencode(item[0]))):
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".fetching-", dir=place.parent))
    try:
        for file, data in provider.read(skill):
            _verify(skill, file, data)
            target = staging / "skill" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        if set(file_digests(str(staging / "skill"))) != set(wanted):
            raise IntegrityFailed(f"The source did not send every file of {skill.uri}.", code="source-lies")
        with contextlib.suppress(FileNotFoundError):
            os.rename(place, staging / "old")
        os.rename(staging / "skill", place)
    except OSError as error:
        raise VademecumError(f"{skill.uri} cannot be stored in {place} ({error}).", code="source") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _verify(skill: ProvidedSkill, file: ProvidedFile, data: bytes) -> None:
    where = f"{file.path!r} of {skill.uri}"
    if len(data) != file.size:
        fault = f"{where} has {len(data):,} bytes, {file.size:,} were announced"
    elif hashlib.sha256(data).hexdigest() != file.sha256:
        fault = f"{where} is not what was announced"
    elif file.path == MANIFEST and not _same(frontmatter_values(data), skill.frontmatter):
        fault = f"The frontmatter of {skill.uri} is not what was announced"
    else:
        return
    raise IntegrityFailed(f"{fault}: list the source again with vade refresh.", code="source-lies")


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, ``true`` is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _written(frontmatter: Mapping[str, Any]) -> bytes:
    """Return frontmatter as a document, so that the rules for documents apply."""
    lines = (
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in frontmatter.items()
    )
    return f"---\n{''.join(lines)}---\n".encode("utf-8", "replace")
