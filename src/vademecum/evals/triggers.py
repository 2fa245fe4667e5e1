"""Which skill took whose request: a confusion table, precision and recall for each skill and over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from vademecum.evals.results import RAN_THROUGH, CaseLine, Result

NONE = "(none)"


class SkillRate(Struct, frozen=True):
    """One skill: how often it was right to take it, of all that took it, and of all that should have."""

    skill: str
    right: int
    wrongly_taken: int
    missed: int

    @property
    def precision(self) -> float | None:
        """Of the requests that took it, the share that should; unknown where none did."""
        taken = self.right + self.wrongly_taken
        return self.right / taken if taken else None

    @property
    def recall(self) -> float | None:
        """Of the requests that should take it, the share that did; unknown where none should."""
        wanted = self.right + self.missed
        return self.right / wanted if wanted else None


class Cell(Struct, frozen=True):
    """So many requests for one skill were taken by another, or by the same."""

    wanted: str
    taken: str
    count: int


class Triggers(Struct, frozen=True):
    """How requests found their skills. ``ranked_first`` is what search alone makes of them.

    Runs that never worked are in ``unknown``: errors and time-outs are neither hits nor misses.
    """

    overall: SkillRate
    skills: tuple[SkillRate, ...]
    confusion: tuple[Cell, ...]
    ranked_first: int
    wanted: int
    unknown: int


def is_right(wanted: str, taken: str) -> bool:
    """Whether a cell of the table is where requests should be."""
    return wanted == taken or (wanted.startswith("not ") and wanted != f"not {taken}")


def triggers_of(cases: Sequence[CaseLine], results: Sequence[Result]) -> Triggers | None:
    """The table of the cases that say which skill is right; nothing where none does."""
    lines = {case.id: case for case in cases if case.about_skills}
    about = [result for result in results if result.case in lines]
    if not about:
        return None
    # Only whether a skill was taken counts here: a run that failed otherwise has taken it all the same.
    known = [result for result in about if result.outcome in RAN_THROUGH]
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    cells: Counter[tuple[str, str]] = Counter()
    first = wanted = 0
    for result in known:
        case = lines[result.case]
        taken = set(result.skills)
        hits = taken & set(case.wanted)
        right.update(hits)
        wrong.update(taken & set(case.unwanted) if not case.wanted else taken - set(case.wanted))
        if case.wanted:
            wanted += 1
            first += result.ranked[:1] != () and result.ranked[0] in case.wanted
            missed.update(_missed(case, taken))
        row = min(hits) if hits else case.wanted[0] if case.wanted else f"not {case.unwanted[0]}"
        wrongly = [name for name in result.skills if name in case.unwanted]
        cells[row, next(iter((*sorted(hits), *wrongly, *result.skills)), NONE)] += 1
    names = sorted({*right, *wrong, *missed})
    return Triggers(
        SkillRate("all", right.total(), wrong.total(), missed.total()),
        tuple(SkillRate(name, right[name], wrong[name], missed[name]) for name in names),
        tuple(Cell(*pair, count) for pair, count in sorted(cells.items())),
        first,
        wanted,
        len(about) - len(known),
    )


def _missed(case: CaseLine, taken: set[str]) -> list[str]:
    """The skills that a request should have taken: all it needs, and one of those of which any will do."""
    one_of = case.one_of or (() if case.needed else case.wanted)
    short = one_of[:1] if not taken & set(one_of) else ()
    return [*(name for name in case.needed if name not in taken), *short]
