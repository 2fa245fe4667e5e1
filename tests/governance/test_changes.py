"""M3: what an engine did is seen to the last field, and put back in place."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pytest

from vademecum.governance import Actor, Broker, Functions, Outcome, SkillDefinition, SkillRegistry
from vademecum.governance.changes import Change, pictured
from vademecum.governance.model import MISSING
from vademecum.governance.parts import MAX_PARTS

State = dict[str, Any]


def seen(state: State, engine: Callable[[State], object]) -> tuple[Change, ...]:
    """What changed; and afterwards it is all as it was, which a second picture shows."""
    before, again = pictured(state, {}), pictured(state, {})
    engine(state)
    found = before.changes()
    before.restore()
    assert again.changes() == ()
    return found


def one(
    engine: Callable[[Actor], object], state: State, cost: Any = 0, *allowed: str
) -> tuple[Outcome, Actor]:
    definition = SkillDefinition("act", "", ["*"], [], {"cost": cost}, allowed, "act")
    broker = Broker(SkillRegistry([definition]), None, Functions({"act": engine}))
    agent = Actor("x", "t", state)
    return broker.propose(agent, "act"), agent


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (1, True, True),
        (1, 1.0, True),
        (0, False, True),
        (1, 1, False),
        (0.0, -0.0, False),
        (math.nan, float("nan"), False),
        (math.nan, 1.0, True),
        ("a", "".join(["a"]), False),
        ([1], [1], False),
        ([1], [1.0], True),
        ((1, [2]), (1, [2]), False),
        ((1,), [1], True),
        ({"a": [1]}, {"a": [1]}, False),
        ({1, 2}, {2, 1}, False),
        ({1}, {True}, False),  # a set holds what is equal once
        (Decimal("sNaN"), Decimal(1), True),
        (Decimal("1.0"), Decimal("1.00"), False),
        (None, MISSING, True),
    ],
)
def test_the_same_is_of_one_type_and_equal(old: Any, new: Any, changed: bool) -> None:
    assert bool(seen({"x": old}, lambda state: state.update(x=new))) is changed


def test_in_place_changes_are_seen_and_undone_in_place() -> None:
    rooms: list[Any] = ["hall", {"beds": 1}]
    state = {
        "home": {"floor": 0, "rooms": rooms},
        "queue": deque([1]),
        "count": Counter("a"),
        "order": OrderedDict(a=1),
        "more": defaultdict(int),
        "zones": {1},
        "pair": ([1], 2),
        "raw": bytearray(b"a"),
    }
    whole = dict(state)

    def engine(state: State) -> None:
        state["home"]["floor"] = 9
        rooms[1]["beds"] = 2
        rooms.append("attic")
        state["queue"].append(2)
        state["count"].update("ab")
        state["order"]["b"] = 2
        assert state["more"]["x"] == 0  # which adds it
        state["zones"].add(2)
        state["pair"][0].append(3)
        state["raw"] += b"b"

    assert seen(state, engine) == (
        ("home.floor", 0, 9),
        ("home.rooms", ["hall", {"beds": 1}], ["hall", {"beds": 2}, "attic"]),
        ("queue", [1], [1, 2]),
        ("count.a", 1, 2),
        ("count.b", MISSING, 1),
        ("order.b", MISSING, 2),
        ("more.x", MISSING, 0),
        ("zones", {1}, {1, 2}),
        ("pair", ([1], 2), ([1, 3], 2)),
        ("raw", bytearray(b"a"), b"ab"),
    )
    assert all(state[key] is value for key, value in whole.items())
    assert rooms == ["hall", {"beds": 1}]


def test_whoever_holds_a_part_sees_it_restored() -> None:
    house = {"floor": 0}
    cells = [1]

    def engine(agent: Actor) -> None:
        agent.state["house"]["floor"] = 9
        agent.state["cells"].append(5)

    neighbour = Actor("y", "t", {"house": house})
    outcome, agent = one(engine, {"house": house, "cells": cells})
    assert (outcome.executed, outcome.rolled_back) == (None, True)
    assert (agent.state, neighbour.state, cells) == (
        {"house": house, "cells": [1]},
        {"house": {"floor": 0}},
        [1],
    )
    assert agent.state["house"] is neighbour.state["house"] is house


def test_keys_that_move_are_changes() -> None:
    state, world = {"a": 1, "x": True}, {"b": 2}
    before = pictured(state, world)
    state.pop("x")
    world.clear()
    world.update(x=True, b=2)
    assert before.changes() == (("x", True, MISSING), ("world.x", MISSING, True))
    state, world = {"a": 1, "b": True}, {}
    before = pictured(state, world)
    state.clear()
    state.update(b=1, a=True)  # the same values in the same places, and not the same
    assert before.changes() == (("a", 1, True), ("b", True, 1))


class House:
    """A plain object, equal to whatever it is compared with."""

    def __init__(self) -> None:
        self.floor = 0
        self.rooms = ["hall"]
        self.lock = threading.Lock()
        self.dice = random.Random(1)

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    @cached_property
    def area(self) -> int:
        return 5


@dataclass(slots=True)
class Slotted:
    rooms: list[str]
    floor: int = 0


def test_the_fields_of_objects_are_seen_whatever_they_say_of_themselves() -> None:
    house, slotted = House(), Slotted(["hall"])

    def engine(state: State) -> None:
        state["house"].floor = 3
        state["house"].rooms.append("attic")
        state["house"].new = 1
        state["slotted"].floor = 2

    assert seen({"house": house, "slotted": slotted}, engine) == (
        ("house.floor", 0, 3),
        ("house.rooms", ["hall"], ["hall", "attic"]),
        ("house.new", MISSING, 1),
        ("slotted.floor", 0, 2),
    )
    assert (house.floor, house.rooms, slotted.floor, hasattr(house, "new")) == (0, ["hall"], 0, False)
    assert seen({"house": house}, lambda state: state.update(house=House()))[0][0] == "house"


def test_reading_is_no_change() -> None:
    def engine(agent: Actor) -> None:
        house = agent.state["house"]
        assert house.area == 5
        house.dice.random()
        with house.lock:
            pass

    house = House()
    outcome, agent = one(engine, {"house": house, "lock": threading.Lock(), "plain": object()})
    assert outcome.executed == "act"
    assert agent.state["house"] is house


def test_what_leads_to_a_whole_simulation_is_the_same_or_another() -> None:
    class Model:
        agents: dict[Any, None]

    class Resident:
        def __init__(self, model: Model) -> None:
            self.model = model

    model = Model()
    resident = Resident(model)
    model.agents = {resident: None}
    long: Any = None
    for _ in range(MAX_PARTS + 10):
        long = [long]
    large = Slotted(long)

    def engine(agent: Actor) -> None:
        agent.state["friend"].mood = "good"
        agent.state["large"].floor = 4

    outcome, agent = one(engine, {"friend": resident, "large": large})
    assert (outcome.executed, outcome.changes) == ("act", ())
    other, agent = one(lambda agent: agent.state.update(friend=Resident(model)), {"friend": resident})
    assert (other.executed, agent.state["friend"]) == (None, resident)


class Shy:
    """An object that does not want to be looked at."""

    __slots__ = ("secret",)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class Bitter(dict[str, Any]):
    def keys(self) -> Any:
        raise RuntimeError

    __iter__ = keys


def test_what_cannot_be_looked_at_is_no_reason_to_fail() -> None:
    assert one(lambda agent: None, {"shy": Shy()})[0].executed == "act"
    outcome, agent = one(lambda agent: None, {"bitter": Bitter(a=1), "budget": 5}, 5)
    assert (outcome.executed, agent.state["budget"]) == ("act", 0)
    outcome, agent = one(lambda agent: agent.state["bitter"].update(a=2), {"bitter": Bitter(a=1)})
    assert (outcome.executed, agent.state["bitter"]["a"]) == (None, 1)


def test_a_state_that_leads_in_a_circle() -> None:
    circle: State = {"x": [1]}
    circle["me"] = circle
    assert seen({"c": circle}, lambda state: None) == ()
    assert seen({"c": circle}, lambda state: circle["x"].append(2)) == (("c.x", [1], [1, 2]),)


def test_what_is_too_deep_to_compare_is_undone_and_on_record_as_a_failure() -> None:
    deep: State = {}
    inmost = deep
    for _ in range(3000):
        inmost["a"] = inmost = {}
    outcome, _ = one(lambda agent: inmost.update(x=1), {"deep": deep, "budget": 5}, 5)
    assert [reason.code for reason in outcome.reasons] == ["engine"]
    assert inmost == {}


def test_arrays_by_shape_type_and_content() -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed (the extra `governance`)")

    def changed(old: Any, new: Any) -> bool:
        return bool(seen({"w": old}, lambda state: state.update(w=new)))

    array = np.array
    assert changed(array([1]), array([1, 1, 1]))
    assert changed(array([1]), array([1.0]))
    assert changed(array([1, 2]), array([1, 3]))
    assert changed(np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]))
    assert not changed(array([1.0, math.nan]), array([1.0, math.nan]))
    assert changed([array([1, 2])], [array([5, 6])])
    assert not changed([array([1, 2])], [array([1, 2])])
    assert not changed(np.float64(2), np.float64(2))
    held = array([1, 2])
    assert seen({"w": held}, lambda state: held.__setitem__(0, 9))
    assert held.tolist() == [1, 2]
    objects = array([[1], {"a": 1}], dtype=object)
    assert seen({"w": objects}, lambda state: objects[1].update(a=2))
    assert seen({"w": held}, lambda state: held.resize((3,), refcheck=False))
    assert held.tolist() == [1, 2]


@pytest.mark.parametrize(
    "engine",
    [
        lambda agent: agent.state.update(debt=10**5000),
        lambda agent: agent.state["w"].append(agent.state["w"]),
        lambda agent: setattr(agent, "state", {"money": 10**9}),
        lambda agent: setattr(agent, "type", "government"),
        lambda agent: setattr(agent, "id", "somebody"),
        lambda agent: agent.state.update(budget=agent.state["budget"] + 5),
        lambda agent: agent.state.pop("budget"),
    ],
)
def test_nothing_forbidden_stays_however_it_is_done(engine: Callable[[Actor], object]) -> None:
    state = {"debt": 1, "budget": 10, "w": [1]}
    outcome, agent = one(engine, state, 5)
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (True, None, True)
    assert outcome.reasons
    assert all(reason.message for reason in outcome.reasons)
    assert agent.state is state
    assert (agent.id, agent.type, agent.state) == ("x", "t", {"debt": 1, "budget": 10, "w": [1]})
    assert (outcome.agent_id, outcome.agent_type) == ("x", "t")


def test_the_purse_is_charged_by_the_charter_and_shows_what_the_engine_does_to_it() -> None:
    def refund(agent: Actor) -> None:
        agent.state["budget"] += 100

    outcome, agent = one(refund, {"budget": 100}, 100)
    assert [reason.message for reason in outcome.reasons] == ["State change not allowed: 'budget' (0 → 100)"]
    outcome, agent = one(refund, {"budget": 100}, 100, "budget")
    assert (outcome.executed, outcome.charged) == ("act", "budget")
    assert (outcome.changes, agent.state) == ((("budget", 100, 100),), {"budget": 100})
    outcome, agent = one(lambda agent: None, {"budget": 100, "price": 0}, "price")
    assert (outcome.executed, outcome.charged, outcome.changes) == ("act", None, ())


def test_changes_are_kept_as_they_were() -> None:
    outcome, agent = one(lambda agent: agent.state["l"].append(1), {"l": []}, 0, "l")
    agent.state["l"].append(99)
    assert outcome.changes == (("l", [], [1]),)


@pytest.mark.parametrize("purse", [Decimal(10), math.inf])
def test_a_cost_that_cannot_be_taken_is_a_denial(purse: Any) -> None:
    state = {"budget": purse, "price": math.inf if purse == math.inf else 2.5}
    outcome, agent = one(lambda agent: agent.state.update(x=1), state, "price")
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (False, None, False)
    assert [reason.code for reason in outcome.reasons] == ["cost"]
    assert "cannot be taken" in outcome.reasons[0].message
    assert agent.state == {"budget": purse, "price": state["price"]}
