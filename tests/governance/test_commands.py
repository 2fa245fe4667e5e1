"""`vade govern` as a person uses it: lint, check, explain, simulate; exit codes and JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.governance.support import D1
from tests.governance.test_broker import VILLAGE
from tests.support import Place, Result
from vademecum.cli.main import run

TOP = Path(__file__).parents[2]
STATE = json.dumps({"budget": 10, "elevated": True})

# A simulation in a few lines, without any framework.
SIMULATION = """
import random
from vademecum.governance import Actor, Broker, Functions
from vademecum.simulation import Chart, Simulated, ask_model


def simulate(setting):
    def lift(agent):
        agent.state["elevated"] = True

    functions = {"rest": lambda agent: None, "lift": lift, "move": lambda agent: None, "premium": lambda agent, rate: None}
    charter, chance = setting.charter, random.Random(setting.seed)
    broker = Broker(charter.registry, charter.roles, Functions(functions), setting.policy, audit=setting.audit)
    agents = [Actor(f"h{n}", "household", {"budget": chance.randrange(200), "elevated": False}) for n in range(setting.agents)]
    denied = []
    for _ in range(setting.steps):
        outcomes = []
        for agent in agents:
            if setting.model is not None:
                outcomes.append(broker.negotiate(agent, ask_model(setting.model, broker, agent)))
            else:
                outcomes.append(broker.propose(agent, chance.choice(["elevate", "move", "rest", "fly"])))
        denied.append(float(sum(not outcome.approved for outcome in outcomes)))
        broker.advance()
        setting.progress()
    raised = sum(agent.state["elevated"] for agent in agents)
    return Simulated({"raised": raised, "denied": int(sum(denied))}, [Chart("Denials", "a step", {"denied": denied})])
"""


class Here:
    """The command in this process: starting forty of them would take longer than all they do."""

    def __init__(self, place: Place, capture: pytest.CaptureFixture[str]) -> None:
        self.cwd = place.cwd
        self._capture = capture

    def vade(self, *words: str) -> Result:
        self._capture.readouterr()
        code = run(words)
        return Result(code, *self._capture.readouterr())


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    monkeypatch.chdir(place.cwd)
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    return Here(place, capfd)


@pytest.fixture
def village(place: Here) -> Here:
    (place.cwd / "skill_registry.yaml").write_text(VILLAGE, "utf-8")
    (place.cwd / "town").mkdir()
    (place.cwd / "town" / "skill_registry.yaml").write_text(VILLAGE, "utf-8")
    (place.cwd / "town" / "simulation.py").write_text(SIMULATION, "utf-8")
    return place


def test_lint(place: Here) -> None:
    (place.cwd / "a.yaml").write_text(D1, "utf-8")
    (place.cwd / "b.yaml").write_text(D1.replace("cost: 50", "costs: 50"), "utf-8")
    good = place.vade("govern", "lint", "a.yaml")
    assert good.code == 0
    assert good.out.splitlines()[0].startswith("a.yaml:10: warning not-strict: strict: true could deny more")
    assert good.out.splitlines()[1:] == ["✓ a.yaml valid, 3 skills"]
    bad = place.vade("govern", "lint", "a.yaml", "b.yaml")
    assert bad.code == 1
    assert "b.yaml:12: error unknown-key: There is no key 'costs': did you mean 'cost'?" in bad.out
    found = place.vade("govern", "lint", "b.yaml", "--json")
    assert (found.code, found.json[0]["valid"], found.json[0]["problems"][1]["line"]) == (1, False, 12)
    assert place.vade("govern", "lint", "nope.yaml").code == 4
    both = place.vade("govern", "lint", "nope.yaml", "a.yaml")
    assert both.code == 4
    assert "nope.yaml: error no-charter: There is no charter at nope.yaml" in both.out
    assert "✓ a.yaml valid, 3 skills" in both.out
    told = place.vade("govern", "lint", "nope.yaml", "a.yaml", "--json").json
    assert [(each["valid"], each["skills"]) for each in told] == [(False, 0), (True, 3)]
    assert place.vade("govern", "check", "b.yaml", "relocate", "--type", "resident").code == 2


def test_check(village: Here) -> None:
    words = ("govern", "check", "skill_registry.yaml", "elevate", "--type", "household")
    denied = village.vade(*words, "--state", STATE)
    assert denied.code == 3
    assert denied.out == (
        "✗ elevate is denied for household\n"
        "  precondition: Precondition failed: 'not elevated' (field is True)\n"
        "  cost: Cost 50 exceeds 'budget' (10)\n"
        "  possible now: rest, move, claim\n"
    )
    (village.cwd / "state.json").write_text('{"budget": 60, "elevated": false}')
    assert village.vade(*words, "--state", "@state.json").out == "✓ elevate is allowed for household\n"
    late = village.vade(*words, "--state", "@state.json", "--step", "5", "--last", "elevate=4", "--json")
    assert (late.code, [reason["code"] for reason in late.json["reasons"]]) == (3, ["cooldown"])
    premium = ("govern", "check", "skill_registry.yaml", "set_premium", "--type", "insurer", "--param")
    assert [village.vade(*premium, rate).code for rate in ("rate=0.5", "rate=7", "rate=x")] == [0, 3, 3]
    deep = '{"a": ' * 30_000
    for wrong in (
        ("--state", "{"), ("--state", "[1]"), ("--param", "x"), ("--state", "@none.json"), ("--state", deep),
        ("--last", "elevate=abc"), ("--last", 'elevate={"x": 1}'), ("--last", "elevate=true"),
    ):  # fmt: skip
        assert village.vade(*words, *wrong).code == 2, wrong
    odd = village.vade(*words, "--state", '{"budget": NaN, "elevated": false}', "--json")
    assert json.loads(odd.out, parse_constant=pytest.fail)["reasons"][0]["observed"] is None
    assert village.vade(*words[:4]).code == 2


def test_explain_goes_through_the_gate(village: Here) -> None:
    words = ("govern", "explain", "skill_registry.yaml", "elevate", "--type", "household", "--state", STATE)
    found = village.vade(*words)
    assert found.code == 3
    assert re.findall(r"^  (\S) ([a-z ]+?)  ", found.out, re.MULTILINE) == [
        ("✓", "exists"), ("✓", "role"), ("✓", "type"), ("·", "parameters"), ("✗", "preconditions"), ("✗", "cost"),
        ("✓", "cooldown"), ("·", "may change"),
    ]  # fmt: skip
    assert "cost: Cost 50 exceeds 'budget' (10); required: 50" in found.out
    assert village.vade(*words, "--json").json["allowed"] is False
    unknown = village.vade("govern", "explain", "skill_registry.yaml", "fly", "--type", "household")
    assert (unknown.code, "Skill 'fly' not found in registry" in unknown.out) == (3, True)
    assert village.vade("govern", "explain", "skill_registry.yaml").code == 2


def simulate(place: Here, *words: str) -> Any:
    return place.vade("govern", "simulate", "town", "--agents", "20", "--steps", "6", *words)


def test_simulate_with_and_without(village: Here) -> None:
    found = simulate(village)
    assert found.code == 0, found.err
    assert found.err == ""
    head, columns, *_ = found.out.splitlines()
    assert head.startswith("20 agents, 6 steps, seed 1, charter sha256:")
    assert columns.split() == ["with", "the", "charter", "without"]
    page = (village.cwd / "town.html").read_text("utf-8")
    assert page.count("<svg") == 1
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script") == 1
    replayed = village.vade("runs", "replay")
    assert (replayed.code, "120 steps compared, none would differ now" in replayed.out) == (0, True)


def test_the_same_seed_gives_the_same_bytes(village: Here) -> None:
    def bytes_of(seed: str) -> tuple[bytes, bytes, str]:
        found = simulate(village, "--seed", seed, "--html", "page.html", "--json")
        record = village.cwd / ".agent" / "runs" / found.json["run_id"] / "events.jsonl"
        return (village.cwd / "page.html").read_bytes(), record.read_bytes(), json.dumps(found.json["runs"])

    one, again, other = bytes_of("7"), bytes_of("7"), bytes_of("8")
    assert one == again
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_a_denied_intent_of_a_run_is_explained(village: Here) -> None:
    run_id = simulate(village, "--json").json["run_id"]
    events = village.vade("runs", "show", run_id, "--json").json["events"]
    denied = next(
        event
        for event in events
        if event["type"] == "outcome" and any(r["code"] == "cooldown" for r in event.get("reasons", ()))
    )
    found = village.vade("govern", "explain", "skill_registry.yaml", "--event", str(denied["n"]))
    assert found.code == 3
    assert (
        f"event {denied['n']}: {denied['agent']} (household) wanted elevate at step {denied['step']}"
        in found.out
    )
    for reason in denied["reasons"]:
        assert reason["message"] in found.out
    wrong = village.vade("govern", "explain", "skill_registry.yaml", "--event", "1", "--run", run_id)
    assert (wrong.code, "the first denial is event" in wrong.err) == (4, True)


def test_a_model_decides_by_option(village: Here) -> None:
    tape = village.cwd / "script.json"
    tape.write_text(json.dumps([{"skill": "elevate"}, "nonsense"]))
    found = simulate(village, "--model", f"scripted:{tape}", "--json", "--no-record")
    assert found.code == 0, found.err
    assert found.json["run_id"] is None
    figures = found.json["runs"]["with the charter"]["figures"]
    assert figures["denied"] >= 119  # one good proposal, and then nonsense


def test_what_is_no_simulation(village: Here) -> None:
    (village.cwd / "empty").mkdir()
    assert village.vade("govern", "simulate", "empty").code == 4
    (village.cwd / "town" / "simulation.py").write_text("import nonexistent_package\n")
    found = simulate(village)
    assert (found.code, "pip install nonexistent_package" in found.err) == (2, True)
    for program, words in (
        ("def simulate(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("1 / 0", "ZeroDivisionError"),
        ("def simulate(setting): raise SystemExit(0)", "SystemExit"),
        ("def simulate(setting): return 1 / 0", "ZeroDivisionError"),
        ("def simulate(setting): return 5", "did not return a Simulated"),
    ):
        (village.cwd / "town" / "simulation.py").write_text(program)
        found = simulate(village)
        assert (found.code, words in found.err, "simulation.py" in found.err) == (2, True, True), found.err


def test_a_place_that_cannot_be_written_is_said_before_anything_is_done(village: Here) -> None:
    (village.cwd / "town" / "simulation.py").write_text("open('ran', 'w')\ndef simulate(setting): 1 / 0\n")
    found = simulate(village, "--report", "nowhere/page.html")
    assert (found.code, "cannot be written" in found.err) == (2, True)
    assert not (village.cwd / "ran").exists()
    assert simulate(village, "--report", "town").code == 2


def test_a_bar_on_a_terminal_for_what_takes_longer_than_a_second(village: Here) -> None:
    slow = SIMULATION.replace("setting.progress()", '__import__("time").sleep(0.3); setting.progress()')
    (village.cwd / "town/simulation.py").write_text(slow, "utf-8")
    code = "from vademecum.cli.main import main; main()"
    words = ("govern", "simulate", "town", "--agents", "10", "--steps", "3", "--no-record")
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=village.cwd,
        stderr=theirs,
        stdout=subprocess.PIPE,
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "simulating" in shown
    assert "100 % (6)" in shown
    assert b"simulating" not in done.stdout


def test_every_code_is_documented() -> None:
    """Each code of a problem or a reason is in `docs/governance.md`."""
    page = (TOP / "docs" / "governance.md").read_text("utf-8")
    source = "".join(path.read_text("utf-8") for path in (TOP / "src/vademecum/governance").glob("*.py"))
    used = set(
        re.findall(
            r'(?:wrong|Reason|note)\(\s*(?:key, |"[a-z_]+", )?"([a-z]+(?:-[a-z]+)*)", (?!code)', source
        )
    )
    used -= {"roles", "parameters"}
    assert len(used) > 15
    assert {code for code in used if f"`{code}`" not in page} == set()


def test_help_names_the_commands(place: Here) -> None:
    found = place.vade("govern")
    assert all(name in found.out for name in ("lint", "check", "explain", "simulate"))


FLOOD = TOP / "examples" / "flood"


def test_the_flood_charter_is_without_problems(place: Here) -> None:
    assert place.vade("govern", "lint", str(FLOOD), "--json").json[0] == {
        "path": str(FLOOD),
        "valid": True,
        "skills": 7,
        "problems": [],
    }
