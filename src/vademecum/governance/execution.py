"""What was approved → what came of it: charged, carried out, compared, and committed or undone whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from vademecum.governance.changes import Change, Picture, State
from vademecum.governance.charging import Charge, Unpayable, Words, charge_of
from vademecum.governance.clauses import CHANGE, COST, ENGINE
from vademecum.governance.model import Agent, Intent, May, Reason
from vademecum.governance.program import Program
from vademecum.governance.writable import Writable

# Carries out what was approved.
Act = Callable[[], Any]


class Done(NamedTuple):
    """What executing came to; ``bit`` says what went wrong, if anything did."""

    changes: tuple[Change, ...] = ()
    output: Any = None
    words: Words | None = None
    bit: int = 0
    charged: Any = None
    undone: bool = False
    error: BaseException | None = None


NOT_DONE = Done()


class Attempt:
    """One intent of one agent, from the charge to the commit. In ``shadow`` nothing is enforced.

    The picture of the state is taken after the charge, so that what an engine does to the purse is seen.
    """

    __slots__ = ("_agent", "_bound", "_charge", "_intent", "_shadow", "_state", "_world", "_writable")

    def __init__(self, agent: Agent, intent: Intent, writable: Writable, *, shadow: bool) -> None:
        self._agent = agent
        self._intent = intent
        self._writable = writable
        self._shadow = shadow
        self._bound = (agent.state, agent.type, agent.id)

    def run(self, program: Program, world: State, act: Act) -> Done:
        """Charge, act, compare. Whatever goes wrong from here on, nothing of it stays."""
        state = self._bound[0]
        charge = None if self._shadow else charge_of(program, state, world, self._intent.parameters)
        if isinstance(charge, Unpayable):
            return Done(words=charge.words, bit=COST)
        if charge is not None:
            charge.purse[charge.key] = charge.left
        self._charge = charge
        self._state, self._world = Picture(state), Picture(world)
        try:
            return self._judged(act())
        except BaseException as error:  # noqa: BLE001 - it goes on to whoever asked, see `Broker`
            self._undo()
            return Done(words=partial(_failed, program, error), bit=ENGINE, undone=True, error=error)

    def _judged(self, output: Any) -> Done:
        """What was done, if everything that changed was allowed to; else what is wrong with it."""
        changes = self._state.changes() + self._world.changes("world.")
        agent_type, skill_id, charge = self._bound[1], self._intent.skill_id, self._charge
        wrong = self._writable.objections(agent_type, skill_id, changes) if changes else []
        replaced = self._replaced()
        if charge is not None:
            changes = charge.with_changes(changes)
        if not wrong and not replaced:
            return Done(changes, output, charged=None if charge is None else charge.cost)
        words = partial(_objections, self._writable, agent_type, skill_id, (*wrong,), replaced)
        if not self._shadow:
            self._undo()
        return Done(changes, output, words, CHANGE, undone=not self._shadow)

    def _replaced(self) -> tuple[str, ...]:
        """What an engine put in the place of the agent's own."""
        agent, (state, agent_type, agent_id) = self._agent, self._bound
        if agent.state is state and agent.type == agent_type and agent.id == agent_id:
            return ()
        found = {"state": agent.state is state, "type": agent.type == agent_type, "id": agent.id == agent_id}
        return tuple(name for name, stays in found.items() if not stays)

    def _undo(self) -> None:
        self._state.restore()
        self._world.restore()
        if self._charge is not None:
            self._charge.purse[self._charge.key] = self._charge.before
        for name, value in zip(("state", "type", "id"), self._bound, strict=True):
            with suppress(Exception):  # an agent whose fields cannot be set has not been changed
                if getattr(self._agent, name) is not value:
                    setattr(self._agent, name, value)


def _objections(
    writable: Writable,
    agent_type: str,
    skill_id: str,
    wrong: tuple[Change, ...],
    replaced: tuple[str, ...],
    may: May,
) -> tuple[Reason, ...]:
    found = [writable.reason(agent_type, skill_id, change, may) for change in wrong]
    for name in replaced:
        text = f"The engine replaced the agent's {name}: it may only change what is in the state"
        found.append(Reason("replaced", "allowed_state_changes", name, None, text))
    return tuple(found)


def _failed(program: Program, error: BaseException, may: May) -> tuple[Reason, ...]:  # noqa: ARG001 - its own words
    mapping, kind = program.mapping, type(error).__name__
    if not isinstance(error, Exception):
        text = f"The engine was interrupted in {mapping!r} ({kind})"
        return (Reason("interrupted", "implementation_mapping", kind, mapping, text),)
    text = f"The engine failed in {mapping!r} ({kind}: {_text(error)})"
    return (Reason("engine", "implementation_mapping", kind, mapping, text),)


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even say what it is
        return "without words"
