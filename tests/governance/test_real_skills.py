"""A charter as the guard of an agent: the agent loop, its skills, scripts and tools."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import final, run_script, select, tool
from tests.support import Place, write_skill
from vademecum import Agent, Outcome
from vademecum.errors import Denied
from vademecum.governance import (
    Charter,
    Parameter,
    SkillDefinition,
    SkillRegistry,
    replay_outcomes,
)
from vademecum.governance.charter import lint_text
from vademecum.governance.guard import CharterGuard
from vademecum.masking import Secrets
from vademecum.models.scripted_model import Scripted
from vademecum.policy.approval import Consent
from vademecum.runs.record import Record
from vademecum.runs.stored import read_run
from vademecum.session.base import Kind, Result

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
        guard=charter_of(AGENT).guard(agent_type, state),
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
    called = [data["tool"] for data in events(place, outcome, "tool_called")]
    assert called == ["skill", "run_script", "read_file"]  # the skill that was refused, and what was done


def charter_of(text: str) -> Charter:
    linted = lint_text(text)
    assert linted.registry is not None, linted.problems
    return Charter(linted.registry, linted.roles)


class Guarded:
    """A guard at work in one run."""

    def __init__(self, guard: CharterGuard, place: Path) -> None:
        run = place / f"r{len(list(place.iterdir()))}"
        run.mkdir()
        self.guard = guard
        self._record = Record(run, secrets=Secrets({}), clock=lambda: 0.0)

    def act(self, kind: Kind, name: str, said: dict[str, Any], do: Any) -> Any:
        return self.guard.act(kind, name, said, do, record=self._record)


def chartered(
    *definitions: SkillDefinition, place: Path, state: dict[str, Any] | None = None, agent_type: str = "clerk"
) -> tuple[Guarded, CharterGuard]:
    guard = Charter(SkillRegistry(definitions)).guard(agent_type, state, name="me")
    return Guarded(guard, place), guard


def tried(found: Guarded, kind: Kind, name: str, do: Any = lambda: "done", **said: Any) -> Any:
    try:
        return found.act(kind, name, said, do)
    except Denied as error:
        return str(error).splitlines()[1]


def tool_of(name: str, tool: str = "write_file", **keys: Any) -> SkillDefinition:
    return SkillDefinition(name, **{"implementation_mapping": f"tool:{tool}", **keys})


def test_what_is_said_to_a_tool_must_be_listed(tmp_path: Path) -> None:
    limit = {"limit": Parameter("integer", max=5)}
    script = SkillDefinition("sum", implementation_mapping="skill:s/scripts/x.py", output_schema=limit)
    listed = {"arguments": Parameter("list"), "network": Parameter("boolean")}
    other = SkillDefinition("all", implementation_mapping="skill:s/scripts/y.py", output_schema=listed)
    found, _ = chartered(script, other, tool_of("plain"), place=tmp_path)
    x, y = "s/scripts/x.py", "s/scripts/y.py"
    assert "'arguments' is unknown" in tried(found, "script", x, arguments=["--limit", "9999"])
    assert "'files' is unknown" in tried(found, "script", x, files=["secret"])
    assert "'network' is unknown" in tried(found, "script", x, network=True)
    assert tried(found, "script", x) == "done"
    assert tried(found, "script", y, arguments=["a"], network=True) == "done"
    assert "'files' is unknown" in tried(found, "script", y, arguments=["a"], files=["b"])
    assert "'path' is unknown (there are: none)" in tried(found, "tool", "write_file", path="/etc/x")
    assert tried(found, "tool", "write_file") == "done"


def test_only_what_was_done_takes_time(tmp_path: Path) -> None:
    cooling = tool_of("write", institutional_constraints={"cooldown": 2})
    found, past = chartered(cooling, tool_of("read", "read_file"), place=tmp_path)
    assert tried(found, "tool", "write_file") == "done"
    for _ in range(3):
        tried(found, "tool", "nonsense")
        assert "Cooldown of 2 not over" in tried(found, "tool", "write_file")
    assert past.steps == 1
    assert tried(found, "tool", "read_file") == "done"
    assert tried(found, "tool", "write_file") == "done"


def test_what_was_begun_counts_whatever_came_of_it(tmp_path: Path) -> None:
    keys = {"cost": 5, "cooldown": 99}
    found, past = chartered(
        tool_of("run", "run", institutional_constraints=keys), place=tmp_path, state={"budget": 10}
    )
    refused = Result("no such file", "missing")
    assert tried(found, "tool", "run", lambda: refused) is refused
    assert (past.agent.state, past.steps, past.ledger.agents) == ({"budget": 10}, 0, {})
    half = Result("did half", "stopped-time")
    assert tried(found, "tool", "run", lambda: half) is half
    assert (past.agent.state, past.steps) == ({"budget": 5}, 1)
    assert "Cooldown" in tried(found, "tool", "run")


def test_one_definition_that_allows_it_is_enough(tmp_path: Path) -> None:
    strict = tool_of("strict", preconditions=["ok"], institutional_constraints={"cost": 5})
    lax = tool_of("lax", institutional_constraints={"cost": 1})
    other = tool_of("other", eligible_agent_types=["government"])
    for definitions in ((strict, lax, other), (other, lax, strict)):
        found, past = chartered(*definitions, place=tmp_path, state={"ok": False, "budget": 1})
        assert tried(found, "tool", "write_file") == "done"
        assert past.agent.state["budget"] == 0
        # Nothing allows it any more: the reasons are those of the first that is for this agent.
        first = next(each for each in definitions if each is not other)
        assert tried(found, "tool", "write_file").startswith(
            "- Precondition" if first is strict else "- Cost 1 exceeds"
        )


def test_an_id_alone_allows_no_tool(tmp_path: Path) -> None:
    elsewhere = SkillDefinition("write_file", implementation_mapping="skill:notes/scripts/n.py")
    odd = SkillDefinition("tool:write_file", implementation_mapping="rest")
    found, _ = chartered(elsewhere, odd, place=tmp_path)
    assert "not found in registry" in tried(found, "tool", "write_file")
    assert "not found in registry" in tried(found, "skill", "write_file")
    assert tried(found, "skill", "notes") == "done"
    assert replay_outcomes(read_run(tmp_path, "r0")).differences == ()


def test_a_run_and_its_children_share_cooldowns(tmp_path: Path) -> None:
    seldom = tool_of("seldom", "list_dir", institutional_constraints={"cooldown": 3})
    found, past = chartered(tool_of("read", "read_file"), seldom, place=tmp_path)
    child = Guarded(past, tmp_path)
    assert tried(found, "tool", "list_dir") == "done"  # step 0
    assert "Cooldown of 3 not over: used at step 0" in tried(child, "tool", "list_dir")
    assert [tried(child, "tool", "read_file") for _ in range(2)] == ["done", "done"]  # steps 1 and 2
    assert tried(child, "tool", "list_dir") == "done"
    for name in ("r0", "r1"):
        assert replay_outcomes(read_run(tmp_path, name)).differences == (), name


def test_runs_side_by_side_keep_to_one_cooldown(tmp_path: Path) -> None:
    keys = {"cost": 1, "cooldown": 99}
    pay = tool_of("pay", "pay", institutional_constraints=keys)
    found, past = chartered(pay, place=tmp_path, state={"budget": 10})
    runs = [found, *(Guarded(past, tmp_path) for _ in range(3))]
    ready, done = threading.Barrier(len(runs)), []

    def act(run: Guarded) -> None:
        ready.wait()
        done.append(tried(run, "tool", "pay", lambda: time.sleep(0.01)))

    threads = [threading.Thread(target=act, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (past.agent.state["budget"], done.count(None)) == (9, 1)
    for name in ("r0", "r1", "r2", "r3"):
        assert replay_outcomes(read_run(tmp_path, name)).differences == (), name


@pytest.mark.parametrize("answer", ["done", "declined"])
def test_waiting_for_an_answer_does_not_hold_up_others(tmp_path: Path, answer: str) -> None:
    """While one act waits for a person, another is decided, with the cost of the first already paid."""
    keys = {"cost": 4, "cooldown": 2}
    ask, other = tool_of("ask", "ask", institutional_constraints=keys), tool_of("read", "read_file")
    found, past = chartered(ask, other, place=tmp_path, state={"budget": 10})
    child, asked, answered = Guarded(past, tmp_path), threading.Event(), threading.Event()
    result = Result("declined", "declined") if answer == "declined" else Result("done")
    came: list[Any] = []

    def wait() -> Result:
        asked.set()
        assert answered.wait(20)
        return result

    waiting = threading.Thread(target=lambda: came.append(tried(found, "tool", "ask", wait)))
    waiting.start()
    assert asked.wait(20)
    during = [tried(run, "tool", name) for run in (child, found) for name in ("read_file", "ask")]
    assert past.agent.state == {"budget": 2}
    answered.set()
    waiting.join(20)
    assert came == [result]
    assert during[0] == during[2] == "done"
    assert "Cooldown of 2 not over" in during[1]
    assert during[3] == "done"  # two steps later
    assert past.agent.state == {"budget": 2 if answer == "done" else 6}
    assert past.steps == (4 if answer == "done" else 3)
    assert tried(found, "tool", "read_file") == "done"
    for name in ("r0", "r1"):
        assert replay_outcomes(read_run(tmp_path, name)).differences == (), name


def test_an_act_inside_an_act_is_decided_by_itself(tmp_path: Path) -> None:
    outer = tool_of("outer", "outer", institutional_constraints={"cooldown": 5})
    found, past = chartered(outer, tool_of("inner", "inner"), place=tmp_path)
    child = Guarded(past, tmp_path)

    def nested() -> list[Any]:
        return [tried(child, "tool", name) for name in ("inner", "outer")]

    done, denied = found.act("tool", "outer", {}, nested)
    assert (done, "Cooldown of 5" in denied) == ("done", True)


def test_an_act_that_raises_is_given_back(tmp_path: Path) -> None:
    pay = tool_of("pay", "pay", institutional_constraints={"cost": 4, "cooldown": 9})
    found, past = chartered(pay, place=tmp_path, state={"budget": 10})

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found.act("tool", "pay", {}, stop)
    assert (past.agent.state, past.ledger.agents, past.steps) == ({"budget": 10}, {}, 0)
    assert tried(found, "tool", "pay") == "done"
    assert replay_outcomes(read_run(tmp_path, "r0")).differences == ()


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
    assert outcome.status == "done"
    assert state["budget"] == 9


def test_texts_are_texts_however_they_are_written() -> None:
    text = "skills:\n  - {skill_id: 08, eligible_agent_types: [1e3, True, 8], implementation_mapping: f}\n"
    found = lint_text(text).registry
    assert found is not None
    (skill,) = found.skills.values()
    assert (skill.skill_id, skill.eligible_agent_types) == ("08", ("1e3", "True", "8"))
