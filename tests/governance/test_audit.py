"""Audit: one event an outcome, through the record; replay gives the same outcomes, or says which differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.governance.support import broker_of, charter
from tests.governance.test_broker import VILLAGE, Village
from vademecum.errors import RecordDamaged
from vademecum.governance import (
    Actor,
    Audit,
    Broker,
    BrokerPolicy,
    Charter,
    Functions,
    Intent,
    Ledger,
    Parameter,
    SkillDefinition,
    SkillRegistry,
    replay_outcomes,
)
from vademecum.governance.audit import DIGEST_CHARS, explain_event
from vademecum.masking import Secrets
from vademecum.runs.record import Record
from vademecum.runs.stored import PastRun, read_run, timeline


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
    assert [skill["skill_id"] for skill in holds["charter"]["skills"]] == list(stage.broker.charter.skills)
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
        "precondition", "cost", "cooldown", "parameter", "write-permission", "not-found", "state-change",
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
    file.write_text(file.read_text("utf-8").replace('"cost":50', '"cost":1', 1), "utf-8")
    found = replay_outcomes(read_run(stage.runs, "r1"))
    assert found.differences[0].what == "the charter"
    file.write_text('{"n":1,"time":0,"type":"outcome","step":1}\n')
    with pytest.raises(RecordDamaged):
        replay_outcomes(read_run(stage.runs, "r1"))


@pytest.mark.parametrize(
    ("old", "new", "then", "now"),
    [
        ('"approved":true', '"approved":false', "approved, approved False", "approved, approved True"),
        ('"executed":"elevate"', '"executed":"zzz"', "approved, executed zzz", "approved, executed elevate"),
        ('"budget":[500,450]', '"budget":[500,500]', "approved", "denied: state-change"),
        ('"budget":[500,450],', "", "approved", "denied: state-change"),
        ('"charged":"budget",', "", "approved, charged None", "approved, charged budget"),
        (
            '"elevated":[false,true]',
            '"elevated":[false,true],"place":[1,2]',
            "approved",
            "denied: state-change",
        ),
        (
            '"rolled_back":true',
            '"rolled_back":false',
            "denied: write-permission, rolled_back False",
            "denied: write-permission, rolled_back True",
        ),
        (
            '"executed":null,"last":0,"state":{"elevated":true',
            '"executed":"elevate","last":0,"state":{"elevated":true',
            "denied: precondition, cooldown, executed elevate",
            "denied: precondition, cooldown, executed None",
        ),
    ],
)
def test_replay_notices_each_thing_that_was_changed(
    tmp_path: Path, old: str, new: str, then: str, now: str
) -> None:
    stage = Stage(tmp_path)
    busy(stage)
    file = stage.runs / "r1" / "events.jsonl"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    first = replay_outcomes(read_run(stage.runs, "r1")).differences[0]
    assert (first.then, first.now) == (then, now)


VALUES = {
    "nan": float("nan"),
    "inf": float("inf"),
    "keys": {"a": 3},
    "one": {"$float": "1"},
    "large": 2**70,
    "huge": 10**5000,
    "list": [1, "a"],
    "half": "\ud800",
    "nothing": None,
    "empty": {"$dict": {}},
}
CONDITIONS = [
    "not (nan > 5)", "inf > 5", "keys.a == 3", "has(one)", "large > 1", "huge > large", "list == [1, 'a']",
    "half != ''", "nothing != 3", "not absent", "empty", "not keys.b", "not large.x",
]  # fmt: skip


def recorded(
    place: Path, *definitions: SkillDefinition, engine: Any = None, **more: Any
) -> tuple[Broker, Path]:
    runs = place / "runs"
    (runs / "r1").mkdir(parents=True)
    secrets = Secrets(more.pop("env", {}))
    record = Record(runs / "r1", secrets=secrets, clock=lambda: 0.0)
    functions = Functions({"act": engine or (lambda agent, **said: None)})
    return Broker(
        SkillRegistry(definitions), None, functions, audit=Audit(record, secrets=secrets), **more
    ), runs


def again(broker: Broker, runs: Path) -> tuple[int, list[tuple[str, str]]]:
    broker.advance()
    found = replay_outcomes(read_run(runs, "r1"))
    return found.compared, [(difference.then, difference.now) for difference in found.differences]


def test_whatever_a_state_holds_is_on_record_and_decides_again_as_it_did(tmp_path: Path) -> None:
    def turn(agent: Actor) -> None:
        agent.state["seen"] = dict(VALUES)
        agent.state["more"] = [{"a": {}}]

    both = [
        SkillDefinition("act", "", ["*"], CONDITIONS, {}, ["*"], "act"),
        SkillDefinition("not", "", ["*"], ["nan > 5", "list == 1", "huge < 3"], {}, [], "act"),
    ]
    broker, runs = recorded(tmp_path, *both, engine=turn)
    agent = Actor(5, "t", dict(VALUES))  # type: ignore[arg-type] # as Mesa numbers its agents
    outcome = broker.propose(agent, "act")
    assert outcome.executed == "act", outcome.reasons
    assert broker.propose(agent, "not").executed is None
    assert again(broker, runs) == (2, [])


def test_a_state_that_is_refused_is_on_record(tmp_path: Path) -> None:
    definition = SkillDefinition("act", "", ["*"], ["has(w)"], {"cost": 1}, ["*"], "act")
    broker, runs = recorded(tmp_path, definition, engine=lambda agent: agent.state.update(w={1}))
    assert broker.propose(Actor("x", "t", {"w": 1, "budget": 2}), "act").reasons[0].code == "state"
    assert broker.propose(Actor("x", "t", {"w": {1}, "budget": 2}), "act").reasons[0].code == "state"
    assert again(broker, runs) == (2, [])


def test_what_was_done_before_a_record_begins_is_in_it(tmp_path: Path) -> None:
    cooling = SkillDefinition("act", "", ["*"], [], {"cooldown": 5}, [], "act")
    ledger = Ledger()
    ledger.add("act", agent_id="x", step=0)
    broker, runs = recorded(tmp_path, cooling, ledger=ledger)
    assert [reason.code for reason in broker.propose(Actor("x", "t"), "act").reasons] == ["cooldown"]
    elsewhere = Broker(SkillRegistry([cooling]), None, Functions({"act": lambda agent: None}), ledger=ledger)
    assert elsewhere.propose(Actor("y", "t"), "act").executed
    assert [reason.code for reason in broker.propose(Actor("y", "t"), "act").reasons] == ["cooldown"]
    assert again(broker, runs) == (2, [])


def test_a_skill_registered_meanwhile_is_on_record(tmp_path: Path) -> None:
    broker, runs = recorded(tmp_path, SkillDefinition("act", implementation_mapping="act"))
    assert broker.propose(Actor("x", "t"), "nap").reasons[0].code == "not-found"
    broker.charter.registry.register(SkillDefinition("nap", implementation_mapping="act"))
    assert broker.propose(Actor("x", "t"), "nap").executed
    assert again(broker, runs) == (2, [])


def test_another_cost_is_no_change_by_the_engine(tmp_path: Path) -> None:
    """What was paid then was not written by the engine, whatever another charter would charge."""
    priced = {cost: SkillDefinition("act", "", ["*"], [], {"cost": cost}, [], "act") for cost in (5, 2, 20)}
    broker, runs = recorded(tmp_path, priced[5])
    assert broker.propose(Actor("x", "t", {"budget": 10}), "act").executed
    assert again(broker, runs) == (1, [])
    run = read_run(runs, "r1")
    cheap, dear = (replay_outcomes(run, charter=Charter(SkillRegistry([priced[cost]]))) for cost in (2, 20))
    assert cheap.differences == ()
    assert [found.now for found in dear.differences] == ["denied: cost"]


def test_another_charter_allows_what_could_not_be_paid(tmp_path: Path) -> None:
    broker, runs = recorded(tmp_path, SkillDefinition("act", "", ["*"], [], {"cost": 5}, [], "act"))
    assert not broker.propose(Actor("x", "t"), "act").executed
    broker.advance()
    free = Charter(SkillRegistry([SkillDefinition("act", implementation_mapping="act")]))
    (found,) = replay_outcomes(read_run(runs, "r1"), charter=free).differences
    assert (found.then, found.now) == ("denied: missing", "approved")


@pytest.mark.parametrize("strict", [False, True])
def test_how_a_charter_was_read_is_on_record(strict: bool) -> None:
    written = Charter(SkillRegistry(strict=strict)).to_json()
    assert Charter.from_json(written).registry.strict is strict


@pytest.mark.parametrize(
    "definition",
    [
        SkillDefinition("act"),
        SkillDefinition("act", "a\x85b \x7f \u2028 😀", implementation_mapping="act"),
        SkillDefinition("act", "", ["*"], ["not (x > 1e17)"], implementation_mapping="act"),
        SkillDefinition("act", "", ["*"], ["city == 'supersecretvalue123'"], {}, [], "act"),
        SkillDefinition("act", 'password=abcdefghi" quoted \\', ["*"], [], {"cost": 2**70}, [], "act"),
    ],
)
def test_every_charter_that_ran_can_be_replayed(tmp_path: Path, definition: SkillDefinition) -> None:
    env = {"API_KEY": "supersecretvalue123"}
    broker, runs = recorded(tmp_path, definition, env=env)
    broker.propose(Actor("x", "t", {"x": 1, "city": "supersecretvalue123", "budget": 2**71}), "act")
    assert again(broker, runs) == (1, [])
    assert b"supersecretvalue123" not in b"".join(path.read_bytes() for path in runs.rglob("*.*"))


def test_an_interruption_is_on_record_before_it_goes_on(tmp_path: Path) -> None:
    def stop(agent: Actor) -> None:
        raise KeyboardInterrupt

    broker, runs = recorded(tmp_path, SkillDefinition("act", implementation_mapping="act"), engine=stop)
    with pytest.raises(KeyboardInterrupt):
        broker.propose(Actor("x", "t"), "act")
    (event,) = [event.data for event in read_run(runs, "r1").events if event.type == "outcome"]
    assert (event["approved"], event["executed"], event["rolled_back"]) == (True, None, True)
    assert [reason["code"] for reason in event["reasons"]] == ["interrupted"]
    assert again(broker, runs) == (1, [])
    assert not broker.ledger.busy


def test_reasons_are_what_was_seen_whatever_changes_later(tmp_path: Path) -> None:
    definition = SkillDefinition(
        "act", "", ["*"], ["3 in zones", "has(home.key)"], {}, [], "act", {"n": Parameter("integer", max=10)}
    )
    said, state = {"n": 11}, {"zones": [1], "home": {}}
    result = Charter(SkillRegistry([definition])).check("act", Actor("x", "t", state), said)
    said["n"] = 1
    state["zones"].append(3)  # type: ignore[attr-defined]
    state["home"]["key"] = 1  # type: ignore[index]
    assert [reason.message for reason in result.reasons] == [
        "Parameter 'n' must be at most 10 (it is 11)",
        "Precondition failed: '3 in zones' (zones is [1])",
        "Precondition failed: 'has(home.key)' (home.key is missing)",
    ]
    broker, runs = recorded(
        tmp_path,
        SkillDefinition("act", "", ["*"], ["not (3 in zones)"], {}, ["zones"], "act"),
        engine=lambda agent: agent.state["zones"].append(3),
    )
    assert broker.propose(Actor("x", "t", {"zones": [1]}), "act").executed
    assert again(broker, runs) == (1, [])


def test_explaining_says_that_another_charter_decided_and_that_a_shadow_undoes_nothing(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, BrokerPolicy(shadow=True))
    stage.cheating = True
    stage.broker.propose(household(), "elevate")
    run = stage.past()
    (number,) = [event.number for event in run.events if event.type == "outcome"]
    stages, _ = explain_event(stage.broker.charter, run, number)
    assert stages[0].name == "exists"
    assert "not rolled back" in stages[-1].text
    other = charter(VILLAGE.replace("cost: 50", "cost: 5000"), tmp_path)
    stages, _ = explain_event(other, run, number)
    assert (stages[0].name, stages[0].holds) == ("charter", None)
    assert other.digest[:DIGEST_CHARS] in stages[0].text
    assert stage.broker.charter.digest[:DIGEST_CHARS] in stages[0].text


def test_secrets_do_not_get_into_the_record(tmp_path: Path) -> None:
    stage = Stage(tmp_path, env={"MY_API_KEY": "correct-horse"})
    agent = household("correct-horse-1", budget="correct-horse")
    stage.broker.propose(agent, "elevate")
    stage.broker.propose(agent, Intent("set_premium", {"token": "correct-horse"}))
    stage.past()
    assert "correct-horse" not in (stage.runs / "r1" / "events.jsonl").read_text()


def test_the_timeline_tells_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.broker.propose(household(), "elevate")
    stage.broker.propose(household("h2", budget=3), "elevate")
    assert [(entry.mark, entry.title) for entry in timeline(stage.past())][1:] == [
        ("ok", "step 0: h1 (household) did elevate"),
        ("refused", "step 0: h2 (household) was denied: elevate"),
    ]
