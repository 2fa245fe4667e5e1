"""The skills that one agent may know of, and the names of their files."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vademecum.loader.catalogue import DEFAULT_BUDGET, Form, render_catalogue
from vademecum.policy.base import Decider, Effect, Origin, Request
from vademecum.policy.engine import AllowAll
from vademecum.registry.index import SkillIndex
from vademecum.skill.skill import Skill

if TYPE_CHECKING:
    from vademecum.search.finder import Finder


class View:
    """An index as one agent sees it. Any number of sessions with the same rules can share it.

    A skill that a rule denies does not exist here. One that needs approval does: loading it asks.
    """

    def __init__(
        self, index: SkillIndex, policy: Decider, *, agent: str = "default", origin: Origin = "model"
    ) -> None:
        def offered(skills: Sequence[Skill]) -> list[Skill]:
            meant = [
                each for each in skills if origin != "model" or not each.controls.disable_model_invocation
            ]
            requests = [Request("skill", (each.name,), origin, agent, each.name) for each in meant]
            decisions = map(policy.decide, requests)
            return [each for each, said in zip(meant, decisions, strict=True) if said.effect < Effect.DENY]

        self.index = index
        self.offered = index.restricted(offered(index.skills), offered(index.shadowed))

    @classmethod
    def of_nothing(cls, index: SkillIndex) -> View:
        """Return the view of a child agent, which has its one skill already and sees no other."""
        view = cls(index.restricted(()), AllowAll())
        view.index = index
        return view

    @cached_property
    def finder(self) -> Finder:
        """The search over these skills, built on first use."""
        from vademecum.search.finder import Finder  # noqa: PLC0415 - most sessions never search

        return Finder(self.index, skills=self.offered.skills)

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """The whole index in the form of the record, computed once."""
        return self.index.to_json()

    def catalogue(self, *, form: Form = "list", budget: int = DEFAULT_BUDGET) -> str:
        """Return the skills to choose from, by name, source and description."""
        return render_catalogue(self.offered.skills, form=form, budget=budget).text

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The real paths of the directories of skills."""
        return tuple(dict.fromkeys(os.path.realpath(root.path) for root in self.index.roots))

    def overlap(self, base: str) -> bool:
        """Return whether a directory contains skills or is part of one."""
        return any(
            place == base or place.startswith(f"{base.rstrip('/')}/") or base.startswith(f"{place}/")
            for place in (*self.roots, *(skill.location for skill in self.index.skills))
        )

    def owners(self, real: Path) -> list[tuple[Skill, str]]:
        """Return the skills that contain a file, also under another name, with its relative paths."""
        for place in map(str, (real, *real.parents)):
            if place in self.index.by_place:
                return [(self.index.by_place[place], os.path.relpath(real, place))]
        try:
            about = os.stat(real)
        except (OSError, ValueError):
            return []
        if not stat.S_ISREG(about.st_mode) or about.st_nlink == 1:
            return []
        return self.linked().get((about.st_dev, about.st_ino), [])

    def linked(self) -> dict[tuple[int, int], list[tuple[Skill, str]]]:
        """Return all current files of all skills by device and inode."""
        found: dict[tuple[int, int], list[tuple[Skill, str]]] = {}
        for skill in (*self.index.shadowed, *self.index.skills):
            for directory, _, files in os.walk(skill.location):
                for file in files:
                    with contextlib.suppress(OSError):
                        about = os.lstat(f"{directory}/{file}")
                        relative = os.path.relpath(f"{directory}/{file}", skill.location)
                        found.setdefault((about.st_dev, about.st_ino), []).append((skill, relative))
        return found


def file_names(skill: Skill, relative: str) -> tuple[str, ...]:
    """Return the names of a skill's file in rules: its normalized path and, for a link, its target's."""
    real = os.path.relpath(os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location))
    return tuple(dict.fromkeys(f"{skill.name}/{each}" for each in (relative, real)))
