"""The skills that one agent may know of: a catalogue, a search and a look-up that contain nothing else."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import Any

from vademecum.loader.catalogue import DEFAULT_BUDGET, Form, render_catalogue
from vademecum.policy.base import AllowAll, Decider, Effect, Origin, Request
from vademecum.registry.index import SkillIndex
from vademecum.search.finder import Finder, Hit
from vademecum.skill.assets import Sees
from vademecum.skill.skill import Skill


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
        """The search over these skills, made when it is first needed."""
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

    def catalogue(self, *, form: Form = "list", budget: int = DEFAULT_BUDGET) -> str:
        """Return the skills to choose from, by name, source and description."""
        return render_catalogue(self.offered.skills, form=form, budget=budget).text


class SkillFiles:
    """Which files belong to skills, by whatever name they are reached."""

    def __init__(self, index: SkillIndex) -> None:
        self._index = index
        self.roots = tuple(dict.fromkeys(os.path.realpath(root.path) for root in index.roots))

    def owner(self, real: Path) -> tuple[Skill, str] | None:
        """Return the skill that a file belongs to and its path there, also if this is a second name of it."""
        skill = self._index.at(real)
        if skill is not None:
            return skill, os.path.relpath(real, os.path.realpath(skill.location))
        try:
            about = os.stat(real)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(about.st_mode) or about.st_nlink == 1:
            return None
        return self._linked().get((about.st_dev, about.st_ino))

    def _linked(self) -> dict[tuple[int, int], tuple[Skill, str]]:
        """All files of all skills by their inode: looked at anew, and only for a file with several names."""
        found: dict[tuple[int, int], tuple[Skill, str]] = {}
        for skill in (*self._index.shadowed, *self._index.skills):
            for directory, _, files in os.walk(skill.location):
                for file in files:
                    with contextlib.suppress(OSError):
                        about = os.stat(f"{directory}/{file}")
                        relative = os.path.relpath(f"{directory}/{file}", skill.location)
                        found[about.st_dev, about.st_ino] = (skill, relative)
        return found


def files_seen(gate: Decider, skill: Skill, *, agent: str, origin: Origin) -> Sees:
    """Return the test whether an agent may know of a file of a skill: what a rule denies is not named."""

    def sees(relative: str) -> bool:
        permissions = ("resource", "script") if relative.startswith("scripts/") else ("resource",)
        requests = (
            Request(each, (f"{skill.name}/{relative}",), origin, agent, skill.name) for each in permissions
        )
        return all(gate.decide(request).effect < Effect.DENY for request in requests)

    return sees
