"""Check an intent, charge it, let the engine carry it out, and commit or undo what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import CharterRefused, Denied
from vademecum.governance.audit import Audit
from vademecum.governance.charter import Charter, SkillRegistry, load_charter
from vademecum.governance.check import CHANGE, COST, ENGINE, UNKNOWN, SkillCheck, not_found
from vademecum.governance.definitions import (
    EMPTY,
    VALID,
    ActionOutcome,
    BrokerPolicy,
    Engine,
    GovernedAgent,
    Intent,
    MayRead,
    Reason,
    ValidationResult,
    may_read_all,
    shown,
)
from vademecum.governance.ledger import NOTHING_DONE, Charge, Ledger, Words, charge_of
from vademecum.governance.roles import RoleEnforcer
from vademecum.governance.state import WORLD, Change, Snapshot, State, StateRefused, copied

MAX_ALTERNATIVES = 20

# Gets the feedback on the last intent, and returns the next one.
Ask = Callable[[str], Intent | str]


class CheckedIntent(Struct, gc=False):
    """An intent that was checked: who proposed it, what was found, and what was taken for it."""

    agent: GovernedAgent
    step: int
    agent_id: str
    agent_type: str
    state: State
    intent: Intent
    check: SkillCheck | None = None
    result: ValidationResult = VALID
    seen: Mapping[str, Any] = EMPTY
    charge: Charge | None = None
    # For an act of the caller's own: the ledger at the check and after it, and the former last step.
    past: Mapping[str, Any] = EMPTY
    revision: int = 0
    before: int | None = None

    @property
    def former(self) -> dict[str, Any]:
        """Return the agent's own attributes as they were."""
        return {"state": self.state, "type": self.agent_type, "id": self.agent_id}

    def replaced(self) -> tuple[str, ...]:
        """Return which of the agent's own attributes the engine replaced."""
        agent = self.agent
        if agent.state is self.state and agent.type == self.agent_type and agent.id == self.agent_id:
            return ()
        return tuple(name for name, value in self.former.items() if getattr(agent, name) is not value)


class Broker:
    """Stand between agents and the engine: nothing is executed that was not checked.

    One proposal is handled at a time, from the check to the commit, also if several threads propose. A skill
    that is registered later is known from the next proposal on.

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
        policy: BrokerPolicy = BrokerPolicy(),  # noqa: B008 - it is immutable
        *,
        world: State | None = None,
        audit: Audit | None = None,
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
        self._hold(Charter(registry, roles), self.ledger.to_json() or None)

    @property
    def world(self) -> State:
        """Return the shared state."""
        return self._world

    @world.setter
    def world(self, world: State) -> None:
        if self.ledger.busy:
            raise Denied("The shared state cannot be replaced while a proposal is carried out: change it.")
        self._world = world

    def propose(self, agent: GovernedAgent, intent: Intent | str) -> ActionOutcome:
        """Decide about an intent, and let the engine carry it out if it is approved."""
        ledger = self.ledger
        with ledger.lock:
            if ledger.busy:
                raise Denied("A proposal is being carried out: propose again when it is done.")
            ledger.busy = True
            try:
                return self._propose(agent, intent)
            finally:
                ledger.busy = False

    def negotiate(self, agent: GovernedAgent, ask: Ask) -> ActionOutcome:
        """Ask for an intent, again if it can be corrected, and fall back on the default skill.

        An intent that the state alone rules out is not asked about twice.
        """
        feedback = ""
        for _ in range(self.policy.retries + 1):
            outcome = self.propose(agent, ask(feedback))
            if outcome.executed is not None or not outcome.correctable:
                break
            feedback = outcome.feedback
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

    def feasible(self, agent: GovernedAgent) -> list[str]:
        """Return the skills that an agent can carry out now."""
        with self.ledger.lock:
            self._refresh()
            return self.charter.feasible(agent, world=self._world, step=self.step, ledger=self.ledger)

    def view(self, agent: GovernedAgent) -> dict[str, Any]:
        """Return a copy of the state that an agent may read; without roles, its own and the shared one."""
        roles = self.charter.roles
        if roles is None:
            return {**copied(agent.state), WORLD: copied(self._world)}
        return roles.view(agent, world=self._world)

    def feedback(self, agent: GovernedAgent, skill_id: str, result: ValidationResult) -> str:
        """Return the text that a model gets on a denial, without values that its role may not read."""
        roles, agent_type = self.charter.roles, agent.type
        may = may_read_all if roles is None else lambda key: bool(roles.check_read(agent_type, key))
        lines = [
            f"'{skill_id}' was not done:",
            *(f"- {reason.message}" for reason in result.reasons_for(may)),
        ]
        possible = [other for other in self.feasible(agent) if other != skill_id]
        more = f" and {len(possible) - MAX_ALTERNATIVES} more" if len(possible) > MAX_ALTERNATIVES else ""
        known = f"Possible now: {', '.join(possible[:MAX_ALTERNATIVES])}{more}."
        return "\n".join([*lines, known if possible else "Nothing else is possible now."])

    def advance(self) -> int:
        """Begin the next step; an adopted charter is in force from here on."""
        with self.ledger.lock:
            self.step += 1
            if self._next is not None:
                self._hold(self._next)
                self._next = None
            self._refresh()
            if self._audit is not None:
                self._audit.flush()
            return self.step

    def adopt(self, charter: Charter) -> None:
        """Put another charter in force from the next step on."""
        with self.ledger.lock:
            self._next = charter

    def reload(self, path: str | Path) -> Charter:
        """Adopt the charter of a file, or raise ``CharterRefused`` and keep the present one."""
        charter = load_charter(path)
        self.adopt(charter)
        return charter

    def approve(self, agent: GovernedAgent, intent: Intent) -> CheckedIntent | ActionOutcome:
        """Check an intent that the caller carries out itself: charge it and note it, without waiting for it.

        Return a decision for ``settle``, or the outcome if it is denied. Other proposals are decided in the
        meantime, with the cost paid and the cooldown begun.
        """
        ledger = self.ledger
        with ledger.lock:
            past = ledger.to_json()
            decision = self._decide(agent, intent)
            unpayable = None if decision.result.bits else self._charge(decision)
            if unpayable is not None or decision.result.bits or decision.check is None:
                return self._close(decision, words=unpayable, bit=COST if unpayable else 0)
            decision.before = ledger.agents.get(decision.agent_id, NOTHING_DONE).get(intent.skill_id)
            ledger.add(intent.skill_id, agent_id=decision.agent_id, step=decision.step)
            decision.past, decision.revision = past, ledger.revision
            return decision

    def settle(
        self, decision: CheckedIntent, output: Any = None, error: BaseException | None = None
    ) -> ActionOutcome:
        """Record what came of an approved intent; with ``error``, give back its cost and its cooldown."""
        ledger, charge, skill_id = self.ledger, decision.charge, decision.intent.skill_id
        with ledger.lock:
            if self._audit is not None and ledger.revision != decision.revision:
                # Others acted since it was decided: the record says what was known then.
                self._audit.charter(self.charter, decision.past)
            # Replay notes the act with its outcome; the next proposal finds the ledger as it is now.
            self._revision = ledger.revision if ledger.revision == decision.revision else -1
            if error is None:
                changes = () if charge is None else ((charge.path, charge.before, charge.left),)
                return self._close(decision, changes, output, noted=True)
            if charge is not None:
                charge.purse[charge.key] += charge.cost
            ledger.take_back(skill_id, agent_id=decision.agent_id, step=decision.step, before=decision.before)
            self._revision = -1 if self._revision == -1 else ledger.revision
            return self._close(decision, words=partial(_failed, decision, error), bit=ENGINE, undone=True)

    def _hold(self, charter: Charter, past: Mapping[str, Any] | None = None) -> None:
        self.charter = charter
        self._revision = self.ledger.revision
        if self._audit is not None:
            self._audit.charter(charter, past)

    def _refresh(self) -> None:
        """Put a new charter in force if skills were registered."""
        held = self.charter
        if not held.is_current:
            self._hold(Charter(held.registry, held.roles))

    def _decide(self, agent: GovernedAgent, intent: Intent) -> CheckedIntent:
        """Check an intent against the charter as it is now."""
        ledger = self.ledger
        self._refresh()
        if ledger.revision != self._revision:  # another broker, or an act that was given back
            self._revision = ledger.revision
            if self._audit is not None:
                self._audit.charter(self.charter, ledger.to_json())
        skill_id, params = intent.skill_id, intent.parameters
        if params or params is None:
            intent = Intent(skill_id, copied(params or {}))
        found = CheckedIntent(agent, self.step, agent.id, agent.type, agent.state, intent)
        check = found.check = self.charter.skill_check(skill_id)
        if check is None:
            found.result = not_found(skill_id)
            if type(skill_id) is not str:  # callers may pass anything
                found.intent = Intent(shown(skill_id), intent.parameters)
            return found
        last = ledger.agents.get(found.agent_id, NOTHING_DONE)
        found.result = check.check(
            found.agent_type, found.state, self._world, intent.parameters, last, self.step
        )
        if self._audit is not None and check.reads:
            found.seen = check.look(found.state, self._world)
        return found

    def _propose(self, agent: GovernedAgent, intent: Intent | str) -> ActionOutcome:
        intent = intent if isinstance(intent, Intent) else Intent(intent)
        decision = self._decide(agent, intent)
        check, shadow = decision.check, self.policy.shadow
        if check is None or (decision.result.bits and not shadow):
            return self._close(decision)
        try:
            before = Snapshot(decision.state, self._world)
        except StateRefused as error:
            return self._close(decision, words=partial(_failed, decision, error), bit=ENGINE, undone=True)
        unpayable = None if shadow else self._charge(decision)
        if unpayable is not None:
            return self._close(decision, words=unpayable, bit=COST)
        return self._carry_out(decision, check, before)

    def _charge(self, decision: CheckedIntent) -> Words | None:
        """Take the cost, or return the reason why it cannot be paid."""
        assert decision.check is not None
        found = charge_of(decision.check, decision.state, self._world, decision.intent.parameters)
        if found is None or not isinstance(found, Charge):
            return found
        found.purse[found.key] = found.left
        decision.charge = found
        return None

    def _carry_out(self, decision: CheckedIntent, check: SkillCheck, before: Snapshot) -> ActionOutcome:
        """Let the engine act, compare the state with what it was before the charge, and commit or undo."""
        charge = decision.charge
        try:
            output = self._call(check.rules.mapping, decision.agent, copied(decision.intent.parameters))
            changes = before.changes()
            replaced = decision.replaced()
        except BaseException as error:
            _undo(decision, before)
            outcome = self._close(decision, words=partial(_failed, decision, error), bit=ENGINE, undone=True)
            if not isinstance(error, Exception):
                if self._audit is not None:
                    self._audit.flush()
                raise
            return outcome
        skill_id, agent_type = decision.intent.skill_id, decision.agent_type
        changes, by_engine = (changes, changes) if charge is None else charge.split(changes)
        wrong = self.charter.objections(agent_type, skill_id, by_engine)
        if not wrong and not replaced:
            return self._close(decision, changes, output)
        shadow = self.policy.shadow
        if not shadow:
            _undo(decision, before)
        words = partial(self._objections, decision, tuple(wrong), replaced)
        return self._close(decision, changes, output, words=words, bit=CHANGE, undone=not shadow)

    def _call(self, mapping: str, agent: GovernedAgent, params: Mapping[str, Any]) -> Any:
        execute = getattr(self._engine, "execute", None)
        if execute is not None:
            return execute(mapping, agent, params)
        if params:
            raise CharterRefused(
                "The engine takes no parameters: give it execute(func_name, agent, parameters)."
            )
        return self._engine.call(mapping, agent)

    def _objections(
        self, decision: CheckedIntent, wrong: tuple[Change, ...], replaced: tuple[str, ...], may: MayRead
    ) -> tuple[Reason, ...]:
        type_, skill_id = decision.agent_type, decision.intent.skill_id
        found = [self.charter.objection(type_, skill_id, change, may) for change in wrong]
        for name in replaced:
            text = f"The agent's {name} was replaced: it stays the same, only what is in the state may change"
            found.append(Reason("replaced", "allowed_state_changes", name, None, text))
        return tuple(found)

    def _close(  # noqa: PLR0913 - everything that came of it
        self,
        decision: CheckedIntent,
        changes: tuple[Change, ...] = (),
        output: Any = None,
        *,
        words: Words | None = None,
        bit: int = 0,
        undone: bool = False,
        noted: bool = False,
    ) -> ActionOutcome:
        """Note what was executed, and return and record the outcome."""
        result, intent, shadow = decision.result, decision.intent, self.policy.shadow
        approved = not result.bits and bit != COST
        executed = None
        if decision.check is not None and not undone and (approved or shadow):
            executed = intent.skill_id
            if not noted:
                self.ledger.add(executed, agent_id=decision.agent_id, step=decision.step)
                self._revision = self.ledger.revision
        if words is not None:
            result = ValidationResult(result.bits | bit, partial(_together, result, words))
        feedback, correctable = "", False
        if result.bits:
            correctable = not result.bits & ~(UNKNOWN | self.charter.correctable(intent.skill_id))
            if self.policy.feedback:
                feedback = self.feedback(decision.agent, intent.skill_id, result)
        outcome = ActionOutcome(
            decision.step,
            decision.agent_id,
            decision.agent_type,
            intent,
            approved,
            executed,
            result,
            changes,
            output,
            feedback,
            correctable,
            undone,
            shadow,
            None if decision.charge is None or executed is None else decision.charge.path,
        )
        if self._audit is not None:
            self._audit.outcome(outcome, decision.seen)
        return outcome


def _undo(decision: CheckedIntent, before: Snapshot) -> None:
    before.restore()
    for name, value in decision.former.items():
        with suppress(Exception):  # an attribute that cannot be set has not been changed either
            if getattr(decision.agent, name) is not value:
                setattr(decision.agent, name, value)


def _failed(decision: CheckedIntent, error: BaseException, may: MayRead) -> tuple[Reason, ...]:  # noqa: ARG001
    assert decision.check is not None
    mapping, kind = decision.check.rules.mapping, type(error).__name__
    clause = "implementation_mapping"
    if isinstance(error, StateRefused):
        text = f"The state cannot be compared: {error}"
        return (Reason("state", "allowed_state_changes", None, "plain data", text),)
    if not isinstance(error, Exception):
        text = f"The engine was interrupted in {mapping!r} ({kind})"
        return (Reason("interrupted", clause, kind, mapping, text),)
    text = f"The engine failed in {mapping!r} ({kind}: {_text(error)})"
    return (Reason("engine", clause, kind, mapping, text),)


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the text of an exception of the engine's own
        return "without words"


def _together(
    before: ValidationResult, after: Words, _bits: int, _observed: tuple[Any, ...], may: MayRead
) -> tuple[Reason, ...]:
    return (*before.reasons_for(may), *after(may))
