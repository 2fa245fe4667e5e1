"""Calculate the probability that the best hit fits the request, from the words of both.

The coefficients are fitted by ``python -m bench.fitting`` on requests whose answer is in the library and on
the same requests with the answer taken out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from vademecum.search.query_terms import LEAST_WEIGHT, Term, rarity
from vademecum.search.words import HAN

# Each threshold refuses 88 % of real requests whose answer was removed from the library.
LEAST_CONFIDENCE, LEAST_IN_CHINESE = 0.485, 0.46
LEAST_AMONG_FEW = 0.35  # among few skills, near misses are rare
SMALL_LIBRARY = 50
# A sentence is about the skill if its rarest shared word is at least this share as rare as the best one's.
FOCUS_SHARE = 0.3


class Evidence(Struct, frozen=True):
    """How well the best hit fits. Weights count rare words of the request more."""

    covered: float  # share of the request's weight in the skill's name, description or body
    described: float  # share of the request's words in the name or description
    told: float  # weight of the request's words in the name or description, as a logarithm
    body_only: float  # 1 if the name and the description have none of the request's words
    missed: float  # weight of the other words that the library knows, as a logarithm
    named: float  # 1 if the request contains the whole name
    opening: float  # share of the weight of the description's first sentence that the request contains
    opened: float  # this weight, as a logarithm
    margin: float  # share of its score that the hit is ahead of the next one
    few: float  # near 1 in a small library, where scores say little
    chinese: float
    elsewhere: float = 0.0  # 1 if the request calls a skill by its name, and this is not the one


COEFFICIENTS = {
    "": -9.989,
    "covered": 5.073,
    "covered*covered": -0.478,
    "described*described": 4.457,
    "chinese*described": 2.067,
    "told": 0.335,
    "told*told": -0.134,
    "few*told": 0.928,
    "missed": 1.283,
    "missed*missed": -0.036,
    "named": 1.37,
    "elsewhere": -2.623,
    "opening": 1.025,
    "opened": 0.216,
    "margin": 4.497,
    "body_only": -0.38,
    "few": 0.993,
    "few*covered": -0.752,
    "few*described": -0.523,
    "few*missed": -0.306,
    "few*margin": -0.989,
}


def confidence(evidence: Evidence) -> float:
    """Return how likely it is that the best hit answers the request.

    >>> sure = Evidence(1, 1, 2, 0, missed=0, named=1, opening=1, opened=2, margin=0.5, few=0, chinese=0)
    >>> confidence(sure) > 0.8
    True
    """
    total = COEFFICIENTS[""]
    for name, value in inputs(evidence).items():
        total += COEFFICIENTS[name] * value
    return round(1 / (1 + math.exp(-total)), 3)


def least_confidence(evidence: Evidence) -> float:
    """Return the lowest confidence at which the best hit counts as fitting."""
    if evidence.few > 0.5:  # fewer than SMALL_LIBRARY skills
        return LEAST_AMONG_FEW
    return LEAST_IN_CHINESE if evidence.chinese else LEAST_CONFIDENCE


def inputs(evidence: Evidence) -> dict[str, float]:
    """Return the inputs of the model: the evidence and some products of it."""
    names = (name.split("*") for name in COEFFICIENTS if name)
    return {"*".join(parts): math.prod(getattr(evidence, part) for part in parts) for parts in names}


class Skilled(Struct, frozen=True):
    """The words of one skill: of its name, its description's first sentence, both, and its body."""

    name: frozenset[str]
    opening: frozenset[str]
    told: frozenset[str]
    in_body: Callable[[str], bool]


def focused(terms: Sequence[Term], skill: Skilled) -> list[Term]:
    """Return the terms of the sentences that are about the skill, or all terms if none is."""
    shared: dict[int, float] = {}
    for term in terms:
        for form in term.forms:
            if skill.told.issuperset(form.terms):
                shared[term.sentence] = max(shared.get(term.sentence, 0.0), form.telling)
    least = FOCUS_SHARE * max(shared.values(), default=0.0)
    about = {sentence for sentence, weight in shared.items() if weight >= least}
    return [term for term in terms if term.sentence in about] if about else list(terms)


def weigh(
    terms: Sequence[Term], skill: Skilled, known: Callable[[str], int], *, margin: float, size: int
) -> Evidence:
    """Compare the terms of a request with the best hit; ``known`` counts the documents with a term."""
    count = described = 0
    total = covered = told = missed = 0.0
    for term in terms:
        if term.kind == "word" and not term.word.isascii() and re.match(HAN, term.word):
            continue  # a pair of characters; its translation counts instead
        here = [form.telling for form in term.forms if skill.told.issuperset(form.terms)]
        inside = here or [
            form.telling
            for form in term.forms
            if all(word in skill.told or skill.in_body(word) for word in form.terms)
        ]
        if term.in_file_name and not inside:
            continue  # a file can have any name
        weight = max(inside or [term.forms[0].telling])
        total += weight
        count += weight > LEAST_WEIGHT
        if inside:
            covered += weight
        if here:
            described += weight > LEAST_WEIGHT
            told += max(here)
        elif any(all(map(known, form.terms)) for form in term.forms):
            missed += weight
    asked = {word for term in terms for form in term.forms for word in form.terms}
    opened = sum(map(rarity, asked & skill.opening))
    return Evidence(
        covered=covered / (total or 1.0),
        described=described / (count or 1),
        told=math.log1p(told),
        body_only=float(not described),
        missed=math.log1p(missed),
        named=float(bool(skill.name) and asked.issuperset(skill.name)),
        opening=opened / (sum(map(rarity, skill.opening)) or 1.0),
        opened=math.log1p(opened),
        margin=margin,
        few=SMALL_LIBRARY / (size + SMALL_LIBRARY),
        chinese=float(any(term.kind == "translation" for term in terms)),
    )
