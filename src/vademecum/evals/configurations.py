"""What is to be compared → configurations: models, with and without a skill, libraries of several sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import structs

from vademecum.errors import ConfigError
from vademecum.evals.cases import Case
from vademecum.evals.plan import Configuration
from vademecum.registry.index import SkillIndex

WITH, WITHOUT = "with_skill", "without_skill"


def by_model(base: Configuration, models: Sequence[str]) -> list[Configuration]:
    """One for each model; a single one keeps its name."""
    if len(models) < 2:
        return [structs.replace(base, model=models[0]) if models else base]
    return [structs.replace(base, name=model, model=model) for model in dict.fromkeys(models)]


def with_and_without(
    configurations: Iterable[Configuration], skill: str, index: SkillIndex
) -> list[Configuration]:
    """Each of them twice: with all skills, and with all but one."""
    name = index.get(skill).name
    others = tuple(other.name for other in index.skills if other.name != name)
    found = []
    for one in configurations:
        prefix = "" if one.name == Configuration("default").name else f"{one.name} "
        found.append(structs.replace(one, name=f"{prefix}{WITH}"))
        found.append(structs.replace(one, name=f"{prefix}{WITHOUT}", skills=others))
    return found


def by_size(
    configurations: Iterable[Configuration], sizes: Sequence[int], cases: Sequence[Case], index: SkillIndex
) -> list[Configuration]:
    """Each with libraries of several sizes: the skills that cases name first, then always the same others.

    What a configuration is without stays out of all of them.
    """
    ordered = _ordered(cases, index)
    named = len({name for case in cases for name in case.expects_skills} & set(ordered))
    for size in sizes:
        if size < named:
            raise ConfigError(f"A library of {size} skills cannot hold the {named} that the cases name.")
    found = []
    for one in configurations:
        prefix = "" if one.name == Configuration("default").name else f"{one.name}, "
        for size in dict.fromkeys(min(size, len(ordered)) for size in sizes):
            kept = tuple(name for name in ordered[:size] if one.skills is None or name in one.skills)
            found.append(structs.replace(one, name=f"{prefix}{size:,} skills", skills=kept))
    return found


def _ordered(cases: Sequence[Case], index: SkillIndex) -> list[str]:
    """Skills that cases want, then those they do not want, then the rest in an order without meaning."""
    known = {skill.name for skill in index.skills}
    wanted = [name for case in cases for name in case.expects_skills]
    unwanted = [name for case in cases for name in case.expected.skills_none_of]
    rest = sorted(known, key=lambda name: hashlib.sha256(name.encode("utf-8", "replace")).digest())
    return [name for name in dict.fromkeys((*wanted, *unwanted, *rest)) if name in known]
