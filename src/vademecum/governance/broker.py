"""The broker: an intent is checked, carried out by the engine, checked again, committed or rolled back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from vademecum.governance.base import Auditor, BrokerPolicy, Engine, Outcome
from vademecum.governance.changes import Change, State, changed, copied, restore
from vademecum.governance.charter import Charter
from vademecum.governance.clauses import CHANGE, ENGINE, UNKNOWN
from vademecum.governance.feedback import feedback
from vademecum.governance.ledger import NOTHING_DONE, Ledger
from vademecum.governance.loading import load_charter
from vademecum.governance.model import Agent, Intent, Reason, Said, ValidationResult
from vademecum.governance.program import Program
from vademecum.governance.registry import SkillRegistry, not_found
from vademecum.governance.roles import RoleEnforcer
from vademecum.governance.writable import Charge, Writable

# Carries out an intent in place of the engine.
Act = Callable[[], Any]
# Whoever proposes: gets what was wrong with the last intent, and gives the next one.
Ask = Callable[[str], Intent | str]


class _Done(NamedTuple):
    """What executing came to."""

    changes: tuple[Change, ...] = ()
    output: Any = None
    reasons: tuple[Reason, ...] = ()
    bit: int = 0
    error: Exception | None = None


_NOT_DONE = _Done()


class Broker:
    """Stands between those who want and what acts. Nothing reaches the engine that was not checked.

    One proposal is decided at a time, from the check to the commit, whichever threads they come from: what
    is affordable for one is charged before the next is looked at.

    >>> from vademecum.governance import Actor, Functions, SkillDefinition
    >>> build = SkillDefinition(
    ...     "build", "", ["government"], [], {"cost": 500}, ["world.levee"], implementation_mapping="build"
    ... )
    >>> world = {"levee": 2}
    >>> engine = Functions({"build": lambda agent: world.update(levee=world["levee"] + 1)})
    >>> broker = Broker(SkillRegistry([build]), None, engine, world=world)
    >>> mayor = Actor("mayor", "government", {"budget": 800})
    >>> broker.propose(mayor, "build").executed, world, mayor.state
    ('build', {'levee': 3}, {'budget': 300})
    >>> broker.propose(mayor, "build").reasons[0].message
    "Cost 500 exceeds 'budget' (300)"
    """

    def __init__(  # noqa: PLR0913 - the parts of a broker
        self,
        registry: SkillRegistry,
        roles: RoleEnforcer | None,
        engine: Engine,
        policy: BrokerPolicy = BrokerPolicy(),  # noqa: B008 - it never changes
        *,
        world: State | None = None,
        audit: Auditor | None = None,
        ledger: Ledger | None = None,
        step: int = 0,
    ) -> None:
        self.world: State = {} if world is None else world
        self.ledger = ledger or Ledger()
        self.step = step
        self.policy = policy
        self._registry = registry
        self._revision = registry.revision
        self._engine = engine
        self._audit = audit
        self._lock = threading.RLock()
        self._next: Charter | None = None
        self.charter = Charter(registry, roles)
        self._writable = Writable(self.charter)
        if audit is not None:
            audit.charter(self.charter)

    def propose(self, agent: Agent, intent: Intent | str, *, act: Act | None = None) -> Outcome:
        """Decide about an intent, and carry it out if it may be; ``act`` does it in place of the engine."""
        wanted = Intent(intent) if isinstance(intent, str) else intent
        with self._lock:
            return self._propose(agent, wanted, act)

    def negotiate(self, agent: Agent, ask: Ask) -> Outcome:
        """Ask for an intent, again where it can be corrected, and fall back on the default skill.

        What the state alone decides is not asked about twice: no other words would change it.
        """
        said = ""
        for _ in range(self.policy.retries + 1):
            outcome = self.propose(agent, ask(said))
            if outcome.executed is not None or not outcome.correctable:
                break
            said = outcome.feedback
        default = self.charter.default_skill
        if outcome.executed is not None or default is None or not self.policy.fallback:
            return outcome
        instead = self.propose(agent, default)
        return structs.replace(
            outcome, executed=instead.executed, changes=instead.changes, output=instead.output
        )

    def feasible(self, agent: Agent) -> list[str]:
        """The skills that an agent could carry out now."""
        return self.charter.feasible(agent, world=self.world, step=self.step, ledger=self.ledger)

    def view(self, agent: Agent) -> dict[str, Any]:
        """The state that an agent may read; without roles, its own and all of the shared one."""
        roles = self.charter.roles
        if roles is None:
            return {**agent.state, "world": dict(self.world)}
        return roles.view(agent, world=self.world)

    def advance(self) -> int:
        """Begin the next step. A charter that was adopted meanwhile holds from here on."""
        with self._lock:
            self.step += 1
            charter = self._next
            if charter is None and self._registry.revision != self._revision:
                self._revision = self._registry.revision
                charter = Charter(self._registry, self.charter.roles)
            if charter is not None:
                self.charter, self._next = charter, None
                self._writable = Writable(charter)
                if self._audit is not None:
                    self._audit.charter(charter)
            if self._audit is not None:
                self._audit.flush()
            return self.step

    def adopt(self, charter: Charter) -> None:
        """Let another charter hold from the next step on."""
        with self._lock:
            self._next = charter

    def reload(self, path: str | Path) -> Charter:
        """Adopt the charter of a file; a broken one is refused, and the one that holds stays."""
        charter = load_charter(path)
        self.adopt(charter)
        return charter

    def _propose(self, agent: Agent, intent: Intent, act: Act | None) -> Outcome:
        program = self.charter.program(intent.skill_id)
        if program is None:
            return self._told(agent, intent, not_found(intent.skill_id), None, _NOT_DONE, {})
        state, ledger = agent.state, self.ledger
        past = ledger.agents.get(agent.id, NOTHING_DONE)
        result = program.check(agent.type, state, self.world, intent.parameters, past, self.step, ledger)
        seen = program.look(state, self.world) if self._audit is not None else {}
        done = _NOT_DONE
        if not result.bits or self.policy.shadow:
            done = self._execute(agent, intent, program, act)
        outcome = self._told(agent, intent, result, program, done, seen)
        if done.error is not None and act is not None:  # whoever acts says by itself what went wrong
            raise done.error
        return outcome

    def _told(  # noqa: PLR0913, PLR0917 - all that is known of an intent
        self,
        agent: Agent,
        intent: Intent,
        result: ValidationResult,
        program: Program | None,
        done: _Done,
        seen: Mapping[str, Any],
    ) -> Outcome:
        """The outcome, which the audit is told of."""
        if not result.bits and not done.bit:
            outcome = Outcome(
                self.step,
                agent.id,
                agent.type,
                intent,
                not result.bits,
                intent.skill_id,
                result,
                done.changes,
                done.output,
                shadow=self.policy.shadow,
            )
        else:
            outcome = self._outcome(agent, intent, result, program, done)
        if self._audit is not None:
            self._audit.outcome(outcome, seen)
        return outcome

    def _outcome(
        self, agent: Agent, intent: Intent, result: ValidationResult, program: Program | None, done: _Done
    ) -> Outcome:
        shadow = self.policy.shadow
        bits = result.bits
        approved = not bits
        said, correctable = "", False
        if done.bit:
            result = ValidationResult(bits | done.bit, Said((*result.reasons, *done.reasons)))
        if result.bits:
            correctable = not bits & ~(UNKNOWN if program is None else program.said_bits) and not done.bit
            if self.policy.feedback:
                said = feedback(self, agent, intent, result)
        failed = bool(done.bit) and not (shadow and done.bit == CHANGE)
        ran = program is not None and (approved or shadow) and not failed
        return Outcome(
            self.step,
            agent.id,
            agent.type,
            intent,
            approved,
            intent.skill_id if ran else None,
            result,
            done.changes,
            done.output,
            said,
            correctable,
            bool(done.bit) and not shadow,
            shadow,
        )

    def _execute(self, agent: Agent, intent: Intent, program: Program, act: Act | None) -> _Done:
        """Charge, carry out, compare, and commit or undo all of it."""
        world, state, shadow = self.world, agent.state, self.policy.shadow
        before, before_world = copied(state), copied(world)
        charge = None if shadow or program.is_free else self._charge(program, intent, state)
        mapping = self.charter.skills[intent.skill_id].implementation_mapping
        try:
            output = self._engine.call(mapping, agent, intent.parameters) if act is None else act()
        except BaseException as error:
            restore(state, before)
            restore(world, before_world)
            if not isinstance(error, Exception):
                raise
            return _Done(reasons=(_engine_failed(mapping, error),), bit=ENGINE, error=error)
        changes = changed(before, state) + changed(before_world, world, "world.")
        reasons: tuple[Reason, ...] = ()
        if changes:
            reasons = tuple(self._writable.objections(agent.type, intent.skill_id, changes, charge))
        if reasons and not shadow:
            restore(state, before)
            restore(world, before_world)
            return _Done(changes, output, reasons, CHANGE)
        window = program.rules.constraints.limits.window(self.step) if program.is_limited else None
        self.ledger.add(
            intent.skill_id, agent_id=agent.id, agent_type=agent.type, step=self.step, window=window
        )
        return _Done(changes, output, reasons, CHANGE if reasons else 0)

    def _charge(self, program: Program, intent: Intent, state: State) -> Charge:
        """Take the cost out of the purse before anything happens; what is left in it is what may be used."""
        cost = program.cost(state, self.world, intent.parameters)
        purse, key = (self.world if program.is_shared else state), program.purse_key
        purse[key] = left = purse[key] - cost
        return Charge(program.purse, cost, left)


def _engine_failed(mapping: str, error: Exception) -> Reason:
    text = f"The engine failed in {mapping!r} ({type(error).__name__}: {error})"
    return Reason("engine", "implementation_mapping", type(error).__name__, mapping, text)
