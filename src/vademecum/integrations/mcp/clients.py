"""The clients of the server: a session for each, over skills and rules that are looked at now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from vademecum.config import LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import SkillNotFound, VademecumError
from vademecum.policy.base import Origin
from vademecum.policy.engine import Policy
from vademecum.policy.grants import Trust, grants_file
from vademecum.registry.index import SkillIndex
from vademecum.session.base import Place
from vademecum.session.session import Session
from vademecum.session.view import View

MAX_SESSIONS = 1000
Found = TypeVar("Found")
# Looking again must never cost more than a twentieth of the time.
_LEAST_PAUSE, _PAUSE_SHARE = 2.0, 20


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: the name that rules know, and the session that answers and refusals count for.

    Without a session nothing is remembered from one call to the next.
    """

    name: str
    session: Hashable | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """The skills and rules of one moment, and the settings that the rules follow from."""

    index: SkillIndex
    policy: Policy
    place: Place
    settings: tuple[LoadedConfig, bool]


class Clients:
    """Builds the index when it is first needed, and again when something changed."""

    def __init__(self, build: Callable[[], SkillIndex], *, context: Context) -> None:
        self._build = build
        self._context = context
        self._lock = threading.RLock()
        self._known: _Known | None = None
        self._looked, self._cost = 0.0, 0.0
        self._sessions: dict[Client, Session] = {}
        self._views: dict[tuple[str, Origin], View] = {}

    @property
    def pause(self) -> float:
        """The seconds until it is worth looking again."""
        return max(_LEAST_PAUSE, _PAUSE_SHARE * self._cost)

    def look(self) -> bool:
        """Look at the roots and the rules again; returns whether the skills are others than before.

        What cannot be read is raised, and what was known until then stays.
        """
        with self._lock:
            started, before, context = time.monotonic(), self._known, self._context
            config, index = load_config(context), self._build()
            file = config.project_file  # its rules can allow something if the user trusts it as it is
            settings = config, file is not None and Trust(grants_file(context)).holds(file)
            policy = Policy.load(context, config=config)
            self._looked = time.monotonic()
            self._cost = self._looked - started
            changed = before is not None and before.index.hash != index.hash
            if before is None or changed or before.settings != settings:
                self._known = known = _Known(index, policy, Place.at(context, config=config), settings)
                self._views.clear()
                for client, session in self._sessions.items():
                    session.adopt(policy, self._view(known, client.name, "model"), known.place)
            return changed

    def look_if_old(self) -> bool:
        """Look again, unless that was done just now: for something that was not found."""
        with self._lock:
            try:
                return time.monotonic() - self._looked > 10 * self._cost and self.look()
            except (VademecumError, OSError):
                return False

    def found(self, client: Client, work: Callable[[Session], Found]) -> Found:
        """Return what ``work`` finds; for a skill that is not found, look again: it may have come."""
        while True:
            try:
                with self.session(client) as session:
                    return work(session)
            except SkillNotFound:
                if not self.look_if_old():
                    raise

    @contextmanager
    def session(self, client: Client) -> Iterator[Session]:
        """Return the session of a client; one that has none gets a new one, which ends when this does."""
        passing = client.session is None
        if passing:
            client = Client(client.name, object())
        with self._lock:
            known = self._now()
            if client not in self._sessions:
                if len(self._sessions) >= MAX_SESSIONS:
                    raise VademecumError("Too many clients are connected: try again later.", code="busy")
                self._sessions[client] = Session(
                    known.index,
                    place=known.place,
                    policy=known.policy,
                    view=self._view(known, client.name, "model"),
                    agent=client.name,
                    client="mcp",
                )
            session = self._sessions[client]
        try:
            yield session
        finally:
            if passing:
                self.leave(client)

    def for_people(self, client: Client) -> View:
        """Return the skills that a person may call by name through this client."""
        with self._lock:
            return self._view(self._now(), client.name, "user")

    def leave(self, client: Client) -> None:
        """End the record of a client that is gone."""
        with self._lock:
            session = self._sessions.pop(client, None)
        if session is not None:
            session.close()

    def _now(self) -> _Known:
        if self._known is None:
            self.look()
        assert self._known is not None
        return self._known

    def _view(self, known: _Known, agent: str, origin: Origin) -> View:
        if (agent, origin) not in self._views:
            index = known.index if origin == "model" else known.index.restricted(known.index.for_people())
            self._views[agent, origin] = View(index, known.policy, agent=agent, origin=origin)
        return self._views[agent, origin]

    def abandon(self) -> None:
        """End the records at once: the process is about to end."""
        for session in list(self._sessions.values()):
            session.close(at_once=True)

    def close(self) -> None:
        """End the records."""
        for client in list(self._sessions):
            self.leave(client)
