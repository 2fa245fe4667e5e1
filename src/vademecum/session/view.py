"""The skills that one agent may know of: a catalogue, a search and a look-up that contain nothing else."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vademecum.loader.catalogue import DEFAULT_BUDGET, Form, render_catalogue
from vademecum.policy.base import AllowAll, Decider, Effect, Origin, Request
from vademecum.policy.gate import Gate
from vademecum.registry.index import SkillIndex
from vademecum.skill.assets import Sees
from vademecum.skill.skill import Skill

if TYPE_CHECKING:
    from vademecum.search.finder import Finder, Findings, Hit


class View:
    """An index as one agent sees it. It can be shared by any number of sessions with the same rules.

    A skill that a rule denies does not exist here. One that needs approval does: loading it asks.
    """

    def __init__(
        self,
        index: SkillIndex,
        policy: Decider,
        *,
        agent: str = "default",
        origin: Origin = "model",
    ) -> None:
        self.index = index
        self.offered = self._restricted(policy, agent, origin)
        self.files = SkillFiles(index)
        self._lock = threading.Lock()
        self._finder: Finder | None = None
        self._snapshot: dict[str, Any] | None = None

    def _restricted(self, policy: Decider, agent: str, origin: Origin) -> SkillIndex:
        def is_offered(skill: Skill) -> bool:
            if origin == "model" and skill.controls.disable_model_invocation:
                return False
            return (
                policy.decide(Request("skill", (skill.name,), origin, agent, skill.name)).effect < Effect.DENY
            )

        index = self.index
        return index.restricted(filter(is_offered, index.skills), filter(is_offered, index.shadowed))

    @classmethod
    def of_nothing(cls, index: SkillIndex) -> View:
        """Return the view of a child agent, which has its one skill already and is offered no other."""
        view = cls(index.restricted(()), AllowAll())
        view.index, view.files = index, SkillFiles(index)
        return view

    @property
    def finder(self) -> Finder:
        """Return the search over these skills, built on first use."""
        from vademecum.search.finder import Finder  # noqa: PLC0415 - most sessions never search

        with self._lock:
            if self._finder is None:
                self._finder = Finder(self.index, skills=self.offered.skills)
            return self._finder

    @property
    def snapshot(self) -> dict[str, Any]:
        """The whole index as the record keeps it, made once."""
        if self._snapshot is None:
            self._snapshot = self.index.to_json()
        return self._snapshot

    def search(self, query: str, n: int = 5) -> list[Hit]:
        """Return the skills that fit a query, best first."""
        return self.finder.search(query, n)

    def find(self, query: str, n: int = 5) -> Findings:
        """Return the skills that fit a query, best first, and whether the first one really fits."""
        return self.finder.find(query, n)

    def catalogue(self, *, form: Form = "list", budget: int = DEFAULT_BUDGET) -> str:
        """Return the skills to choose from, by name, source and description."""
        return render_catalogue(self.offered.skills, form=form, budget=budget).text


class SkillFiles:
    """Which files belong to skills, by whatever name they are reached."""

    def __init__(self, index: SkillIndex) -> None:
        self._index = index
        self.roots = tuple(dict.fromkeys(os.path.realpath(root.path) for root in index.roots))

    def overlap(self, base: str) -> bool:
        """Return whether a directory contains skills or is part of one."""
        return any(
            place == base or place.startswith(f"{base.rstrip('/')}/") or base.startswith(f"{place}/")
            for place in (*self.roots, *(skill.location for skill in self._index.skills))
        )

    def restricted(self, gate: Gate, agent: str) -> bool:
        """Return whether a rule could keep an agent from a skill or from a file of one."""
        names = "\n".join(skill.name for skill in (*self._index.skills, *self._index.shadowed))
        return gate.policy.could_restrict("skill", agent, names) or gate.policy.could_restrict(
            "resource", agent, names
        )

    def owners(self, real: Path) -> list[tuple[Skill, str]]:
        """Return the skills that a file belongs to, with its paths there, also by a second name of it."""
        skill = self._index.at(real)
        if skill is not None:
            return [(skill, os.path.relpath(real, os.path.realpath(skill.location)))]
        try:
            about = os.stat(real)
        except (OSError, ValueError):
            return []
        if not stat.S_ISREG(about.st_mode) or about.st_nlink == 1:
            return []
        return self.linked().get((about.st_dev, about.st_ino), [])

    def linked(self) -> dict[tuple[int, int], list[tuple[Skill, str]]]:
        """Return all files of all skills by device and inode, as they are now."""
        found: dict[tuple[int, int], list[tuple[Skill, str]]] = {}
        for skill in (*self._index.shadowed, *self._index.skills):
            for directory, _, files in os.walk(skill.location):
                for file in files:
                    with contextlib.suppress(OSError):
                        about = os.lstat(f"{directory}/{file}")
                        relative = os.path.relpath(f"{directory}/{file}", skill.location)
                        found.setdefault((about.st_dev, about.st_ino), []).append((skill, relative))
        return found


def file_names(skill: Skill, relative: str) -> tuple[str, ...]:
    """Return the names of a file of a skill in rules: its one spelling, and what it is if it is a link."""
    real = os.path.relpath(os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location))
    return tuple(dict.fromkeys(f"{skill.name}/{each}" for each in (relative, real)))


def files_seen(policy: Decider, skill: Skill, *, agent: str, origin: Origin) -> Sees:
    """Return the test whether an agent may know of a file of a skill: what a rule denies is not named."""

    def sees(relative: str) -> bool:
        permissions = ("resource", "script") if relative.startswith("scripts/") else ("resource",)
        requests = (
            Request(each, (f"{skill.name}/{relative}",), origin, agent, skill.name) for each in permissions
        )
        return all(policy.decide(request).effect < Effect.DENY for request in requests)

    return sees
