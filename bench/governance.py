"""A charter's checks: `python -m bench.governance [--peers PYTHON]`. The baseline is a plain loop."""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import best, in_process, print_table
from vademecum.governance import (
    Actor,
    Audit,
    Charter,
    Ledger,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
    ValidationResult,
    load_charter,
)
from vademecum.masking import Secrets
from vademecum.runs.record import Record
from vademecum.simulation import Setting, load_simulation

AGENTS = 1000
ROUNDS = 100_000
STEP = 10
POPULATION = 1_000_000
FLOOD = Path(__file__).parents[1] / "examples" / "flood"
CONDITIONS = ["is_owner", "not elevated", "income > 20000", "flood_depth >= 0.3"]


def definition(name: str) -> SkillDefinition:
    """A rule of eligibility, four conditions, a cost and a cooldown."""
    return SkillDefinition(
        name, "", ["household"], CONDITIONS, {"cost": 500, "cooldown": 3}, ["elevated"], "lift"
    )


def charter(skills: int) -> Charter:
    roles = {"household": Role(["*"], ["*"], ["*"]), "government": Role(["*"], ["*"], ["*"])}
    return Charter(SkillRegistry(definition(f"skill-{n}") for n in range(skills)), RoleEnforcer(roles))


def people() -> tuple[list[Actor], Ledger]:
    """Agents of whom about a half may act; the others fail at one clause or at several."""
    chance, ledger, found = random.Random(1), Ledger(), []
    for number in range(AGENTS):
        state = {
            "is_owner": chance.random() < 0.95,
            "elevated": chance.random() < 0.1,
            "income": chance.uniform(15_000, 80_000),
            "flood_depth": chance.uniform(0.2, 2.0),
            "budget": chance.uniform(300, 5000),
        }
        kind = "household" if chance.random() < 0.95 else "government"
        found.append(Actor(f"h{number}", kind, state))
        ledger.add("skill-0", agent_id=f"h{number}", step=chance.choice([-20, 2, 5, 9]))
    return found, ledger


def asked(found: Charter, name: str, ledger: Ledger) -> Callable[[Actor], ValidationResult]:
    return lambda agent: found.check(name, agent, step=STEP, ledger=ledger)


def rate(run: Callable[[Actor], object], agents: list[Actor], rounds: int = ROUNDS) -> float:
    turns = rounds // len(agents)

    def all_of_them() -> None:
        for _ in range(turns):
            for agent in agents:
                run(agent)

    return turns * len(agents) / best(all_of_them, 7)


def plain(ledger: Ledger) -> Callable[[Actor], tuple[bool, list[str]]]:
    """As one would write it after the design: a dictionary of definitions, a loop over texts."""
    skills = {"skill-0": definition("skill-0")}

    def check(agent: Actor) -> tuple[bool, list[str]]:
        skill, reasons = skills["skill-0"], []
        if "*" not in skill.eligible_agent_types and agent.type not in skill.eligible_agent_types:
            reasons.append(f"Agent type '{agent.type}' not eligible for skill '{skill.skill_id}'")
        for condition in skill.preconditions:
            words = condition.split()
            if words[0] == "not":
                holds = not agent.state.get(words[1], False)
            elif len(words) == 3:
                value, limit = agent.state.get(words[0], 0), float(words[2])
                holds = value > limit if words[1] == ">" else value >= limit
            else:
                holds = bool(agent.state.get(words[0], False))
            if not holds:
                reasons.append(f"Precondition failed: '{condition}'")
        if agent.state.get("budget", 0) < skill.institutional_constraints["cost"]:
            reasons.append("Cost exceeds budget")
        last = ledger.agents[agent.id].get(skill.skill_id)
        if last is not None and STEP - last < skill.institutional_constraints["cooldown"]:
            reasons.append("Cooldown not over")
        return not reasons, reasons

    return check


# The same rule in the languages of other engines, decided for the same agents; they give no reasons.
CASBIN = """
import json, sys, tempfile, time
import casbin
agents = json.load(open(sys.argv[1]))
place = tempfile.mkdtemp()
open(place + "/model.conf", "w").write(
    "[request_definition]\\nr = sub, obj\\n[policy_definition]\\np = type, obj\\n[policy_effect]\\n"
    "e = some(where (p.eft == allow))\\n[matchers]\\n"
    "m = r.obj == p.obj && r.sub.type == p.type && r.sub.is_owner && !r.sub.elevated && r.sub.income > 20000 "
    "&& r.sub.flood_depth >= 0.3 && r.sub.budget >= 500 && r.sub.waited >= 3\\n"
)
open(place + "/policy.csv", "w").write("p, household, skill-0\\n")
enforcer = casbin.Enforcer(place + "/model.conf", place + "/policy.csv")
class Agent:
    def __init__(self, values): self.__dict__.update(values)
people = [Agent(values) for values in agents]
allowed = [enforcer.enforce(agent, "skill-0") for agent in people]
times = []
for _ in range(3):
    started = time.perf_counter()
    for agent in people:
        enforcer.enforce(agent, "skill-0")
    times.append(time.perf_counter() - started)
json.dump([len(people) / min(times), allowed], sys.stdout)
"""
CEDAR = """
import json, sys, time
import cedarpy
agents = json.load(open(sys.argv[1]))
policy = '''permit(principal, action == Action::"skill-0", resource) when {
  context.type == "household" && context.is_owner && !context.elevated && context.income > 20000
  && context.flood_depth_cm >= 30 && context.budget_cents >= 50000 && context.waited >= 3 };'''
def request(values):
    context = {"type": values["type"], "is_owner": values["is_owner"], "elevated": values["elevated"],
        "income": int(values["income"]), "flood_depth_cm": int(values["flood_depth"] * 100),
        "budget_cents": int(values["budget"] * 100), "waited": values["waited"]}
    return dict(principal='Agent::"a"', action='Action::"skill-0"', resource='W::"w"', context=context)
requests = [request(values) for values in agents]
allowed = [cedarpy.is_authorized(one, policy, []).allowed for one in requests]
times = []
for _ in range(3):
    started = time.perf_counter()
    for one in requests:
        cedarpy.is_authorized(one, policy, [])
    times.append(time.perf_counter() - started)
json.dump([len(requests) / min(times), allowed], sys.stdout)
"""


def peer_rates(agents: list[Actor], ledger: Ledger, python: str) -> dict[str, tuple[float, list[bool]]]:
    known = [
        {**agent.state, "type": agent.type, "waited": STEP - ledger.agents[agent.id]["skill-0"]}
        for agent in agents
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(known, file)
        file.flush()
        return {
            name: tuple(in_process(code, file.name, python=python))
            for name, code in (("pycasbin", CASBIN), ("cedarpy", CEDAR))
        }


def population() -> dict[str, Any]:
    import numpy as np

    chance = np.random.default_rng(1)
    return {
        "type": (chance.random(POPULATION) < 0.05).astype(np.int8),
        "is_owner": chance.random(POPULATION) < 0.95,
        "elevated": chance.random(POPULATION) < 0.1,
        "income": chance.uniform(15_000, 80_000, POPULATION),
        "flood_depth": chance.uniform(0.2, 2.0, POPULATION),
        "budget": chance.uniform(300, 5000, POPULATION),
        "last.skill-0": chance.integers(-1, 10, POPULATION).astype(np.int32),
    }


def checks(peers: str | None) -> list[list[str]]:
    agents, ledger = people()
    found = charter(1)

    check = asked(found, "skill-0", ledger)
    share = sum(bool(check(agent)) for agent in agents) / len(agents)
    print(f"\n{share:.0%} of the {AGENTS:,} agents may act.")
    naive = plain(ledger)
    assert [bool(check(agent)) for agent in agents] == [naive(agent)[0] for agent in agents]
    floor = rate(naive, agents)
    rows = [["a dictionary and a loop", f"{floor:,.0f}", "1.00", ""]]
    ours = rate(check, agents)
    rows.append(["vademecum, one by one", f"{ours:,.0f}", f"{ours / floor:.2f}", "700,000"])
    worded = rate(lambda agent: check(agent).reasons, agents, 20_000)
    rows.append(["the same, every reason in words", f"{worded:,.0f}", f"{worded / floor:.2f}", ""])
    rows.append(_batched(found, floor))
    for name, (speed, allowed) in peer_rates(agents, ledger, peers).items() if peers else ():
        same = sum(bool(check(agent)) is bool(one) for agent, one in zip(agents, allowed, strict=True))
        rows.append(
            [f"{name} ({same / len(agents):.0%} the same)", f"{speed:,.0f}", f"{speed / floor:.3f}", ""]
        )
    return rows


def _batched(found: Charter, floor: float) -> list[str]:
    from vademecum.governance.batch import batch

    columns = population()

    def run() -> None:
        batch(found, "skill-0", columns, step=STEP, types=["household", "government"])

    speed = POPULATION / best(run, 15)
    return ["vademecum, a million at once", f"{speed:,.0f}", f"{speed / floor:,.0f}", "100,000,000"]


def by_size() -> list[list[str]]:
    agents, ledger = people()
    rows, first = [], 0.0
    for skills in (10, 100, 1000, 10_000):
        found = charter(skills)
        name = f"skill-{skills - 1}"
        speed = rate(asked(found, name, ledger), agents)
        first = first or speed
        rows.append([f"{skills:,} skills", f"{speed:,.0f}", f"{first / speed:.2f}", "1.2"])
    return rows


class Timed:
    """A broker whose time is taken: proposals with their record, and what agents are given to see."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.deciding = self.seeing = 0.0
        self.policy, self.charter = broker.policy, broker.charter
        self.ledger, self.world = broker.ledger, broker.world

    @property
    def step(self) -> int:
        return int(self._broker.step)

    def view(self, agent: Any) -> Any:
        started = time.perf_counter()
        found = self._broker.view(agent)
        self.seeing += time.perf_counter() - started
        return found

    def propose(self, agent: Any, intent: Any) -> Any:
        started = time.perf_counter()
        found = self._broker.propose(agent, intent)
        self.deciding += time.perf_counter() - started
        return found

    def advance(self) -> None:
        started = time.perf_counter()
        self._broker.advance()
        self.deciding += time.perf_counter() - started


def simulation(agents: int, steps: int) -> list[list[str]] | None:
    try:
        program: Any = load_simulation(FLOOD)
    except Exception as error:  # noqa: BLE001 - Mesa is an extra
        print(f"\nno simulation: {error}")
        return None
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as place:
        secrets = Secrets({})
        record = Record(Path(place), secrets=secrets)
        setting = Setting(load_charter(FLOOD), agents, steps, audit=Audit(record, secrets=secrets))
        model = program.__globals__["Flood"](setting)
        model.broker = timed = Timed(model.broker)
        gc.collect()
        started = time.perf_counter()
        for _ in range(steps):
            model.step()
        whole = time.perf_counter() - started
        size = sum(file.stat().st_size for file in Path(place).iterdir() if file.is_file())
    both = timed.deciding + timed.seeing

    def row(title: str, seconds: float, most: str = "") -> list[str]:
        each = f"{seconds / model.intents * 1e6:.1f}"
        return [title, f"{seconds:.1f}", each, f"{seconds / whole:.2f}", most]

    return [
        row(f"{agents:,} agents x {steps} steps", whole),
        row("the broker", both, "0.30"),
        row(f"of it {model.intents:,} outcomes, on record ({size / 1e6:.0f} MB)", timed.deciding),
        row("of it what each agent may read, by its role", timed.seeing),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pycasbin and cedarpy")
    parser.add_argument("--agents", type=int, default=10_000, help="of the simulation")
    words = parser.parse_args()
    print_table("Full checks a second", ["", "a second", "x loop", "at least"], checks(words.peers))
    print_table("The same check in larger charters", ["", "a second", "x cost of 10", "at most"], by_size())
    simulated = simulation(words.agents, 50)
    if simulated is not None:
        columns = ["", "s", "us an intent", "share", "at most"]
        print_table("A simulation with full audit", columns, simulated)


if __name__ == "__main__":
    main()
