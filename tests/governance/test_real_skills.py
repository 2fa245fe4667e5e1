"""One charter for simulated and for real skills: scripts in the sandbox, the agent loop, skill directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import final, run_script, select, tool
from tests.support import Place, index_of, write_skill
from tests.tools.support import Bench
from vademecum import Agent, Outcome
from vademecum.governance import (
    Actor,
    Broker,
    Charter,
    Engines,
    Functions,
    Intent,
    RoleEnforcer,
    Scripts,
    SkillRegistry,
)
from vademecum.governance.export import as_yaml, collect, spread
from vademecum.governance.loading import charter_of, lint_text
from vademecum.models.by_script import Scripted
from vademecum.policy.approval import Consent
from vademecum.runs.reading import read_run

CHARTER = """\
skills:
  - skill_id: rest
    eligible_agent_types: ["*"]
    implementation_mapping: rest
  - skill_id: survey
    eligible_agent_types: [clerk]
    preconditions: [trained]
    institutional_constraints: {cost: 3, cooldown: 2}
    allowed_state_changes: [surveyed]
    output_schema: {arguments: {type: list, max: 2}, depth: {type: integer, max: 9}}
    implementation_mapping: skill:tried/scripts/x.py
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "auto")


def broker(bench: Bench) -> Broker:
    linted = lint_text(CHARTER)
    assert linted.registry is not None
    scripts = Scripts(bench.tools, index_of(bench.place / "root").get)
    return Broker(linted.registry, None, Engines(Functions({"rest": lambda agent: "rested"}), scripts))


def clerk(**state: Any) -> Actor:
    return Actor("c1", "clerk", {"budget": 10, "trained": True, **state})


def test_a_script_through_the_tools_and_the_sandbox(bench: Bench) -> None:
    bench.script("""
        import json, sys
        print("said", sys.argv[1:])
        print(json.dumps({"state_changes": {"surveyed": 3}}))
    """)
    agent, found = clerk(), broker(bench)
    assert found.propose(agent, "rest").output == "rested"
    outcome = found.propose(agent, Intent("survey", {"arguments": ["north"], "depth": 4}))
    assert outcome.executed == "survey", outcome.reasons
    assert "said ['north', '--depth', '4']" in outcome.output
    assert agent.state == {"budget": 7, "trained": True, "surveyed": 3}
    (record,) = bench.records
    assert (record.tool, record.ok) == ("run_script", True)


def test_a_denied_script_does_not_run(bench: Bench) -> None:
    bench.script("open('ran', 'w')")
    found = broker(bench)
    for agent, parameters in ((clerk(trained=False), {}), (clerk(budget=1), {}), (clerk(), {"depth": 10})):
        assert found.propose(agent, Intent("survey", parameters)).executed is None
    assert bench.records == []


def test_what_a_script_changes_is_checked_and_what_fails_costs_nothing(bench: Bench) -> None:
    bench.script("""print('{"state_changes": {"budget": 1000}}')""")
    agent = clerk()
    outcome = broker(bench).propose(agent, "survey")
    assert [reason.code for reason in outcome.reasons] == ["state-change"]
    bench.script("import sys; sys.exit(3)")
    assert [reason.code for reason in broker(bench).propose(agent, "survey").reasons] == ["engine"]
    assert agent.state == {"budget": 10, "trained": True}


AGENT = """\
skills:
  - skill_id: survey
    eligible_agent_types: [clerk]
    institutional_constraints: {cost: 3, cooldown: 2}
    implementation_mapping: skill:mine/scripts/x.py
  - skill_id: look
    eligible_agent_types: ["*"]
    preconditions: [trained]
    output_schema: {path: {type: string, enum: [a.txt]}}
    implementation_mapping: tool:read_file
"""


def run(place: Place, *turns: Any, agent_type: str = "clerk", state: dict[str, Any]) -> Outcome:
    for name in ("mine", "other"):
        skill = write_skill(place.cwd, f".agent/skills/{name}")
        (skill / "scripts").mkdir(exist_ok=True)
        (skill / "scripts" / "x.py").write_text("print('ran')")
    (place.cwd / "a.txt").write_text("content")
    agent = Agent(
        model=Scripted([*turns, final()]),
        index=place.build(),
        approver=Consent(),
        context=place.context,
        charter=charter_of(AGENT),
        agent_type=agent_type,
        state=state,
    )
    return agent.run("do it")


def events(place: Place, outcome: Outcome, *types: str) -> list[dict[str, Any]]:
    past = read_run(place.cwd / ".agent" / "runs", outcome.run_id)
    return [event.data for event in past.events if event.type in types]


def test_the_agent_loop_asks_the_charter(place: Place) -> None:
    state = {"budget": 4, "trained": True}
    outcome = run(
        place,
        select("mine"),
        select("other"),
        run_script("mine", "x.py"),
        run_script("mine", "x.py"),
        tool("read_file", path="a.txt"),
        tool("read_file", path="b.txt"),
        tool("list_dir"),
        state=state,
    )
    lines = [data["line"].rpartition(": ")[2] for data in events(place, outcome, "observation")]
    assert lines == ["ok", "denied", "ok", "denied", "ok", "denied", "denied"]
    assert state == {"budget": 1, "trained": True}
    found = events(place, outcome, "outcome")
    codes = [[reason["code"] for reason in data.get("reasons", ())] for data in found]
    assert codes == [[], ["cost", "cooldown"], [], ["parameter"], ["not-found"]]
    asked = events(place, outcome, "charter_asked")
    assert [(data["skill"], data["allowed"]) for data in asked] == [("mine", True), ("other", False)]
    assert len(events(place, outcome, "tool_called")) == 2


def test_another_type_is_told_what_it_may_do(place: Place) -> None:
    outcome = run(place, select("mine"), agent_type="guest", state={"budget": 9, "trained": True})
    (seen,) = events(place, outcome, "observation")
    kept = (place.cwd / ".agent" / "runs" / outcome.run_id / seen["kept"]).read_text()
    assert "Agent type 'guest' not eligible for skill 'survey'" in kept
    assert "Possible now: look." in kept


def test_what_a_tool_could_not_do_costs_nothing(place: Place) -> None:
    state = {"budget": 9, "trained": True}
    outcome = run(
        place, tool("read_file", path="a.txt"), select("mine"), run_script("mine", "nope.py"), state=state
    )
    assert outcome.status == "refused"
    assert state["budget"] == 9


DEFINITION = """\
skill_id: survey
description: 测量
eligible_agent_types: [clerk]
preconditions: ["not 疲劳"]
institutional_constraints: {cost: 3}
implementation_mapping: skill:tried/scripts/x.py
"""


def test_skill_directories_to_a_charter_and_back(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        for name in ("tried", "plain", "wrong"):
            write_skill(root, name)
    (first / "tried" / "governance.yaml").write_text(DEFINITION, "utf-8")
    (first / "wrong" / "governance.yaml").write_text("skill_id: w\ncosts: 1\n", "utf-8")
    definitions, report = collect(index_of(first).skills)
    assert report.skills == ("survey",)
    assert report.left_out["plain"] == "it has no governance.yaml"
    assert "line 2: There is no key 'costs' here" in report.left_out["wrong"]
    text = as_yaml(Charter(SkillRegistry(definitions)).to_json())
    again = charter_of(text)
    assert [*again.skills.values()] == definitions
    functions = lint_text(CHARTER).registry
    assert functions is not None
    rest = functions.skills["rest"]
    both = Charter(SkillRegistry([*definitions, rest]))
    report = spread(both, {skill.name: skill for skill in index_of(second).skills})
    assert report.skills == ("survey",)
    assert "function" in report.left_out["rest"]
    assert collect(index_of(second).skills)[0] == definitions


def test_roles_and_numbers_survive_the_way(tmp_path: Path) -> None:
    whole = {
        "skills": [{"skill_id": "a", "eligible_agent_types": ["x"], "implementation_mapping": "f", "institutional_constraints": {"cost": 1.5, "limits": {"agent": 2}}, "output_schema": {"n": {"type": "number", "min": 0, "required": True}}}],
        "roles": {"x": {"skills": ["*"], "reads": ["*"], "writes": ["world.*"]}},
    }  # fmt: skip
    found = charter_of(json.dumps(whole))
    assert charter_of(as_yaml(found.to_json())).digest == found.digest
    assert isinstance(found.roles, RoleEnforcer)
