"""Households, a government and an insurer beside a river: fifty years of floods under one charter.

Every year the river rises by a seeded draw, floods are paid for, and each agent proposes one thing to do.
What it proposes is an intent; the broker decides. Run it with ``vade govern simulate examples/flood``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import mesa

from vademecum.governance import ActionOutcome, Broker, Functions, Intent
from vademecum.simulation import Chart, Setting, Simulated, ask_model
from vademecum.simulation.population import open_shares

# The highest water of a year follows a Gumbel law; flood maps show it in steps of a quarter of a metre, with
# the chance in a year that the water comes up to a level and not to the next.
MEAN, SPREAD, STEP = 0.9, 0.75, 0.25


def chance_below(level: float) -> float:
    """Return the chance that a year's highest water stays below a level."""
    return math.exp(-math.exp((MEAN - level) / SPREAD))


HAZARD = [(n * STEP, chance_below((n + 0.5) * STEP) - chance_below((n - 0.5) * STEP)) for n in range(3, 29)]
# Metres of water above the floor → the share of the house that is lost.
CURVE = [(0.0, 0.0), (0.3, 0.1), (0.6, 0.2), (1.0, 0.32), (1.5, 0.45), (2.0, 0.55), (3.0, 0.7), (5.0, 0.85)]
LIFT = 1.5
LIFT_COST = 45_000
BUILDERS = 25  # houses that can be raised in a year


def lost(depth: float) -> float:
    """Return the share of a house that this much water destroys."""
    if depth <= 0:
        return 0.0
    for (low, a), (high, b) in itertools.pairwise(CURVE):
        if depth <= high:
            return a + (b - a) * (depth - low) / (high - low)
    return CURVE[-1][1]


def expected_loss(above: float, levee: float) -> float:
    """Return the share of a house lost in an average year, for a floor this high above the bank."""
    return sum(chance * lost(level - above) for level, chance in HAZARD if level > levee and level > above)


class Household(mesa.Agent):
    """Weigh what the house may lose against what protection costs; remember floods, and forget them."""

    type = "household"

    def __init__(self, model: Flood, number: int) -> None:
        super().__init__(model)
        self.id = f"h{number}"
        self.neighbours: list[Household] = []
        chance = model.random
        income = chance.lognormvariate(10.6, 0.4)
        self.state: dict[str, Any] = {
            "income": income,
            "savings": income * chance.uniform(0.2, 2.0),
            "house_value": chance.lognormvariate(12.0, 0.35),
            "ground": chance.uniform(0.5, 4.0),
            "floor": 0.0,
            "is_owner": chance.random() < 0.7,
            "insured": False,
            "elevated": False,
            "relocated": False,
            "floods": 0,
            "memory": 0.0,
        }

    def year(self, water: float, levee: float) -> float:
        """Earn, suffer, remember, and return the damage of this year."""
        state = self.state
        state["savings"] += 0.12 * state["income"]
        state["memory"] *= 0.85
        depth = water - state["ground"] - state["floor"] if water > levee else 0.0
        damage = 0.0 if state["relocated"] else lost(depth) * state["house_value"]
        if damage:
            state["floods"] += 1
            state["memory"] = min(1.0, state["memory"] + damage / state["house_value"] + 0.2)
            state["savings"] = max(0.0, state["savings"] - (0.1 if state["insured"] else 1.0) * damage)
        return damage

    def choose(self, seen: dict[str, Any]) -> Intent:
        """Choose the option with the best balance over twenty years.

        A flood is remembered and slowly forgotten, what neighbours do counts, and households that trust in a
        higher levee wait for it.
        """
        world, value = seen["world"], seen["house_value"]
        above, levee = seen["ground"] + seen["floor"], world["levee"]
        worth = (0.4 + 1.2 * seen["memory"]) * value * 20
        now = worth * expected_loss(above, levee)
        raised = worth * expected_loss(above + LIFT, levee)
        behind = worth * expected_loss(above, levee + 0.5)
        norm = 0.8 + 0.4 * sum(home.state["elevated"] for home in self.neighbours) / len(self.neighbours)
        premium, share = world["premium_rate"] * value, LIFT_COST * (1 - world["subsidy_rate"])
        options = {
            "do_nothing": (0.3 * (now - behind), 0.0),
            "buy_insurance": (0.9 * now - 20 * premium, premium),
            "elevate_house": (norm * (now - raised) - share, share),
            "relocate": (now - 0.35 * value, 0.2 * value),
        }
        means = seen["savings"] * self.model.random.uniform(0.7, 1.3)  # it may think it has more than it has
        within = [name for name, (_, cost) in options.items() if cost <= means]
        return Intent(max(within, key=lambda name: options[name][0]))

    def act(self) -> None:
        """End last year's policy, and propose something for this year unless the household has left."""
        self.state["insured"] = False
        if not self.state["relocated"]:
            self.model.let(self)


class Government(mesa.Agent):
    """Build after floods, and subsidise raised houses while there is money."""

    type = "government"
    id = "government"

    def __init__(self, model: Flood) -> None:
        super().__init__(model)
        self.state: dict[str, Any] = {"damage": 0.0}

    def choose(self, seen: dict[str, Any]) -> Intent:
        """Choose a levee after damage, else a subsidy that follows the treasury."""
        world = seen["world"]
        if seen["damage"] > 3_000 * world["households"] and world["levee"] < 4:
            return Intent("build_levee")
        rate = round(min(0.8, world["treasury"] / (30_000 * world["households"])), 2)
        return Intent("set_subsidy", {"rate": rate})


class Insurer(mesa.Agent):
    """Set the premium by what was paid out and what came in."""

    type = "insurer"
    id = "insurer"

    def __init__(self, model: Flood) -> None:
        super().__init__(model)
        self.state: dict[str, Any] = {"paid": 0.0, "premiums": 0.0}

    def choose(self, seen: dict[str, Any]) -> Intent:
        """Raise the premium after a bad year, and lower it slowly after good ones."""
        rate = seen["world"]["premium_rate"]
        return Intent(
            "set_premium", {"rate": round(rate * (1.5 if seen["paid"] > seen["premiums"] else 0.93), 4)}
        )


class Flood(mesa.Model):
    """Contain one river, three kinds of agents, and the functions that the charter maps to."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(seed=setting.seed)
        self.setting = setting
        self.world: dict[str, Any] = {
            "year": 0,
            "households": setting.agents,
            "water": 0.0,
            "levee": 1.5,
            "premium_rate": 0.01,
            "subsidy_rate": 0.2,
            "treasury": 8_000.0 * setting.agents,
            "builders": BUILDERS,
        }
        functions = {name: getattr(self, name) for name in FUNCTIONS}
        charter = setting.charter
        self.broker = Broker(
            charter.registry,
            charter.roles,
            Functions(functions),
            setting.policy,
            world=self.world,
            audit=setting.audit,
        )
        self.households = [Household(self, number) for number in range(setting.agents)]
        for number, home in enumerate(self.households):
            home.neighbours = [
                self.households[(number + n) % setting.agents] for n in (-4, -3, -2, -1, 1, 2, 3, 4)
            ]
        self.government, self.insurer = Government(self), Insurer(self)
        self.executed: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()
        self.intents = 0
        self.collector = mesa.DataCollector(
            model_reporters={
                "damage": lambda model: model.government.state["damage"],
                "elevated": lambda model: model.share("elevated"),
                "insured": lambda model: model.share("insured"),
                "relocated": lambda model: model.share("relocated"),
            },
            agenttype_reporters={Household: {"savings": lambda home: home.state["savings"]}},
        )
        self.by_reason: list[Counter[str]] = []
        self.open: list[dict[str, float]] = []
        self.hazard = [self._level() for _ in range(setting.steps)]

    def _level(self) -> float:
        """Return the highest water of a year: a Gumbel draw, the same whatever the agents do."""
        return MEAN - SPREAD * math.log(-math.log(self.random.uniform(1e-12, 1.0)))

    def step(self) -> None:
        """Run one year: water, damage, money, and one proposal of each agent."""
        world = self.world
        world["year"] += 1
        world["water"] = self.hazard[world["year"] - 1]
        world["treasury"] += 400.0 * world["households"]
        world["builders"] = BUILDERS
        damages = [home.year(world["water"], world["levee"]) for home in self.households]
        self.government.state["damage"] = sum(damages)
        self._settle(damages)
        self.by_reason.append(Counter())
        self.open.append(open_shares(self.broker, self.households, OPTIONS))
        for agent in (self.government, self.insurer):
            self.let(agent)
        self.agents_by_type[Household].shuffle_do("act")
        self.collector.collect(self)
        self.broker.advance()

    def _settle(self, damages: list[float]) -> None:
        insurer = self.insurer.state
        paid = (
            damage for home, damage in zip(self.households, damages, strict=True) if home.state["insured"]
        )
        insurer["paid"] = 0.9 * sum(paid)
        rate = self.world["premium_rate"]
        insurer["premiums"] = sum(
            rate * home.state["house_value"] for home in self.households if home.state["insured"]
        )

    def let(self, agent: Any) -> None:
        """Let an agent propose, and count the outcome."""
        self.intents += 1
        model = self.setting.model
        if model is not None:
            outcome = self.broker.negotiate(agent, ask_model(model, self.broker, agent))
        else:
            outcome = self.broker.propose(agent, agent.choose(self.broker.view(agent)))
        self._count(outcome)

    def _count(self, outcome: ActionOutcome) -> None:
        if outcome.executed:
            self.executed[outcome.executed] += 1
        if outcome.result.bits:
            codes = [reason.code for reason in outcome.reasons]
            self.denied.update(codes[:1])
            self.by_reason[-1].update(codes)

    def share(self, key: str) -> float:
        """Return the share of households for which a field is true."""
        return sum(home.state[key] for home in self.households) / len(self.households)

    # The functions that the charter maps to.

    def pass_year(self, agent: Any) -> None:
        """Do nothing."""

    def insure(self, agent: Any) -> None:
        """Insure the house for this year."""
        agent.state["insured"] = True

    def elevate(self, agent: Any) -> None:
        """Raise the house; the government pays its share."""
        agent.state["elevated"] = True
        agent.state["floor"] = LIFT
        self.world["treasury"] -= LIFT_COST * self.world["subsidy_rate"]
        self.world["builders"] -= 1

    def relocate(self, agent: Any) -> None:
        """Leave for good."""
        agent.state["relocated"] = True

    def set_subsidy(self, agent: Any, rate: float) -> None:
        """Set the share that the government bears."""
        self.world["subsidy_rate"] = rate

    def raise_levee(self, agent: Any) -> None:
        """Raise the levee by half a metre."""
        self.world["levee"] += 0.5

    def set_premium(self, agent: Any, rate: float) -> None:
        """Set the premium."""
        self.world["premium_rate"] = rate


OPTIONS = ("buy_insurance", "elevate_house", "relocate")
FUNCTIONS = ("pass_year", "insure", "elevate", "relocate", "set_subsidy", "raise_levee", "set_premium")


CHINESE = {
    "damage, million": "损失（百万）",
    "houses raised": "垫高的房屋",
    "households gone": "迁走的住户",
    "insured, mean share": "平均投保比例",
    "levee, metres": "堤高（米）",
    "treasury, million": "国库（百万）",
    "savings, mean": "平均积蓄",
    "intents": "意图",
    "carried out": "已执行",
    "against the charter": "违反章程",
    "denied: cooldown": "拒绝：间隔未到",
    "denied: cost": "拒绝：负担不起",
    "denied: parameter": "拒绝：参数不合",
    "denied: precondition": "拒绝：条件不足",
    "Damage": "损失",
    "million a year": "百万/年",
    "damage": "损失",
    "Adaptation": "适应",
    "share of households": "占住户的比例",
    "elevated": "已垫高",
    "insured": "已投保",
    "relocated": "已迁走",
    "Open to households by the charter": "章程允许住户做的事",
    "buy_insurance": "买保险",
    "elevate_house": "垫高房屋",
    "relocate": "迁走",
    "Savings": "积蓄",
    "thousands, by share of households with less": "千，按积蓄更少的住户所占比例",
    "Denials by reason": "各种原因的拒绝",
    "intents a year": "每年的意图数",
    "cooldown": "间隔未到",
    "cost": "负担不起",
    "parameter": "参数不合",
    "precondition": "条件不足",
}


def simulate(setting: Setting) -> Simulated:
    """Run the years, and return figures and charts."""
    model = Flood(setting)
    for _ in range(setting.steps):
        model.step()
        setting.progress()
    return Simulated(_figures(model), _charts(model), CHINESE)


def _figures(model: Flood) -> dict[str, str | int | float]:
    homes, history = model.households, model.collector.model_vars
    count = len(homes)
    denials = {f"denied: {code}": number for code, number in sorted(model.denied.items())}
    return {
        "damage, million": round(sum(history["damage"]) / 1e6, 1),
        "houses raised": sum(home.state["elevated"] for home in homes),
        "households gone": sum(home.state["relocated"] for home in homes),
        "insured, mean share": round(sum(history["insured"]) / max(len(history["insured"]), 1), 3),
        "levee, metres": model.world["levee"],
        "treasury, million": round(model.world["treasury"] / 1e6, 1),
        "savings, mean": round(sum(home.state["savings"] for home in homes) / count),
        "intents": model.intents,
        "carried out": sum(model.executed.values()),
        "against the charter": sum(model.denied.values()),
        **denials,
    }


def _savings(model: Flood) -> dict[str, list[float]]:
    """Return the savings of the poorest tenth, the middle and the richest tenth, year by year."""
    found: dict[str, list[float]] = {"10 %": [], "50 %": [], "90 %": []}
    for rows in model.collector._agenttype_records.values():
        ordered = sorted(row[-1] for row in rows[Household])
        for name, line in found.items():
            line.append(ordered[len(ordered) * int(name.split()[0]) // 100] / 1000)
    return found


def _charts(model: Flood) -> list[Chart]:
    history = model.collector.model_vars
    codes = sorted({code for counts in model.by_reason for code in counts})
    return [
        Chart("Damage", "million a year", {"damage": [value / 1e6 for value in history["damage"]]}),
        Chart(
            "Adaptation",
            "share of households",
            {key: history[key] for key in ("elevated", "insured", "relocated")},
        ),
        Chart(
            "Open to households by the charter",
            "share of households",
            {name: [shares[name] for shares in model.open] for name in OPTIONS},
        ),
        Chart("Savings", "thousands, by share of households with less", _savings(model)),
        Chart(
            "Denials by reason",
            "intents a year",
            {code: [float(counts[code]) for counts in model.by_reason] for code in codes},
        ),
    ]
