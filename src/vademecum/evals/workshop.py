"""What units are performed with: skills, rules and models, each made once for all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from vademecum.evals.plan import Configuration
from vademecum.masking import Secrets
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.models.on_tape import Recorded
from vademecum.policy.engine import Policy, allowing, default_rules
from vademecum.registry.index import SkillIndex
from vademecum.session.view import View


@dataclass(frozen=True, slots=True)
class Workshop:
    """What units are performed with: the skills, where results go, what is copied, and the environment."""

    index: SkillIndex
    out: Path
    project: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Stock:
    """What the units of one workshop share; any thread may ask for it."""

    def __init__(self, workshop: Workshop, models: Mapping[str, Model]) -> None:
        self.workshop = workshop
        self.models = dict(models)
        self._made: dict[str, Model] = dict(models)
        self._shared: dict[Configuration, tuple[SkillIndex, Policy, View]] = {}
        self._lock = threading.Lock()
        self._secrets = Secrets(workshop.env)

    def parts(self, configuration: Configuration) -> tuple[SkillIndex, Policy, View]:
        """The skills of a configuration, the rules where nobody wrote any, and search: made once.

        What lies around the results is none of a run's business: a project's rules come with the project.
        """
        with self._lock:
            if configuration not in self._shared:
                index = restricted(self.workshop.index, configuration.skills)
                policy = Policy(default_rules(), run=allowing(configuration.allow))
                self._shared[configuration] = (index, policy, View(index, policy))
            return self._shared[configuration]

    def model(self, name: str, tape: str = "") -> Model:
        """A model by its name, made once."""
        with self._lock:
            key = f"{name}\0{tape}" if tape else name
            if key not in self._made:
                made = self._made.get(name) or choose_model(name)
                self._made[key] = Recorded(Path(tape), made, mode="replay") if tape else made
            return self._made[key]

    def masked(self, text: str) -> str:
        """A text as the record has it."""
        return self._secrets.mask(text)


def restricted(index: SkillIndex, names: tuple[str, ...] | None) -> SkillIndex:
    """The index with only these skills; a view of its own, with a hash of its own, kept nowhere."""
    if names is None:
        return index
    wanted = set(names)
    fewer = index.restricted([skill for skill in index.skills if skill.name in wanted])
    digest = hashlib.sha256("\0".join([index.hash, *sorted(wanted)]).encode("utf-8", "replace")).hexdigest()
    report = structs.replace(fewer.report, hash=f"sha256:{digest}")
    return dataclasses.replace(fewer, report=report, options=dataclasses.replace(fewer.options, cache=None))
