"""M1, M2: definitions as the design has them, its API, its messages."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.governance.support import resident
from vademecum.errors import CharterRefused
from vademecum.governance import (
    Actor,
    Charter,
    Parameter,
    Reason,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
    ValidationResult,
)
from vademecum.governance.definitions import MISSING


def registry(*preconditions: str, strict: bool = False) -> SkillRegistry:
    skill = SkillDefinition(
        "elevate", "Raise it.", ["resident"], list(preconditions), {"cost": 5}, ["up"], "lift"
    )
    return SkillRegistry([skill], default_skill="elevate", strict=strict)


def test_messages_are_those_of_the_origin() -> None:  # M2
    found = registry("not elevated")
    assert found.check_eligibility("X", "T").message == "Skill 'X' not found in registry"
    assert found.check_preconditions("X", {}).message == "Skill 'X' not found in registry"
    assert (
        found.check_eligibility("elevate", "T").message == "Agent type 'T' not eligible for skill 'elevate'"
    )
    result = found.check_preconditions("elevate", {"elevated": True})
    assert result.message == "Precondition failed: 'not elevated' (field is True)"


def test_a_result_is_true_or_false_and_carries_every_reason() -> None:  # M2
    result = registry("is_owner", "not elevated", "savings >= 100", "house.floor < 2").check_preconditions(
        "elevate", {"is_owner": 0, "savings": 12.5, "house": {"floor": 3}, "elevated": False}
    )
    assert not result
    assert result.valid is False
    assert result.reasons == (
        Reason("precondition", "is_owner", 0, "is_owner", "Precondition failed: 'is_owner' (field is 0)"),
        Reason(
            "precondition",
            "savings >= 100",
            12.5,
            "savings >= 100",
            "Precondition failed: 'savings >= 100' (savings is 12.5)",
        ),
        Reason(
            "precondition",
            "house.floor < 2",
            3,
            "house.floor < 2",
            "Precondition failed: 'house.floor < 2' (house.floor is 3)",
        ),
    )
    assert [set(reason) for reason in result.to_json()["reasons"]] == [
        {"code", "clause", "observed", "required", "message"}
    ] * 3
    good = registry("is_owner").check_preconditions("elevate", {"is_owner": True})
    assert (bool(good), good.message, good) == (True, "", ValidationResult())


def test_a_missing_field_is_a_denial_in_strict_mode() -> None:  # M2
    result = registry("not elevated", strict=True).check_preconditions("elevate", {})
    assert [(reason.code, reason.observed) for reason in result.reasons] == [("missing", MISSING)]
    assert result.message == "Precondition failed: 'not elevated' (field is missing)"


def test_a_text_is_not_true_in_strict_mode() -> None:  # M2
    result = registry("insured", strict=True).check_preconditions("elevate", {"insured": "no"})
    assert [reason.code for reason in result.reasons] == ["wrong-type"]


def test_reasons_are_what_was_seen_at_the_check() -> None:
    state = {"savings": 3}
    result = registry("savings > 5").check_preconditions("elevate", state)
    state["savings"] = 100
    assert result.reasons[0].observed == 3


def test_register_and_get() -> None:  # M2
    found = registry()
    found.register(SkillDefinition("rest", "", ["*"], [], {}, [], "pass_turn"))
    rest = found.get("rest")
    assert rest is not None
    assert rest.implementation_mapping == "pass_turn"
    assert (found.get("nope"), found.get_execution_mapping("nope")) == (None, None)
    assert found.default_skill == "elevate"


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (SkillDefinition("elevate"), "exists already"),
        (SkillDefinition("x", preconditions=["a >"]), "is not complete"),
        (SkillDefinition("x", institutional_constraints={"cost": -1}), "at least 0"),
        (SkillDefinition("x", institutional_constraints={"cost": "-1"}), "at least 0"),
        (SkillDefinition("x", institutional_constraints={"cooldown": None}), "whole number"),
        (SkillDefinition("x", institutional_constraints={"cooldown": 1.5}), "whole number"),
        (SkillDefinition("x", institutional_constraints={"costs": 1}), "did you mean 'cost'"),
    ],
)
def test_what_cannot_be_used_is_not_registered(definition: SkillDefinition, words: str) -> None:
    found = registry()
    with pytest.raises(CharterRefused, match=words):
        found.register(definition)
    assert list(found.skills) == ["elevate"]


def test_parameters() -> None:  # M1
    schema = {
        "amount": Parameter("number", min=1, max=10, required=True),
        "how": Parameter("string", enum=("fast", "慢")),
        "often": Parameter("integer"),
    }
    found = Charter(SkillRegistry([SkillDefinition("pay", output_schema=schema)]))
    agent = resident()
    assert found.check("pay", agent, {"amount": 2.5, "how": "慢", "often": 3})
    wrong = found.check("pay", agent, {"amount": 11, "how": "slow", "often": 1.5, "x": 1})
    assert [(reason.code, reason.clause, reason.message) for reason in wrong.reasons] == [
        ("parameter", "x", "Parameter 'x' is unknown (there are: amount, how, often)"),
        ("parameter", "amount", "Parameter 'amount' must be at most 10 (it is 11)"),
        ("parameter", "how", "Parameter 'how' must be one of 'fast', '慢' (it is 'slow')"),
        ("parameter", "often", "Parameter 'often' must be an integer (it is 1.5)"),
    ]
    assert [reason.message for reason in found.check("pay", agent).reasons] == [
        "Parameter 'amount' is missing"
    ]
    assert not found.check("pay", agent, {"amount": True})
    assert not found.check("pay", agent, {"amount": float("nan")})


def test_the_hash_is_that_of_everything_that_decides() -> None:
    plain = Charter(registry("a"))
    assert plain.digest == Charter(registry("a")).digest
    others = [
        Charter(registry("b")),
        Charter(registry("a", strict=True)),
        Charter(registry("a"), RoleEnforcer({"resident": Role(["*"])})),
    ]
    assert len({each.digest for each in [plain, *others]}) == 4


def test_cost_does_not_depend_on_how_many_skills_there_are() -> None:
    """Every instruction of a check is counted, in a charter of ten skills and in one of four hundred."""

    def instructions(skills: int) -> int:
        charter = Charter(
            SkillRegistry(SkillDefinition(f"s{n}", preconditions=["a > 1"]) for n in range(skills)),
            RoleEnforcer({"x": Role([f"s{n}" for n in range(skills)])}),
        )
        agent, count = Actor("1", "x", {"a": 2}), 0
        assert charter.check(f"s{skills - 1}", agent)

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal count
            frame.f_trace_opcodes = True
            count += event == "opcode"
            return trace

        sys.settrace(trace)
        try:
            charter.check(f"s{skills - 1}", agent)
        finally:
            sys.settrace(None)
        return count

    assert instructions(10) == instructions(400) > 20


def test_a_shared_state_that_is_none_is_empty() -> None:
    shared = SkillRegistry([SkillDefinition("act", preconditions=["world.x > 1"])])
    assert shared.check_preconditions("act", {"world": None}).reasons[0].code == "missing"


def test_no_parameters_are_none_whatever_the_schema() -> None:
    nothing: list[Any] = [None, {}, []]
    for schema in ({}, {"p": Parameter("number")}):
        charter = Charter(SkillRegistry([SkillDefinition("act", output_schema=schema)]))
        for parameters in nothing:
            assert charter.check("act", resident(), parameters).valid, (schema, parameters)


def test_numbers_of_numpy_are_numbers() -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed (the extra `governance`)")
    for cost in (np.float64(2.5), np.int64(3), np.float32(2.5)):
        found = Charter(SkillRegistry([SkillDefinition("act", institutional_constraints={"cost": cost})]))
        assert found.check("act", resident(budget=3))
        assert not found.check("act", resident(budget=2))
        assert Charter.from_json(json.loads(json.dumps(found.to_json()))).digest == found.digest


def test_importing_it_loads_no_numpy_and_vademecum_does_not_load_it() -> None:
    code = (
        "import sys, vademecum; assert not any('governance' in name for name in sys.modules);"
        "import vademecum.governance as g; assert all(getattr(g, name) for name in g.__all__);"
        "print([name for name in ('numpy', 'mesa', 'pandas', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
