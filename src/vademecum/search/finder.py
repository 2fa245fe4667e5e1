"""Find skills by words: keep a search index of the visible skills up to date, and query it."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from vademecum.errors import FileRefused, VademecumError
from vademecum.registry.cache import cache_key
from vademecum.registry.index import SkillIndex
from vademecum.search.fitting import Evidence, Skilled, confidence, focused, least_confidence, weigh
from vademecum.search.index_files import IndexedSkill, IndexFiles, IndexState
from vademecum.search.query_terms import Kind, Term, asked_for, called
from vademecum.search.text_index import WEIGHTS, Text, TextIndex
from vademecum.search.words import glosses_of
from vademecum.skill.frontmatter import body_start, read_manifest
from vademecum.skill.skill import Printable, Problem, Skill

MAX_INDEXED_BYTES = 128 * 1024
# Removed documents count in the statistics until a rebuild: at most one in twenty.
DEAD_SHARE = 20
_PROGRESS_STEP = 200

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|[。！？]")

Progress = Callable[[int], None]
Answer = TypeVar("Answer")


class Hit(Printable, frozen=True):
    """A skill that fits a query; a higher score means a better fit.

    >>> Hit("pdf", "Fill in PDF forms.", "user", 3.25).to_json()
    {'name': 'pdf', 'description': 'Fill in PDF forms.', 'source': 'user', 'score': 3.25}
    """

    name: str
    description: str
    source: str
    score: float


class Match(Printable, frozen=True):
    """A word of a request that a hit contains: how it matched, which words, and in which fields."""

    word: str
    kind: Kind
    found: tuple[str, ...]
    fields: tuple[str, ...]


class Findings(Struct, frozen=True):
    """The result of a search: hits, best first, whether the first one fits, and the confidence in that.

    >>> Findings((), fits=False, confidence=0.0).to_json()
    {'results': [], 'fits': False, 'confidence': 0.0}
    """

    hits: tuple[Hit, ...]
    fits: bool
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """Return the findings in the form that commands print."""
        results = [hit.to_json() for hit in self.hits]
        return {"results": results, "fits": self.fits, "confidence": self.confidence}


class Finder:
    """Finds skills by words, among the given skills only.

    Other skills are not in the search index, so they neither appear nor change the ranking. The skills of a
    finder are fixed when it is created.

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
        self._numbers: dict[str, int] = {}
        self._by_name = self._named()
        self.updated = 0
        self.problem: Problem | None = None
        self._engine = self._open()

    def search(self, query: str, n: int = 5) -> list[Hit]:
        """Return the ``n`` skills that fit best, an exact name first; none if no skill contains a word."""
        return [_hit(*found) for found in self._ranked(self._terms(query), n, self._called_in(query))]

    def find(self, query: str, n: int = 5) -> Findings:
        """Return the hits of ``search``, and whether the first one fits the request.

        If nothing fits, file names may have misled the search: it is repeated without them.
        """
        terms = self._terms(query)
        found = self._judged(query, terms, n)
        spoken = [term for term in terms if not term.in_file_name]
        if found.fits or len(spoken) == len(terms):
            return found
        without = self._judged(query, spoken, n)
        return without if without.fits else found

    def _judged(self, query: str, terms: list[Term], n: int) -> Findings:
        named = self._called_in(query)
        ranked = self._ranked(terms, n, named)
        if not ranked:
            return Findings((), fits=False, confidence=0.0)
        best = ranked[0][1]
        evidence = self._evidence(query, terms, best)
        likely = 1.0 if named is best else confidence(evidence)
        fits = likely >= least_confidence(evidence)
        return Findings(tuple(_hit(*found) for found in ranked), fits, likely)

    def evidence(self, query: str, hit: Hit) -> Evidence:
        """Compare a request with a hit."""
        return self._evidence(query, self._terms(query), self._skill_of(hit))

    def _evidence(self, query: str, terms: list[Term], skill: Skill) -> Evidence:
        number = self._numbers[skill.location]
        name = frozenset(self._engine.words(skill.name))
        first = _SENTENCE_END.split(skill.description, 1)[0]
        # Of a Chinese description the meanings, which requests in both languages can be compared with.
        opening = frozenset(self._engine.words(glosses_of(first) or first))
        told = name.union(self._engine.words(f"{skill.description} {glosses_of(skill.description)}"))
        words = Skilled(name, opening, told, partial(self._engine.in_field, number, "body"))
        terms = focused(terms, words)
        scores = {number: score for score, number in self._best(terms, 2)}
        own = scores.pop(number, 0.0)
        margin = max(0.0, own - max(scores.values(), default=0.0)) / (own or 1.0)
        evidence = weigh(terms, words, self._engine.known, margin=margin, size=len(self._skills))
        names = called(query)
        if names and names.isdisjoint(map(_as_name, _names_of(skill))):
            return replace(evidence, elsewhere=1.0)
        return evidence

    def explain(self, query: str, hit: Hit) -> list[Match]:
        """Return the words of a query that the hit contains, with their corrections or translations."""
        number = self._numbers[self._skill_of(hit).location]
        matches = []
        for term in self._terms(query):
            words = dict.fromkeys(word for form in term.forms for word in form.terms)
            places = {
                word: [field for field in WEIGHTS if self._engine.in_field(number, field, word)]
                for word in words
            }
            found = tuple(word for word in words if places[word])
            if found:
                fields = dict.fromkeys(field for word in found for field in places[word])
                matches.append(Match(term.word, term.kind, found, tuple(fields)))
        return matches

    def _skill_of(self, hit: Hit) -> Skill:
        return next(skill for skill in self._skills if (skill.name, skill.source) == (hit.name, hit.source))

    def words(self, text: str) -> list[str]:
        """Return the search words of a text, with their corrections and translations."""
        found = [word for term in self._terms(text) for form in term.forms for word in form.terms]
        return list(dict.fromkeys(found))

    def _ranked(self, terms: list[Term], n: int, named: Skill | None) -> list[tuple[float, Skill]]:
        """Return the best skills with their scores; a skill that is called by name comes first."""
        if n < 0:
            raise VademecumError(f"n is {n}: ask for 0 or more skills.", code="wrong-value")
        if not n or not self._by_number:
            return []
        order = {str(root.path): -root.priority for root in self._index.roots}
        found = [
            (round(score, 5), self._by_number[number])
            for score, number in (self._best(terms, min(n, len(self._by_number))) if terms else ())
        ]
        found.sort(key=lambda hit: (-hit[0], order.get(hit[1].root, 0), hit[1].name))
        if named is not None:
            others = [hit for hit in found if hit[1] is not named]
            found = [(found[0][0] if found else 1.0, named), *others]
        return found[:n]

    def _called_in(self, query: str) -> Skill | None:
        """Return the skill that the query names exactly or asks to use by name."""
        names = [query, *asked_for(query, self._by_name)]
        return next(filter(None, (self._by_name.get(_as_name(name)) for name in names)), None)

    def _terms(self, query: str) -> list[Term]:
        return self._asked(lambda engine: engine.terms(query))

    def _best(self, terms: list[Term], n: int) -> list[tuple[float, int]]:
        found = self._asked(lambda engine: engine.best(terms, n))
        return [(score, number) for score, number in found if number in self._by_number]

    def _asked(self, ask: Callable[[TextIndex], Answer]) -> Answer:
        """Query the engine; if its files are damaged, query one in memory."""
        try:
            return ask(self._engine)
        except BaseException as error:
            if not is_engine_failure(error):
                raise
            self.problem = _not_kept(self._index.options.cache, error)
            self._engine = self._in_memory()
            return ask(self._engine)

    def _named(self) -> dict[str, Skill]:
        """Return the skills by all their names; names count before aliases."""
        found = {_as_name(skill.name): skill for skill in self._skills}
        for skill in self._skills:
            for name in _names_of(skill):
                found.setdefault(_as_name(name), skill)
        return found

    def _open(self) -> TextIndex:
        """Return the updated engine on disk, or one in memory if the disk cannot be used."""
        cache = self._index.options.cache
        if cache is not None:
            try:
                return self._on_disk(IndexFiles(cache / self._directory_name()))
            except BaseException as error:
                if not is_engine_failure(error):
                    raise
                self.problem = _not_kept(cache, error)
        return self._in_memory()

    def _in_memory(self) -> TextIndex:
        state, add, _ = self._difference(IndexState())
        self.updated = len(add)
        self._take_numbers(state)
        engine = TextIndex(None)
        engine.update(remove=[], add=add)
        return engine

    def _on_disk(self, store: IndexFiles) -> TextIndex:
        state = store.load()
        if state is not None and self._is_current(state):
            engine = TextIndex(store.engine_directory)
            if store.fits(state):  # or another process committed meanwhile
                self._take_numbers(state)
                return engine
        with store.locked():
            try:
                return self._updated(store, store.load() or IndexState())
            except BaseException as error:
                if not is_engine_failure(error):
                    raise
                return self._updated(store, IndexState())  # damaged: rebuild it

    def _updated(self, store: IndexFiles, old: IndexState) -> TextIndex:
        """Update the engine on disk from an old state to the current one."""
        state, add, remove = self._difference(old)
        self.updated = len(add) + len(remove)
        if state.dead * DEAD_SHARE > len(state.documents):
            # Immediately: among few skills, a single old text can change the order.
            state, add, remove = self._difference(IndexState())
        if len(add) == len(state.documents):
            store.clear()
        engine = TextIndex(store.engine_directory)
        if add or remove:
            state.engine_stamp = engine.update(remove=remove, add=add)
        store.save(state)
        self._take_numbers(state)
        return engine

    def _is_current(self, state: IndexState) -> bool:
        stamps = {_key(skill): skill.stamp for skill in self._skills}
        known = {place: entry.stamp for place, entry in state.documents.items()}
        return stamps == known and all(stamps.values())

    def _directory_name(self) -> str:
        """Return the name of the index for these roots and hidden skills; it never contained hidden ones."""
        shown = {skill.location for skill in self._skills}
        hidden = [skill.location for skill in self._index.skills if skill.location not in shown]
        reading = repr(self._index.options.reading)
        return f"search-{cache_key(self._index.roots, str(self._bodies), reading, *sorted(hidden), '')}"

    def _difference(self, old: IndexState) -> tuple[IndexState, list[tuple[int, Text]], list[int]]:
        """Return the new state of the engine, and the documents to add and to remove."""
        new = IndexState(engine_stamp=old.engine_stamp)
        add: list[tuple[int, Text]] = []
        gone = {entry.number for entry in old.documents.values()}
        for skill in sorted(self._skills, key=_key):
            entry = old.documents.get(_key(skill))
            if entry is None or not skill.stamp or entry.stamp != skill.stamp:
                text = _text_of(skill, bodies=self._bodies)
                entry = IndexedSkill(skill.stamp, _number_of(_key(skill), text))
                if entry.number not in gone:
                    add.append((entry.number, text))
                    if len(add) % _PROGRESS_STEP == 0:
                        self._progress(len(add))
            gone.discard(entry.number)
            new.documents[_key(skill)] = entry
        new.dead = old.dead + len(gone)
        return new, add, sorted(gone)

    def _take_numbers(self, state: IndexState) -> None:
        self._by_number = {state.documents[_key(skill)].number: skill for skill in self._skills}
        self._numbers = {skill.location: number for number, skill in self._by_number.items()}


def _hit(score: float, skill: Skill) -> Hit:
    return Hit(skill.name, skill.description, skill.source, score)


def is_engine_failure(error: BaseException) -> bool:
    """Return whether the engine or its files failed; its panics are not ordinary exceptions."""
    return isinstance(error, OSError | ValueError | OverflowError) or type(error).__name__ == "PanicException"


def _not_kept(cache: Path | None, error: BaseException) -> Problem:
    text = f"The search index in {cache} could not be used ({error}): it is built in memory"
    return Problem("search-not-kept", "warning", text)


def _key(skill: Skill) -> str:
    """Return a skill's path as text that can be encoded, whatever bytes it contains."""
    return skill.location.encode("utf-8", "backslashreplace").decode()


def _text_of(skill: Skill, *, bodies: bool) -> Text:
    """Return the text to index; without the body if it cannot be read, which loading reports."""
    data = b""
    if bodies:
        with contextlib.suppress(OSError, FileRefused):
            data = read_manifest(skill, cap=MAX_INDEXED_BYTES)
    return Text(skill.name, skill.description, data[body_start(data) :].decode("utf-8", "replace"))


def _number_of(place: str, text: Text) -> int:
    """Return the number of a skill in the engine, which changes with its path or text."""
    content = "\0".join([place, text.name, text.description, text.body])
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 1  # the engine's numbers are signed


def _names_of(skill: Skill) -> list[str]:
    """Return the names of a skill: its name, with namespace or source, and its aliases."""
    more = skill.extra.get("aliases") or skill.meta.metadata.get("aliases") or ()
    aliases = more.replace(",", " ").split() if isinstance(more, str) else more
    return [skill.name, skill.reference, f"{skill.source}:{skill.name}", skill.skill_id, *aliases]


def _as_name(text: str) -> str:
    return "-".join(text.casefold().replace("_", " ").replace("-", " ").split())
