"""Combine cases, configurations and repetitions into units of work, each with a key of all its inputs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused
from vademecum.evals.cases import Case
from vademecum.evals.isolation import content_digests, project_digest
from vademecum.files import read_capped
from vademecum.models.base import Model
from vademecum.registry.index import SkillIndex
from vademecum.skill.assets import skill_digest
from vademecum.skill.skill import Skill
from vademecum.version import VERSION

MAX_TAPE_BYTES = 256 * 1024 * 1024
SECONDS = 600.0
# Part of every key: increase it if the same unit would give another result.
FORMAT = 3

# Fields that have no influence on a single run.
_NOT_OF_A_RUN = {"tags", "repeat", "description"}
# Models that are a file, and the variables with the addresses of others.
_BY_FILE = ("scripted", "recorded")
_ENDPOINTS = ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION", "ANTHROPIC_BASE_URL")


class Configuration(Struct, frozen=True):
    """One way in which all cases are run.

    ``model`` is ``case`` for the mock of each case, or the offline model if a case has none. ``skills``
    are the names of the available skills; ``None`` means all. ``tape`` records a model's replies.
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
class EvalSettings:
    """The skills, the directory of the results, the project that is copied, and the environment.

    ``models`` are additional models by name for ``choose_model``. They must be picklable.
    """

    index: SkillIndex
    out: Path
    project: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unit:
    """One planned run."""

    key: str
    case: Case
    configuration: Configuration
    repetition: int

    @property
    def names(self) -> tuple[str, str, str, int]:
        """Return the first four fields of its result: key, case, configuration and repetition."""
        return self.key, self.case.id, self.configuration.name, self.repetition

    @property
    def seconds(self) -> float:
        """Return how many seconds the run may take."""
        return self.case.constraints.max_seconds or self.configuration.seconds


def plan(
    cases: Iterable[Case], configurations: Sequence[Configuration], settings: EvalSettings
) -> list[Unit]:
    """Return all units in the order of the work: each case in all its configurations first.

    Units with equal inputs have the same key: they are one run. A project's own rules are among its files.
    """
    index = settings.index
    digests = {id(skill): skill_digest(skill) for skill in (*index.skills, *index.shadowed)}
    bases = [_base(configuration, settings, digests) for configuration in configurations]
    around = "" if settings.project is None else project_digest(settings.project)
    units = []
    for case in cases:
        content = case.model_dump(mode="json", fallback=repr, exclude=_NOT_OF_A_RUN)
        # A case with its own project never sees the other.
        own = _digest([content, content_digests(case), "" if case.setup.project else around])
        for configuration, base in zip(configurations, bases, strict=True):
            for repetition in range(1, case.repeat + 1):
                units.append(Unit(_digest([own, base, repetition]), case, configuration, repetition))
    return units


def _model(name: str, env: Mapping[str, str]) -> list[str]:
    """Return the settings that determine a model's replies: its name, its file, its address."""
    kind, _, file = name.partition(":")
    if kind in _BY_FILE and file:
        try:
            return [name, hashlib.sha256(read_capped(file, cap=MAX_TAPE_BYTES)).hexdigest()]
        except (OSError, FileRefused):
            return [name, "not there"]
    return [name, *(f"{key}={env[key]}" for key in _ENDPOINTS if file and key in env)]


def _base(one: Configuration, settings: EvalSettings, digests: Mapping[int, str]) -> str:
    """Return the digest of a configuration: how it runs cases, and with which skills, by content."""
    index = settings.index
    found: Iterable[Skill] = (*index.skills, *index.shadowed)
    if one.skills is not None:  # a selection of skills has no namesakes
        wanted = set(one.skills)
        found = (skill for skill in index.skills if skill.name in wanted)
    kept = sorted((skill.name, skill.source, digests[id(skill)]) for skill in found)
    models = [_model(one.model, settings.env), _model(one.judge, settings.env)]
    # A run that is recorded on a tape differs from one that is not.
    how = [VERSION, FORMAT, models, one.yes, one.allow, one.seconds, one.tape]
    return _digest([how, [index.options.index_bodies, index.options.body_lines, kept]])


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def by_model(base: Configuration, models: Sequence[str]) -> list[Configuration]:
    """Return one configuration for each model; a single one keeps its name."""
    if len(models) < 2:
        return [structs.replace(base, model=models[0]) if models else base]
    return [structs.replace(base, name=model, model=model) for model in dict.fromkeys(models)]


def with_and_without(
    configurations: Iterable[Configuration], skill: str, index: SkillIndex
) -> list[Configuration]:
    """Return each configuration twice: with all skills, and with all but one."""
    name = index.get(skill).name
    others = tuple(other.name for other in index.skills if other.name != name)
    found = []
    for one in configurations:
        prefix = "" if one.name == "default" else f"{one.name} "
        found.append(structs.replace(one, name=f"{prefix}with_skill"))
        found.append(structs.replace(one, name=f"{prefix}without_skill", skills=others))
    return found


def other_index(
    index: SkillIndex, skills: Iterable[Skill], shadowed: Iterable[Skill], *said: str
) -> SkillIndex:
    """Return an index of other skills than those on disk; ``said`` determines its hash."""
    found = index.restricted(skills, shadowed)
    digest = hashlib.sha256("\0".join([index.hash, *said]).encode("utf-8", "replace")).hexdigest()
    report = structs.replace(found.report, hash=f"sha256:{digest}")
    return dataclasses.replace(found, report=report, options=dataclasses.replace(found.options, cache=None))
