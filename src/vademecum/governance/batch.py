"""A whole population at once: the same charter over columns, the same bits as the single check.

Columns are named as conditions name them, ``house.floor`` and ``params.amount`` included. ``type`` has the
agents' types; ``last.SKILL`` the step at which each agent last did a skill, less than zero for never, and
``used.SKILL`` how often in the present window. A column that is not there is missing for everybody, and a row
that is masked in it for that agent: what a ``params`` column has in a row is what that agent says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vademecum.governance import expression as ex
from vademecum.governance.batch_columns import coded, read_column, read_types
from vademecum.governance.batch_parameters import parameters_fit
from vademecum.governance.charter import Charter
from vademecum.governance.clauses import (
    CONFLICT,
    COOLDOWN,
    COST,
    DEPENDENCY,
    FIRST_CONDITION,
    LIMIT_AGENT,
    LIMIT_ALL,
    LIMIT_TYPE,
    PARAMETERS,
    ROLE,
    TYPE,
    UNKNOWN,
)
from vademecum.governance.evaluate import EMPTY
from vademecum.governance.ledger import History, Ledger, uses_in
from vademecum.governance.model import ValidationResult
from vademecum.governance.program import Program
from vademecum.governance.registry import not_found
from vademecum.governance.rules import Allowed
from vademecum.governance.vector import Array, Flags, NotVector, Vectors

ROWS = 131_072  # what stays in the processor's cache


class Columns(Protocol):
    """A dictionary of arrays, or a data frame."""

    def __getitem__(self, name: str, /) -> Any:
        """The column of a name."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """The names of the columns."""
        ...


def batch(  # noqa: PLR0913 - what a check depends on
    charter: Charter,
    skill_ids: str | Sequence[str],
    agents: Columns,
    *,
    step: int = 0,
    world: Mapping[str, Any] = EMPTY,
    ledger: Ledger | None = None,
    types: Sequence[str] | None = None,
) -> Batch:
    """Check a skill for every agent, or for each agent a skill of its own.

    Each row is checked against the state before the batch. ``types`` names the codes of a column ``type``
    that has numbers, which is much faster than texts. ``ledger`` counts for types and for the population.
    """
    return Batch(charter, skill_ids, _Population(agents, types), step, world, ledger or Ledger())


class Batch:
    """The answers: ``allowed`` for each row, and ``bits``, the reasons as the single check has them."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a check depends on
        self,
        charter: Charter,
        skill_ids: str | Sequence[str],
        population: _Population,
        step: int,
        world: Mapping[str, Any],
        ledger: Ledger,
    ) -> None:
        self._charter = charter
        self._skill_ids = skill_ids
        self._population = population
        self._around = (step, world, ledger)
        self.bits: NDArray[np.uint64] = np.zeros(population.size, np.uint64)
        if isinstance(skill_ids, str):
            self._check(skill_ids, population, self.bits)
        else:
            if len(skill_ids) != population.size:
                raise ValueError(f"there are {len(skill_ids):,} skills for {population.size:,} agents")
            self._check_each([str(name) for name in skill_ids])
        self.allowed: Flags = self.bits == 0

    def result(self, row: int) -> ValidationResult:
        """The single check of one row, with its reasons in words."""
        skill_id = self._skill_ids if isinstance(self._skill_ids, str) else str(self._skill_ids[row])
        program = self._charter.program(skill_id)
        return not_found(skill_id) if program is None else self._single(program, self._population, row)

    def _check_each(self, skill_ids: list[str]) -> None:
        which, names = coded(skill_ids)
        for number, name in enumerate(names):
            rows = np.flatnonzero(which == number)
            part = self._population.part(self._population, rows)
            bits = np.zeros(part.size, np.uint64)
            self._check(name, part, bits)
            self.bits[rows] = bits

    def _check(self, skill_id: str, population: _Population, bits: NDArray[np.uint64]) -> None:
        program = self._charter.program(skill_id)
        if program is None:
            bits[:] = UNKNOWN
            return
        for start in range(0, population.size, ROWS):
            rows = slice(start, start + ROWS)
            try:
                with np.errstate(all="ignore"):
                    _Chunk(
                        program, population.part(population, rows), *self._around, self._charter.compat
                    ).into(bits[rows])
            except NotVector:
                last = min(start + ROWS, population.size)
                bits[rows] = [self._single(program, population, row).bits for row in range(start, last)]

    def _single(self, program: Program, population: _Population, row: int) -> ValidationResult:
        step, world, ledger = self._around
        state, params, history = population.row(row, program, step)
        return program.check(population.type_of(row), state, world, params, history, step, ledger)


class _Population:
    """The columns of some agents."""

    def __init__(self, agents: Columns, types: Sequence[str] | None) -> None:
        codes, self.names = read_types(agents["type"], types)
        self.codes = codes
        self.size = len(codes)
        self._known: dict[str, Array | None] = {}
        there = {str(name) for name in agents}
        self.said = tuple(name.partition(".")[2] for name in sorted(there) if name.startswith("params."))
        self._read: Callable[[str], Array | None] = lambda name: (
            read_column(name, agents[name], self.size) if name in there else None
        )

    @classmethod
    def part(cls, whole: _Population, rows: Any) -> _Population:
        """Some rows of it."""
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
        """The rows whose type is among those allowed."""
        may = [name in allowed for name in self.names]
        if all(may) or not any(may):
            return all(may)
        if sum(may) == 1:
            return self.codes == may.index(True)
        return np.asarray(may)[self.codes]

    def row(self, row: int, program: Program, step: int) -> tuple[dict[str, Any], dict[str, Any], History]:
        """One agent as the single check wants it: its state, what it says, what it did."""
        state: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for path in program.reads:
            if path.parts[0] != "world" or len(path.parts) == 1:
                self._put(state, path.parts, path, row)
        for name in self.said if program.rules.parameters is not None else program.said:
            self._put(params, (name,), ex.Path(("params", name)), row)
        return state, params, self._history(row, program, step)

    def _put(self, into: dict[str, Any], parts: tuple[str, ...], path: ex.Path, row: int) -> None:
        column = self.column(str(path))
        if column is None and len(parts) > 1 and (outer := self.column(path.parts[0])) is not None:
            into.setdefault(parts[0], _plain(outer[row]))
            return
        if column is None or column[row] is np.ma.masked:
            return
        for part in parts[:-1]:
            into = into.setdefault(part, {})
        into[parts[-1]] = _plain(column[row])

    def _history(self, row: int, program: Program, step: int) -> History:
        rules = program.rules
        history = History()
        for other in (rules.skill_id, *rules.conflicts, *rules.needs):
            last = self.column(f"last.{other}")
            if last is not None and last[row] >= 0:
                history.last[other] = int(last[row])
        used = self.column(f"used.{rules.skill_id}")
        if used is not None and (window := rules.constraints.limits.window(step)) is not None:
            history.used[rules.skill_id] = (window, max(int(used[row]), 0))
        return history


class _Chunk:
    """Some rows, checked clause by clause.

    Eight clauses share one byte of flags for where they hold, until all are known; what was asked and does
    not hold are the bits.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a check depends on
        self,
        program: Program,
        rows: _Population,
        step: int,
        world: Mapping[str, Any],
        ledger: Ledger,
        compat: bool,  # noqa: FBT001
    ) -> None:
        self._rules = program.rules
        self._rows = rows
        self._step = step
        self._ledger = ledger
        self._conditions = Vectors(rows.column, world, compat=compat)
        self._costs = Vectors(rows.column, world, compat=False)
        self._bytes: dict[int, tuple[int, NDArray[np.uint8]]] = {}

    def into(self, bits: NDArray[np.uint64]) -> None:
        """Write the bits of all clauses."""
        rules, rows = self._rules, self._rows
        if rules.parameters is not None and (rules.parameters or rows.said):
            self._need(PARAMETERS, parameters_fit(rules.parameters, rows.said, rows.column))
        self._need(ROLE, rows.are_of(rules.roles))
        self._need(TYPE, rows.are_of(rules.types))
        for number, condition in enumerate(rules.conditions):
            self._need(1 << (FIRST_CONDITION + number), self._conditions.holds(condition.tree))
        self._cost()
        self._often()
        self._others()
        written = bits.view(np.uint8).reshape(-1, 8)
        for place, (asked, holding) in self._bytes.items():
            written[:, place if np.little_endian else 7 - place] = holding ^ np.uint8(asked)

    def _need(self, bit: int, holds: Any) -> None:
        """Note where a clause holds."""
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
        constraints = self._rules.constraints
        if constraints.cost is None:
            return
        cost = constraints.cost.tree
        tree: ex.Tree = ex.Compare(">=", constraints.purse, cost)
        if not isinstance(cost, ex.Constant):
            number = ex.Compute("+", cost, ex.Constant(0))  # a text is no cost
            tree = ex.Both(
                ex.Compare(">=", number, ex.Constant(0)), ex.Compare(">=", constraints.purse, number)
            )
        self._need(COST, self._costs.holds(tree))

    def _often(self) -> None:
        rules, limits = self._rules, self._rules.constraints.limits
        last = self._last(rules.skill_id)
        if rules.constraints.cooldown and last is not None:
            latest = self._step - rules.constraints.cooldown
            self._need(COOLDOWN, last <= latest if latest >= -1 else last < 0)
        window = limits.window(self._step)
        if window is None:
            return
        if limits.agent is not None:
            used = self._rows.column(f"used.{rules.skill_id}")
            self._need(LIMIT_AGENT, True if used is None else used < limits.agent)
        if limits.type is not None:
            full = [
                name
                for name in self._rows.names
                if uses_in(self._ledger.types.get(name, {}), rules.skill_id, window) >= limits.type
            ]
            self._need(LIMIT_TYPE, self._rows.are_of(Allowed(frozenset(full), everybody_but=True)))
        if limits.population is not None:
            used_by_all = uses_in(self._ledger.population, rules.skill_id, window)
            self._need(LIMIT_ALL, used_by_all < limits.population)

    def _others(self) -> None:
        apart: Any = True
        for other in self._rules.conflicts:
            if (last := self._last(other)) is not None:
                apart = apart & (last < self._ledger.conflicts_from(self._step))
        self._need(CONFLICT, apart)
        before: Any = True
        for other in self._rules.needs:
            last = self._last(other)
            before = before & (False if last is None else last >= 0)
        self._need(DEPENDENCY, before)

    def _last(self, skill_id: str) -> Array | None:
        return self._rows.column(f"last.{skill_id}")


def _plain(value: Any) -> Any:
    """A value as Python has it."""
    return value.item() if isinstance(value, np.generic) else value
