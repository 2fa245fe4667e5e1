"""What a skill costs, taken before it is carried out and given back where it is undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from vademecum.governance.changes import Change, State
from vademecum.governance.evaluate import FAILURES
from vademecum.governance.model import May, Reason
from vademecum.governance.program import Program
from vademecum.governance.words import HIDDEN, shown

# Reasons in words for somebody who may read so much.
Words = Callable[[May], tuple[Reason, ...]]


class Charge(Struct, frozen=True, gc=False):
    """What the charter itself takes: out of which dictionary, what was there, what is left."""

    purse: State
    key: str
    path: str
    before: Any
    left: Any

    def with_changes(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """The charge, and what the engine did: of the purse, from before the charge to the end."""
        for place, (key, _, new) in enumerate(changes):
            if key == self.path:
                return ((key, self.before, new), *changes[:place], *changes[place + 1 :])
        return ((self.path, self.before, self.left), *changes)


class Unpayable(Struct, frozen=True, gc=False):
    """A cost that can be compared with what there is, and cannot be taken from it."""

    words: Words


def charge_of(
    program: Program, state: State, world: State, said: Mapping[str, Any]
) -> Charge | Unpayable | None:
    """What a skill takes out of a state, where it takes anything."""
    if program.is_free:
        return None
    purse, key = (world if program.is_shared else state), program.purse_key
    cost, before = program.cost(state, world, said), purse[key]
    try:
        left = before - cost
        if left >= 0:  # nothing is left of endlessly much
            return Charge(purse, key, program.purse, before, left) if cost else None
    except FAILURES:
        pass
    return Unpayable(partial(_cannot_pay, program.purse, cost, before))


def _cannot_pay(purse: str, cost: Any, before: Any, may: May) -> tuple[Reason, ...]:
    there = f"{shown(cost)} cannot be taken from {shown(before)}" if may(purse) else HIDDEN
    return (Reason("cost", "cost", before, cost, f"Cost cannot be paid out of {purse!r} ({there})"),)
