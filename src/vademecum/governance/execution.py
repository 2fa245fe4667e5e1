"""What was approved → what came of it: charged, carried out, compared, and committed or undone whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from vademecum.governance.base import Engine
from vademecum.governance.changes import Change, Picture, State, pictured
from vademecum.governance.charging import Charge, Unpayable, Words, charge_of
from vademecum.governance.clauses import CHANGE, COST, ENGINE
from vademecum.governance.model import Agent, Intent, May, Reason
from vademecum.governance.program import Program
from vademecum.governance.writable import Writable

# Carries out what was approved, in place of the engine.
Act = Callable[[], Any]
# An agent's own state, type and id.
Bound = tuple[State, str, str]


class Done(Struct, frozen=True, gc=False):
    """What executing came to; ``bit`` says what went wrong, if anything did."""

    changes: tuple[Change, ...] = ()
    output: Any = None
    words: Words | None = None
    bit: int = 0
    charged: str | None = None
    undone: bool = False
    error: BaseException | None = None


NOT_DONE = Done()


class Execution:
    """Carries out intents under the bounds of one charter.

    The picture of the state is taken after the charge, so that what an engine does to the purse is seen.
    """

    def __init__(self, writable: Writable, engine: Engine) -> None:
        self._writable = writable
        self._call = engine.call

    def run(  # noqa: PLR0913, PLR0917 - all that is known of an intent
        self,
        agent: Agent,
        intent: Intent,
        program: Program,
        world: State,
        said: Mapping[str, Any],
        act: Act | None = None,
        *,
        shadow: bool = False,
    ) -> Done:
        """Charge, act, compare. Whatever goes wrong from here on, nothing of it stays.

        The engine gets what whoever proposed has ``said``; ``act`` acts in its place. In ``shadow`` nothing
        is enforced.
        """
        bound = state, agent_type, agent_id = agent.state, agent.type, agent.id
        charge = None
        if not program.is_free and not shadow:
            found = charge_of(program, state, world, intent.parameters)
            if isinstance(found, Unpayable):
                return Done(words=found.words, bit=COST)
            charge = found
        if charge is not None:
            charge.purse[charge.key] = charge.left
        before = None
        try:
            before = pictured(state, world)
            output = self._call(program.mapping, agent, said) if act is None else act()
            changes = before.changes()
            stays = agent.state is state and agent.type == agent_type and agent.id == agent_id
            wrong = self._writable.objections(agent_type, intent.skill_id, changes) if changes else ()
        except BaseException as error:  # noqa: BLE001 - it goes on to whoever asked, see `Broker`
            _undo(agent, bound, before, charge)
            return Done(words=partial(_failed, program, error), bit=ENGINE, undone=True, error=error)
        if charge is not None:
            changes = charge.with_changes(changes)
        if stays and not wrong:
            return Done(changes, output, charged=None if charge is None else charge.path)
        replaced = () if stays else _replaced(agent, bound)
        words = partial(_objections, self._writable, agent_type, intent.skill_id, tuple(wrong), replaced)
        if not shadow:
            _undo(agent, bound, before, charge)
        return Done(changes, output, words, CHANGE, undone=not shadow)


def _replaced(agent: Agent, bound: Bound) -> tuple[str, ...]:
    """What an engine put in the place of the agent's own."""
    state, agent_type, agent_id = bound
    found = {"state": agent.state is state, "type": agent.type == agent_type, "id": agent.id == agent_id}
    return tuple(name for name, stays in found.items() if not stays)


def _undo(agent: Agent, bound: Bound, before: Picture | None, charge: Charge | None) -> None:
    if before is not None:
        before.restore()
    if charge is not None:
        charge.purse[charge.key] = charge.before
    for name, value in zip(("state", "type", "id"), bound, strict=True):
        with suppress(Exception):  # an agent whose fields cannot be set has not been changed
            if getattr(agent, name) is not value:
                setattr(agent, name, value)


def _objections(  # noqa: PLR0913, PLR0917 - all but the last is known when something was wrong
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
