"""Every sentence of the source document, by its sections."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.governance.support import D1
from vademecum.errors import CharterRefused
from vademecum.governance import (
    Actor,
    Broker,
    Functions,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
    ValidationResult,
    load_charter,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "skill_registry.yaml"
    path.write_text(D1, "utf-8")
    return path


def relocate(agent: Actor) -> str:
    agent.state["location"] = "hill"
    return "moved"


def simulation_engine() -> Functions:
    return Functions(
        {
            "pass_turn": lambda agent: None,
            "execute_relocation": relocate,
            "construct_infrastructure": lambda agent: "built",
        }
    )


def resident(**state: Any) -> Actor:
    return Actor("r1", "resident", {"is_active": True, "budget": 80, "location": "valley", **state})


def test_0_the_charter_defines_existence_eligibility_preconditions_and_constraints(file: Path) -> None:
    broker = Broker(SkillRegistry.load(file), None, simulation_engine())
    codes = {
        "fly": "not-found",  # existence
        "build_levee": "type",  # eligibility
        "relocate": "precondition",  # preconditions
    }
    for intent, code in codes.items():
        assert broker.propose(resident(is_active=False), intent).reasons[0].code == code
    assert broker.propose(resident(budget=49), "relocate").reasons[0].code == "cost"  # constraints


def test_0_constraints_are_costs_and_cooldowns() -> None:
    wait = SkillDefinition("wait", "", ["*"], [], {"cost": 5, "cooldown": 2}, [], "pass_turn")
    broker, agent = Broker(SkillRegistry([wait]), None, simulation_engine()), resident()
    assert (broker.propose(agent, "wait").executed, agent.state["budget"]) == ("wait", 75)
    assert [reason.code for reason in broker.propose(agent, "wait").reasons] == ["cooldown"]
    broker.advance()
    assert not broker.propose(agent, "wait").executed
    broker.advance()
    assert broker.propose(agent, "wait").executed


def test_1_1_an_intent_is_a_text_that_is_checked_before_it_becomes_an_action(file: Path) -> None:
    called: list[str] = []

    class Engine:
        def call(self, func_name: str, agent: Any) -> None:
            called.append(func_name)

    broker = Broker(SkillRegistry.load(file), None, Engine())
    assert not broker.propose(resident(is_active=False), "relocate").approved
    assert called == []
    assert broker.propose(resident(), "relocate").executed == "relocate"
    assert called == ["execute_relocation"]


def test_1_2_a_definition_has_these_seven_fields() -> None:
    skill = SkillDefinition(
        skill_id="build_levee",
        description="Build.",
        eligible_agent_types=["resident", "government"],
        preconditions=["has_budget", "not is_flooded"],
        institutional_constraints={"cost": 500, "cooldown": 1},
        allowed_state_changes=["budget"],
        implementation_mapping="construct_infrastructure",
    )
    assert SkillDefinition.from_json(skill.to_json()).to_json() == skill.to_json()
    assert list(skill.to_json()) == [
        "skill_id", "description", "eligible_agent_types", "preconditions", "institutional_constraints",
        "allowed_state_changes", "implementation_mapping",
    ]  # fmt: skip


def test_1_2_side_effects_outside_the_whitelist_are_undone(file: Path) -> None:
    def cheat(agent: Actor) -> None:
        agent.state.update(location="hill", savings=10**6)

    agent = resident()
    engine = Functions({"execute_relocation": cheat})
    outcome = Broker(SkillRegistry.load(file), None, engine).propose(agent, "relocate")
    assert (outcome.executed, outcome.rolled_back) == (None, True)
    assert agent.state == {"is_active": True, "budget": 80, "location": "valley"}


@pytest.mark.parametrize(
    ("agent_type", "budget", "expected"),
    [
        ("resident", 900, "Agent type 'resident' not eligible for skill 'Build_Levee'"),
        ("government", 500, "Precondition failed: 'budget > 500' (budget is 500)"),
        ("government", 501, "built"),
    ],
)
def test_2_the_workflow(agent_type: str, budget: int, expected: str) -> None:
    levee = SkillDefinition(
        "Build_Levee", "", ["government"], ["budget > 500"], {}, [], "construct_infrastructure"
    )
    broker = Broker(SkillRegistry([levee]), None, simulation_engine())
    outcome = broker.propose(Actor("a", agent_type, {"budget": budget}), "Build_Levee")
    assert (outcome.output or outcome.result.message) == expected


def test_3_skills_are_loaded_from_skill_registry_yaml(file: Path) -> None:
    registry = SkillRegistry.load(file)
    assert list(registry.skills) == ["do_nothing", "relocate", "build_levee"]
    assert registry.get("relocate") == SkillDefinition(
        "relocate", "永久搬遷到更安全的區域。", ("resident",), ("is_active",), {"cost": 50},
        ("location", "budget"), "execute_relocation",
    )  # fmt: skip
    assert list(SkillRegistry.load(file.parent).skills) == list(registry.skills)
    assert list(load_charter(file).skills) == list(registry.skills)


def test_3_rules_change_without_changing_code(file: Path) -> None:
    file.write_text(D1.replace("cost: 50", "cost: 500"), "utf-8")
    broker = Broker(SkillRegistry.load(file), None, simulation_engine())
    assert broker.propose(resident(), "relocate").reasons[0].message == "Cost 500 exceeds 'budget' (80)"


def test_4_register_adds_a_skill_that_is_known_from_the_next_intent_on(file: Path) -> None:
    registry = SkillRegistry.load(file)
    broker = Broker(registry, None, simulation_engine())
    assert not broker.propose(resident(), "nap").executed
    registry.register(SkillDefinition("nap", implementation_mapping="pass_turn"))
    assert "nap" in broker.feasible(resident())
    assert broker.propose(resident(), "nap").executed == "nap"


def test_4_register_while_others_propose() -> None:
    registry = SkillRegistry([SkillDefinition("s0", implementation_mapping="pass_turn")])
    broker, failures = Broker(registry, None, simulation_engine()), []

    def propose(number: int) -> None:
        try:
            for turn in range(200):
                broker.propose(Actor(f"a{number}", "resident"), f"s{turn % 20}")
                broker.feasible(Actor(f"a{number}", "resident"))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a thread
            failures.append(error)

    threads = [threading.Thread(target=propose, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 20):
        registry.register(SkillDefinition(f"s{number}", implementation_mapping="pass_turn"))
    for thread in threads:
        thread.join()
    assert failures == []
    assert broker.propose(resident(), "s19").executed == "s19"


def test_4_check_eligibility_returns_a_validation_result(file: Path) -> None:
    registry = SkillRegistry.load(file)
    good, bad = (registry.check_eligibility("relocate", name) for name in ("resident", "government"))
    assert isinstance(bad, ValidationResult)
    assert (good.valid, good.message) == (True, "")
    assert (bad.valid, bad.message) == (False, "Agent type 'government' not eligible for skill 'relocate'")
    assert registry.check_eligibility("do_nothing", "anybody").valid  # the list contains *
    assert registry.check_eligibility("fly", "resident").message == "Skill 'fly' not found in registry"


@pytest.mark.parametrize("intent", [None, 5, ["relocate"], {"skill": "relocate"}])
def test_4_an_intent_that_is_not_a_text_is_not_found(file: Path, intent: Any) -> None:
    registry = SkillRegistry.load(file)
    results = [
        registry.check_eligibility(intent, "resident"),
        registry.check_preconditions(intent, {}),
        Broker(registry, None, simulation_engine()).propose(resident(), intent).result,
    ]
    assert {result.reasons[0].code for result in results} == {"not-found"}


def needing(*preconditions: str, strict: bool = False) -> SkillRegistry:
    return SkillRegistry([SkillDefinition("act", preconditions=preconditions)], strict=strict)


TRUTHY: list[Any] = [True, 1, -0.5, "yes", "no", [1], [0], {"a": 1}]
FALSY: list[Any] = [False, 0, 0.0, None, "", [], {}]


@pytest.mark.parametrize("value", TRUTHY + FALSY)
def test_4_field_requires_truthy_and_not_field_falsy(value: Any) -> None:
    for state in ({"field": value}, {"field": value, "other": 1}):
        assert needing("field").check_preconditions("act", state).valid is bool(value)
        assert needing("not field").check_preconditions("act", state).valid is not bool(value)


def test_4_a_missing_field_is_falsy() -> None:
    assert not needing("field").check_preconditions("act", {})
    assert needing("not field").check_preconditions("act", {})


@pytest.mark.parametrize("value", ["yes", [1], None, "", [], {}])
def test_4_strict_is_an_option(value: Any) -> None:
    for text in ("field", "not field"):
        assert not needing(text, strict=True).check_preconditions("act", {"field": value})
        assert not needing(text, strict=True).check_preconditions("act", {})
    assert needing("field", strict=True).check_preconditions("act", {"field": 1})


def test_4_preconditions_are_checked_one_after_another() -> None:
    result = needing("a", "not b", "c").check_preconditions("act", {"a": 0, "b": 1, "c": 2})
    assert [reason.clause for reason in result.reasons] == ["a", "not b"]


ROLES = RoleEnforcer(
    {
        "government": Role(["set_subsidy_rate"], reads=["*", "world.*"], writes=["world.subsidy_rate"]),
        "insurance": Role(["set_premium"], reads=["world.premium_rate"], writes=["world.premium_rate"]),
    }
)


def test_5_skill_permissions() -> None:
    assert ROLES.check_skill("government", "set_subsidy_rate")
    assert not ROLES.check_skill("insurance", "set_subsidy_rate")


def test_5_read_and_write_permissions() -> None:
    assert ROLES.check_write("insurance", "world.premium_rate")
    assert not ROLES.check_write("insurance", "world.subsidy_rate")
    assert ROLES.check_read("insurance", "world.premium_rate")
    assert not ROLES.check_read("insurance", "world.subsidy_rate")


def test_5_roles_supplement_eligibility() -> None:
    both = SkillDefinition("set_premium", "", ["*"], [], {}, ["world.*"], "raise_rates")
    world = {"premium_rate": 1, "subsidy_rate": 1}
    engine = Functions({"raise_rates": lambda agent: world.update(premium_rate=2, subsidy_rate=2)})
    broker = Broker(SkillRegistry([both]), ROLES, engine, world=world)
    denied = broker.propose(Actor("g", "government"), "set_premium")
    assert [reason.code for reason in denied.reasons] == ["role"]
    undone = broker.propose(Actor("i", "insurance"), "set_premium")
    assert [(reason.code, reason.observed) for reason in undone.reasons] == [
        ("write-permission", "world.subsidy_rate")
    ]
    assert world == {"premium_rate": 1, "subsidy_rate": 1}


def test_5_no_role_is_built_in() -> None:
    assert not RoleEnforcer().check_skill("government", "set_subsidy_rate")


class ActionError(Exception):
    pass


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (resident(), "moved"),
        (Actor("g", "government", {"is_active": True}), "你不被允許執行此操作。"),
        (resident(is_active=False), "你現在無法執行此操作"),
    ],
)
def test_6_the_integration_example_as_it_is_written(file: Path, agent: Actor, expected: str) -> None:
    registry, engine = SkillRegistry.load(file), simulation_engine()
    intent = "relocate"

    def integrate() -> Any:
        if not registry.check_eligibility(intent, agent.type).valid:
            raise ActionError("你不被允許執行此操作。")
        if not registry.check_preconditions(intent, agent.state).valid:
            raise ActionError("你現在無法執行此操作")
        func_name = registry.get_execution_mapping(intent)
        assert func_name is not None
        return engine.call(func_name, agent)

    if expected == "moved":
        assert integrate() == "moved"
    else:
        with pytest.raises(ActionError, match=expected):
            integrate()


def test_6_an_engine_as_the_example_has_it_takes_no_parameters() -> None:
    class Engine:
        def call(self, func_name: str, agent: Any) -> str:
            return f"{agent.id} {func_name}"

    from vademecum.governance import Intent, Parameter

    pay = SkillDefinition("pay", implementation_mapping="p", output_schema={"amount": Parameter("number")})
    broker = Broker(SkillRegistry([pay]), None, Engine())
    assert broker.propose(resident(), "pay").output == "r1 p"
    refused = broker.propose(resident(), Intent("pay", {"amount": 3}))
    assert "takes no parameters" in refused.reasons[0].message


def registry(**keys: Any) -> SkillRegistry:
    return SkillRegistry([SkillDefinition("a", **keys)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SkillRegistry(default_skill="nonexistent"), "default_skill names 'nonexistent'"),
        (
            lambda: SkillRegistry([SkillDefinition("a", eligible_agent_types="resident")]),
            "is the text 'resident'",
        ),
        (lambda: SkillRegistry([SkillDefinition("a", preconditions="field")]), "is the text 'field'"),
        (lambda: SkillRegistry([SkillDefinition("a", allowed_state_changes="x")]), "is the text 'x'"),
        (lambda: RoleEnforcer({"a": Role("rest")}), "is the text 'rest'"),
        (lambda: registry(eligible_agent_types=(name for name in ["a"])), "write a list of texts"),
        (lambda: registry(eligible_agent_types={"a"}), "write a list of texts"),
        (lambda: registry(eligible_agent_types=b"a"), "write a list of texts"),
        (lambda: registry(eligible_agent_types=None), "is None: write a list of texts"),
        (lambda: registry(preconditions=[1]), "write a list of texts"),
        (lambda: registry(institutional_constraints=["cost"]), "write a mapping"),
        (lambda: registry(output_schema={"p": {"type": "number"}}), "write a Parameter"),
        (lambda: registry(institutional_constraints=None), "is None: write a mapping"),
        (lambda: SkillRegistry([SkillDefinition(5)]), "skill_id is 5"),  # type: ignore[arg-type]
        (lambda: SkillRegistry([SkillDefinition("")]), "skill_id is ''"),
    ],
)
def test_what_a_slip_would_have_meant_is_refused(make: Any, words: str) -> None:
    with pytest.raises(CharterRefused, match=words):
        make()


@pytest.mark.parametrize(
    "cost", [True, "yes", "No", 10**400, float("nan"), float("inf"), -1, "-1", None, [], "1 == 1"]
)
def test_a_cost_that_is_no_cost_is_refused(cost: Any) -> None:
    with pytest.raises(CharterRefused, match=r"The cost is .*: write a number of at least 0") as caught:
        SkillRegistry([SkillDefinition("a", institutional_constraints={"cost": cost})])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"budget": 10, "price": -5}, "Cost -5 is not a number of at least 0"),
        ({"budget": 10, "price": float("nan")}, "Cost nan is not a number of at least 0"),
        ({"budget": 10, "price": "3"}, "Cost cannot be computed"),
        ({"budget": "10", "price": 3}, "Cost 3 cannot be paid: 'budget' is not a number ('10')"),
        ({"budget": 10, "price": float("inf")}, "Cost inf exceeds 'budget' (10)"),
    ],
)
def test_a_cost_of_the_state_that_is_no_cost_is_denied_in_words(state: dict[str, Any], words: str) -> None:
    skills = registry(institutional_constraints={"cost": "price"}, implementation_mapping="pass_turn")
    outcome = Broker(skills, None, simulation_engine()).propose(Actor("x", "t", dict(state)), "a")
    assert (outcome.executed, words in outcome.reasons[0].message) == (None, True)


def test_an_engine_has_parameters_of_its_own() -> None:
    from vademecum.governance import Intent, Parameter

    skills = registry(
        implementation_mapping="f", allowed_state_changes=["k"], output_schema={"l": Parameter("list")}
    )
    engine = Functions({"f": lambda agent, l: (l.append(2), agent.state.update(k=l))})  # noqa: E741
    said, agent = {"l": [1]}, Actor("x", "t")
    outcome = Broker(skills, None, engine).propose(agent, Intent("a", said))
    said["l"].append(9)
    assert (said, outcome.proposed.parameters, agent.state) == ({"l": [1, 9]}, {"l": [1]}, {"k": [1, 2]})
