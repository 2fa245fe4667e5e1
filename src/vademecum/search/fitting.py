"""Calculate the probability that the best hit fits the request, from the words of both.

The coefficients are fitted by ``python -m bench.fitting`` on requests whose answer is in the library and on
the same requests with the answer taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vademecum.search.query_terms import LEAST_WEIGHT, Term, rarity
from vademecum.search.words import prepared

# It refuses 88 % of real requests whose answer was removed from the library, in English and in Chinese.
LEAST_CONFIDENCE = 0.486
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
    "": -9.663,
    "covered": 4.801,
    "covered*covered": -0.397,
    "described*described": 4.053,
    "chinese": 0.895,
    "told": 0.632,
    "told*told": -0.178,
    "few*told": 1.301,
    "missed": 0.843,
    "missed*missed": 0.022,
    "named": 1.344,
    "elsewhere": -2.647,
    "opening": 0.95,
    "opened": 0.294,
    "margin": 4.503,
    "body_only": 0.245,
    "few": 1.942,
    "few*covered": -0.956,
    "few*described": -1.184,
    "few*missed": -0.663,
    "few*margin": -1.76,
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
    return LEAST_CONFIDENCE


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
    """Return the terms of the sentences that are about the skill, or all terms if none is.

    A file can be called anything: words that only names of files contain stay if the skill contains them.
    """
    terms = [term for term in terms if not term.in_file_name or _tellings(term, skill)[1]]
    shared: dict[int, float] = {}
    for term in terms:
        for form in term.forms:
            if skill.told.issuperset(form.terms):
                shared[term.sentence] = max(shared.get(term.sentence, 0.0), form.telling)
    least = FOCUS_SHARE * max(shared.values(), default=0.0)
    about = {sentence for sentence, weight in shared.items() if weight >= least}
    return [term for term in terms if term.sentence in about] if about else terms


def _tellings(term: Term, skill: Skilled) -> tuple[list[float], list[float]]:
    """Return how telling the forms of a term are that the name or description, and the skill, contain."""
    forms = list(term.forms)
    if term.kind == "translation" and len(term.word) > 1:  # it also stands for itself, as its usual meaning
        forms.append(replace(forms[0], terms=tuple(prepared(term.word).split())))
    here = [form.telling for form in forms if skill.told.issuperset(form.terms)]
    return here, here or [
        form.telling
        for form in forms
        if all(word in skill.told or skill.in_body(word) for word in form.terms)
    ]


def weigh(
    terms: Sequence[Term], skill: Skilled, known: Callable[[str], int], *, margin: float, size: int
) -> Evidence:
    """Compare the terms of a request with the best hit; ``known`` counts the documents with a term."""
    translated = {sign for term in terms if term.kind == "translation" for sign in term.word}
    count = described = said = meant = 0
    total = covered = told = missed = 0.0
    for term in terms:
        if term.kind == "word" and not translated.isdisjoint(term.word):
            continue  # a pair of characters; the words that it is from count instead
        here, inside = _tellings(term, skill)
        weight = max(inside or [term.forms[0].telling])
        total += weight
        count += weight > LEAST_WEIGHT
        if weight > LEAST_WEIGHT and not term.in_file_name:
            said += 1
            meant += bool(inside)
        if inside:
            covered += weight
        if here:
            described += weight > LEAST_WEIGHT
            told += max(here)
        elif any(all(map(known, form.terms)) for form in term.forms):
            missed += weight
    if said and not meant:  # "delete a.csv" is not about what a skill says of CSV
        covered = told = described = 0
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
        chinese=float(bool(translated)),
    )
