"""The finder: keeps a search index equal to the skills it may show, and asks it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import open_plain, read_up_to
from vademecum.registry.index import SkillIndex
from vademecum.search.engine import Engine, Text
from vademecum.search.store import Entry, State, Store
from vademecum.skill.frontmatter import body_start
from vademecum.skill.model import Problem
from vademecum.skill.skill import Skill

MAX_INDEXED_BYTES = 128 * 1024
MAX_DEAD = 200
_PROGRESS_STEP = 200

Progress = Callable[[int], None]


class Hit(Struct, frozen=True):
    """A skill that fits a query; a higher score fits better."""

    name: str
    description: str
    source: str
    score: float

    def to_json(self) -> dict[str, Any]:
        """The hit as the commands print it."""
        return {
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "score": self.score,
        }


class Finder:
    """Finds skills by words, among those it was given and no others.

    Skills that are left out leave no trace: they are not in the search index, so they neither appear nor
    change how the others rank. ``audience`` names whose view this is; each has an index of its own.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> finder = Finder(build_index(BUILTIN_ROOT, IndexOptions()))
    >>> [hit.name for hit in finder.search("compare two files", n=1)]
    ['file-diff']
    """

    def __init__(
        self,
        index: SkillIndex,
        *,
        skills: Sequence[Skill] | None = None,
        audience: str = "people",
        progress: Progress | None = None,
    ) -> None:
        self._index = index
        self._skills = tuple(index.skills if skills is None else skills)
        self._progress = progress or (lambda _: None)
        self._bodies = index.options.index_bodies
        self._by_number: dict[int, Skill] = {}
        self.updated = 0
        self.problem: Problem | None = None
        self._engine = self._open(audience)

    def search(self, query: str, n: int = 5) -> list[Hit]:
        """The ``n`` skills that fit best; none when no word of the query is in any."""
        if n < 0:
            raise VademecumError(f"n is {n}: ask for 0 or more skills.", code="wrong-value")
        terms = self._engine.terms(query)
        if not terms or not n or not self._by_number:
            return []
        order = self._precedence()
        found = [(round(score, 5), self._by_number[number]) for score, number in self._engine.best(terms, n)]
        found.sort(key=lambda hit: (-hit[0], order.get(hit[1].root, 0), hit[1].name))
        return [Hit(skill.name, skill.description, skill.source, score) for score, skill in found[:n]]

    def words(self, text: str) -> list[str]:
        """The words of a text as they are searched for; for showing which of them matched."""
        return self._engine.terms(text)

    def _precedence(self) -> dict[str, int]:
        return {str(root.path): -root.priority for root in self._index.roots}

    def _open(self, audience: str) -> Engine:
        """The engine on disk brought up to date, or one in memory where the disk does not allow it."""
        cache = self._index.options.cache
        if cache is not None:
            store = Store(cache / _directory_name(self._index, audience, bodies=self._bodies))
            try:
                return self._synchronised(store)
            except (OSError, ValueError) as error:
                text = f"The search index {cache} cannot be kept ({error}): it is built anew each time"
                self.problem = Problem("search-not-kept", "warning", text)
        engine = Engine(None)
        self._bring_up_to_date(engine, State())
        return engine

    def _synchronised(self, store: Store) -> Engine:
        state = store.load()
        if state is not None and self._is_current(state):
            engine = Engine(store.engine_directory)
            self._take_numbers(state)
            return engine
        with store.locked():
            state = store.load()  # somebody else may have done the work meanwhile
            if state is None or self._is_to_be_rebuilt(state):
                store.clear()
                state = State()
            engine = Engine(store.engine_directory)
            state = self._bring_up_to_date(engine, state)
            store.save(state)
        return engine

    def _is_current(self, state: State) -> bool:
        known = state.documents
        return len(known) == len(self._skills) and all(
            skill.stamp and (entry := known.get(skill.location)) and entry.stamp == skill.stamp
            for skill in self._skills
        )

    def _is_to_be_rebuilt(self, state: State) -> bool:
        """Whether removing is not enough: a removed document counts in the statistics until a rebuild.

        That is tolerable for a few skills that were edited or uninstalled, not for one that this audience
        may no longer see.
        """
        shown = {skill.location for skill in self._skills}
        existing = {skill.location for skill in (*self._index.skills, *self._index.shadowed)}
        hidden_now = (state.documents.keys() - shown) & existing
        return bool(hidden_now) or state.dead > max(MAX_DEAD, len(shown) // 10)

    def _bring_up_to_date(self, engine: Engine, state: State) -> State:
        """Give the engine the difference between what it holds and what it should hold."""
        texts: dict[str, Text] = {}
        entries: dict[str, Entry] = {}
        representative: dict[str, str] = {}
        order = self._precedence()
        for skill in sorted(self._skills, key=lambda skill: (order.get(skill.root, 0), skill.name)):
            place, known = skill.location, state.documents.get(skill.location)
            if known is None or not skill.stamp or known.stamp != skill.stamp:
                texts[place] = _text_of(skill, bodies=self._bodies)
                known = Entry(skill.stamp, _digest(texts[place]), -1)
                self._progress_made(len(texts))
            entries[place] = known
            representative.setdefault(known.digest, place)
        new_state = self._assigned(state, entries, representative)
        kept = {entry.number for entry in new_state.documents.values()}
        gone = [entry.number for entry in state.documents.values() if entry.number not in kept]
        held = {entry.number for entry in state.documents.values()}
        by_place = {skill.location: skill for skill in self._skills}
        add = [
            (entry.number, texts.get(place) or _text_of(by_place[place], bodies=self._bodies))
            for place, entry in new_state.documents.items()
            if entry.number >= 0 and entry.number not in held
        ]
        self.updated = len(add) + len(gone)
        if add or gone:
            new_state.engine_stamp = engine.update(remove=[n for n in gone if n >= 0], add=add)
        new_state.dead = state.dead + len(gone)
        self._take_numbers(new_state)
        return new_state

    def _assigned(self, old: State, entries: dict[str, Entry], representative: dict[str, str]) -> State:
        """Number the documents: the same text keeps its number, and of identical copies one has it."""
        numbers = {entry.digest: entry.number for entry in old.documents.values() if entry.number >= 0}
        state = State(engine_stamp=old.engine_stamp, next_number=old.next_number, documents={})
        for place, entry in entries.items():
            number = -1
            if representative[entry.digest] == place:
                number = numbers.get(entry.digest, -1)
                if number < 0:
                    number = state.next_number
                    state.next_number += 1
            state.documents[place] = Entry(entry.stamp, entry.digest, number)
        return state

    def _take_numbers(self, state: State) -> None:
        self._by_number = {
            entry.number: skill
            for skill in self._skills
            if (entry := state.documents[skill.location]).number >= 0
        }

    def _progress_made(self, read: int) -> None:
        if read % _PROGRESS_STEP == 0:
            self._progress(read)


def _directory_name(index: SkillIndex, audience: str, *, bodies: bool) -> str:
    places = [f"{root.source}\0{root.path}" for root in index.roots]
    key = "\0".join([audience, str(bodies), repr(index.options.reading), *places])
    return f"search-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def _text_of(skill: Skill, *, bodies: bool) -> Text:
    return Text(skill.name, skill.description, _body_of(skill) if bodies else "")


def _body_of(skill: Skill) -> str:
    """As much of the body as is indexed; nothing where it cannot be read, which loading will report."""
    try:
        descriptor = open_plain(f"{skill.location}/{skill.file}")
    except (OSError, FileRefused):
        return ""
    try:
        data = read_up_to(descriptor, MAX_INDEXED_BYTES)
    finally:
        os.close(descriptor)
    return data[body_start(data) :].decode("utf-8", "replace")


def _digest(text: Text) -> str:
    content = "\0".join([text.name, text.description, text.body]).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:32]
