"""Populations: the same charter over columns gives the same bits as the single check."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.governance.test_conditions import trees
from vademecum.governance import (
    Actor,
    Charter,
    Ledger,
    Parameter,
    Role,
    RoleEnforcer,
    SkillDefinition,
    SkillRegistry,
)
from vademecum.governance import conditions as ex

np = pytest.importorskip("numpy", reason="numpy is not installed (the extra `governance`)")

from vademecum.governance.batch import Vectors, batch  # noqa: E402

TYPES = ["farmer", "baker", "居民"]
small = st.integers(-3, 3)
large = st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)])
floats = st.sampled_from([0.0, -1.5, 0.1, 3.0, float(2**53), float("inf"), float("-inf"), float("nan")])
texts = st.sampled_from(["x", "y", "", "no", "预"])


@st.composite
def column(draw: st.DrawFn, size: int) -> Any:
    kind = draw(
        st.sampled_from(
            ["small", "large", "float", "float32", "int8", "bool", "text", "object", "masked", "none"]
        )
    )
    match kind:
        case "none":
            return None
        case "small" | "int8":
            return np.array(
                draw(st.lists(small, min_size=size, max_size=size)), np.int8 if kind == "int8" else np.int64
            )
        case "large":
            return np.array(draw(st.lists(small | large, min_size=size, max_size=size)), np.int64)
        case "float" | "float32":
            values = draw(st.lists(floats, min_size=size, max_size=size))
            return np.array(values, np.float32 if kind == "float32" else np.float64)
        case "bool":
            return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
        case "text":
            return np.array(draw(st.lists(texts, min_size=size, max_size=size)))
        case "masked":
            values = draw(st.lists(small, min_size=size, max_size=size))
            return np.ma.array(values, mask=draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    found = np.empty(size, object)
    found[:] = draw(st.lists(st.none() | small | texts | st.booleans(), min_size=size, max_size=size))
    return found


@st.composite
def populations(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(1, 5))
    names = ["a", "b", "c", "d.e", "params.p", "budget"]
    found = {name: draw(column(size)) for name in names}
    columns = {name: values for name, values in found.items() if values is not None}
    if draw(st.booleans()):
        columns["last.act"] = np.array(draw(st.lists(st.integers(-1, 6), min_size=size, max_size=size)))
    columns["type"] = np.array(draw(st.lists(st.sampled_from(TYPES), min_size=size, max_size=size)))
    return columns


schemas = st.sampled_from(
    [
        {},
        {"p": Parameter("number", min=-1, max=2)},
        {"p": Parameter("integer", required=True)},
        {"p": Parameter("string", enum=("x",))},
        {"p": Parameter("string", max=0)},
        {"p": Parameter("boolean")},
    ]
)


@st.composite
def charters(draw: st.DrawFn) -> Charter:
    from tests.governance.test_conditions import written

    found = draw(st.lists(trees, max_size=3))
    conditions = [written(tree) for tree in found]
    cost = draw(st.sampled_from([0, 2, 0.5, 2**53 + 1, "a", "a * 2", "world.w + 1", "params.p"]))
    definition = SkillDefinition(
        "act",
        "",
        draw(st.sampled_from([["*"], ["farmer"], ["farmer", "居民"], ["nobody"]])),
        conditions,
        {"cost": cost, "cooldown": draw(st.integers(0, 3))},
        [],
        "act",
        draw(schemas),
    )
    roles = draw(
        st.sampled_from([None, {"farmer": Role(["act"])}, {"baker": Role(["x"]), "*": Role(["a*"])}])
    )
    registry = SkillRegistry([definition, SkillDefinition("other")], strict=draw(st.booleans()))
    return Charter(registry, None if roles is None else RoleEnforcer(roles))


def row(columns: dict[str, Any], number: int, ledger: Ledger) -> tuple[Actor, dict[str, Any]]:
    """Return one agent, made of plain values, with its past in the ledger."""
    actor, params = Actor(str(number), str(columns["type"][number])), {}
    for name, values in columns.items():
        value = values[number]
        if value is np.ma.masked or name == "type":
            continue
        value = value.item() if isinstance(value, np.generic) else value
        first, _, rest = name.partition(".")
        match first:
            case "last":
                if value >= 0:
                    ledger.add(rest, agent_id=actor.id, step=value)
            case "params":
                params[rest] = value
            case "d":
                actor.state["d"] = {rest: value}
            case _:
                actor.state[name] = value
    return actor, params


@settings(max_examples=80, deadline=None)
@given(
    charters(),
    populations(),
    st.integers(0, 6),
    st.sampled_from([{}, {"w": 1}, {"w": "x"}, {"w": 2.5}]),
)
def test_equal_to_the_single_check_bit_for_bit(
    charter: Charter, columns: dict[str, Any], step: int, world: dict[str, Any]
) -> None:
    note(f"{charter.to_json()}")
    ledger = Ledger()
    found = batch(charter, "act", columns, step=step, world=world)
    rows = [row(columns, number, ledger) for number in range(len(columns["type"]))]
    single = [
        charter.check("act", actor, params, world=world, step=step, ledger=ledger) for actor, params in rows
    ]
    assert found.bits.tolist() == [result.bits for result in single]
    assert found.allowed.tolist() == [result.valid for result in single]
    assert [found.result(number).message for number in range(len(rows))] == [
        result.message for result in single
    ]


COLUMNS = {
    "type": np.array(["farmer", "baker", "farmer", "farmer"]),
    "owner": np.array([True, True, False, True]),
    "budget": np.array([10.0, 10.0, 10.0, 3.0]),
    "last.act": np.array([-1, -1, -1, 4]),
}


def simple() -> Charter:
    act = SkillDefinition("act", "", ["farmer"], ["owner"], {"cost": 5, "cooldown": 2})
    return Charter(SkillRegistry([act, SkillDefinition("rest")]))


def test_a_skill_that_does_not_exist() -> None:
    found = batch(simple(), "nope", COLUMNS, step=5)
    assert not found.allowed.any()
    assert found.result(3).message == "Skill 'nope' not found in registry"


def test_types_as_numbers_and_wrong_ones() -> None:
    coded = {**COLUMNS, "type": np.array([0, 1, 0, 0], np.int8)}
    one, other = (
        batch(simple(), "act", COLUMNS, step=5),
        batch(simple(), "act", coded, step=5, types=["farmer", "baker"]),
    )
    assert one.bits.tolist() == other.bits.tolist()
    assert [result.code for result in other.result(3).reasons] == ["cost", "cooldown"]
    with pytest.raises(ValueError, match="not among the 1 names"):
        batch(simple(), "act", coded, types=["farmer"])
    with pytest.raises(ValueError, match="rows"):
        batch(simple(), "act", {**COLUMNS, "owner": np.array([True])})


@pytest.mark.extras
def test_a_data_frame() -> None:
    pandas = import_module("pandas")
    frame = pandas.DataFrame(COLUMNS)
    assert batch(simple(), "act", frame, step=5).allowed.tolist() == [True, False, False, False]
    frame["type"] = frame["type"].astype("category")
    assert batch(simple(), "act", frame, step=5).allowed.tolist() == [True, False, False, False]
    types = pandas.Categorical(["farmer", None, "baker", "baker"], categories=["farmer", "baker"])
    with pytest.raises(ValueError, match="no text in row 1"):
        batch(simple(), "act", frame.assign(type=types))


@pytest.mark.parametrize(
    "types", [["farmer", None], [float("nan"), "farmer"], np.array(["farmer", None], object)]
)
def test_every_agent_has_a_type(types: Any) -> None:
    with pytest.raises(ValueError, match="no text in row"):
        batch(Charter(SkillRegistry([SkillDefinition("act", "", ["*"])])), "act", {"type": types})


def act(**keys: Any) -> Charter:
    return Charter(SkillRegistry([SkillDefinition("act", **{"eligible_agent_types": ["t"], **keys})]))


@pytest.mark.parametrize(
    ("charter", "columns", "expected"),
    [
        (act(), {"params.foo": [1, 2]}, [False, False]),
        (act(), {"params.foo": np.ma.array([1, 2], mask=[True, False])}, [True, False]),
        (act(preconditions=["x in [x]"]), {"x": np.array([1.0, float("nan")])}, [True, False]),
        (act(preconditions=["x not in [x, 1]"]), {"x": np.array([1.0, float("nan")])}, [False, True]),
        (act(preconditions=["x == 1"]), {"x": [1, "a"]}, [True, False]),
        (act(preconditions=["x == 9007199254740993"]), {"x": [9007199254740993, 0.5]}, [True, False]),
        (act(preconditions=["x in [true]"]), {"x": [2, True]}, [False, True]),
        (act(preconditions=["x == 'a'"]), {"x": ["a", "a\0"]}, [True, False]),
        (act(), {"type": ["t", "t\0"]}, [True, False]),
        (act(output_schema={"n": Parameter("integer")}), {"params.n": [1, 2.5]}, [True, False]),
        (act(preconditions=["x == [1, 2]"]), {"x": [[1, 2], [1]]}, [True, False]),
        (
            act(institutional_constraints={"cooldown": 3}),
            {"last.act": np.ma.array([9, 4], mask=[True, False])},
            [True, False],
        ),
    ],
)
def test_columns_mean_what_their_values_mean(
    charter: Charter, columns: dict[str, Any], expected: list[bool]
) -> None:
    found = batch(charter, "act", {"type": ["t", "t"], **columns}, step=5)
    assert found.allowed.tolist() == expected
    assert [found.result(row).valid for row in range(2)] == expected


def test_steps_are_whole_numbers() -> None:
    for wrong in ([0.5, 1], ["a", "b"], [2**60, 1.5], [float("nan"), 0], [None, 4]):
        with pytest.raises(ValueError, match=r"'last\.act' has values that are not whole numbers"):
            batch(
                act(institutional_constraints={"cooldown": 1}),
                "act",
                {"type": ["t", "t"], "last.act": wrong},
            )


def test_many_rows() -> None:
    count = 300_001
    columns = {
        "type": np.zeros(count, np.int8),
        "owner": np.arange(count) % 3 == 0,
        "budget": np.arange(count) % 7,
    }
    found = batch(simple(), "act", columns, step=5, types=["farmer"])
    assert found.allowed.tolist() == [n % 3 == 0 and n % 7 >= 5 for n in range(count)]


def test_arrays_stay_arrays_where_they_can() -> None:
    """A tree over numbers, flags and texts is computed at once and not row by row."""
    columns = {
        "a": np.arange(4),
        "b": np.array([True, False, True, True]),
        "t": np.array(["x", "y", "x", "x"]),
    }
    vectors = Vectors(columns.get, {"w": 2}, strict=False)
    tree = ex.parse("b and a * 2 + 1 > world.w and t in ['x', 'z'] and not a % 3 == 0 or a / 2 > 5")
    assert vectors.holds(tree).tolist() == [False, False, True, False]
