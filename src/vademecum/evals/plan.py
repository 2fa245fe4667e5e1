"""Cases × configurations × repetitions → units of work, each with a key made of all it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.errors import CaseRefused, FileRefused, PathRefused
from vademecum.evals.cases import Case
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.registry.index import SkillIndex
from vademecum.skill.digest import directory_digest, skill_digest
from vademecum.version import VERSION

MAX_CASE_FILE_BYTES = 64 * 1024 * 1024
SECONDS = 600.0
# What a unit is made of; another number where the same unit would come out otherwise.
FORMAT = 1


class Configuration(Struct, frozen=True):
    """One way in which all cases are run.

    ``model`` is ``case`` for the mock of each case, or the offline model where a case has none. ``skills``
    are those there are, by name; ``None`` means all. ``tape`` keeps a model's replies.
    """

    name: str
    model: str = "case"
    skills: tuple[str, ...] | None = None
    yes: bool = False
    allow: tuple[str, ...] = ()
    judge: str = ""
    tape: str = ""
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Unit:
    """One run that is to be made."""

    key: str
    case: Case
    configuration: Configuration
    repetition: int


def plan(
    cases: Iterable[Case],
    configurations: Sequence[Configuration],
    index: SkillIndex,
    *,
    project: Path | None = None,
) -> list[Unit]:
    """All units, in the order in which they are worked on: each case in all its configurations first."""
    digests = {skill.name: skill_digest(skill) for skill in index.skills}
    around = directory_digest(str(project)) if project is not None else ""
    bases = [_base(configuration, digests, around) for configuration in configurations]
    units = []
    for case in cases:
        own = _digest([case.model_dump(mode="json", fallback=repr), _files_or_why(case)])
        for configuration, base in zip(configurations, bases, strict=True):
            for repetition in range(1, case.repeat + 1):
                units.append(Unit(_digest([own, base, repetition]), case, configuration, repetition))
    return units


def _base(configuration: Configuration, digests: dict[str, str], around: str) -> str:
    names = sorted(digests if configuration.skills is None else configuration.skills)
    kept = {key: getattr(configuration, key) for key in ("model", "yes", "allow", "judge", "seconds")}
    return _digest([VERSION, FORMAT, kept, around, [[name, digests.get(name, "")] for name in names]])


def _files_or_why(case: Case) -> list[list[str]]:
    """A case whose files are not there is a unit as well: its run will say so."""
    try:
        return _files(case)
    except (CaseRefused, PathRefused, FileRefused) as error:
        return [["missing", str(error)]]


def _files(case: Case) -> list[list[str]]:
    """What a case brings, by content."""
    found = [
        [file.name, hashlib.sha256(content_of(file.source, case)).hexdigest()]
        for file in case.files
        if file.source
    ]
    if case.setup.project:
        found.append(["project", directory_digest(str(project_of(case)))])
    check = case.expected.output.python
    if check:
        found.append(["python", hashlib.sha256(content_of(check.rpartition(":")[0], case)).hexdigest()])
    command = case.expected.output.command
    for name in command.files if command else ():
        found.append([name, hashlib.sha256(content_of(name, case)).hexdigest()])
    return found


def content_of(source: str, case: Case) -> bytes:
    """A file that a case brings: beside it, or below the directory around, as ``evals.json`` has it."""
    place = Path(case.place)
    bases = [place, place.parent] if place.name == "evals" else [place]
    for base in bases:
        try:
            return read_capped(contained(base, source), cap=MAX_CASE_FILE_BYTES)
        except FileNotFoundError:
            continue
        except (OSError, FileRefused, PathRefused) as error:
            raise CaseRefused(f"The case {case.id!r} cannot have the file {source!r} ({error}).") from error
    raise CaseRefused(f"The case {case.id!r} names the file {source!r}, which is not beside it: add it.")


def project_of(case: Case) -> Path:
    """The directory that a case wants as its project."""
    place = contained(Path(case.place), case.setup.project)
    if not place.is_dir():
        raise CaseRefused(
            f"The case {case.id!r} wants the project {case.setup.project!r}, which is no directory."
        )
    return place


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
