"""M3: every change is seen by its path, however it was reached, and put back in place."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.governance import (
    ActionOutcome,
    Actor,
    Broker,
    Functions,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
)
from vademecum.governance.definitions import MISSING
from vademecum.governance.state import MAX_DEPTH, Change, StateRefused, StateSnapshot

State = dict[str, Any]


def seen(state: State, engine: Callable[[State], object]) -> tuple[Change, ...]:
    """Return what changed; afterwards everything is as it was, which a second snapshot shows."""
    before, again = StateSnapshot(state, {}), StateSnapshot(state, {})
    engine(state)
    found = before.changes()
    before.restore()
    assert again.changes() == ()
    return found


def one(
    engine: Callable[[Actor], object],
    state: State,
    cost: Any = 0,
    *allowed: str,
    world: State | None = None,
    roles: RoleEnforcer | None = None,
) -> tuple[ActionOutcome, Actor]:
    definition = SkillDefinition("act", "", ["*"], [], {"cost": cost}, allowed, "act")
    broker = Broker(SkillRegistry([definition]), roles, Functions({"act": engine}), world=world)
    agent = Actor("x", "t", state)
    return broker.propose(agent, "act"), agent


def codes(outcome: ActionOutcome) -> list[tuple[str, Any]]:
    return [(reason.code, reason.observed) for reason in outcome.reasons]


@pytest.mark.parametrize("keys", [("location", "other"), ("other", "location")])
def test_a_list_under_two_keys_is_two_changes(keys: tuple[str, str]) -> None:
    shared = [1]
    state = dict.fromkeys(keys, shared)
    outcome, agent = one(lambda agent: agent.state["location"].append(2), state, 0, "location")
    assert codes(outcome) == [("state-change", "other")]
    assert agent.state["location"] is agent.state["other"] is shared
    assert shared == [1]
    outcome, agent = one(lambda agent: shared.append(2), state, 0, "location", "other")
    assert {key for key, _, _ in outcome.changes} == {"location", "other"}
    assert shared == [1, 2]


def test_a_list_of_the_agent_and_the_world_needs_both_permissions() -> None:
    def add(agent: Actor) -> None:
        agent.state["mine"].append(2)

    for allowed, writes, expected in (
        (["mine"], ["*", "world.*"], [("state-change", "world.ours")]),
        (["world.ours"], ["*", "world.*"], [("state-change", "mine")]),
        (["mine", "world.ours"], ["mine"], [("write-permission", "world.ours")]),
        (["mine", "world.ours"], ["world.ours"], [("write-permission", "mine")]),
        (["mine", "world.ours"], ["mine", "world"], []),
    ):
        shared = [1]
        roles = RoleEnforcer({"t": Role(["*"], [], writes)})
        outcome, _ = one(add, {"mine": shared}, 0, *allowed, world={"ours": shared}, roles=roles)
        assert codes(outcome) == expected
        assert shared == ([1] if expected else [1, 2])


def test_one_dictionary_as_state_and_world() -> None:
    both: State = {"x": 1}
    outcome, _ = one(lambda agent: both.update(x=2), both, 0, "x", world=both)
    assert codes(outcome) == [("state-change", "world.x")]
    assert both == {"x": 1}


@pytest.mark.parametrize(
    ("key", "words"),
    [("location.evil", "has a dot"), ("world", "taken for the shared state"), (5, "is not a text")],
)
def test_a_key_that_would_pass_as_another_is_refused(key: Any, words: str) -> None:
    every = ("*", "location", "world.*")
    outcome, agent = one(lambda agent: agent.state.update({key: {"x": 1}}), {"location": 1}, 0, *every)
    assert (outcome.executed, outcome.rolled_back, agent.state) == (None, True, {"location": 1})
    assert (outcome.reasons[0].code, words in outcome.reasons[0].message) == ("state", True)
    before, agent = one(lambda agent: None, {"location": 1, key: 2, "budget": 9}, 3)
    assert (before.executed, before.reasons[0].code, agent.state["budget"]) == (None, "state", 9)
    inner, _ = one(lambda agent: None, {"home": {key: 2}}) if key != "world" else (before, agent)
    assert inner.reasons[0].code == "state"


class House:
    floor = 0


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: Any = []
for _ in range(MAX_DEPTH + 5):
    DEEP = [DEEP]
BOMB: Any = [1] * 10
for _ in range(30):
    BOMB = [BOMB, BOMB]


@pytest.mark.parametrize(
    "value",
    [{1}, (1, 2), House(), Decimal(1), deque([1]), OrderedDict(a=1), b"x", CIRCLE, DEEP, BOMB, object(), len],
)
def test_anything_but_plain_data_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(StateRefused, match=r"'home\.rooms\[1\]"):
        StateSnapshot({"home": {"rooms": [0, value]}}, {})
    with pytest.raises(StateRefused, match=r"'world\.x"):
        StateSnapshot({}, {"x": value} if value is not DEEP else {"x": {1}})
    outcome, agent = one(lambda agent: agent.state.update(x=value), {"x": 1, "budget": 5}, 5, "*")
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (True, None, True)
    assert agent.state == {"x": 1, "budget": 5}
    assert [reason.code for reason in outcome.reasons] == ["state"]


class Count(int):
    """A number that is equal to everything, and has room for more."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_a_number_of_another_class_is_refused() -> None:
    with pytest.raises(StateRefused, match="'n' is a Count"):
        StateSnapshot({"n": Count(2)}, {})
    outcome, agent = one(lambda agent: agent.state.update(n=Count(7)), {"n": 2}, 0, "*")
    assert (outcome.executed, agent.state) == (None, {"n": 2})


def test_a_charge_that_reaches_the_world_is_a_change_there_too() -> None:
    """The shared state contains the agent's: what is taken from the purse changes both."""
    for allowed, executed in ((["world.agents"], "act"), ([], None)):
        state: State = {"budget": 5}
        outcome, _ = one(lambda agent: None, state, 1, *allowed, world={"agents": {"x": state}})
        assert (outcome.executed, state["budget"]) == (executed, 4 if executed else 5)
        assert ("world.agents.x.budget", 5, 4) in outcome.changes


def test_arrays_are_refused_and_their_numbers_are_not() -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed (the extra `governance`)")
    with pytest.raises(StateRefused, match="'w' is a ndarray"):
        StateSnapshot({"w": np.array([1])}, {})
    assert StateSnapshot({"w": np.float64(2.5)}, {}).changes() == ()


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (1, True, True), (1, 1.0, True), (0, False, True), (1, 1, False), (0.0, -0.0, False),
        (math.nan, float("nan"), False), (math.nan, 1.0, True), ("a", "".join(["a"]), False), ([1], [1], False),
        ([1], [1.0], True), ([[1]], [[1]], False), ([[1]], [[2]], True), ({"a": [1]}, {"a": [1]}, False),
        (None, 0, True), ([1], {}, True), ([1, 2], [1], True), ({}, {"a": None}, True), ([{"a": 1}], [{"b": 1}], True),
    ],
)  # fmt: skip
def test_the_same_is_of_one_type_and_equal(old: Any, new: Any, changed: bool) -> None:
    assert bool(seen({"x": old}, lambda state: state.update(x=new))) is changed
    assert bool(seen({"y": {"x": old}}, lambda state: state["y"].update(x=new))) is changed


def test_in_place_changes_are_seen_and_undone_in_place() -> None:
    rooms: list[Any] = ["hall", {"beds": 1}]
    state: State = {"home": {"floor": 0, "rooms": rooms}, "pair": [[1], 2], "debt": 7}
    whole = dict(state)

    def engine(state: State) -> None:
        state["home"]["floor"] = 9
        rooms[1]["beds"] = 2
        rooms.append("attic")
        state["pair"][0].append(3)
        state["home"]["new"] = {}
        del state["debt"]

    assert seen(state, engine) == (
        ("home.floor", 0, 9),
        ("home.rooms", ["hall", {"beds": 1}], ["hall", {"beds": 2}, "attic"]),
        ("home.new", MISSING, {}),
        ("pair", [[1], 2], [[1, 3], 2]),
        ("debt", 7, MISSING),
    )
    assert all(state[key] is value for key, value in whole.items())
    assert list(state) == list(whole)
    assert rooms == ["hall", {"beds": 1}]


def test_keys_that_move_are_changes() -> None:
    state: State = {"a": 1, "x": True}
    world: State = {"b": 2}
    before = StateSnapshot(state, world)
    state.pop("x")
    world.update(x=True)
    assert before.changes() == (("x", True, MISSING), ("world.x", MISSING, True))
    state, world = {"a": 1, "b": True}, {}
    before = StateSnapshot(state, world)
    state.clear()
    state.update(b=1, a=True)  # the same values in the same places, under other keys
    assert before.changes() == (("a", 1, True), ("b", True, 1))


def test_whoever_shares_a_part_sees_it_restored() -> None:
    house = {"floor": 0}
    neighbour = Actor("y", "t", {"house": house})
    outcome, agent = one(lambda agent: agent.state["house"].update(floor=9), {"house": house})
    assert (outcome.executed, outcome.rolled_back) == (None, True)
    assert agent.state["house"] is neighbour.state["house"] is house
    assert house == {"floor": 0}


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, math.nan, "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
states = st.dictionaries(st.sampled_from("pqrs"), plain, max_size=4)


@st.composite
def aliased(draw: st.DrawFn) -> State:
    """Draw a state in which some values are the very same object."""
    state = draw(states)
    if state:
        source = draw(st.sampled_from(sorted(state)))
        state["alias"] = state[source]
        state["inside"] = [state[source], {"deep": state[source]}]
    return state


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and (value or not path):
        return {k: v for key, each in value.items() for k, v in flattened(each, f"{path}.{key}").items()}
    return {path: repr(value)}


@settings(max_examples=100, deadline=None)
@given(aliased(), states, st.data())
def test_whatever_changes_is_reported_by_path_and_undone(
    state: State, other: State, data: st.DataObject
) -> None:
    """A change is reported under every path that it can be reached by, and restoring undoes all of it."""
    old, objects = flattened(state), dict(state)
    before = StateSnapshot(state, {})
    containers = [v for v in [state, *state.values()] if isinstance(v, dict | list)]
    for target in data.draw(st.lists(st.sampled_from(containers), max_size=3)):
        if isinstance(target, dict):
            target.update(other)
        else:
            target.append(0)
    new = flattened(state)
    differing = {path[1:] for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    reported = [key for key, _, _ in before.changes()]
    for path in differing:
        assert any(
            path == key or path.startswith(f"{key}.") or key.startswith(f"{path}.") for key in reported
        )
    for key in reported:
        assert any(
            path == key or path.startswith(f"{key}.") or key.startswith(f"{path}.") for path in differing
        )
    before.restore()
    assert flattened(state) == old
    assert all(state[key] is value for key, value in objects.items())


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
    assert all(reason.message for reason in outcome.reasons)
    assert agent.state is state
    assert (agent.id, agent.type, agent.state) == ("x", "t", {"debt": 1, "budget": 10, "w": [1]})
    assert (outcome.agent_id, outcome.agent_type) == ("x", "t")


def test_the_purse_shows_what_the_engine_does_to_it() -> None:
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


def test_a_cost_that_cannot_be_taken_is_a_denial() -> None:
    state = {"budget": math.inf, "price": math.inf}
    outcome, agent = one(lambda agent: agent.state.update(x=1), state, "price")
    assert (outcome.approved, outcome.executed, outcome.rolled_back) == (False, None, False)
    assert outcome.reasons[0].message == "Cost inf exceeds 'budget' (inf)"
    assert agent.state == {"budget": math.inf, "price": math.inf}
    outcome, agent = one(lambda agent: None, {"budget": 10**400}, 2.5)
    assert (outcome.approved, outcome.executed, agent.state["budget"]) == (False, None, 10**400)
