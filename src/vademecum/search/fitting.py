"""Does the best hit fit the request? Evidence from the words of both → a calibrated probability.

The coefficients are fitted by ``python -m bench.fitting`` on requests whose answer is in the library and on
the same requests with the answer taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, structs

from vademecum.search.chinese import HAN
from vademecum.search.query_terms import Form, Term

LEAST_CONFIDENCE = 0.53  # refuses 88 % of real requests whose answer was taken out of the library
LEAST_AMONG_FEW = 0.3  # among few skills a near miss is rare
SMALL_LIBRARY = 50
RAREST = 6.7  # the weight of a word that hardly any skill contains
# A sentence is about the skill if the rarest word they share is, to this degree, as rare as in the best one.
FOCUS_SHARE = 0.6


class Evidence(Struct, frozen=True):
    """How well the best hit fits. Shares are of the request's words, each weighted by its rarity."""

    named: float  # share of the skill's name that the request contains
    described: float  # share of the request in the skill's name or description
    covered: float  # the same with its body
    rare_described: float  # as `described`, rare words counted more
    rare_covered: float
    phrases: float  # neighbouring words of the request that are neighbours in the description
    best: float  # weight of the rarest shared word
    ahead: float  # how much larger `rare_described` is than that of the next hit
    body_ahead: float  # the same of `rare_covered`
    margin: float  # distance of the scores, less in small libraries, where scores say little
    size: float  # of the library, as a logarithm
    chinese: float


COEFFICIENTS = {
    "": -5.25,
    "named": 0.112,
    "described": 5.703,
    "covered": 9.076,
    "rare_described": -4.602,
    "rare_covered": -1.522,
    "phrases": 0.361,
    "best": 0.194,
    "ahead": 0.522,
    "body_ahead": 0.655,
    "margin": 2.135,
    "size": -0.254,
    "chinese": 0.475,
    "named*named": 1.986,
    "covered*ahead": 0.465,
    "covered*margin": 2.31,
    "covered*size": -0.012,
    "covered*covered": -3.203,
}


def confidence(evidence: Evidence) -> float:
    """Return how likely it is that the best hit answers the request.

    >>> confidence(Evidence(1, 1, 1, 1, 1, 1, 6, 0.6, 0.3, 0.5, 8, 0)) > 0.9
    True
    """
    total = COEFFICIENTS[""]
    for name, value in inputs(evidence).items():
        total += COEFFICIENTS[name] * value
    return round(1 / (1 + math.exp(-total)), 3)


def inputs(evidence: Evidence) -> dict[str, float]:
    """Return the numbers that the model weighs: the evidence and some products of it."""
    found = structs.asdict(evidence)
    for one, other in (
        ("named", "named"),
        ("covered", "ahead"),
        ("covered", "margin"),
        ("covered", "size"),
        ("covered", "covered"),
    ):
        found[f"{one}*{other}"] = found[one] * found[other]
    return found


class Skilled(Struct, frozen=True):
    """The words of one skill: of its name, of its description in order, and a test for its body."""

    name: frozenset[str]
    description: Sequence[str]
    in_body: Callable[[str], bool]


def focused(terms: Sequence[Term], skill: Skilled) -> list[Term]:
    """Return the terms of the sentences that are about the skill, or all terms if none is."""
    known = {*skill.name, *skill.description}
    shared: dict[int, float] = {}
    for term in terms:
        for form in term.forms:
            if known.issuperset(form.terms):
                shared[term.sentence] = max(shared.get(term.sentence, 0.0), _weight(form))
    least = FOCUS_SHARE * max(shared.values(), default=0.0)
    about = {sentence for sentence, weight in shared.items() if weight >= least}
    return [term for term in terms if term.sentence in about] if about else list(terms)


class Shares(Struct, frozen=True):
    """How much of a request a skill contains; rare words count more, and most in the last two."""

    described: float
    covered: float
    rare_described: float
    rare_covered: float
    best: float


def weigh(
    terms: Sequence[Term], skill: Skilled, other: Skilled | None, *, margin: float, size: int
) -> Evidence:
    """Compare the terms of a request with the best hit, and that with the next one."""
    own = _shares(terms, skill)
    next_best = _shares(terms, other) if other else Shares(0.0, 0.0, 0.0, 0.0, 0.0)
    asked = {word for term in terms for form in term.forms for word in form.terms}
    together = set(pairwise(term.forms[0].terms[0] for term in terms)).intersection(
        pairwise(skill.description)
    )
    name_weight = sum(map(rarity, skill.name))
    return Evidence(
        named=sum(rarity(word) for word in skill.name if word in asked) / (name_weight or 1),
        described=own.described,
        covered=own.covered,
        rare_described=own.rare_described,
        rare_covered=own.rare_covered,
        phrases=math.log1p(len(together)),
        best=own.best,
        ahead=own.rare_described - next_best.rare_described,
        body_ahead=own.rare_covered - next_best.rare_covered,
        margin=margin,
        size=math.log1p(size),
        chinese=float(any(term.kind == "translation" for term in terms)),
    )


def _shares(terms: Sequence[Term], skill: Skilled) -> Shares:
    known = {*skill.name, *skill.description}
    total = described = covered = total2 = described2 = covered2 = best = 0.0
    for term in terms:
        if _is_pair(term):
            continue
        here = [_weight(form) for form in term.forms if known.issuperset(form.terms)]
        in_body = [] if here else [_weight(form) for form in term.forms if _in_body(form, skill, known)]
        if term.in_file_name and not here and not in_body:
            continue  # a file can be called anything
        weight = max(here or in_body or [_weight(term.forms[0])])
        total, total2 = total + weight, total2 + weight * weight
        if here:
            described, described2, best = described + weight, described2 + weight * weight, max(best, weight)
        if here or in_body:
            covered, covered2 = covered + weight, covered2 + weight * weight
    total, total2 = total or 1.0, total2 or 1.0
    return Shares(described / total, covered / total, described2 / total2, covered2 / total2, best)


def rarity(word: str) -> float:
    """Return how telling a word is, from how many of thousands of real skills contain it."""
    return _rarities().get(word, RAREST)


def _weight(form: Form) -> float:
    return max(map(rarity, form.terms)) * form.weight


def _in_body(form: Form, skill: Skilled, known: Collection[str]) -> bool:
    return all(word in known or skill.in_body(word) for word in form.terms)


def _is_pair(term: Term) -> bool:
    """Return whether a term is a pair of Chinese characters, for which its translation stands here."""
    return term.kind == "word" and HAN.match(term.word) is not None


@cache
def _rarities() -> dict[str, float]:
    lines = Path(__file__).with_name("rarity.txt").read_text("utf-8").splitlines()
    return {word: float(level) for level, *words in map(str.split, lines) for word in words}
