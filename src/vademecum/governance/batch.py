"""Check a skill for a whole population at once, over columns, with the same bits as the single check.

Columns are named as conditions name fields, ``house.floor`` and ``params.amount`` included. ``type`` contains
the agents' types, and ``last.SKILL`` the step at which each agent last did a skill, negative for never. A
column that does not exist is missing for all agents, and a masked row for that agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    put,
)
from vademecum.governance.conditions import rooted
from vademecum.governance.definitions import EMPTY, ValidationResult
from vademecum.governance.vector import EXACT, Array, Flags, NotVector, Vectors

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
    skill_id: str,
    agents: Columns,
    *,
    step: int = 0,
    world: Mapping[str, Any] = EMPTY,
    types: Sequence[str] | None = None,
) -> Batch:
    """Check a skill for every agent.

    Each row is checked by itself, against the state before the batch. If the column ``type`` contains
    numbers, which is much faster, ``types`` has their names.
    """
    return Batch(charter.skill_check(skill_id), skill_id, _Population(agents, types), step, world)


class Batch:
    """The answers: ``allowed`` for each row, and ``bits``, the reasons as the single check has them."""

    def __init__(
        self,
        check: SkillCheck | None,
        skill_id: str,
        population: _Population,
        step: int,
        world: Mapping[str, Any],
    ) -> None:
        self._check, self._skill_id, self._population = check, skill_id, population
        self._around = (step, world)
        self.bits: NDArray[np.uint64] = np.zeros(population.size, np.uint64)
        if check is None:
            self.bits[:] = UNKNOWN
        else:
            try:
                with np.errstate(all="ignore"):
                    _Clauses(check, population, step, world).into(self.bits)
            except NotVector:
                self.bits[:] = [self.result(row).bits for row in range(population.size)]
        self.allowed: Flags = self.bits == 0

    def result(self, row: int) -> ValidationResult:
        """Return the single check of one row, with its reasons."""
        if self._check is None:
            return not_found(self._skill_id)
        (step, world), population = self._around, self._population
        state, params, last = population.row(row, self._check)
        return self._check.check(population.type_of(row), state, world, params, last, step)


class _Population:
    """The columns of all agents; each is read once."""

    def __init__(self, agents: Columns, types: Sequence[str] | None) -> None:
        self._agents = agents
        self._names = {str(name) for name in agents}
        self._known: dict[str, Array | None] = {}
        self.codes, self.types = _read_types(agents["type"], types)
        self.size = len(self.codes)
        self.said = sorted(name.partition(".")[2] for name in self._names if name.startswith("params."))

    def column(self, name: str) -> Array | None:
        if name not in self._known:
            there = name in self._names
            self._known[name] = _read_column(name, self._agents[name], self.size) if there else None
        return self._known[name]

    def type_of(self, row: int) -> str:
        return self.types[int(self.codes[row])]

    def are_of(self, allowed: Allowed) -> Any:
        """Return the rows whose type is allowed."""
        may = [name in allowed for name in self.types]
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
                self._put(state, path.parts, str(path), row)
        for name in self.said:
            self._put(params, (name,), f"params.{name}", row)
        steps = self.column(f"last.{check.rules.skill_id}")
        last = {} if steps is None or steps[row] < 0 else {check.rules.skill_id: int(steps[row])}
        return state, params, last

    def _put(self, into: dict[str, Any], parts: tuple[str, ...], name: str, row: int) -> None:
        column = self.column(name)
        if column is None and len(parts) > 1:
            column, parts = self.column(parts[0]), parts[:1]  # a column of dictionaries, perhaps
        if column is not None and column[row] is not np.ma.masked:
            put(into, parts, _plain(column[row]))


class _Clauses:
    """Check all rows clause by clause.

    Eight clauses share one byte of flags; the bits are those of the clauses that do not hold.
    """

    def __init__(
        self, check: SkillCheck, population: _Population, step: int, world: Mapping[str, Any]
    ) -> None:
        self._rules = check.rules
        self._population = population
        self._step = step
        self._conditions = Vectors(population.column, world, strict=check.strict)
        self._costs = Vectors(population.column, world, strict=True)
        self._bytes: dict[int, tuple[int, NDArray[np.uint8]]] = {}

    def into(self, bits: NDArray[np.uint64]) -> None:
        """Write the bits of all clauses."""
        rules, population = self._rules, self._population
        if rules.parameters is not None and population.said:
            raise NotVector  # what each agent says is checked by itself
        required = any(parameter.required for parameter in (rules.parameters or {}).values())
        self._need(PARAMETERS, not required)
        self._need(ROLE, population.are_of(rules.roles))
        self._need(TYPE, population.are_of(rules.types))
        for number, condition in enumerate(rules.conditions):
            self._need(1 << (FIRST_CONDITION + number), self._conditions.holds(condition.tree))
        if rules.cost is not None:
            self._need(COST, self._costs.holds(_affordable(rules.cost.tree, rules.purse)))
        last = population.column(f"last.{rules.skill_id}")
        if rules.cooldown and last is not None:
            latest = self._step - rules.cooldown
            self._need(COOLDOWN, last <= latest if latest >= -1 else last < 0)
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
            flags = np.full(self._population.size, value if holds else 0, np.uint8)
        asked, known = self._bytes.get(place, (0, None))
        flags = flags if known is None else np.bitwise_or(known, flags, out=known)
        self._bytes[place] = (asked | int(value), flags)


def _affordable(cost: g.Tree, purse: g.Path) -> g.Tree:
    if isinstance(cost, g.Constant):
        return g.Compare(">=", purse, cost)
    number = g.Compute("+", cost, g.Constant(0))  # a text is not a cost
    return g.Both(g.Compare(">=", number, g.Constant(0)), g.Compare(">=", purse, number))


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
    if names is not None:
        codes = np.asarray(values)
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(names):
            raise ValueError(f"the column 'type' has codes that are not among the {len(names)} names")
        return codes, tuple(names)
    known: dict[str, int] = {}
    codes = np.empty(len(values), np.intp)
    for row, value in enumerate(_array(values)):
        if _is_nothing(value):
            raise ValueError(f"the column 'type' has nothing in row {row:,}: every agent has a type")
        codes[row] = known.setdefault(str(value), len(known))
    return codes, tuple(known)


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
