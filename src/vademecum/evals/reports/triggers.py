"""Count which skills the requests triggered: a table, precision, recall and false triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from vademecum.evals.cases import ANY_SKILL
from vademecum.evals.reports.statistics import Interval, wilson
from vademecum.evals.results import RAN_THROUGH, CaseLine, CaseResult

NONE = "(none)"
NO_SKILL = "no skill"


class SkillRate(Struct, frozen=True):
    """One skill: how many requests took it rightly or wrongly, and how many missed it.

    The precision is over the requests that took it, the recall over those that should; None if there is none.
    """

    skill: str
    right: int
    wrongly_taken: int
    missed: int
    precision: float | None
    precision_interval: Interval
    recall: float | None
    recall_interval: Interval

    @classmethod
    def of(cls, skill: str, right: int, wrongly_taken: int, missed: int) -> SkillRate:
        """Return the rates with their Wilson intervals."""
        shares = (*_share(right, right + wrongly_taken), *_share(right, right + missed))
        return cls(skill, right, wrongly_taken, missed, *shares)


def _share(some: int, all_: int) -> tuple[float | None, Interval]:
    return some / all_ if all_ else None, wilson(some, all_)


class Cell(Struct, frozen=True):
    """The number of requests that wanted one skill and took another, or the same."""

    wanted: str
    taken: str
    count: int


class Triggers(Struct, frozen=True):
    """The skills that requests triggered. ``ranked_first`` counts when search ranks the right one first.

    Of ``negatives``, the requests that must not trigger a skill, ``false_triggers`` did. Errors and time-outs
    are neither hits nor misses: they are ``unknown``.
    """

    overall: SkillRate
    skills: tuple[SkillRate, ...]
    confusion: tuple[Cell, ...]
    ranked_first: int
    wanted: int
    unknown: int
    negatives: int
    false_triggers: int
    false_trigger_rate: float | None
    false_trigger_interval: Interval


def is_right(wanted: str, taken: str) -> bool:
    """Return whether a cell of the table counts right requests."""
    if wanted == NO_SKILL:
        return taken == NONE
    return wanted == taken or (wanted.startswith("not ") and wanted != f"not {taken}")


def triggers_of(cases: Sequence[CaseLine], results: Sequence[CaseResult]) -> Triggers | None:
    """Return the table of the cases that say which skill is right, or None if none does."""
    lines = {case.id: case for case in cases if case.wanted or case.unwanted}
    about = [result for result in results if result.case in lines]
    if not about:
        return None
    # Only the skills that were taken count here, even if the run failed for another reason.
    known = [result for result in about if result.outcome in RAN_THROUGH]
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    cells: Counter[tuple[str, str]] = Counter()
    first = wanted = false = 0
    for result in known:
        case, taken = lines[result.case], set(result.skills)
        row, wrongly = _row(case, taken)
        hits = taken & set(case.wanted)
        right.update(hits)
        wrong.update(wrongly)
        if case.wanted:
            wanted += 1
            first += any(name in case.wanted for name in result.ranked[:1])
            missed.update(set(case.needed) - taken)
            missed.update(case.one_of[:1] if not taken & set(case.one_of) else ())
        elif wrongly:
            false += 1
        shown = [*sorted(hits)[:1], *sorted(wrongly)] or [*result.skills[:1]] or [NONE]
        cells.update((min(hits, default=row), name) for name in shown)
    names = sorted({*right, *wrong, *missed})
    negatives = len(known) - wanted
    return Triggers(
        SkillRate.of("all", right.total(), wrong.total(), missed.total()),
        tuple(SkillRate.of(name, right[name], wrong[name], missed[name]) for name in names),
        tuple(Cell(*pair, count) for pair, count in sorted(cells.items())),
        first,
        wanted,
        len(about) - len(known),
        negatives,
        false,
        *_share(false, negatives),
    )


def _row(case: CaseLine, taken: set[str]) -> tuple[str, set[str]]:
    """Return the row of a request, and the skills that it took and should not have taken."""
    if case.wanted:
        return case.wanted[0], taken - set(case.wanted)
    if ANY_SKILL in case.unwanted:
        return NO_SKILL, taken
    return f"not {case.unwanted[0]}", taken & set(case.unwanted)
