"""The finder: keeps a search index equal to the skills it may show, and asks it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused, VademecumError
from vademecum.registry.index import SkillIndex
from vademecum.search.engine import Engine, Text
from vademecum.search.store import Entry, State, Store
from vademecum.skill.frontmatter import body_start, read_manifest
from vademecum.skill.skill import Problem, Skill

MAX_INDEXED_BYTES = 128 * 1024
# A document that was removed counts in the statistics until a rebuild: at most one in twenty.
DEAD_SHARE = 20
_PROGRESS_STEP = 200

Progress = Callable[[int], None]


class Hit(Struct, frozen=True):
    """A skill that fits a query; a higher score fits better.

    >>> Hit("pdf", "Fill in PDF forms.", "user", 3.25).to_json()
    {'name': 'pdf', 'description': 'Fill in PDF forms.', 'source': 'user', 'score': 3.25}
    """

    name: str
    description: str
    source: str
    score: float

    def to_json(self) -> dict[str, Any]:
        """The hit as the commands print it."""
        return structs.asdict(self)


class Finder:
    """Finds skills by words, among those it was given and no others.

    Skills that are left out leave no trace: they are not in the search index, so they neither appear nor
    change how the others rank. What a finder knows is fixed when it is made.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> finder = Finder(build_index(BUILTIN_ROOT, IndexOptions()))
    >>> [hit.name for hit in finder.search("compare two files", n=1)]
    ['file-diff']
    """

    def __init__(
        self, index: SkillIndex, *, skills: Sequence[Skill] | None = None, progress: Progress | None = None
    ) -> None:
        self._index = index
        self._skills = tuple(index.skills if skills is None else skills)
        self._progress = progress or (lambda _: None)
        self._bodies = index.options.index_bodies
        self._by_number: dict[int, Skill] = {}
        self.updated = 0
        self.problem: Problem | None = None
        self._engine = self._open()

    def search(self, query: str, n: int = 5) -> list[Hit]:
        """The ``n`` skills that fit best; none when no word of the query is in any."""
        if n < 0:
            raise VademecumError(f"n is {n}: ask for 0 or more skills.", code="wrong-value")
        terms = self.words(query)
        if not terms or not n or not self._by_number:
            return []
        order = self._precedence()
        found = [
            (round(score, 5), skill)
            for score, number in self._best(terms, min(n, len(self._by_number)))
            if (skill := self._by_number.get(number)) is not None
        ]
        found.sort(key=lambda hit: (-hit[0], order.get(hit[1].root, 0), hit[1].name))
        return [Hit(skill.name, skill.description, skill.source, score) for score, skill in found[:n]]

    def words(self, text: str) -> list[str]:
        """The words of a text as they are searched for."""
        return self._engine.terms(text)

    def _best(self, terms: list[str], n: int) -> list[tuple[float, int]]:
        try:
            return self._engine.best(terms, n)
        except BaseException as error:
            if not is_engine_failure(error):
                raise
            # Files that were damaged since they were written: for this finder, everything anew in memory.
            self.problem = _not_kept(self._index.options.cache, error)
            self._engine = self._in_memory()
            return self._engine.best(terms, n)

    def _precedence(self) -> dict[str, int]:
        return {str(root.path): -root.priority for root in self._index.roots}

    def _open(self) -> Engine:
        """The engine on disk brought up to date, or one in memory where the disk does not allow it."""
        cache = self._index.options.cache
        if cache is None:
            return self._in_memory()
        store = Store(cache / self._directory_name())
        try:
            return self._current(store) or self._updated(store)
        except BaseException as error:
            if not is_engine_failure(error):
                raise
            self.problem = _not_kept(cache, error)
            return self._in_memory()

    def _in_memory(self) -> Engine:
        engine = Engine(None)
        self._bring_up_to_date(engine, State(documents={}))
        return engine

    def _current(self, store: Store) -> Engine | None:
        """The engine as it is on disk, if it holds just what it should."""
        state = store.load()
        if state is None or not self._is_current(state):
            return None
        engine = Engine(store.engine_directory)
        if not store.fits(state):  # somebody committed between the two looks
            return None
        self._take_numbers(state)
        return engine

    def _updated(self, store: Store) -> Engine:
        with store.locked():
            state = store.load()
            if state is None:
                store.clear()
                state = State(documents={})
            try:
                engine = Engine(store.engine_directory)
                state = self._bring_up_to_date(engine, state)
            except BaseException as error:
                if not is_engine_failure(error):
                    raise
                engine, state = self._rebuilt(store)  # damaged: once more from nothing
            if _has_many_dead(state):
                # At once: among few skills, the old text of a single one changes which comes first.
                changed = self.updated
                engine, state = self._rebuilt(store)
                self.updated = changed
            store.save(state)
        return engine

    def _rebuilt(self, store: Store) -> tuple[Engine, State]:
        store.clear()
        engine = Engine(store.engine_directory)
        return engine, self._bring_up_to_date(engine, State(documents={}))

    def _is_current(self, state: State) -> bool:
        known = state.documents
        return len(known) == len(self._skills) and all(
            skill.stamp and (entry := known.get(_key(skill))) and entry.stamp == skill.stamp
            for skill in self._skills
        )

    def _directory_name(self) -> str:
        """One index for each set of roots and of hidden skills: what is hidden was never in it."""
        shown = {skill.location for skill in self._skills}
        hidden = [skill.location for skill in self._index.skills if skill.location not in shown]
        places = [f"{root.source}\0{root.path}" for root in self._index.roots]
        key = "\0".join([str(self._bodies), repr(self._index.options.reading), *places, "", *sorted(hidden)])
        return f"search-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"

    def _bring_up_to_date(self, engine: Engine, state: State) -> State:
        """Give the engine the difference between what it holds and what it should hold."""
        texts: dict[str, Text] = {}
        entries: dict[str, Entry] = {}
        representative: dict[str, str] = {}
        order = self._precedence()
        for skill in sorted(self._skills, key=lambda skill: (order.get(skill.root, 0), skill.name)):
            place, known = _key(skill), state.documents.get(_key(skill))
            if known is None or not skill.stamp or known.stamp != skill.stamp:
                texts[place] = _text_of(skill, bodies=self._bodies)
                known = _entry(skill, texts[place], bodies=self._bodies)
                self._progress_made(len(texts))
            entries[place] = known
            representative.setdefault(known.twin, place)
        new_state = self._assigned(state, entries, representative)
        kept = {entry.number for entry in new_state.documents.values()}
        gone = [entry.number for entry in state.documents.values() if entry.number not in kept]
        held = {entry.number for entry in state.documents.values()}
        by_place = {_key(skill): skill for skill in self._skills}
        add = [
            (entry.number, texts.get(place) or _text_of(by_place[place], bodies=self._bodies))
            for place, entry in new_state.documents.items()
            if entry.number >= 0 and entry.number not in held
        ]
        self.updated = len(add) + len(gone)
        if add or gone:
            new_state.engine_stamp = engine.update(remove=[n for n in gone if n >= 0], add=add)
        new_state.dead = state.dead + sum(number >= 0 for number in gone)
        self._take_numbers(new_state)
        return new_state

    def _assigned(self, old: State, entries: dict[str, Entry], representative: dict[str, str]) -> State:
        """Number the documents: the same text keeps its number, and of identical copies one has it."""
        numbers = {entry.digest: entry.number for entry in old.documents.values() if entry.number >= 0}
        state = State(engine_stamp=old.engine_stamp, next_number=old.next_number, documents={})
        for place, entry in entries.items():
            number = -1
            if representative[entry.twin] == place:
                number = numbers.get(entry.digest, -1)
                if number < 0:
                    number = state.next_number
                    state.next_number += 1
            state.documents[place] = Entry(entry.stamp, entry.digest, entry.twin, number)
        return state

    def _take_numbers(self, state: State) -> None:
        self._by_number = {
            entry.number: skill
            for skill in self._skills
            if (entry := state.documents[_key(skill)]).number >= 0
        }

    def _progress_made(self, read: int) -> None:
        if read % _PROGRESS_STEP == 0:
            self._progress(read)


def is_engine_failure(error: BaseException) -> bool:
    """Whether the engine or its files failed; its panics are no ordinary exceptions."""
    return isinstance(error, OSError | ValueError | OverflowError) or type(error).__name__ == "PanicException"


def _has_many_dead(state: State) -> bool:
    """Whether so many documents were taken out, which still count in the statistics, that ranks suffer."""
    return state.dead * DEAD_SHARE > len(state.documents)


def _not_kept(cache: Path | None, error: BaseException) -> Problem:
    text = f"The search index in {cache} could not be used ({error}): it is built in memory"
    return Problem("search-not-kept", "warning", text)


def _key(skill: Skill) -> str:
    """A skill's place as text that can be written, whatever bytes its path has."""
    return skill.location.encode("utf-8", "backslashreplace").decode()


def _text_of(skill: Skill, *, bodies: bool) -> Text:
    return Text(skill.name, skill.description, _body_of(skill) if bodies else "")


def _body_of(skill: Skill) -> str:
    """As much of the body as is indexed; nothing where it cannot be read, which loading will report."""
    try:
        data = read_manifest(skill, cap=MAX_INDEXED_BYTES)
    except (OSError, FileRefused):
        return ""
    return data[body_start(data) :].decode("utf-8", "replace")


def _entry(skill: Skill, text: Text, *, bodies: bool) -> Entry:
    """A document that has no number yet. Without bodies only the name tells two of them apart."""
    content = f"{text.description}\0{text.body}"
    digest = _digest(f"{text.name}\0{content}")
    return Entry(skill.stamp, digest, _digest(content) if bodies else digest, -1)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
