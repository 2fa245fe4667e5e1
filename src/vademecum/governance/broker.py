"""The broker: an intent is checked, carried out by the engine, checked again, committed or rolled back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from vademecum.errors import Denied
from vademecum.governance.base import Auditor, BrokerPolicy, Engine, Outcome
from vademecum.governance.changes import State
from vademecum.governance.charter import Charter
from vademecum.governance.clauses import COST, UNKNOWN
from vademecum.governance.copies import kept, kept_all
from vademecum.governance.evaluate import EMPTY
from vademecum.governance.execution import NOT_DONE, Act, Done, Execution
from vademecum.governance.feedback import feedback
from vademecum.governance.keys import WORLD
from vademecum.governance.ledger import NOTHING_DONE, Ledger
from vademecum.governance.loading import load_charter
from vademecum.governance.model import Agent, Intent, May, Together, ValidationResult, may_read_all
from vademecum.governance.program import Program
from vademecum.governance.registry import SkillRegistry, not_found
from vademecum.governance.roles import RoleEnforcer
from vademecum.governance.words import shown
from vademecum.governance.writable import Writable

# Whoever proposes: gets what was wrong with the last intent, and gives the next one.
Ask = Callable[[str], Intent | str]


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
        self._world: State = {} if world is None else world
        self.ledger = Ledger() if ledger is None else ledger
        self.step = step
        self.policy = policy
        self._engine = engine
        self._audit = audit
        self._next: Charter | None = None
        self._hold(Charter(registry, roles), past=self.ledger)

    @property
    def world(self) -> State:
        """The state that all share."""
        return self._world

    @world.setter
    def world(self, world: State) -> None:
        if self.ledger.busy:
            raise Denied("The shared state cannot be replaced while a proposal is carried out: change it.")
        self._world = world

    def propose(self, agent: Agent, intent: Intent | str, *, act: Act | None = None) -> Outcome:
        """Decide about an intent, and carry it out if it may be; ``act`` does it in place of the engine."""
        ledger = self.ledger
        with ledger.lock:
            if ledger.busy:
                raise Denied("A proposal is being carried out: propose again when it is done.")
            ledger.busy = True
            try:
                return self._propose(agent, Intent(intent) if isinstance(intent, str) else intent, act)
            finally:
                ledger.busy = False

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
            outcome,
            executed=instead.executed,
            changes=instead.changes,
            output=instead.output,
            charged=instead.charged,
        )

    def feasible(self, agent: Agent) -> list[str]:
        """The skills that an agent could carry out now."""
        return self.charter.feasible(agent, world=self._world, step=self.step, ledger=self.ledger)

    def view(self, agent: Agent) -> dict[str, Any]:
        """The state that an agent may read; without roles, its own and all of the shared one."""
        roles = self.charter.roles
        if roles is None:
            return {**kept_all(agent.state), WORLD: kept_all(self._world)}
        return roles.view(agent, world=self._world)

    def may_read(self, agent: Agent) -> May:
        """Which keys an agent may read; without roles, all of them."""
        roles, agent_type = self.charter.roles, agent.type
        if roles is None:
            return may_read_all
        return lambda key: bool(roles.check_read(agent_type, key))

    def advance(self) -> int:
        """Begin the next step. A charter that was adopted meanwhile holds from here on."""
        with self.ledger.lock:
            self.step += 1
            charter = self._next
            if charter is None and self.charter.registry.revision != self.charter.revision:
                charter = Charter(self.charter.registry, self.charter.roles)
            if charter is not None:
                self._next = None
                self._hold(charter)
            if self._audit is not None:
                self._audit.flush()
            return self.step

    def _hold(self, charter: Charter, past: Ledger | None = None) -> None:
        self.charter = charter
        self._execution = Execution(Writable(charter), self._engine)
        self._revision = self.ledger.revision
        if self._audit is not None:
            self._audit.charter(charter, past)

    def adopt(self, charter: Charter) -> None:
        """Let another charter hold from the next step on."""
        with self.ledger.lock:
            self._next = charter

    def reload(self, path: str | Path) -> Charter:
        """Adopt the charter of a file; a broken one is refused, and the one that holds stays."""
        charter = load_charter(path)
        self.adopt(charter)
        return charter

    def _propose(self, agent: Agent, intent: Intent, act: Act | None) -> Outcome:
        audit, said = self._audit, intent.parameters
        if self.ledger.revision != self._revision:
            self._catch_up()
        if said or said is None:
            # Kept as it is now; the engine gets what whoever proposed has given.
            intent = Intent(intent.skill_id, kept(said or {}))
        step, agent_id, agent_type = self.step, agent.id, agent.type
        seen, done = EMPTY, NOT_DONE
        program = self.charter.program(intent.skill_id)
        if program is None:
            result = not_found(intent.skill_id)
            if type(intent.skill_id) is not str:  # a caller in Python may name anything
                intent = Intent(shown(intent.skill_id), intent.parameters)
        else:
            ledger, world = self.ledger, self._world
            past = ledger.agents.get(agent_id, NOTHING_DONE)
            result = program.check(agent_type, agent.state, world, intent.parameters, past, step, ledger)
            if audit is not None and program.reads:
                seen = program.look(agent.state, world)
            shadow = self.policy.shadow
            if not result.bits or shadow:
                done = self._execution.run(agent, intent, program, world, said or EMPTY, act, shadow=shadow)
                if not done.undone and done.bit != COST:
                    self._note(intent.skill_id, agent_id, agent_type, program)
        if result.bits or done.bit:
            outcome = self._refused(agent, (step, agent_id, agent_type, intent), result, program, done)
        else:
            outcome = Outcome(
                step, agent_id, agent_type, intent, True, intent.skill_id, result, done.changes, done.output,  # noqa: FBT003
                shadow=self.policy.shadow, charged=done.charged,
            )  # fmt: skip
        if audit is not None:
            audit.outcome(outcome, seen)
        if done.error is not None:
            self._pass_on(done.error, by_caller=act is not None)
        return outcome

    def _pass_on(self, error: BaseException, *, by_caller: bool) -> None:
        """Whoever acts says by itself what went wrong, and who interrupts goes on; the record comes first."""
        if by_caller or not isinstance(error, Exception):
            if self._audit is not None:
                self._audit.flush()
            raise error

    def _catch_up(self) -> None:
        """Tell of what others did who share the ledger."""
        self._revision = self.ledger.revision
        if self._audit is not None:
            self._audit.charter(self.charter, self.ledger)

    def _refused(
        self,
        agent: Agent,
        about: tuple[int, str, str, Intent],
        result: ValidationResult,
        program: Program | None,
        done: Done,
    ) -> Outcome:
        """The outcome where something speaks against it, before or after it was carried out."""
        shadow = self.policy.shadow
        approved = not result.bits and done.bit != COST
        if done.words is not None:
            result = ValidationResult(result.bits | done.bit, Together(result, done.words))
        can_say = UNKNOWN if program is None else program.said_bits
        return Outcome(
            *about,
            approved,
            about[3].skill_id if (approved or shadow) and program and not done.undone else None,
            result,
            done.changes,
            done.output,
            feedback(self, agent, about[3], result) if self.policy.feedback else "",
            not result.bits & ~can_say,
            done.undone,
            shadow,
        )

    def _note(self, skill_id: str, agent_id: str, agent_type: str, program: Program) -> None:
        window = program.rules.constraints.limits.window(self.step) if program.is_limited else None
        self.ledger.add(skill_id, agent_id=agent_id, agent_type=agent_type, step=self.step, window=window)
        self._revision = self.ledger.revision
