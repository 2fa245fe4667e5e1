"""Check a skill for a whole population at once, over columns, with the same bits as the single check.

Columns are named as conditions name fields, ``house.floor`` and ``params.amount`` included. ``type`` contains
the agents' types, and ``last.SKILL`` the step at which each agent last did a skill, negative for never. A
column that does not exist is missing for all agents, and a masked row for that agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vademecum.governance import grammar as g
from vademecum.governance.charter import Charter
from vademecum.governance.check import (
    COOLDOWN,
    COST,
    FIRST_CONDITION,
    PARAMETERS,
    ROLE,
    TYPE,
    UNKNOWN,
    Allowed,
    SkillCheck,
    not_found,
)
from vademecum.governance.conditions import rooted
from vademecum.governance.definitions import EMPTY, ValidationResult
from vademecum.governance.vector import EXACT, Array, Flags, NotVector, Vectors

ROWS = 131_072  # as many as fit into the processor's cache
NEVER = -1
_NUMPY_KEEPS = ({int}, {float}, {bool}, {str})


class Columns(Protocol):
    """A dictionary of arrays, or a data frame."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the column of a name."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the names of the columns."""
        ...


def batch(  # noqa: PLR0913 - what a check depends on
    charter: Charter,
    skill_ids: str | Sequence[str],
    agents: Columns,
    *,
    step: int = 0,
    world: Mapping[str, Any] = EMPTY,
    types: Sequence[str] | None = None,
) -> Batch:
    """Check a skill for every agent, or for each agent a skill of its own.

    Each row is checked by itself, against the state before the batch. If the column ``type`` contains
    numbers, which is much faster, ``types`` has their names.
    """
    return Batch(charter, skill_ids, _Population(agents, types), step, world)


class Batch:
    """The answers: ``allowed`` for each row, and ``bits``, the reasons as the single check has them."""

    def __init__(
        self,
        charter: Charter,
        skill_ids: str | Sequence[str],
        population: _Population,
        step: int,
        world: Mapping[str, Any],
    ) -> None:
        self._charter = charter
        self._skill_ids = skill_ids
        self._population = population
        self._around = (step, world)
        self.bits: NDArray[np.uint64] = np.zeros(population.size, np.uint64)
        if isinstance(skill_ids, str):
            self._check(skill_ids, population, self.bits)
        else:
            if len(skill_ids) != population.size:
                raise ValueError(f"there are {len(skill_ids):,} skills for {population.size:,} agents")
            self._check_each([str(name) for name in skill_ids])
        self.allowed: Flags = self.bits == 0

    def result(self, row: int) -> ValidationResult:
        """Return the single check of one row, with its reasons."""
        skill_id = self._skill_ids if isinstance(self._skill_ids, str) else str(self._skill_ids[row])
        check = self._charter.skill_check(skill_id)
        return not_found(skill_id) if check is None else self._single(check, self._population, row)

    def _check_each(self, skill_ids: list[str]) -> None:
        which, names = _coded(skill_ids)
        for number, name in enumerate(names):
            rows = np.flatnonzero(which == number)
            part = self._population.part(self._population, rows)
            bits = np.zeros(part.size, np.uint64)
            self._check(name, part, bits)
            self.bits[rows] = bits

    def _check(self, skill_id: str, population: _Population, bits: NDArray[np.uint64]) -> None:
        check = self._charter.skill_check(skill_id)
        if check is None:
            bits[:] = UNKNOWN
            return
        for start in range(0, population.size, ROWS):
            rows = slice(start, start + ROWS)
            try:
                with np.errstate(all="ignore"):
                    _Chunk(check, population.part(population, rows), *self._around).into(bits[rows])
            except NotVector:
                last = min(start + ROWS, population.size)
                bits[rows] = [self._single(check, population, row).bits for row in range(start, last)]

    def _single(self, check: SkillCheck, population: _Population, row: int) -> ValidationResult:
        step, world = self._around
        state, params, last = population.row(row, check)
        return check.check(population.type_of(row), state, world, params, last, step)


class _Population:
    """The columns of some agents."""

    def __init__(self, agents: Columns, types: Sequence[str] | None) -> None:
        codes, self.names = _read_types(agents["type"], types)
        self.codes = codes
        self.size = len(codes)
        self._known: dict[str, Array | None] = {}
        there = {str(name) for name in agents}
        self.said = tuple(name.partition(".")[2] for name in sorted(there) if name.startswith("params."))
        self._read: Callable[[str], Array | None] = lambda name: (
            _read_column(name, agents[name], self.size) if name in there else None
        )

    @classmethod
    def part(cls, whole: _Population, rows: Any) -> _Population:
        """Return some rows of a population."""
        found = cls.__new__(cls)
        found.codes, found.names, found.said = whole.codes[rows], whole.names, whole.said
        found.size = len(found.codes)
        found._known = {}

        def read(name: str) -> Array | None:
            column = whole.column(name)
            return None if column is None else column[rows]

        found._read = read
        return found

    def column(self, name: str) -> Array | None:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def type_of(self, row: int) -> str:
        return self.names[int(self.codes[row])]

    def are_of(self, allowed: Allowed) -> Any:
        """Return the rows whose type is allowed."""
        may = [name in allowed for name in self.names]
        if all(may) or not any(may):
            return all(may)
        if sum(may) == 1:
            return self.codes == may.index(True)
        return np.asarray(may)[self.codes]

    def row(self, row: int, check: SkillCheck) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
        """Return one agent as the single check takes it: its state, its parameters and its last steps."""
        state: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for path in check.reads:
            if rooted(path)[0] == 0:
                self._put(state, path.parts, path, row)
        for name in self.said:
            self._put(params, (name,), g.Path(("params", name)), row)
        steps = self.column(f"last.{check.rules.skill_id}")
        last = {} if steps is None or steps[row] < 0 else {check.rules.skill_id: int(steps[row])}
        return state, params, last

    def _put(self, into: dict[str, Any], parts: tuple[str, ...], path: g.Path, row: int) -> None:
        column = self.column(str(path))
        if column is None and len(parts) > 1 and (outer := self.column(path.parts[0])) is not None:
            into.setdefault(parts[0], _plain(outer[row]))
            return
        if column is None or column[row] is np.ma.masked:
            return
        for part in parts[:-1]:
            into = into.setdefault(part, {})
        into[parts[-1]] = _plain(column[row])


class _Chunk:
    """Check some rows clause by clause.

    Eight clauses share one byte of flags; the bits are those of the clauses that do not hold.
    """

    def __init__(self, check: SkillCheck, rows: _Population, step: int, world: Mapping[str, Any]) -> None:
        self._rules = check.rules
        self._rows = rows
        self._step = step
        self._conditions = Vectors(rows.column, world, strict=check.strict)
        self._costs = Vectors(rows.column, world, strict=True)
        self._bytes: dict[int, tuple[int, NDArray[np.uint8]]] = {}

    def into(self, bits: NDArray[np.uint64]) -> None:
        """Write the bits of all clauses."""
        rules, rows = self._rules, self._rows
        if rules.parameters is not None and rows.said:
            raise NotVector  # what each agent says is checked by itself
        required = any(parameter.required for parameter in (rules.parameters or {}).values())
        self._need(PARAMETERS, not required)
        self._need(ROLE, rows.are_of(rules.roles))
        self._need(TYPE, rows.are_of(rules.types))
        for number, condition in enumerate(rules.conditions):
            self._need(1 << (FIRST_CONDITION + number), self._conditions.holds(condition.tree))
        self._cost()
        self._cooldown()
        written = bits.view(np.uint8).reshape(-1, 8)
        for place, (asked, holding) in self._bytes.items():
            written[:, place if np.little_endian else 7 - place] = holding ^ np.uint8(asked)

    def _need(self, bit: int, holds: Any) -> None:
        """Note the rows for which a clause is true."""
        if holds is True:
            return
        place, within = divmod(bit.bit_length() - 1, 8)
        value = np.uint8(1 << within)
        if isinstance(holds, np.ndarray):
            flags = np.multiply(holds.view(np.uint8), value)
        else:
            flags = np.full(self._rows.size, value if holds else 0, np.uint8)
        asked, known = self._bytes.get(place, (0, None))
        flags = flags if known is None else np.bitwise_or(known, flags, out=known)
        self._bytes[place] = (asked | int(value), flags)

    def _cost(self) -> None:
        if self._rules.cost is None:
            return
        purse, cost = self._rules.purse, self._rules.cost.tree
        tree: g.Tree = g.Compare(">=", purse, cost)
        if not isinstance(cost, g.Constant):
            number = g.Compute("+", cost, g.Constant(0))  # a text is not a cost
            tree = g.Both(g.Compare(">=", number, g.Constant(0)), g.Compare(">=", purse, number))
        self._need(COST, self._costs.holds(tree))

    def _cooldown(self) -> None:
        last = self._rows.column(f"last.{self._rules.skill_id}")
        if self._rules.cooldown and last is not None:
            latest = self._step - self._rules.cooldown
            self._need(COOLDOWN, last <= latest if latest >= -1 else last < 0)


def _plain(value: Any) -> Any:
    """Return a value as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


def _read_column(name: str, values: Any, size: int) -> Array:
    """Return a column as an array; steps are whole numbers, negative for never."""
    found = _array(values)
    if len(found) != size:
        raise ValueError(f"the column {name!r} has {len(found):,} rows and not {size:,}")
    return _steps(name, found) if name.startswith("last.") else found


def _read_types(values: Any, names: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
    """Return the types as numbers, and the name of each number."""
    if hasattr(values, "cat"):  # a category of a data frame
        codes, known = np.asarray(values.cat.codes), tuple(map(str, values.cat.categories))
    elif names is None:
        found = _array(values)
        if found.dtype.kind == "U" and not isinstance(found, np.ma.MaskedArray):
            distinct, codes = np.unique(found, return_inverse=True)
            return codes, tuple(map(str, distinct))
        codes, known = _coded(None if _is_nothing(value) else str(value) for value in found)
    else:
        codes, known = np.asarray(values), tuple(names)
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(known):
            raise ValueError(f"the column 'type' has codes that are not among the {len(known)} names")
    if codes.size and int(codes.min()) < 0:
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(f"the column 'type' has nothing in row {row:,}: every agent has a type")
    return codes, known


def _coded(texts: Iterable[str | None]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return texts as numbers, negative for none, and the text of each number."""
    known: dict[str, int] = {}
    codes = [NEVER if text is None else known.setdefault(text, len(known)) for text in texts]
    return np.array(codes, np.intp), tuple(known)


def _array(values: Any) -> Array:
    """Return an array with the same values: numpy would turn numbers among texts into texts."""
    if not isinstance(values, np.ndarray):
        if not hasattr(values, "dtype"):
            return _of_objects(list(values))
        values = np.asarray(values)
    return _of_objects(values) if values.dtype == object and not np.ma.isMaskedArray(values) else values


def _of_objects(values: Any) -> Array:
    kinds = {type(value) for value in values}
    # numpy cuts off a NUL at the end of a text.
    if kinds in _NUMPY_KEEPS and not (kinds == {str} and any(text.endswith("\0") for text in values)):
        return np.array(list(values), str if kinds == {str} else None)
    found = np.empty(len(values), object)
    found[:] = values if isinstance(values, np.ndarray) else [*values]
    return found


def _steps(name: str, values: Array) -> Array:
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), NEVER, values.data)
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind in "bi" or (kind == "u" and size < 8):
        return values if kind == "i" and size >= 4 else values.astype(np.int64)
    found = values if kind == "f" else np.array([_number(value) for value in values.tolist()])
    whole = np.where(np.isnan(found), NEVER, found)
    if (np.abs(whole) < EXACT).all() and (np.trunc(whole) == whole).all():
        return whole.astype(np.int64)
    raise ValueError(f"the column {name!r} has values that are not whole numbers of steps")


def _number(value: Any) -> float:
    """Return a step as a number, NaN for none, and infinity for any other value."""
    if _is_nothing(value):
        return float("nan")
    return float(value) if isinstance(value, int | float) and abs(value) < EXACT else float("inf")


def _is_nothing(value: Any) -> bool:
    """Return whether a value stands for none, in any of the ways that columns have."""
    if value is None or value is np.ma.masked or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124
