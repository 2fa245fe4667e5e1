"""Check an intent, charge it, let the engine carry it out, and commit or undo the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct, structs

from vademecum.errors import CharterRefused, Denied
from vademecum.governance.audit import Audit
from vademecum.governance.charter import Charter, SkillRegistry
from vademecum.governance.check import SkillCheck
from vademecum.governance.definitions import (
    EMPTY,
    VALID,
    ActionOutcome,
    BrokerPolicy,
    Clause,
    GovernedAgent,
    Intent,
    Reason,
    ValidationResult,
    refusal,
    shown,
)
from vademecum.governance.roles import RoleEnforcer
from vademecum.governance.state import Change, Charge, Ledger, State, StateRefused, StateSnapshot, copied

MAX_ALTERNATIVES = 20


class Engine(Protocol):
    """Carry out approved intents: change the agent's state and the shared state, and nothing else.

    Only these two are compared; the states of other agents are not. An engine does not propose while it acts.
    An engine that takes parameters also has ``execute(func_name, agent, parameters)``, as ``Functions`` has.

    >>> class Diary:
    ...     def call(self, func_name, agent):
    ...         agent.state["did"] = func_name
    >>> from vademecum.governance import Actor, Broker, SkillDefinition, SkillRegistry
    >>> rest = SkillDefinition("rest", allowed_state_changes=["did"], implementation_mapping="sleep")
    >>> agent = Actor("a1", "resident")
    >>> Broker(SkillRegistry([rest]), None, Diary()).propose(agent, "rest").executed, agent.state
    ('rest', {'did': 'sleep'})
    """

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Execute the function ``implementation_mapping``; after an exception the changes are undone."""


class Functions:
    """Call Python functions by name; each gets the agent, and the parameters as keyword arguments.

    >>> engine = Functions({"rest": lambda agent: agent.id, "pay": lambda agent, amount: amount})
    >>> from vademecum.governance import Actor
    >>> agent = Actor("a1", "resident")
    >>> engine.call("rest", agent), engine.execute("pay", agent, {"amount": 3})
    ('a1', 3)
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = dict(functions)

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Call the function of that name without parameters."""
        return self.execute(func_name, agent, EMPTY)

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Call the function of that name."""
        function = self._functions.get(func_name)
        if function is None:
            known = ", ".join(sorted(self._functions)[:20]) or "none"
            raise CharterRefused(f"The engine has no function {func_name!r}: it has {known}.")
        return function(agent, **parameters)


class CheckedIntent(Struct, gc=False):
    """A checked intent: the agent that proposed it, the result, and the cost that was charged."""

    agent: GovernedAgent
    step: int
    agent_id: str
    agent_type: str
    state: State
    intent: Intent
    mapping: str  # the function, script or tool of the skill
    check: SkillCheck | None
    result: ValidationResult
    seen: Mapping[str, Any]
    last: int | None  # the step at which the agent last did this skill
    charge: Charge | None = None

    def replaced(self) -> dict[str, Any]:
        """Return the former values of the agent's attributes that the engine replaced."""
        found: dict[str, Any] = {}
        if getattr(self.agent, "state", None) is not self.state:
            found["state"] = self.state
        for name, was in (("type", self.agent_type), ("id", self.agent_id)):
            if getattr(self.agent, name, None) != was:
                found[name] = was
        return found


class Broker:
    """Check every intent of an agent before the engine executes it.

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
    ) -> None:
        self._world: State = {} if world is None else world
        self.ledger = Ledger() if ledger is None else ledger
        self.step = 0
        self.policy = policy
        self._engine = engine
        self._audit = audit
        self.charter = Charter(registry, roles)
        if audit is not None:
            audit.charter(self.charter)

    @property
    def world(self) -> State:
        """Return the shared state, which can be changed but not replaced."""
        return self._world

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

    def negotiate(self, agent: GovernedAgent, ask: Callable[[str], Intent | str]) -> ActionOutcome:
        """Ask for an intent, again if it can be corrected, and fall back on the default skill.

        ``ask`` gets the feedback on the last intent, and returns the next one. If the state alone rules
        out an intent, do not ask again.
        """
        feedback = ""
        for _ in range(self.policy.retries + 1):
            outcome = self.propose(agent, ask(feedback))
            if outcome.executed is not None or not outcome.correctable:
                break
            feedback = outcome.feedback
        default = self.charter.registry.default_skill
        if outcome.executed is not None or default is None:
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
            return self.charter.feasible(agent, world=self._world, step=self.step, ledger=self.ledger)

    def view(self, agent: GovernedAgent) -> dict[str, Any]:
        """Return a copy of the state that an agent may read; without roles, its own and the shared one."""
        return self.charter.rights.view(agent, world=self._world)

    def feedback(self, agent: GovernedAgent, skill_id: str, result: ValidationResult) -> str:
        """Return the text that a model gets on a denial, without values that its role may not read."""
        rights, agent_type = self.charter.rights, agent.type
        reasons = result.reasons_for(lambda key: rights.check_read(agent_type, key).valid)
        lines = [f"'{skill_id}' was not done:", *(f"- {reason.message}" for reason in reasons)]
        possible = [other for other in self.feasible(agent) if other != skill_id]
        more = f" and {len(possible) - MAX_ALTERNATIVES} more" if len(possible) > MAX_ALTERNATIVES else ""
        known = f"Possible now: {', '.join(possible[:MAX_ALTERNATIVES])}{more}."
        return "\n".join([*lines, known if possible else "Nothing else is possible now."])

    def advance(self) -> int:
        """Begin the next step."""
        with self.ledger.lock:
            self.step += 1
            if self._audit is not None:
                self._audit.flush()
            return self.step

    def approve(self, agent: GovernedAgent, intent: Intent) -> CheckedIntent | ActionOutcome:
        """Check, charge and note an intent that the caller itself carries out.

        Return a decision for ``settle``, or the outcome if it is denied. Other proposals are decided in the
        meantime, with the cost paid and the cooldown begun.
        """
        with self.ledger.lock:
            decision = self._decide(agent, intent)
            if decision.result.bits:
                return self._close(decision)
            self._charge(decision)
            self.ledger.add(intent.skill_id, agent_id=decision.agent_id, step=decision.step)
            return decision

    def settle(self, decision: CheckedIntent, error: BaseException | None = None) -> ActionOutcome:
        """Record the outcome of an approved intent; with ``error``, undo its cost and its cooldown."""
        charge, skill_id = decision.charge, decision.intent.skill_id
        with self.ledger.lock:
            if error is None:
                changes = () if charge is None else ((charge.path, charge.before, charge.left),)
                return self._close(decision, changes, executed=True)
            if charge is not None:
                charge.purse[charge.key] += charge.cost
            name, step = decision.agent_id, decision.step
            self.ledger.take_back(skill_id, agent_id=name, step=step, before=decision.last)
            return self._close(decision, after=_failed(decision, error))

    def _decide(self, agent: GovernedAgent, intent: Intent) -> CheckedIntent:
        """Check an intent against the current charter."""
        if self._audit is not None:
            self._audit.charter(self.charter)
        skill_id: Any = intent.skill_id  # callers can pass anything, and change it later
        skill_id = skill_id if isinstance(skill_id, str) else shown(skill_id)
        intent = Intent(skill_id, copied(intent.parameters) if intent.parameters else {})
        name, kind, step = agent.id, agent.type, self.step
        past = self.ledger.agents.get(name, EMPTY)
        facts = agent.state, self._world, intent.parameters
        result = self.charter.decide(skill_id, kind, facts, past, step)
        check, last = self.charter.registry.skill_check(skill_id), past.get(skill_id)
        seen = EMPTY if check is None or self._audit is None else check.look(facts)
        mapping = "" if check is None else check.skill.implementation_mapping
        return CheckedIntent(agent, step, name, kind, facts[0], intent, mapping, check, result, seen, last)

    def _propose(self, agent: GovernedAgent, intent: Intent | str) -> ActionOutcome:
        """Check an intent, let the engine act, compare the state before and after, and commit or undo."""
        decision = self._decide(agent, intent if isinstance(intent, Intent) else Intent(intent))
        shadow, before = self.policy.shadow, None
        if decision.check is None or (decision.result.bits and not shadow):
            return self._close(decision)
        try:
            before = StateSnapshot(decision.state, self._world)
            if not shadow:
                self._charge(decision)
            output = self._call(decision)
            changes = before.changes()
            replaced = decision.replaced()
        except BaseException as error:
            _undo(decision, before)
            outcome = self._close(decision, after=_failed(decision, error))
            if isinstance(error, Exception):
                return outcome
            if self._audit is not None:
                self._audit.flush()
            raise
        skill_id, charge = decision.intent.skill_id, decision.charge
        changes, by_engine = (changes, changes) if charge is None else charge.split(changes)
        after = self.charter.objections(decision.agent_type, skill_id, by_engine)
        after = after.plus(_replaced(replaced)) if replaced else after
        committed = after.valid or shadow
        if committed:
            self.ledger.add(skill_id, agent_id=decision.agent_id, step=decision.step)
        else:
            _undo(decision, before)
        return self._close(decision, changes, output, executed=committed, after=after)

    def _charge(self, decision: CheckedIntent) -> None:
        assert decision.check is not None
        charge = decision.check.charge((decision.state, self._world, decision.intent.parameters))
        if charge is not None:
            charge.purse[charge.key] = charge.left
            decision.charge = charge

    def _call(self, decision: CheckedIntent) -> Any:
        mapping, params = decision.mapping, decision.intent.parameters
        execute = getattr(self._engine, "execute", None)
        if execute is not None:
            return execute(mapping, decision.agent, copied(params))
        if params:
            raise CharterRefused(
                "The engine takes no parameters: give it execute(func_name, agent, parameters)."
            )
        return self._engine.call(mapping, decision.agent)

    def _close(
        self,
        decision: CheckedIntent,
        changes: tuple[Change, ...] = (),
        output: Any = None,
        *,
        executed: bool = False,
        after: ValidationResult = VALID,
    ) -> ActionOutcome:
        """Return and record the outcome; ``after`` contains the reasons found after the engine had acted."""
        result, intent, charge = decision.result.plus(after), decision.intent, decision.charge
        correctable = Clause.UNKNOWN if decision.check is None else decision.check.correctable
        feedback = ""
        if result.bits and self.policy.feedback:
            feedback = self.feedback(decision.agent, intent.skill_id, result)
        outcome = ActionOutcome(
            decision.step,
            decision.agent_id,
            decision.agent_type,
            intent,
            decision.result.valid,
            intent.skill_id if executed else None,
            result,
            changes,
            output,
            feedback,
            correctable=bool(result.bits) and not result.bits & ~correctable,
            rolled_back=not after.valid and not executed,
            shadow=self.policy.shadow,
            charged=charge.path if charge is not None and executed else None,
        )
        if self._audit is not None:
            self._audit.outcome(outcome, decision.seen, decision.last)
        return outcome


def _undo(decision: CheckedIntent, before: StateSnapshot | None) -> None:
    if before is not None:
        before.restore()
    for name, value in decision.replaced().items():
        with suppress(Exception):  # an attribute that cannot be set has not been changed either
            setattr(decision.agent, name, value)


def _replaced(names: Iterable[str]) -> ValidationResult:
    text = "The engine replaced the agent's {}: it can change only the content of the state"
    found = [Reason("replaced", "allowed_state_changes", name, None, text.format(name)) for name in names]
    return refusal(*found, bits=Clause.AFTERWARDS)


def _failed(decision: CheckedIntent, error: BaseException) -> ValidationResult:
    mapping, kind = decision.mapping, type(error).__name__
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the engine's error; every intent has an outcome
        words = "no message"
    if isinstance(error, StateRefused):
        text = f"The state cannot be compared: {words}"
        reason = Reason("state", "allowed_state_changes", None, "plain data", text)
    else:
        code, text = "interrupted", f"The engine was interrupted in {mapping!r} ({kind})"
        if isinstance(error, Exception):
            code, text = "engine", f"The engine failed in {mapping!r} ({kind}: {words})"
        reason = Reason(code, "implementation_mapping", kind, mapping, text)
    return refusal(reason, bits=Clause.AFTERWARDS)
