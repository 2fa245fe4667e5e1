"""Store results line by line, so that an interrupted evaluation can be continued."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from vademecum.errors import CaseRefused, ConfigError, FileRefused
from vademecum.evals.cases import ANY_SKILL, Case
from vademecum.evals.suite import Malformed
from vademecum.evals.units import Configuration, Unit
from vademecum.files import read_capped, write_atomic

MAX_RESULTS_BYTES = 1024 * 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024 * 1024
RESULTS, HEADER, RUNS, OUTPUTS = "results.jsonl", "evaluation.json", "runs", "outputs"

# Neither a time-out nor an error says anything about what was tried: they are counted by themselves, and so
# are runs that never worked because the model's replies were unusable.
Holds = Literal["pass", "fail", "vacuous", "skipped"]
Verdict = Literal["pass", "fail", "timeout", "error", "unusable", "unjudged"]
JUDGED = frozenset({"pass", "fail"})
RAN_THROUGH = JUDGED | {"unjudged"}


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check, with the reason and the events that show it.

    ``vacuous`` means that nothing it is about happened, ``skipped`` that there was no judge. ``judge`` names
    the model that judged it; everything else was computed. ``elsewhere`` are events of child runs, as
    ``run:event``. A check that is made ``always`` is not one of the case's own.
    """

    name: str
    holds: Holds
    detail: str = ""
    events: tuple[int, ...] = ()
    judge: str = ""
    elsewhere: tuple[str, ...] = ()
    always: bool = False


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
    files: tuple[str, ...] = ()

    @property
    def failed(self) -> list[CheckResult]:
        """The checks that do not hold."""
        return [check for check in self.checks if check.holds == "fail"]

    @property
    def why(self) -> str:
        """Return the failures in one line; empty if there are none."""
        if self.error:
            return self.error.splitlines()[0]
        open_ = self.failed or [check for check in self.checks if check.holds == "skipped"]
        return "; ".join(f"{check.name}: {check.detail}" if check.detail else check.name for check in open_)


class CaseLine(msgspec.Struct, frozen=True):
    """The fields of a case that a report needs.

    Of the ``wanted`` skills, all ``needed`` ones must be taken. ``problems`` are faults of the case itself.
    """

    id: str
    input: str
    tags: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    about_skills: bool = False
    needed: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    expects_nothing: bool = False
    expected: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, case: Case, skills: Container[str]) -> CaseLine:
        """Return the line of a case; ``skills`` are those that exist."""
        named = (*case.expects_skills, *case.expected.skills_none_of)
        unknown = [name for name in named if name != ANY_SKILL and name not in skills]
        expected = case.expected
        return cls(
            case.id,
            case.input,
            case.tags,
            case.expects_skills,
            expected.skills_none_of,
            case.is_about_skills,
            expected.skills_all_of,
            expected.skills_any_of,
            case.expects_nothing,
            case.expectations,
            (*case.contradictions, *(f"there is no skill {name!r}" for name in unknown)),
        )


class UnitName(msgspec.Struct, frozen=True, array_like=True):
    """Whose run a unit is: one result may serve several."""

    case: str
    configuration: str
    repetition: int


class Header(msgspec.Struct, frozen=True):
    """The first line of a results file: the cases, configurations and units, by key and by name."""

    name: str
    suite: str
    skill: str
    started: float
    configurations: tuple[Configuration, ...]
    cases: tuple[CaseLine, ...]
    malformed: tuple[Malformed, ...]
    units: tuple[str, ...]
    planned: tuple[UnitName, ...] = ()

    def placed(self, known: Mapping[str, CaseResult]) -> tuple[CaseResult, ...]:
        """Return the results of the units; a result made for another unit takes this unit's name."""
        if not self.planned:
            return tuple(known[key] for key in self.units if key in known)
        named = zip(self.units, self.planned, strict=True)
        return tuple(_named(known[key], unit) for key, unit in named if key in known)


def _named(result: CaseResult, unit: UnitName) -> CaseResult:
    own = UnitName(result.case, result.configuration, result.repetition)
    return result if own == unit else msgspec.structs.replace(result, **msgspec.structs.asdict(unit))


def planned(units: Iterable[Unit]) -> tuple[UnitName, ...]:
    """Return the names of units."""
    return tuple(UnitName(unit.case.id, unit.configuration.name, unit.repetition) for unit in units)


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluation as far as it got; ``beside`` is where the records of one lie that it is shown with."""

    header: Header
    results: tuple[CaseResult, ...]
    place: str = ""
    beside: str = ""

    @property
    def missing(self) -> int:
        """How many units have no result yet."""
        return len(self.header.units) - len(self.results)

    def of(self, configuration: str) -> list[CaseResult]:
        """Return the results of one configuration."""
        return [result for result in self.results if result.configuration == configuration]


class ResultsFile:
    """The results of one directory. Each is on disk, whole, before the next unit counts."""

    def __init__(self, place: Path) -> None:
        self._path = place / RESULTS
        self._lock = threading.Lock()
        with writable(place):
            place.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise CaseRefused(
                f"Another evaluation writes to {place}: wait, or name another --out."
            ) from error
        self.known = {result.key: result for result in _read(self._path)}
        _cut(self._path)

    def add(self, result: CaseResult) -> CaseResult:
        """Keep a result; gives it as it is kept."""
        kept = whole(result)
        with self._lock, writable(self._path):
            data = msgspec.json.encode(kept) + b"\n"
            while data:
                data = data[os.write(self._file, data) :]
            self.known[kept.key] = kept
        return kept

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """Say in one sentence that something cannot be written there."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{place} cannot be written ({reason}): name another place.") from error


def write_header(place: Path, header: Header) -> None:
    """Keep what the evaluation is."""
    with writable(place):
        write_atomic(place / HEADER, msgspec.json.format(msgspec.json.encode(whole(header)), indent=1))


Kept = TypeVar("Kept", CaseResult, Header)


def whole(value: Kept) -> Kept:
    """Replace lone surrogates, which can occur in file names but not in JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.convert(_mended(msgspec.to_builtins(value)), type(value))
    return value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {key: _mended(item) for key, item in value.items()}
        case list() | tuple():
            return [_mended(item) for item in value]
    return value


def read_evaluation(place: Path) -> Evaluation:
    """Return an evaluation from its directory; results that belong to older units are left out."""
    try:
        data = read_capped(place / HEADER, cap=MAX_HEADER_BYTES)
        header = msgspec.json.decode(data, type=Header)
    except (OSError, FileRefused) as error:
        advice = "vade eval run SUITE makes some"
        raise CaseRefused(f"There are no results in {place}: {advice}.", code="no-suite") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CaseRefused(f"{place / HEADER} cannot be read ({error}): run the evaluation again.") from error
    known = {result.key: result for result in _read(place / RESULTS)}
    return Evaluation(header, header.placed(known), str(place))


def _read(path: Path) -> list[CaseResult]:
    """Return all whole lines; a line that was cut short or is of another version is ignored."""
    try:
        data = read_capped(path, cap=MAX_RESULTS_BYTES)
    except OSError:
        return []
    except FileRefused as error:
        raise CaseRefused(f"{path} cannot be read: {error}") from error
    decoder = msgspec.json.Decoder(CaseResult)
    found = []
    for line in data.rpartition(b"\n")[0].splitlines():
        try:
            found.append(decoder.decode(line))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
    return found


def _cut(path: Path) -> None:
    """Remove the beginning of a line that was never finished."""
    with open(path, "rb+") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(whole)
