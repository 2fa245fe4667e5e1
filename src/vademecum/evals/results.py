"""Store results line by line, so that an interrupted evaluation can be continued."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals.cases import ANY_SKILL, Case
from vademecum.evals.checks.answers import check_output, judge_statements
from vademecum.evals.checks.trajectory import CheckResult, Trajectory
from vademecum.evals.checks.watching import check_skills, check_status
from vademecum.evals.suite import HEADER, RESULTS, Malformed
from vademecum.evals.units import Configuration, Unit
from vademecum.files import read_capped, try_lock, writable, write_atomic

MAX_RESULTS_BYTES = 1024 * 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024 * 1024
RUNS = "runs"

# The sentence for every time-out.
LATE = "It did not finish within {:g} s."
# Time-outs, errors and runs that failed because of unusable replies of the model say nothing about the skill,
# so they are counted separately.
Verdict = Literal["pass", "fail", "timeout", "error", "unusable", "unjudged"]
JUDGED = frozenset({"pass", "fail"})
RAN_THROUGH = JUDGED | {"unjudged"}


class CaseResult(msgspec.Struct, frozen=True):
    """The result of one unit, its reasons and its cost."""

    key: str
    case: str
    configuration: str
    repetition: int
    outcome: Verdict
    checks: tuple[CheckResult, ...] = ()
    skills: tuple[str, ...] = ()
    ranked: tuple[str, ...] = ()
    status: str = ""
    stop_reason: str = ""
    answer: str = ""
    error: str = ""
    run: str = ""
    turns: int = 0
    tool_calls: int = 0
    script_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> list[CheckResult]:
        """Return the checks that failed."""
        return [check for check in self.checks if check.holds == "fail"]

    @property
    def tokens(self) -> int:
        """Return the number of tokens that were read and written."""
        return self.input_tokens + self.output_tokens

    @property
    def why(self) -> str:
        """Return the failures in one line; empty if there are none."""
        if self.error:
            return self.error.splitlines()[0]
        open_ = self.failed or [check for check in self.checks if check.holds == "skipped"]
        return "; ".join(f"{check.name}: {check.detail}" if check.detail else check.name for check in open_)


def without_run(
    unit: Unit, outcome: Literal["timeout", "error"], *, error: str = "", seconds: float = 0.0
) -> CaseResult:
    """Return the result of a unit that has no outcome of its own: an error, or a time-out."""
    return CaseResult(*unit.names, outcome, error=error or LATE.format(seconds), seconds=seconds)


class CaseLine(msgspec.Struct, frozen=True):
    """The fields of a case that a report needs.

    One of the skills in ``one_of`` must be taken, all ``needed`` ones, and no ``unwanted`` one. ``problems``
    are faults of the case itself.
    """

    id: str
    input: str
    one_of: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, case: Case, skills: Container[str]) -> CaseLine:
        """Return the line of a case; ``skills`` are those that exist.

        ``expected`` contains the names of its checks, and its limits.
        """
        expected = case.expected
        checks = (
            *check_skills(expected, ()),
            *Trajectory(expected.trajectory).verdicts(),
            *check_status(expected, ""),
            *check_output(expected.output, "", ()),
            *judge_statements(expected.output.judge, "", request="", judge=None),
        )
        limits = case.constraints.model_dump(exclude_defaults=True)
        expects = (*(check.name for check in checks), *(f"{key} {value}" for key, value in limits.items()))
        named = (*case.expects_skills, *expected.skills_none_of)
        unknown = [name for name in named if name != ANY_SKILL and name not in skills]
        problems = (*case.contradictions, *(f"there is no skill {name!r}" for name in unknown))
        asked = (expected.skills_any_of, expected.skills_all_of, expected.skills_none_of)
        return cls(case.id, case.input, *asked, expects, problems)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the skills that are right for the request."""
        return (*self.one_of, *self.needed)


class Header(msgspec.Struct, frozen=True):
    """The cases and configurations of an evaluation, and its units: key, case, configuration, repetition.

    Several units can have the same key, and then share one result.
    """

    name: str
    skill: str
    started: float
    configurations: tuple[Configuration, ...]
    cases: tuple[CaseLine, ...]
    malformed: tuple[Malformed, ...]
    units: tuple[tuple[str, str, str, int], ...]


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluation as far as it got; ``beside`` is the directory of one that it is shown with."""

    header: Header
    results: tuple[CaseResult, ...]
    place: str = ""
    beside: str = ""

    @property
    def missing(self) -> int:
        """Return how many units have no result yet."""
        return len(self.header.units) - len(self.results)

    def of(self, configuration: str) -> list[CaseResult]:
        """Return the results of one configuration."""
        return [result for result in self.results if result.configuration == configuration]


@contextmanager
def open_results(place: Path) -> Iterator[tuple[dict[str, CaseResult], Callable[[CaseResult], None]]]:
    """Open the results of a directory: yield the known ones by key, and a function that adds a result.

    Each result is written before the function returns.
    """
    path = place / RESULTS
    with writable(place):
        place.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115 - it is closed below
    with file:
        if not try_lock(file.fileno()):
            raise CaseRefused(f"Another evaluation writes to {place}: wait, or name another --out.")
        data = _lines(path)
        file.truncate(len(data))  # without an unfinished last line

        def keep(result: CaseResult) -> None:
            with writable(path):
                file.write(_encoded(result) + b"\n")
                file.flush()

        yield _results(data), keep


def write_header(place: Path, header: Header) -> None:
    """Write the header of the evaluation."""
    with writable(place):
        write_atomic(place / HEADER, msgspec.json.format(_encoded(header), indent=1))


def _encoded(value: CaseResult | Header) -> bytes:
    """Return JSON; a lone surrogate, which a model or a file name can contain, becomes a question mark."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")


def read_evaluation(place: Path) -> Evaluation:
    """Return an evaluation from its directory; results that belong to older units are left out."""
    try:
        data = read_capped(place / HEADER, cap=MAX_HEADER_BYTES)
        header = msgspec.json.decode(data, type=Header)
    except (OSError, FileRefused) as error:
        advice = "run vade eval run SUITE"
        raise CaseRefused(f"There are no results in {place}: {advice}.", code="no-suite") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CaseRefused(f"{place / HEADER} cannot be read ({error}): run the evaluation again.") from error
    known = _results(_lines(place / RESULTS))
    # A result that was made for another unit takes this unit's name.
    results = tuple(
        msgspec.structs.replace(known[key], case=case, configuration=configuration, repetition=repetition)
        for key, case, configuration, repetition in header.units
        if key in known
    )
    return Evaluation(header, results, str(place))


def _lines(path: Path) -> bytes:
    """Return all complete lines of a file of results."""
    try:
        return b"".join(read_capped(path, cap=MAX_RESULTS_BYTES).rpartition(b"\n")[:2])
    except OSError:
        return b""
    except FileRefused as error:
        raise CaseRefused(f"{path} cannot be read: {error}") from error


def _results(data: bytes) -> dict[str, CaseResult]:
    """Return the results by key; a line of another version is ignored."""
    decoder = msgspec.json.Decoder(CaseResult)
    found = {}
    for line in data.splitlines():
        try:
            result = decoder.decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        found[result.key] = result
    return found
