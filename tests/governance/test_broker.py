"""M3, M4, M5: an intent never acts unchecked; cost, cooldown and state changes are enforced."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.governance.support import broker_of, resident, skill
from vademecum.governance import (
    Actor,
    Broker,
    BrokerPolicy,
    Charter,
    Functions,
    GovernedAgent,
    Intent,
    Ledger,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
)
from vademecum.governance.charter import lint_text
from vademecum.governance.roles import covered
from vademecum.simulation.setting import parse_intent

VILLAGE = """\
default_skill: rest
skills:
  - skill_id: rest
    eligible_agent_types: ["*"]
    implementation_mapping: rest
  - skill_id: elevate
    eligible_agent_types: [household]
    preconditions: ["not elevated"]
    institutional_constraints: {cost: 50, cooldown: 3}
    allowed_state_changes: [elevated]
    implementation_mapping: lift
  - skill_id: set_premium
    eligible_agent_types: [insurer, government]
    allowed_state_changes: [world.premium_rate]
    output_schema: {rate: {type: number, min: 0, max: 1, required: true}}
    implementation_mapping: premium
  - skill_id: move
    eligible_agent_types: [household]
    allowed_state_changes: [place]
    implementation_mapping: move
  - skill_id: claim
    eligible_agent_types: [household]
    preconditions: [elevated]
    implementation_mapping: rest
roles:
  household: {skills: ["*"], reads: [budget, elevated, world.premium_rate], writes: [elevated, place]}
  insurer: {skills: [set_premium, rest], reads: ["*"], writes: [world.premium_rate]}
  government: {skills: [set_premium, rest], reads: ["*", "world.*"], writes: [world.subsidy_rate]}
"""


class Village:
    """An engine that does what it is told, and notes it."""

    def __init__(self) -> None:
        self.world: dict[str, Any] = {"premium_rate": 0.1, "subsidy_rate": 0.5}
        self.called: list[str] = []

    def rest(self, agent: GovernedAgent) -> None:
        self.called.append("rest")

    def lift(self, agent: GovernedAgent) -> str:
        self.called.append("lift")
        agent.state["elevated"] = True
        return "lifted"

    def premium(self, agent: GovernedAgent, rate: float) -> None:
        self.called.append("premium")
        self.world["premium_rate"] = rate

    def move(self, agent: GovernedAgent) -> None:
        self.called.append("move")
        agent.state["place"] = "hill"


def village(policy: BrokerPolicy | None = None) -> tuple[Any, Village]:
    engine = Village()
    functions = {name: getattr(engine, name) for name in ("rest", "lift", "premium", "move")}
    return broker_of(VILLAGE, functions, policy, world=engine.world), engine


def household(**state: Any) -> Actor:
    return Actor("h1", "household", {"budget": 120, "elevated": False, **state})


def codes(outcome: Any) -> list[str]:
    return [reason.code for reason in outcome.reasons]


def test_the_whole_way_of_an_approved_intent() -> None:  # M3, M5
    broker, engine = village()
    agent = household()
    outcome = broker.propose(agent, "elevate")
    assert (outcome.approved, outcome.executed, outcome.output) == (True, "elevate", "lifted")
    assert outcome.proposed == Intent("elevate")
    assert agent.state == {"budget": 70, "elevated": True}
    assert outcome.changes == (("budget", 120, 70), ("elevated", False, True))
    assert engine.called == ["lift"]


def test_an_intent_never_acts_unchecked() -> None:  # M5
    broker, engine = village()
    agent = household()
    before = dict(agent.state)
    for intent, code in (("fly", "not-found"), ("set_premium", "type"), ("claim", "precondition")):
        outcome = broker.propose(agent, intent)
        assert code in codes(outcome)
        assert (outcome.approved, outcome.executed, outcome.rolled_back) == (False, None, False)
    assert (engine.called, agent.state) == ([], before)


def test_cost_must_be_affordable_and_is_charged_once() -> None:  # M3
    broker, _ = village()
    poor = household(budget=49)
    outcome = broker.propose(poor, "elevate")
    assert [reason.to_json() for reason in outcome.reasons] == [
        {
            "code": "cost",
            "clause": "cost",
            "observed": 49,
            "required": 50,
            "message": "Cost 50 exceeds 'budget' (49)",
        }
    ]
    assert poor.state["budget"] == 49


def test_a_cost_can_be_an_expression_out_of_any_purse() -> None:  # M3
    text = skill(
        institutional_constraints={"cost": "params.metres * world.price", "pays_with": "world.treasury"},
        output_schema={"metres": {"type": "number", "min": 0, "required": True}},
    )
    world = {"treasury": 100, "price": 20}
    broker = broker_of(text, {"act": lambda agent, metres: None}, world=world)
    assert broker.propose(resident(), Intent("act", {"metres": 3})).executed == "act"
    assert world["treasury"] == 40
    outcome = broker.propose(resident(), Intent("act", {"metres": 3}))
    assert outcome.reasons[0].message == "Cost 60 exceeds 'world.treasury' (40)"
    assert outcome.correctable  # less would do


def test_cooldown_counts_steps() -> None:  # M3
    broker = broker_of(skill(institutional_constraints={"cooldown": 3}), {"act": lambda agent: None})
    agent, other = resident(), Actor("r2", "resident")
    done = []
    for _ in range(7):
        outcome = broker.propose(agent, "act")
        done.append(outcome.executed is not None)
        broker.advance()
    assert done == [True, False, False, True, False, False, True]
    assert broker.propose(other, "act").executed
    assert broker.propose(other, "act").reasons[0].message == (
        "Cooldown of 3 not over: used at step 7, ready at 10"
    )


def test_without_a_cooldown_a_later_step_in_the_ledger_denies_nothing() -> None:  # M3
    first = broker_of(skill(), {"act": lambda agent: None})
    agent = resident()
    first.step = 5
    assert first.propose(agent, "act").executed
    later = Broker(first.charter.registry, None, Functions({"act": lambda agent: None}), ledger=first.ledger)
    assert later.propose(agent, "act").executed


def test_a_denied_intent_starts_no_cooldown() -> None:  # M3
    text = skill(institutional_constraints={"cooldown": 5}, preconditions=["ready"])
    broker = broker_of(text, {"act": lambda agent: None})
    agent = resident(ready=False)
    broker.propose(agent, "act")
    agent.state["ready"] = True
    assert broker.propose(agent, "act").executed


def test_a_change_that_is_not_allowed_is_rolled_back_whole() -> None:  # M3
    def cheat(agent: Actor) -> None:
        agent.state["elevated"] = True
        agent.state["budget"] += 1000
        agent.state["rooms"].append("attic")
        del agent.state["debt"]

    text = skill(institutional_constraints={"cost": 50, "cooldown": 9}, allowed_state_changes=["elevated"])
    broker = broker_of(text, {"act": cheat})
    agent = resident(budget=120, elevated=False, debt=7, rooms=["hall"])
    state = agent.state
    outcome = broker.propose(agent, "act")
    assert agent.state is state
    assert agent.state == {"budget": 120, "elevated": False, "debt": 7, "rooms": ["hall"]}
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (True, None, True)
    assert [(reason.code, reason.observed) for reason in outcome.reasons] == [
        ("state-change", "budget"),
        ("state-change", "debt"),
        ("state-change", "rooms"),
    ]
    assert outcome.reasons[0].message == "State change not allowed: 'budget' (70 → 1070)"
    assert broker.ledger.agents == {}


def test_nested_and_new_keys_are_changes_too() -> None:  # M3
    def build(agent: Actor) -> None:
        agent.state["house"]["floor"] = 2
        agent.state["extra"] = 1

    broker = broker_of(skill(allowed_state_changes=["house.floor", "extra"]), {"act": build})
    assert broker.propose(resident(house={"floor": 0, "roof": 1}), "act").executed
    broker = broker_of(skill(allowed_state_changes=["house.roof", "ext*"]), {"act": build})
    agent = resident(house={"floor": 0, "roof": 1})
    assert broker.propose(agent, "act").reasons[0].observed == "house.floor"
    assert agent.state == {"house": {"floor": 0, "roof": 1}}


def test_the_role_bounds_what_may_be_written() -> None:  # M3, M4
    broker, engine = village()
    assert broker.propose(Actor("i", "insurer"), Intent("set_premium", {"rate": 0.2})).executed
    outcome = broker.propose(Actor("g", "government"), Intent("set_premium", {"rate": 0.9}))
    assert outcome.rolled_back
    assert [(reason.code, reason.message) for reason in outcome.reasons] == [
        ("write-permission", "Agent type 'government' may not write 'world.premium_rate' (0.2 → 0.9)")
    ]
    assert engine.world["premium_rate"] == 0.2


def test_an_engine_that_fails_changes_nothing() -> None:  # M3
    def fail(agent: Actor) -> None:
        agent.state["elevated"] = True
        raise RuntimeError("no bricks")

    text = skill(institutional_constraints={"cost": 50}, allowed_state_changes=["elevated"])
    agent = resident(budget=60, elevated=False)
    outcome = broker_of(text, {"act": fail}).propose(agent, "act")
    assert agent.state == {"budget": 60, "elevated": False}
    assert outcome.reasons[0].message == "The engine failed in 'act' (RuntimeError: no bricks)"
    unknown = broker_of(skill(implementation_mapping="gone"), {"act": fail}).propose(agent, "act")
    assert "The engine has no function 'gone': it has act." in unknown.reasons[0].message


def test_an_engine_whose_exception_fails_too_has_an_outcome() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail(agent: Actor) -> None:
        raise Mute

    outcome = broker_of(skill(), {"act": fail}).propose(resident(), "act")
    assert outcome.reasons[0].message == "The engine failed in 'act' (Mute: no message)"


def test_an_interruption_changes_nothing() -> None:
    def stop(agent: Actor) -> None:
        agent.state["elevated"] = True
        raise KeyboardInterrupt

    agent = resident(elevated=False)
    with pytest.raises(KeyboardInterrupt):
        broker_of(skill(allowed_state_changes=["*"]), {"act": stop}).propose(agent, "act")
    assert agent.state == {"elevated": False}


def served(engines: int, **constraints: Any) -> tuple[int, Actor]:
    """How often something was done by eight threads at once, and by whom; brokers may share a ledger."""
    text = skill(institutional_constraints={"cost": 30, **constraints}, allowed_state_changes=["done"])
    linted = lint_text(text)
    assert linted.registry is not None
    done = []

    def work(agent: Actor) -> None:
        had = agent.state["done"]
        time.sleep(0.002)  # long enough for the others to come in, if they could
        agent.state["done"] = had + 1
        done.append(1)

    ledger = Ledger()
    brokers = [Broker(linted.registry, None, Functions({"act": work}), ledger=ledger) for _ in range(engines)]
    agent = resident(budget=100, done=0)
    ready = threading.Barrier(8)

    def propose(broker: Broker) -> None:
        ready.wait()
        for _ in range(3):
            broker.propose(agent, "act")

    threads = [threading.Thread(target=propose, args=(brokers[n % engines],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done), agent


@pytest.mark.parametrize("brokers", [1, 2])
def test_of_many_threads_only_those_are_served_that_the_money_is_for(brokers: int) -> None:  # M3
    done, agent = served(brokers)
    assert (done, agent.state) == (3, {"budget": 10, "done": 3})


def test_an_engine_does_not_propose_while_it_acts() -> None:
    ran = []

    def again(agent: Actor) -> None:
        ran.append(1)
        broker.propose(agent, "act")

    text = skill(
        institutional_constraints={
            "cooldown": 5,
        }
    )
    broker = broker_of(text, {"act": again})
    outcome = broker.propose(resident(), "act")
    assert (len(ran), outcome.executed) == (1, None)
    assert "A proposal is being carried out" in outcome.reasons[0].message
    assert broker.ledger.agents == {}


def test_an_engine_does_not_replace_the_shared_state() -> None:
    def swap(agent: Actor) -> None:
        broker.world = {"money": 10**9}  # type: ignore[misc]

    broker = broker_of(skill(allowed_state_changes=["*", "world.*"]), {"act": swap}, world={"money": 1})
    assert broker.propose(resident(), "act").executed is None
    assert broker.world == {"money": 1}


def test_roles_come_from_the_caller() -> None:  # M4
    roles = RoleEnforcer({"a": Role(["build_*"], reads=["x", "world.y"], writes=["x"]), "*": Role(["rest"])})
    assert roles.check_skill("a", "build_levee")
    assert roles.check_skill("b", "rest")
    assert not roles.check_skill("a", "rest")
    assert roles.check_read("a", "x")
    assert not roles.check_read("b", "x")
    assert not roles.check_write("a", "world.y")
    view = roles.view(Actor("1", "a", {"x": 1, "secret": 2}), world={"y": 3, "z": 4})
    assert view == {"x": 1, "world": {"y": 3}}
    assert not RoleEnforcer().check_skill("a", "rest")
    assert not RoleEnforcer({"a": Role(["build_x"]), "*": Role(["*"])}).check_skill("a", "rest")
    registry = SkillRegistry([SkillDefinition("rest"), SkillDefinition("build_x")])
    found = Charter(registry, roles)
    assert [found.feasible(Actor("1", name)) for name in "ab"] == [["build_x"], ["rest"]]


def test_a_view_is_what_the_role_may_read() -> None:  # M4
    broker, _ = village()
    assert broker.view(household(place="valley")) == {
        "budget": 120,
        "elevated": False,
        "world": {"premium_rate": 0.1},
    }


def test_a_star_is_the_agent_s_own_and_paths_mean_the_same_everywhere() -> None:  # M4
    state = {"home": {"floor": 1, "secret": {"key": 2, "hint": 3}}, "x": [1]}
    world = {"treasury": 5, "river": {"level": 2, "name": "Ill"}}
    cases = {
        ("*",): {**state, "world": {}},
        ("*", "world.treasury"): {**state, "world": {"treasury": 5}},
        ("world.*",): {"world": world},
        ("world",): {"world": world},
        ("home.floor", "world.river.level"): {"home": {"floor": 1}, "world": {"river": {"level": 2}}},
        ("home.secret.hint", "hom?.floor"): {"home": {"floor": 1, "secret": {"hint": 3}}, "world": {}},
        ("home", "w*"): {"home": state["home"], "world": {}},
        ("homes.x",): {"world": {}},
    }
    agent = Actor("1", "a", state)
    paths = (
        "home",
        "home.floor",
        "home.secret",
        "home.secret.hint",
        "x",
        "world.treasury",
        "world.river.level",
    )
    for patterns, expected in cases.items():
        roles = RoleEnforcer({"a": Role(["*"], reads=patterns, writes=patterns)})
        view = roles.view(agent, world=world)
        assert view == expected, patterns
        for path in paths:
            assert bool(roles.check_read("a", path)) is bool(roles.check_write("a", path))
            assert bool(roles.check_read("a", path)) is (
                at(view, path) == at({**state, "world": world}, path)
            )
        mine = view.get("home")
        if mine is not None:
            mine["floor"] = 99
    assert (agent.state["home"]["floor"], world["treasury"]) == (1, 5)


def at(state: Any, path: str) -> Any:
    for part in path.split("."):
        state = state.get(part, "nothing") if isinstance(state, dict) else "nothing"
    return state


def test_the_gate_and_check_write_are_of_one_mind() -> None:  # M3, M4
    def build(agent: Actor) -> None:
        agent.state["home"]["floor"] += 1
        broker.world["levee"] += 1

    for writes, allowed in (
        (["home", "world.levee"], ["*", "world.*"]),
        (["*", "world"], ["home.floor", "world"]),
        (["*"], ["*", "world.*"]),
        (["*", "world.*"], ["*"]),
        (["home.roof", "world.*"], ["*", "world.*"]),
    ):
        linted = lint_text(skill(allowed_state_changes=allowed))
        assert linted.registry is not None
        roles = RoleEnforcer({"resident": Role(["*"], [], writes)})
        broker = Broker(linted.registry, roles, Functions({"act": build}), world={"levee": 1})
        may = all(roles.check_write("resident", key) for key in ("home.floor", "world.levee"))
        listed = all(covered(key, tuple(allowed)) for key in ("home.floor", "world.levee"))
        assert (broker.propose(resident(home={"floor": 0}), "act").executed is not None) is (may and listed)


def test_changing_what_a_view_shows_changes_nothing() -> None:  # M4
    broker = broker_of(skill(), {"act": lambda agent: None}, world={"cells": [1]})
    agent = resident(home={"floor": 1})
    view = broker.view(agent)
    view["home"]["floor"] = 99
    view["world"]["cells"].append(2)
    assert (agent.state, broker.world) == ({"home": {"floor": 1}}, {"cells": [1]})


SECRETIVE = """\
skills:
  - skill_id: act
    eligible_agent_types: ["*"]
    preconditions: [world.treasury >= 45000 * world.rate, not world.closed]
    institutional_constraints: {cost: world.price * 2, pays_with: world.treasury}
    implementation_mapping: act
  - skill_id: steal
    eligible_agent_types: ["*"]
    implementation_mapping: steal
roles:
  resident: {skills: ["*"], reads: [budget, world.rate], writes: []}
"""


def test_feedback_reveals_only_what_the_role_may_read() -> None:  # M4
    world = {"treasury": 1234, "rate": 0.5, "price": 777, "closed": True, "safe": 31337}

    def steal(agent: Actor) -> None:
        broker.world["safe"] = 0

    broker = broker_of(SECRETIVE, {"act": lambda agent: None, "steal": steal}, world=world)
    outcome = broker.propose(resident(), "act")
    assert outcome.feedback == (
        "'act' was not done:\n"
        "- Precondition failed: 'world.treasury >= 45000 * world.rate' "
        "(world.treasury is not readable in this role, world.rate is 0.5)\n"
        "- Precondition failed: 'not world.closed' (field is not readable in this role)\n"
        "- The cost exceeds 'world.treasury' (not readable in this role)\n"
        "Possible now: steal."
    )
    for secret in ("1234", "1554", "True"):
        assert secret not in outcome.feedback
        assert secret in outcome.result.message
    assert "world.rate is 0.5" in outcome.feedback
    stolen = broker.propose(resident(), "steal")
    assert "31337" not in stolen.feedback
    assert "31337" in stolen.result.message


def test_feasible_is_what_is_possible_now() -> None:  # M5
    broker, _ = village()
    agent = household()
    assert broker.feasible(agent) == ["rest", "elevate", "move"]
    assert broker.feasible(Actor("i", "insurer")) == ["rest", "set_premium"]  # whatever its parameter
    broker.propose(agent, "elevate")
    assert broker.feasible(agent) == ["rest", "move", "claim"]


def test_feedback_names_reasons_and_alternatives() -> None:  # M5
    broker, _ = village()
    outcome = broker.propose(household(budget=10, elevated=True), "elevate")
    assert outcome.feedback == (
        "'elevate' was not done:\n"
        "- Precondition failed: 'not elevated' (field is True)\n"
        "- Cost 50 exceeds 'budget' (10)\n"
        "Possible now: rest, move, claim."
    )


def test_what_the_state_alone_decides_is_asked_once() -> None:  # M5
    broker, engine = village(BrokerPolicy(retries=4))
    asked: list[str] = []

    def ask(said: str) -> str:
        asked.append(said)
        return "elevate"

    outcome = broker.negotiate(household(elevated=True), ask)
    assert asked == [""]
    assert (outcome.proposed.skill_id, outcome.approved, outcome.executed) == ("elevate", False, "rest")
    assert engine.called == ["rest"]
    assert codes(outcome) == ["precondition"]


def test_what_can_be_corrected_is_asked_again_within_bounds() -> None:  # M5
    broker, _ = village(BrokerPolicy(retries=2))
    answers: list[str | Intent] = ["elevte", "elevate"]
    asked: list[str] = []

    def ask(said: str) -> str | Intent:
        asked.append(said)
        return answers[len(asked) - 1] if len(asked) <= len(answers) else "nonsense"

    assert broker.negotiate(household(), ask).executed == "elevate"
    assert "Skill 'elevte' not found in registry" in asked[1]
    answers.clear()
    asked.clear()
    assert broker.negotiate(household(), ask).executed == "rest"
    assert len(asked) == 3
    wrong = broker.propose(Actor("i", "insurer"), Intent("set_premium", {"rate": 3}))
    assert wrong.correctable
    assert parse_intent('{"skill": "x", "parameters": {"a": ' + "[" * 100_000).skill_id.startswith('{"skill"')
    assert broker_of(skill(), {}).negotiate(household(), lambda said: "nonsense").executed is None


def test_shadow_mode_decides_and_enforces_nothing() -> None:
    broker, engine = village(BrokerPolicy(shadow=True))
    agent = household(budget=10, elevated=True)
    outcome = broker.propose(agent, "elevate")
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (False, "elevate", False)
    assert codes(outcome) == ["precondition", "cost"]
    assert (engine.called, agent.state["budget"]) == (["lift"], 10)
    failing = broker_of(
        skill(allowed_state_changes=["x"]),
        {"act": lambda agent: agent.state.update(x=1 / 0)},
        BrokerPolicy(shadow=True),
    )
    failed = failing.propose(resident(x=0), "act")
    assert (failed.executed, failed.rolled_back, codes(failed)) == (None, True, ["engine"])
    government = Actor("g", "government")
    assert codes(broker.propose(government, Intent("set_premium", {"rate": 0.9}))) == ["write-permission"]
    assert engine.world["premium_rate"] == 0.9


def test_what_decides_does_not_change_within_a_step() -> None:
    listed: list[str] = []
    costs: dict[str, Any] = {"cost": 5, "season": {"wet": 1}}
    writes = ["x"]
    definition = SkillDefinition("act", "", ["*"], [], costs, listed, "act")
    roles = RoleEnforcer({"resident": Role(["act"], [], writes)})
    broker = Broker(
        SkillRegistry([definition]), roles, Functions({"act": lambda agent: agent.state.update(m=1)})
    )
    digest = broker.charter.digest
    listed.append("*")
    writes.append("m")
    costs["cost"] = 0
    costs["season"]["wet"] = 99
    agent = resident(m=0, budget=5)
    outcome = broker.propose(agent, "act")
    assert (outcome.executed, agent.state, broker.charter.digest) == (None, {"m": 0, "budget": 5}, digest)
    assert Charter(broker.charter.registry, roles).digest == digest
    with pytest.raises(TypeError):
        broker.charter.skills["act"].institutional_constraints["cost"] = 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("intent", "code"),
    [
        (Intent("act", {"n": 10**5000}), "parameter"),
        (Intent("act", [1]), "parameter"),  # type: ignore[arg-type]
        (Intent("act", {1: 2}), "parameter"),  # type: ignore[dict-item]
        (Intent(["act"]), "not-found"),  # type: ignore[arg-type]
        (Intent(None), "not-found"),  # type: ignore[arg-type]
    ],
)
def test_whatever_is_proposed_is_answered(intent: Intent, code: str) -> None:
    text = skill(output_schema={"n": {"type": "integer", "max": 10}})
    outcome = broker_of(text, {"act": lambda agent, n=0: None}).propose(resident(), intent)
    assert (outcome.executed, codes(outcome)) == (None, [code])
    assert outcome.feedback


def test_nothing_said_is_nothing() -> None:
    broker = broker_of(skill(), {"act": lambda agent: "done"})
    assert broker.propose(resident(), Intent("act", None)).output == "done"  # type: ignore[arg-type]


def test_what_an_intent_says_is_kept_as_it_was() -> None:
    text = skill(output_schema={"names": {"type": "list"}})
    names = ["a"]
    outcome = broker_of(text, {"act": lambda agent, names: names.append("b")}).propose(
        resident(), Intent("act", {"names": names})
    )
    assert (outcome.proposed.parameters, names) == ({"names": ["a"]}, ["a"])


def test_asking_less_than_once_is_refused() -> None:
    with pytest.raises(ValueError, match="retries is -1"):
        BrokerPolicy(retries=-1)


def test_chinese_all_the_way() -> None:
    text = skill(
        skill_id="搬迁",
        eligible_agent_types=["居民"],
        preconditions=["not 已搬迁"],
        institutional_constraints={"cost": 50, "pays_with": "预算"},
    )
    broker = broker_of(text, {"act": lambda agent: None})
    outcome = broker.propose(Actor("张三", "居民", {"已搬迁": True, "预算": 10}), "搬迁")
    assert outcome.feedback == (
        "'搬迁' was not done:\n- Precondition failed: 'not 已搬迁' (field is True)\n"
        "- Cost 50 exceeds '预算' (10)\nNothing else is possible now."
    )
