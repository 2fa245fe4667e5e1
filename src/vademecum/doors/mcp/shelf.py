"""The skills as they are now, for each client: rules can differ by its name, the index is shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from vademecum.config import LoadedConfig, load_config
from vademecum.context import Context
from vademecum.doors.journal import Journal
from vademecum.doors.scripts import Rules, Scripts
from vademecum.doors.toolkit import Toolkit
from vademecum.errors import VademecumError
from vademecum.policy.base import Origin
from vademecum.policy.engine import Policy, grants_file
from vademecum.policy.trust import Trust
from vademecum.registry.index import SkillIndex

MAX_VISITS = 200
# Looking again must never cost more than a twentieth of the time.
_LEAST_PAUSE, _PAUSE_SHARE = 2.0, 20


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: the name that rules know, and the session that answers and refusals hold for.

    Without a session nothing is remembered from one call to the next.
    """

    name: str
    session: Hashable | None = None


class _Visit:
    """What is kept for one client as long as it stays: its record, and what its person answered."""

    def __init__(self, client: Client, rules: Rules, context: Context) -> None:
        self.journal = Journal(rules.index, context=context, agent=client.name, door="mcp")
        self.scripts = Scripts(
            rules, self.journal, agent=client.name, context=context, forgetful=client.session is None
        )
        self.kits: dict[Origin, Toolkit] = {}


class Shelf:
    """Builds the index when it is first needed, and again when something changed."""

    def __init__(
        self,
        build: Callable[[], SkillIndex],
        *,
        context: Context,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._build = build
        self._context = context
        self._clock = clock
        self._lock = threading.RLock()
        self._rules: Rules | None = None
        self._config: tuple[LoadedConfig, bool] | None = None
        self._looked, self._cost = 0.0, 0.0
        self._visits: dict[Client, _Visit] = {}

    @property
    def pause(self) -> float:
        """So long nobody needs to look again, in seconds."""
        return max(_LEAST_PAUSE, _PAUSE_SHARE * self._cost)

    def look(self) -> bool:
        """Look at the roots and the rules again; says whether the skills are others than before.

        What cannot be read is raised, and what was known until then holds on.
        """
        with self._lock:
            started = self._clock()
            config, index = self._settings(), self._build()
            policy = Policy.load(self._context)
            self._looked = self._clock()
            self._cost = self._looked - started
            before, self._rules = self._rules, self._rules or Rules(policy, index)
            changed = before is not None and before.index.hash != index.hash
            if changed or config != self._config:
                self._renew(policy, index, told=changed)
            self._config = config
            return changed

    def _settings(self) -> tuple[LoadedConfig, bool]:
        """What rules are made of: the configuration, and whether the project's own may allow anything."""
        config = load_config(self._context)
        file = config.project_file
        return config, file is not None and Trust(grants_file(self._context)).holds(file)

    def _renew(self, policy: Policy, index: SkillIndex, *, told: bool) -> None:
        assert self._rules is not None
        self._rules.policy, self._rules.index = policy, index
        for visit in self._visits.values():
            visit.kits.clear()
            if told:
                visit.journal.adopt(index)

    def look_if_old(self) -> bool:
        """Look again, unless that was done just now: for something that was not found."""
        with self._lock:
            try:
                return self._clock() - self._looked > 10 * self._cost and self.look()
            except (VademecumError, OSError):
                return False

    def for_model(self, client: Client) -> Toolkit:
        """What this client's model may use; its scripts run as the rules for that name say."""
        return self._kit(client, "model")

    def for_people(self, client: Client) -> Toolkit:
        """What a person may call by name through this client."""
        return self._kit(client, "user")

    def leave(self, client: Client) -> None:
        """The client is gone: end its record."""
        with self._lock:
            visit = self._visits.pop(client, None)
        if visit is not None:
            visit.journal.close()

    def _kit(self, client: Client, origin: Origin) -> Toolkit:
        with self._lock:
            if self._rules is None:
                self.look()
            assert self._rules is not None
            visit = self._visits.get(client) or self._welcome(client, self._rules)
            if origin not in visit.kits:
                visit.kits[origin] = _kit_of(visit, self._rules, client.name, origin)
            return visit.kits[origin]

    def _welcome(self, client: Client, rules: Rules) -> _Visit:
        while len(self._visits) >= MAX_VISITS:  # the one that came first makes room; what it runs goes on
            self.leave(next(iter(self._visits)))
        visit = self._visits[client] = _Visit(client, rules, self._context)
        return visit

    def abandon(self) -> None:
        """End the records at once: the process is about to end."""
        for visit in list(self._visits.values()):
            visit.journal.abandon()

    def close(self) -> None:
        """End the records."""
        with self._lock:
            for client in list(self._visits):
                self.leave(client)


def _kit_of(visit: _Visit, rules: Rules, agent: str, origin: Origin) -> Toolkit:
    index, scripts = rules.index, visit.scripts
    if origin == "user":
        index = index.restricted(index.for_people())
    return Toolkit(
        index,
        policy=rules.policy,
        agent=agent,
        origin=origin,
        scripts=scripts if origin == "model" else None,
        journal=visit.journal,
        repeats="again",
    )
