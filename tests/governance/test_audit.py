"""Audit: one event an outcome, through the record; replay gives the same outcomes, or says which differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.governance.support import broker_of, charter
from tests.governance.test_broker import VILLAGE, Village
from vademecum.errors import RecordDamaged
from vademecum.governance import Actor, Audit, Broker, BrokerPolicy, Intent, replay_outcomes
from vademecum.governance.audit import DIGEST_CHARS
from vademecum.masking import Secrets
from vademecum.runs.reading import PastRun, read_run
from vademecum.runs.record import Record
from vademecum.runs.timeline import timeline


class Stage:
    """A village whose outcomes are on record."""

    def __init__(
        self, place: Path, policy: BrokerPolicy | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.runs = place / ".agent" / "runs"
        (self.runs / "r1").mkdir(parents=True)
        secrets = Secrets(env or {})
        self.record = Record(self.runs / "r1", secrets=secrets, clock=lambda: 0.0)
        self.village = Village()
        functions = {name: getattr(self.village, name) for name in ("rest", "lift", "premium", "move")}
        functions["lift"] = self.lift
        self.cheating = False
        audit = Audit(self.record, secrets=secrets)
        self.broker: Broker = broker_of(VILLAGE, functions, policy, world=self.village.world, audit=audit)

    def lift(self, agent: Actor) -> None:
        agent.state["elevated"] = True
        if self.cheating:
            agent.state["budget"] = 10**6

    def past(self) -> PastRun:
        self.broker.advance()
        return read_run(self.runs, "r1")


def household(name: str = "h1", **state: Any) -> Actor:
    return Actor(name, "household", {"budget": 120, "elevated": False, **state})


def test_one_event_an_outcome(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.broker.propose(household(), "elevate")
    stage.broker.propose(household("h2", budget=3), "elevate")
    holds, *outcomes = [event.data for event in stage.past().events]
    digest = stage.broker.charter.digest
    assert holds["digest"] == digest
    kept = json.loads((stage.runs / "r1" / holds["kept"]).read_text("utf-8"))
    assert [skill["skill_id"] for skill in kept["skills"]] == list(stage.broker.charter.skills)
    assert outcomes == [
        {
            "charter": digest[:DIGEST_CHARS],
            "step": 0,
            "agent": "h1",
            "agent_type": "household",
            "proposed": "elevate",
            "approved": True,
            "executed": "elevate",
            "charged": "budget",
            "state": {"elevated": False, "budget": 120},
            "changes": {"budget": [120, 70], "elevated": [False, True]},
        },
        {
            "charter": digest[:DIGEST_CHARS],
            "step": 0,
            "agent": "h2",
            "agent_type": "household",
            "proposed": "elevate",
            "approved": False,
            "executed": None,
            "state": {"elevated": False, "budget": 3},
            "reasons": [
                {
                    "code": "cost",
                    "clause": "cost",
                    "observed": 3,
                    "required": 50,
                    "message": "Cost 50 exceeds 'budget' (3)",
                }
            ],
        },
    ]


def busy(stage: Stage) -> PastRun:
    """Several steps with everything that can come of an intent."""
    broker = stage.broker
    one, two, three = household("h1", budget=500), household("h2", budget=10), household("h3")
    for step in range(6):
        stage.cheating = step == 3
        for agent in (one, two, three):
            agent.state["elevated"] = False
            broker.propose(agent, ("elevate", "move", "claim")[step % 3])
            broker.propose(agent, "elevate")
        broker.propose(Actor("i", "insurer"), Intent("set_premium", {"rate": step / 4}))
        broker.propose(Actor("g", "government"), Intent("set_premium", {"rate": 0.3}))
        broker.propose(one, "fly")
        two.state["budget"] += 30
        broker.advance()
    return stage.past()


def test_replay_gives_the_same_outcomes(tmp_path: Path) -> None:
    run = busy(Stage(tmp_path))
    codes = {reason["code"] for event in run.events for reason in event.data.get("reasons", ())}
    assert codes == {
        "precondition", "cost", "cooldown", "conflict", "dependency", "parameter", "write-permission", "not-found", "state-change",
    }  # fmt: skip
    again = replay_outcomes(run)
    assert (again.compared, again.differences) == (54, ())


def test_replay_in_shadow_mode(tmp_path: Path) -> None:
    run = busy(Stage(tmp_path, BrokerPolicy(shadow=True)))
    assert all(event.data["shadow"] for event in run.events if event.type == "outcome")
    assert replay_outcomes(run).differences == ()


def test_replay_says_what_another_charter_would_change(tmp_path: Path) -> None:
    run = busy(Stage(tmp_path))
    other = charter(VILLAGE.replace("cost: 50", "cost: 5000"), tmp_path)
    first = replay_outcomes(run, charter=other).differences[0]
    assert (first.then, first.now) == ("approved", "denied: cost")
    assert first.what == "h1 proposes elevate at step 0"


def test_replay_notices_what_was_tampered_with(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    busy(stage)
    file = stage.runs / "r1" / "events.jsonl"
    text = file.read_text("utf-8").replace('"state":{"elevated":false,"budget":500}', '"state":{"elevated":false,"budget":5}', 1)  # fmt: skip
    file.write_text(text, "utf-8")
    assert [d.now for d in replay_outcomes(read_run(stage.runs, "r1")).differences][:1] == ["denied: cost"]
    (kept,) = (stage.runs / "r1" / "observations").iterdir()
    kept.write_text(kept.read_text("utf-8").replace('"cost": 50', '"cost": 1'), "utf-8")
    found = replay_outcomes(read_run(stage.runs, "r1"))
    assert found.differences[0].what == "the charter"
    file.write_text('{"n":1,"time":0,"type":"outcome","step":1}\n')
    with pytest.raises(RecordDamaged):
        replay_outcomes(read_run(stage.runs, "r1"))


def test_secrets_do_not_get_into_the_record(tmp_path: Path) -> None:
    stage = Stage(tmp_path, env={"MY_API_KEY": "correct-horse"})
    agent = household("correct-horse-1", budget="correct-horse")
    stage.broker.propose(agent, "elevate")
    stage.broker.propose(agent, Intent("set_premium", {"token": "correct-horse"}))
    stage.past()
    assert "correct-horse" not in (stage.runs / "r1" / "events.jsonl").read_text()


def test_a_reloaded_charter_is_on_record_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.broker.propose(household(), "elevate")
    other = charter(VILLAGE.replace("cost: 50", "cost: 70"), tmp_path)
    stage.broker.adopt(other)
    stage.broker.advance()
    stage.broker.propose(household("h2"), "elevate")
    run = stage.past()
    assert [event.type for event in run.events] == ["charter", "outcome", "charter", "outcome"]
    assert run.events[-1].data["charter"] == other.digest[:DIGEST_CHARS]
    again = replay_outcomes(run)
    assert (again.compared, again.differences) == (2, ())
    # By the first charter alone the second outcome would be another.
    first = charter(VILLAGE, tmp_path)
    other = [difference.now for difference in replay_outcomes(run, charter=first).differences]
    assert other == ["denied: state-change"]  # what was taken is not what it would have taken


def test_the_timeline_tells_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.broker.propose(household(), "elevate")
    stage.broker.propose(household("h2", budget=3), "elevate")
    assert [(entry.mark, entry.title) for entry in timeline(stage.past())][1:] == [
        ("ok", "step 0: h1 (household) did elevate"),
        ("refused", "step 0: h2 (household) was denied: elevate"),
    ]
