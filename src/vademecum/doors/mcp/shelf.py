"""The skills as they are now, for each client by its name: rules can differ, the index is shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from vademecum.context import Context
from vademecum.doors.journal import Journal
from vademecum.doors.scripts import Scripts
from vademecum.doors.toolkit import Toolkit
from vademecum.policy.engine import Policy
from vademecum.registry.index import SkillIndex

MAX_AGENTS = 100
# Looking again must never cost more than a twentieth of the time.
_LEAST_PAUSE, _PAUSE_SHARE = 2.0, 20


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
        self._index: SkillIndex | None = None
        self._looked, self._cost = 0.0, 0.0
        self._policy = Policy.load(context)
        self._journals: dict[str, Journal] = {}
        self._kits: dict[tuple[str, str], Toolkit] = {}

    @property
    def index(self) -> SkillIndex:
        """The skills there are."""
        with self._lock:
            if self._index is None:
                self.look()
            assert self._index is not None
            return self._index

    @property
    def pause(self) -> float:
        """So long nobody needs to look again, in seconds."""
        return max(_LEAST_PAUSE, _PAUSE_SHARE * self._cost)

    def look(self) -> bool:
        """Look at the roots again; says whether the skills are others than before."""
        with self._lock:
            started = self._clock()
            before, self._index = self._index, self._build()
            self._looked = self._clock()
            self._cost = self._looked - started
            if before is not None and before.hash == self._index.hash:
                return False
            self._kits.clear()
            for journal in self._journals.values():
                journal.adopt(self._index)
            return before is not None

    def look_if_old(self) -> bool:
        """Look again, unless that was done just now: for something that was not found."""
        with self._lock:
            return self._clock() - self._looked > 10 * self._cost and self.look()

    def for_model(self, agent: str) -> Toolkit:
        """What this client's model may use; its scripts run as the rules for that name say."""
        return self._kit(agent, "model")

    def for_people(self, agent: str) -> Toolkit:
        """What a person may call by name through this client."""
        return self._kit(agent, "user")

    def _kit(self, agent: str, origin: str) -> Toolkit:
        with self._lock:
            index = self.index
            found = self._kits.get((agent, origin))
            if found is None:
                found = self._kits[agent, origin] = self._new_kit(index, agent, origin)
            return found

    def _new_kit(self, index: SkillIndex, agent: str, origin: str) -> Toolkit:
        journal = self._journal(index, agent)
        if origin == "user":
            people = index.restricted(index.for_people())
            return Toolkit(
                people, policy=self._policy, agent=agent, origin="user", journal=journal, repeats="again"
            )
        scripts = Scripts(index, journal, policy=self._policy, agent=agent, context=self._context)
        return Toolkit(
            index, policy=self._policy, agent=agent, scripts=scripts, journal=journal, repeats="again"
        )

    def _journal(self, index: SkillIndex, agent: str) -> Journal:
        if agent not in self._journals and len(self._journals) >= MAX_AGENTS:
            oldest = next(iter(self._journals))
            self._kits = {key: kit for key, kit in self._kits.items() if key[0] != oldest}
            self._journals.pop(oldest).close()
        return self._journals.setdefault(
            agent, Journal(index, context=self._context, agent=agent, door="mcp")
        )

    def close(self) -> None:
        """End the records."""
        with self._lock:
            for journal in self._journals.values():
                journal.close()
