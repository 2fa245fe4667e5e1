"""Check a skill for a whole population at once, over columns, with the same bits as the single check.

Columns have the names that conditions use, such as ``house.floor`` and ``params.amount``. ``type`` contains
the agents' types, and ``last.SKILL`` the step at which each agent last did a skill, negative for never. A
column that does not exist is missing for all agents; a masked row, and ``MISSING``, for that agent.

Conditions are evaluated over arrays of flags, floats or texts. If a single row could fail (a missing
value, a division by zero, a text instead of a number), or numpy would give another result than Python (large
numbers, columns of mixed objects), the rows are checked one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from vademecum.governance import conditions as c
from vademecum.governance.charter import Charter
from vademecum.governance.check import SkillCheck, facts_of, not_found
from vademecum.governance.definitions import EMPTY, MISSING, Clause, ValidationResult

Array = NDArray[Any]

NEVER = -1
EXACT = 2**53  # below this a float contains every integer
_NUMPY_KEEPS = ({int}, {float}, {bool}, {str})


@dataclass(frozen=True, slots=True)
class Batch:
    """The results: ``allowed`` for each row, and ``bits``, the same reasons as in the single check.

    ``result`` returns the single check of one row, with its reasons.
    """

    bits: NDArray[np.uint64]
    allowed: NDArray[np.bool_]
    result: Callable[[int], ValidationResult]


def batch(  # noqa: PLR0913 - what a check depends on
    charter: Charter,
    skill_id: str,
    agents: Mapping[str, Any],
    *,
    step: int = 0,
    world: Mapping[str, Any] = EMPTY,
    types: Sequence[str] | None = None,
) -> Batch:
    """Check a skill for every agent; ``agents`` is a dictionary of columns, or a data frame.

    Each row is checked separately, against the state before the batch. The column ``type`` can contain
    numbers, which is much faster; then ``types`` contains their names.
    """
    check, population = charter.registry.skill_check(skill_id), _Population(agents, types)
    if check is None:
        bits = np.full(population.size, Clause.UNKNOWN, np.uint64)
        return Batch(bits, bits == 0, lambda _row: not_found(skill_id))

    def result(row: int) -> ValidationResult:
        agent_type = population.types[int(population.codes[row])]
        state, params, last = population.row(row, check)
        return charter.decide(skill_id, agent_type, (state, world, params), last, step)

    try:
        with np.errstate(all="ignore"):
            bits = _failing(_clauses(charter, check, population, step, world), population.size)
    except NotVector:
        found = (result(row).bits for row in range(population.size))
        bits = np.fromiter(found, np.uint64, population.size)
    return Batch(bits, bits == 0, result)


def _clauses(
    charter: Charter, check: SkillCheck, population: _Population, step: int, world: Mapping[str, Any]
) -> Iterator[tuple[int, Any]]:
    """Yield the bit of each clause, with the rows for which the clause holds."""
    skill, rights = check.skill, charter.rights
    if population.said:
        raise NotVector  # parameters are checked one agent at a time
    yield Clause.PARAMETERS, not any(parameter.required for parameter in skill.output_schema.values())
    yield Clause.ROLE, population.are_of(lambda name: rights.check_skill(name, skill.skill_id).valid)
    yield Clause.TYPE, population.are_of(check.is_for)
    for bit, tree, strict in check.clauses:
        yield bit, Vectors(population.column, world, strict=strict).holds(tree)
    last = population.column(f"last.{skill.skill_id}")
    if check.cooldown and last is not None:
        yield Clause.COOLDOWN, last <= max(step - check.cooldown, NEVER)


def _failing(clauses: Iterator[tuple[int, Any]], size: int) -> NDArray[np.uint64]:
    """Return for each row the bits of the clauses that do not hold; eight bits share a byte."""
    by_byte: dict[int, NDArray[np.uint8]] = {}
    for bit, holds in clauses:
        if holds is not True:
            place, within = divmod(bit.bit_length() - 1, 8)
            rows = by_byte.setdefault(place, np.zeros(size, np.uint8))
            rows |= np.logical_not(holds).view(np.uint8) * np.uint8(1 << within)
    bits = np.zeros(size, "<u8")
    for place, rows in by_byte.items():
        bits.view(np.uint8).reshape(-1, 8)[:, place] = rows
    return bits


class _Population:
    """The columns of all agents; each is read once."""

    def __init__(self, agents: Mapping[str, Any], types: Sequence[str] | None) -> None:
        self._agents = agents
        self._known: dict[str, Array] = {}
        self.codes, self.types = _read_types(agents["type"], types)
        self.size = len(self.codes)
        self.said = [name for name in map(str, agents) if name.startswith("params.")]

    def column(self, name: str) -> Array | None:
        """Return a column as an array; steps are whole numbers, negative for never."""
        if name not in self._known and name in self._agents:
            found = _array(self._agents[name])
            if len(found) != self.size:
                raise ValueError(f"the column {name!r} has {len(found):,} rows and not {self.size:,}")
            if name.startswith("last."):
                if found.dtype.kind != "i":
                    raise ValueError(f"the column {name!r} has values that are not whole numbers of steps")
                found = np.ma.filled(found, NEVER)
            self._known[name] = found
        return self._known.get(name)

    def are_of(self, allowed: Callable[[str], bool]) -> Any:
        """Return the rows whose type is allowed."""
        may = [allowed(name) for name in self.types]
        if sum(may) == 1 < len(may):
            return self.codes == may.index(True)
        return all(may) if all(may) or not any(may) else np.asarray(may)[self.codes]

    def row(self, row: int, check: SkillCheck) -> tuple[c.State, dict[str, Any], dict[str, int]]:
        """Return the arguments of the single check for one agent: state, parameters and last steps."""
        # A path without its own column can lead into a column of dictionaries.
        names = [name if name in self._agents else name.partition(".")[0] for name in check.reads]
        state, _, _ = facts_of(dict(self._cells(names, row)), EMPTY)
        params = {name.removeprefix("params."): value for name, value in self._cells(self.said, row)}
        skill_id = check.skill.skill_id
        steps = self.column(f"last.{skill_id}")
        last = {} if steps is None or steps[row] < 0 else {skill_id: int(steps[row])}
        return state, params, last

    def _cells(self, names: Iterable[str], row: int) -> Iterator[tuple[str, Any]]:
        """Yield the values of a row that are not missing."""
        for name in names:
            column = self.column(name)
            value = MISSING if column is None else column[row]
            if value is not MISSING and value is not np.ma.masked:
                yield name, value.item() if isinstance(value, np.generic) else value


def _read_types(values: Any, names: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
    """Return the types as numbers, and the name of each number."""
    if names is not None:
        codes = np.asarray(values)
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(names):
            raise ValueError(f"the column 'type' has codes that are not among the {len(names)} names")
        return codes, tuple(names)
    found = _array(values)
    row = next((row for row, value in enumerate(found) if not isinstance(value, str)), None)
    if row is not None:
        raise ValueError(f"the column 'type' has no text in row {row:,}: every agent has a type")
    known, codes = np.unique(found, return_inverse=True)
    return codes, tuple(known.tolist())


def _array(values: Any) -> Array:
    """Return an array with the same values: numpy would turn numbers among texts into texts."""
    found: Array | None = np.asanyarray(values) if hasattr(values, "dtype") else None
    if found is not None and (found.dtype != object or np.ma.isMaskedArray(found)):
        return found
    items = list(values)
    kinds = {type(value) for value in items}
    # numpy cuts off a NUL at the end of a text.
    if kinds in _NUMPY_KEEPS and not (kinds == {str} and any(text.endswith("\0") for text in items)):
        return np.array(items)
    objects = np.empty(len(items), object)
    objects[:] = items
    return objects


class NotVector(Exception):
    """Raised if arrays would not give the same result for these rows."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Evaluate trees over the columns of some rows; a value for all rows is an array without a dimension."""

    column: Callable[[str], Array | None]
    world: Mapping[str, Any]
    strict: bool

    def holds(self, tree: c.Tree) -> Array:
        """Return a tree as flags."""
        found = self._value(tree)
        kind = found.dtype.kind
        if kind == "U" and self.strict:
            raise NotVector
        return found if kind == "b" else np.not_equal(found, "" if kind == "U" else 0)

    def _value(self, tree: c.Tree) -> Array:
        match tree:
            case c.Constant(value=value):
                return _constant(value)
            case c.Path():
                return self._at(tree)
            case c.Has(path=path):
                self._at(path)
                return np.asarray(True)  # noqa: FBT003
            case c.Not(value=value):
                return np.logical_not(self.holds(value))
            case c.Join(by=by, left=left, right=right):
                join = np.logical_and if by == "and" else np.logical_or
                return join(self.holds(left), self.holds(right))
            case c.Compare(by="in" | "not in" as by, left=left, right=c.Items(values=values)):
                item = self._value(left)
                equal = (_compared("==", item, self._value(value)) for value in values)
                found: Array = reduce(np.logical_or, equal, np.asarray(False))  # noqa: FBT003
                return found if by == "in" else np.logical_not(found)
            case c.Compare(by="in" | "not in") | c.Items():
                raise NotVector
            case c.Compare(by=by, left=left, right=right):
                return _compared(by, self._value(left), self._value(right))
            case c.Compute(by=sign, left=left, right=right):
                return _computed(sign, self._value(left), self._value(right))
            case _:
                assert_never(tree)

    def _at(self, path: c.Path) -> Array:
        if c.rooted(path.parts)[0] == 1:
            return _constant(c.read(path, MISSING)((EMPTY, self.world, EMPTY)))
        values = self.column(str(path))
        if values is None or isinstance(values, np.ma.MaskedArray):
            raise NotVector
        return _usual(values)


def _constant(value: Any) -> Array:
    return _usual(_array([value]).reshape(()))


def _usual(values: Array) -> Array:
    """Return flags and texts unchanged, and numbers as floats."""
    kind = values.dtype.kind
    if kind in "bU":
        return values
    if kind not in "iuf" or values.dtype.itemsize > 8:
        raise NotVector
    found = values.astype(np.float64, copy=False)
    return found if kind == "f" else _exact(found)


def _exact(values: Array) -> Array:
    """Return the floats if they represent integers exactly."""
    if (np.abs(values) >= EXACT).any():
        raise NotVector
    return values


def _compared(by: c.Comparator, left: Array, right: Array) -> Array:
    kinds = {left.dtype.kind, right.dtype.kind}
    if len(kinds) > 1 and "U" in kinds:
        raise NotVector
    return np.asarray(c.COMPARE[by](left, right))


def _computed(sign: c.Sign, left: Array, right: Array) -> Array:
    if "U" in {left.dtype.kind, right.dtype.kind} or (sign in {"/", "%"} and not right.all()):
        raise NotVector
    one, other = (side.astype(np.float64, copy=False) for side in (left, right))
    return _exact(np.asarray(c.COMPUTE[sign](one, other)))
