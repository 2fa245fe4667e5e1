"""Turn a request into search terms: its words, their corrections and their translations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal

from msgspec import Struct
from tantivy import TextAnalyzer

from vademecum.search.words import HAN, KANA, STOP_WORDS, dictionary, prepared, simplified
from vademecum.skill.names import MAX_NAME_CHARS

MAX_QUERY_CHARS = 10_000
MAX_QUERY_TERMS = 64
MAX_CORRECTED = 8
MIN_CORRECTED_CHARS = 4
MIN_VARIANT_CHARS = 7
MAX_CORRECTED_CHARS = 24
MAX_FORMS = 4  # of a Chinese word; more forms cost time and find nothing more

Kind = Literal["word", "correction", "abbreviation", "translation"]
Known = Callable[[str], int]

# A full stop ends a sentence only before a space: not in 3.5 or a.txt.
_SENTENCE = re.compile(r"[。！？；\n]+|[.!?;](?:\s+|$)")
# The name of a file, a path or an address. Node.js looks like one too, so its words are still searched for.
_FILE_NAME = re.compile(
    r"\w+://\S+|(?<![\w.])(?:~|\.{1,2})?/[\w./-]+|(?<![\w./~-])[\w./~-]*\w\.[a-z][a-z0-9]{1,4}\b",
    re.ASCII | re.IGNORECASE,
)
# The name of a skill with a hyphen, and the ways to call one: /name, the name skill, use name.
_NAME = r"[`'\"“(]?([a-z0-9]+(?:-[a-z0-9]+)+)(?![\w/-]|\.\w)"
_CALLED = re.compile(
    rf"(?<![\w.~/-])/{_NAME}|(?<![\w./-]){_NAME}\W?\s*(?:skill\b|技能)|(?:\bskill|技能)\s*{_NAME}",
    re.ASCII | re.IGNORECASE,
)
_USE = (
    r"(?:(?<!not )(?<!n't )(?<!never )\b(?:use|using|run|running|invoke)\s+(?:the\s+)?"
    r"|(?<![不别別使])(?<!不要)(?:使用|用|运行|運行)\s*)[/$]?"
)
_ASKED_FOR = re.compile(_USE + _NAME, re.ASCII | re.IGNORECASE)
# A name in a language without spaces ends where a known name does. A short one may be a plain word.
_USED = re.compile(_USE + "[`'\"“「《(]?", re.ASCII | re.IGNORECASE)
_FIRST_UNSPACED = "\u2e80"  # the first sign of the languages without spaces
_IN_NAMES = frozenset("-_/")
_PLAIN_CHARS = 3
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PLAIN_WORD = re.compile(r"[a-z]+")
_CORRECTION_WEIGHT = 0.8
_TRANSLATION_WEIGHT = 0.7
_SINGLE_CHARACTER = 0.5
_LATER_GLOSS = 0.9
_ABBREVIATIONS = {
    "k8s": "kubernetes",
    "i18n": "internationalization",
    "l10n": "localization",
    "a11y": "accessibility",
    "o11y": "observability",
    "js": "javascript",
    "ts": "typescript",
    "py": "python",
    "pg": "postgres",
    "tf": "terraform",
}

# Stems of words that people put around a request.
_FILLER = (
    "hello hi hey dear pleas thank urgent asap kind appreci regard cheer sorri bother advanc immedi soon "
    "hope help need want like would could get let know tell show just realli someth anyth someon"
)
FILLER = frozenset(_FILLER.split(" "))


RAREST = 6.7  # the weight of a word that very few skills contain
LEAST_WEIGHT = 0.25  # of words such as "our" and "which"
NUMBER = 2.0


def rarity(word: str) -> float:
    """Return how rare a word is in thousands of real skills."""
    return NUMBER if word.isdigit() else _rarities().get(word, RAREST)


@cache
def _rarities() -> dict[str, float]:
    lines = Path(__file__).with_name("rarity.txt").read_text("utf-8").splitlines()
    return {word: float(level) for level, *words in map(str.split, lines) for word in words}


def called(text: str) -> set[str]:
    """Return the skill names that a text calls, whether or not such skills exist.

    >>> called("Use the pdf-forms skill on /tmp/form-1.pdf")
    {'pdf-forms'}
    """
    return {name for names in _CALLED.findall(text[:MAX_QUERY_CHARS].lower()) for name in names if name}


def asked_for(text: str, names: Container[str] = ()) -> list[str]:
    """Return the possible skill names that a text asks to use or to run.

    >>> asked_for("Run /pdf-forms for self-hosted runners")
    ['pdf-forms']
    >>> asked_for("请用字数统计处理文章", {"字数统计"})
    ['字数统计']
    """
    text = text[:MAX_QUERY_CHARS].lower()
    found = _ASKED_FOR.findall(text)
    for use in () if text.isascii() else _USED.finditer(text):
        name = name_before(text[use.end() :], names)
        rest = text[use.end() + len(name) :]
        is_apart = rest[:1] < _FIRST_UNSPACED or rest.startswith("技能")
        if not name.isascii() and (is_apart or len(name) > _PLAIN_CHARS):
            found.append(name)
    return found


def name_before(text: str, names: Container[str]) -> str:
    """Return the longest known name that begins a text and ends in or before a language without spaces.

    >>> name_before("pdf-forms处理表单.pdf", {"pdf", "pdf-forms"}), name_before("pdf-forms-x", {"pdf-forms"})
    ('pdf-forms', '')
    """
    ends = range(min(len(text), MAX_NAME_CHARS), 0, -1)
    for end in ends:
        is_end = max(text[end - 1 : end + 1]) >= _FIRST_UNSPACED and text[end : end + 1] not in _IN_NAMES
        if is_end and text[:end] in names:
            return text[:end]
    return ""


class Form(Struct, frozen=True):
    """Terms that together represent a word of the request, their weight, and their rarity."""

    terms: tuple[str, ...]
    weight: float
    telling: float


def _form(terms: tuple[str, ...], weight: float) -> Form:
    return Form(terms, weight, max(map(rarity, terms)) * weight)


class Term(Struct, frozen=True):
    """A word of the request, its forms (the best one counts), and its sentence.

    A word that occurs only in file names counts if a skill contains it, and is ignored otherwise.
    """

    word: str
    kind: Kind
    forms: tuple[Form, ...]
    sentence: int = 0
    in_file_name: bool = False


class QueryParser:
    """Parses requests, given how many documents contain a term and which terms begin with a text."""

    def __init__(
        self, analyzer: TextAnalyzer, known: Known, beginning_with: Callable[[str], list[str]]
    ) -> None:
        self._analyzer = analyzer
        self._known = known
        self._beginning_with = beginning_with
        self._forms = cache(self._translate)

    def terms(self, query: str) -> list[Term]:
        """Return the distinct terms of a query; for a long query, only the rarest ones."""
        query = query[:MAX_QUERY_CHARS]
        in_names = self._in_file_names(query)
        found: dict[tuple[str, bool], Term] = {}
        for number, sentence in enumerate(_SENTENCE.split(query)):
            for word, kind, forms in self._of_sentence(sentence, in_names):
                term = Term(word, kind, forms, number, word in in_names)
                found.setdefault((word, kind == "translation"), term)
        terms = [term for term in found.values() if term.word not in FILLER] or list(found.values())
        if len(terms) > MAX_QUERY_TERMS:
            times = {term: sum(map(self._known, term.forms[0].terms)) for term in terms}
            rarest = sorted(terms, key=lambda term: (not times[term], times[term]))[:MAX_QUERY_TERMS]
            terms = [term for term in terms if term in set(rarest)]
        return terms

    def _in_file_names(self, query: str) -> frozenset[str]:
        """Return the words that occur only in file names."""
        names = _FILE_NAME.findall(query)
        if not names:
            return frozenset()
        inside = self._analyzer.analyze(prepared(" ".join(names)))
        return frozenset(inside).difference(self._analyzer.analyze(prepared(_FILE_NAME.sub(" ", query))))

    def _of_sentence(
        self, text: str, in_names: Collection[str]
    ) -> Iterator[tuple[str, Kind, tuple[Form, ...]]]:
        chinese: list[str] = []
        if not text.isascii():
            text, chinese = _without_stop_words(text)
            if re.search(KANA, text):  # a Japanese word is no row of Chinese ones of a single character
                chinese = [word for word in chinese if len(word) > 1]
        words = list(dict.fromkeys(self._analyzer.analyze(prepared(text))))
        if chinese:
            # A translation replaces a pair of characters that the library does not contain.
            words = [word for word in words if self._known(word) or len(word) == 1 or not re.match(HAN, word)]
        unknown = [word for word in words if word not in in_names and not self._known(word)]
        misspelt = self._misspelt(unknown, text) if unknown else {}
        for word in words:
            if word in misspelt:
                written, near = misspelt[word]
                yield written, "correction", tuple(_form((each,), _CORRECTION_WEIGHT) for each in near)
            else:
                yield self._plain(word)
        for word in chain.from_iterable(map(self._known_parts, chinese)):
            # A word that the library does not contain counts like an English one.
            yield word, "translation", self._forms(word) or (_form((word,), _translation_weight(word)),)

    def _plain(self, word: str) -> tuple[str, Kind, tuple[Form, ...]]:
        full = _ABBREVIATIONS.get(word)
        if full is not None:
            both = (word, self._analyzer.analyze(full)[0])
            return word, "abbreviation", tuple(_form((form,), 1.0) for form in both)
        if len(word) == 1 and re.match(HAN, word):  # pairs are indexed
            pairs = tuple(_form((pair,), _SINGLE_CHARACTER) for pair in self._beginning_with(word))
            return word, "word", pairs or (_form((word,), 1.0),)
        return word, "word", (_form((word,), 1.0),)

    def _misspelt(self, unknown: Sequence[str], text: str) -> dict[str, tuple[str, list[str]]]:
        """Return the unknown words as written in the text, with the known words one edit away."""
        found: dict[str, tuple[str, list[str]]] = {}
        for written in dict.fromkeys(_PLAIN_WORD.findall(text.lower())):
            stem = self._analyzer.analyze(written)[:1]
            if not stem or stem[0] not in unknown or stem[0] in found or len(found) == MAX_CORRECTED:
                continue
            # A word that real skills use is not a typing error; a long one may be a variant ("summarize").
            least = MIN_CORRECTED_CHARS if rarity(stem[0]) == RAREST else MIN_VARIANT_CHARS
            if not least <= len(written) <= MAX_CORRECTED_CHARS:
                continue
            near = dict.fromkeys(self._analyzer.analyze(" ".join(_edits(written))))
            known = sorted(((self._known(word), word) for word in near), reverse=True)[:2]
            if known and known[0][0]:
                found[stem[0]] = written, [word for times, word in known if times * 5 >= known[0][0]]
        return found

    def _known_parts(self, word: str) -> Iterator[str]:
        """Yield a Chinese word, or its known parts if the library does not contain the word."""
        if len(word) < 3 or self._forms(word):
            known = [word]
        else:
            parts = [part for half in (word[:2], word[2:]) for part in dictionary().segmented(half)]
            known = [part for part in parts if self._forms(part)] or [word]
        return (each for each in known if each not in STOP_WORDS)

    def _translate(self, word: str) -> tuple[Form, ...]:
        """Return the meanings of a word that the library contains."""
        forms: dict[tuple[str, ...], Form] = {}
        weight = _translation_weight(word)
        for gloss in dictionary().meanings(word):
            terms = tuple(dict.fromkeys(self._analyzer.analyze(gloss)))
            if terms and terms not in forms and all(map(self._known, terms)):
                forms[terms] = _form(terms, weight)
                weight *= _LATER_GLOSS
                if len(forms) == MAX_FORMS:
                    break
        return tuple(forms.values())


def _translation_weight(word: str) -> float:
    return _TRANSLATION_WEIGHT * (_SINGLE_CHARACTER if len(word) == 1 else 1.0)


def _without_stop_words(text: str) -> tuple[str, list[str]]:
    """Split the Chinese runs of a text at stop words; return the text and the remaining words."""
    words: list[str] = []

    def cut(run: re.Match[str]) -> str:
        found = dictionary().segmented(run[0])
        words.extend(word for word in found if word not in STOP_WORDS)
        return f" {''.join(' ' if word in STOP_WORDS else word for word in found)} "

    return re.sub(HAN, cut, simplified(text)), words


def _edits(word: str) -> list[str]:
    """Return all strings one deletion, swap, replacement or insertion away."""
    cuts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    return [
        *(a + b[1:] for a, b in cuts if b),
        *(a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1),
        *(a + letter + b[1:] for a, b in cuts if b for letter in _LETTERS),
        *(a + letter + b for a, b in cuts for letter in _LETTERS),
    ]
