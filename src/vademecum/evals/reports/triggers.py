"""Count which skill took whose request: a table, precision, recall and false triggers."""

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
    """One skill: how many requests took it rightly, how many wrongly, and how many missed it."""

    skill: str
    right: int
    wrongly_taken: int
    missed: int

    @property
    def precision(self) -> float | None:
        """Return the share of right ones among the requests that took it; None if there is none."""
        return _share(self.right, self.right + self.wrongly_taken)

    @property
    def recall(self) -> float | None:
        """Return the share of those that took it among the requests that should; None if there is none."""
        return _share(self.right, self.right + self.missed)

    @property
    def precision_interval(self) -> Interval:
        """Return the Wilson interval of the precision."""
        return wilson(self.right, self.right + self.wrongly_taken)

    @property
    def recall_interval(self) -> Interval:
        """Return the Wilson interval of the recall."""
        return wilson(self.right, self.right + self.missed)


def _share(some: int, all_: int) -> float | None:
    return some / all_ if all_ else None


class Cell(Struct, frozen=True):
    """The number of requests for one skill that another took, or the same."""

    wanted: str
    taken: str
    count: int


class Triggers(Struct, frozen=True):
    """The skills that requests found. ``ranked_first`` is how often search alone ranks the right one first.

    Of ``negatives``, the requests that must not trigger a skill, ``false_triggers`` did. Errors and time-outs
    are neither hits nor misses: they are ``unknown``.
    """

    overall: SkillRate
    skills: tuple[SkillRate, ...]
    confusion: tuple[Cell, ...]
    ranked_first: int
    wanted: int
    unknown: int
    negatives: int = 0
    false_triggers: int = 0

    @property
    def false_trigger_rate(self) -> float | None:
        """Return the share of false triggers; None if no request must not trigger."""
        return _share(self.false_triggers, self.negatives)

    @property
    def false_trigger_interval(self) -> Interval:
        """Return the Wilson interval of that share."""
        return wilson(self.false_triggers, self.negatives)


def is_right(wanted: str, taken: str) -> bool:
    """Return true for a cell of the table where requests should be."""
    if wanted == NO_SKILL:
        return taken == NONE
    return wanted == taken or (wanted.startswith("not ") and wanted != f"not {taken}")


def triggers_of(cases: Sequence[CaseLine], results: Sequence[CaseResult]) -> Triggers | None:
    """Return the table of the cases that say which skill is right, or None if none does."""
    lines = {case.id: case for case in cases if case.wanted or case.unwanted}
    about = [result for result in results if result.case in lines]
    if not about:
        return None
    # Only whether a skill was taken counts here: a run that failed otherwise has taken it all the same.
    known = [result for result in about if result.outcome in RAN_THROUGH]
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    cells: Counter[tuple[str, str]] = Counter()
    first = wanted = negatives = false = 0
    for result in known:
        case = lines[result.case]
        taken = set(result.skills)
        hits, wrongly = taken & set(case.wanted), _wrongly(case, taken)
        right.update(hits)
        wrong.update(wrongly)
        if case.wanted:
            wanted += 1
            first += result.ranked[:1] != () and result.ranked[0] in case.wanted
            missed.update(name for name in case.needed if name not in taken)
            missed.update(case.one_of[:1] if not taken & set(case.one_of) else ())
        else:
            negatives += 1
            false += bool(wrongly)
        row = min(hits) if hits else _row(case)
        shown = [*sorted(hits)[:1], *sorted(wrongly)] or [*result.skills[:1]] or [NONE]
        cells.update((row, name) for name in shown)
    names = sorted({*right, *wrong, *missed})
    return Triggers(
        SkillRate("all", right.total(), wrong.total(), missed.total()),
        tuple(SkillRate(name, right[name], wrong[name], missed[name]) for name in names),
        tuple(Cell(*pair, count) for pair, count in sorted(cells.items())),
        first,
        wanted,
        len(about) - len(known),
        negatives,
        false,
    )


def _wrongly(case: CaseLine, taken: set[str]) -> set[str]:
    """Return the skills that a request took and must not: if it wants some, all others."""
    if case.wanted:
        return taken - set(case.wanted)
    return taken if ANY_SKILL in case.unwanted else taken & set(case.unwanted)


def _row(case: CaseLine) -> str:
    if case.wanted:
        return case.wanted[0]
    return NO_SKILL if ANY_SKILL in case.unwanted else f"not {case.unwanted[0]}"
