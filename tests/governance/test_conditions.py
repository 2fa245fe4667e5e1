"""The language of conditions: parsed, compiled to closures, and equal to plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.governance.meaning import Facts, holds
from tests.governance.support import resident
from vademecum.errors import ConditionWrong
from vademecum.governance import Charter, SkillDefinition, SkillRegistry
from vademecum.governance import conditions as ex
from vademecum.governance.check import SkillCheck
from vademecum.governance.conditions import strict_differs
from vademecum.governance.definitions import Clause

STATE: dict[str, Any] = {
    "budget": 120,
    "rate": 0.5,
    "elevated": False,
    "owner": True,
    "kind": "farm",
    "tags": ["old", "wet"],
    "house": {"floor": 2, "roof": {"age": 30}},
    "预算": 10,
    "nothing": None,
    "nan": float("nan"),
    "numbers": [float("nan"), 1],
    "class": 3,
    "lambda": {"if": 1},
}


def check(text: str, state: dict[str, Any] = STATE, *, strict: bool = False, **more: Any) -> bool:
    """Return whether a charter with this condition approves."""
    registry = SkillRegistry([SkillDefinition("act", preconditions=[text])], strict=strict)
    result = Charter(registry).check("act", resident(**state), **more)
    return bool(result)


@pytest.mark.parametrize(
    "text",
    [
        "owner", "not elevated", "!elevated", "budget > 100", "budget >= 120 and budget <= 120",
        "budget > 200 or owner", "budget > 200 || owner", "owner && !elevated", "not (owner and elevated)",
        "budget != 5", "kind == 'farm'", 'kind == "farm"', "kind in ['farm', 'town']", "kind not in ['town']",
        "'wet' in tags", "house.floor == 2", "house.roof.age - 10 > 5 * 3", "budget * rate == 60",
        "budget / 7 > 17.1", "budget % 7 == 1", "-budget < 0", "- -budget > 0", "has(house.roof)", "not has(pool)",
        "has(house.roof.age) and house.roof.age > 20", "true", "not false", "True and not False", "budget",
        "预算 > 5", "1e2 < budget", ".4 < rate", "not elevated == true", "(!elevated) == true", "!elevated == true",
        "budget - 20 - 50 == 50", "2 + 3 * 4 == 14", "(2 + 3) * 4 == 20", "100 / 10 / 5 == 2", "[1, 2] == [1, 2]",
        "owner or missing", "has(missing) and missing > 3 or owner", "not elevated and not elevated", "nothing != 3",
        "'a\\'b' == \"a'b\"", "tags == ['old', 'wet']", "tags != ['old']", "[1] != 1",
        "tags in [['x'], ['old', 'wet']]", "'' in kind", "'ar' in kind", "1 == true", "7 / 2 == 3.5",
        "-7 % 3 == 2", "not nan in [nan]", "nan not in numbers",
        "class == 3 and lambda.if > 0", "[1, 2,] == [1, 2]",
    ],
)  # fmt: skip
def test_holds(text: str) -> None:
    assert check(text), text
    assert check(text, strict=True), text


@pytest.mark.parametrize(
    "text",
    [
        "elevated", "not owner", "budget < 100", "kind == 'town'", "missing", "missing > 3", "not (missing > 3)",
        "kind > 3", "not kind", "nothing", "missing > 3 or owner",
        "budget / 0 > 1", "budget % 0 == 0", "kind * 3 == 'farmfarmfarm'", "kind + 'x' == 'farmx'",
        "kind % 3 == 1", "tags * 2 == tags", "house.floor.up", "house.cellar == 1", "'x' in budget", "false", "0",
        "budget in 5", "tags == ['old']", "tags != ['old', 'wet']", "nan in [nan]", "nan in numbers",
        "nan == nan", "world.flood > 1", "params.x == 1", "has(missing)", "not has(budget)",
    ],
)  # fmt: skip
def test_does_not_hold(text: str) -> None:
    assert not check(text), text
    assert not check(text, strict=True), text


@pytest.mark.parametrize(
    "text",
    [
        "not missing", "missing or owner", "not (missing and owner)", "kind", "tags", "house", "not nothing",
        "missing != 3", "not has(nothing)", "not missing.deeper", "kind and owner", "missing not in [1]", "not budget.x",
    ],
)  # fmt: skip
def test_only_strict_mode_denies(text: str) -> None:
    assert check(text), text
    assert not check(text, strict=True), text
    assert strict_differs(ex.parse(text)), text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("missing > 3", "missing"),
        ("kind > 3", "wrong-type"),
        ("budget / 0 > 1", "arithmetic"),
        ("budget < 3", "precondition"),
        ("house.cellar > 1", "missing"),
        ("owner and missing < 1", "missing"),
    ],
)
def test_codes(text: str, code: str) -> None:
    registry = SkillRegistry([SkillDefinition("act", preconditions=[text])])
    assert [reason.code for reason in registry.check_preconditions("act", STATE).reasons] == [code]
    strict = SkillRegistry([SkillDefinition("act", preconditions=[text])], strict=True)
    assert [reason.code for reason in strict.check_preconditions("act", STATE).reasons] == [code]


def test_the_shared_state_and_what_an_intent_says() -> None:
    assert check("world.flood > 1 and budget > world.flood", world={"flood": 3})
    registry = SkillRegistry([SkillDefinition("act", preconditions=["params.amount <= budget"])])
    assert not Charter(registry).check("act", resident(budget=3), {"amount": 4})
    assert registry.check_preconditions("act", {"budget": 3}).reasons[0].code == "missing"
    shared = SkillRegistry([SkillDefinition("act", preconditions=["world.flood > 1"])])
    assert shared.check_preconditions("act", {"world": {"flood": 2}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"), ("   ", "empty"), ("a b", "at 'b'"), ("a >", "not complete"), ("(a", "at '\\('"),
        ("a < b < c", "compares twice"), ("a = 1", "'='"), ("f(x)", "the only function"), ("has(a, b)", "the only function"),
        ("__import__('os')", "the only function"), ("a[0]", "not a condition"), ("a.b()", "the only function"),
        ("lambda: 1", "':'"), ("a if b else c", "at 'if'"), ("a; b", "';'"), ("a and", "not complete"),
        ("a.", "not complete"), ("has(1)", "name"), ("'open", "'"), ("a not b", "at 'b'"), ("a ** 2", "at '\\*'"),
        ("1" * 50, "characters"), ("1e999", "too large"), ("a @ b", "'@'"), ("{}", "'{'"), ("a\nb", "at 'b'"),
        ("f'x'", "at \"'x'\""), ("a is b", "at 'is'"), ("x in " + "[" * 900 + "]" * 900, "brackets"),
        ("(" * 101 + "a" + ")" * 101, "brackets"), ("+".join(["a"] * 102), "operators"), ("not " * 101 + "a", "operators"),
        ("a" * 3000, "2000 characters"), ("and", "at 'and'"), ("a in", "not complete"), ("`a`", "'`'"), ("a, b", "not a"),
        ("(a,)", "not a"), ("()", "not a"), ("*a", "at '\\*'"), ("a.1", "at '.1'"), ("a.'b'", "field's name"),
        ("a.true", "field's name"), ("1.a", "at 'a'"), ("'x'.upper", "field's name"), ("+a", "not a condition"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_language(text: str, words: str) -> None:
    with pytest.raises(ConditionWrong, match=words):
        ex.parse(text)


NAMES = ["a", "b", "c", "d.e", "world.w", "params.p"]
numbers = st.integers(-9, 9) | st.floats(-9, 9, allow_nan=False).map(lambda x: round(x, 2))
constants = st.builds(ex.Constant, numbers | st.booleans() | st.sampled_from(["x", "y", ""]))
paths = st.sampled_from(NAMES).map(lambda name: ex.Path(tuple(name.split("."))))
leaves = constants | paths | st.builds(ex.Has, paths)

items = st.lists(constants | paths | st.just(ex.Items((ex.Constant(1), ex.Constant("x")))), max_size=3).map(
    lambda values: ex.Items(tuple(values))
)


def larger(trees: st.SearchStrategy[ex.Tree]) -> st.SearchStrategy[ex.Tree]:
    return (
        st.builds(ex.Not, trees)
        | st.builds(ex.Join, st.sampled_from(["and", "or"]), trees, trees)
        | st.builds(ex.Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), trees, trees)
        | st.builds(
            ex.Compare,
            st.sampled_from(["in", "not in"]),
            trees,
            items | paths,
        )
        | st.builds(ex.Compare, st.sampled_from(["==", "!="]), trees, items)
        | st.builds(ex.Compute, st.sampled_from(["+", "-", "*", "/", "%"]), trees, trees)
    )


trees = st.recursive(leaves, larger, max_leaves=8)
NAN = float("nan")
values = st.none() | st.booleans() | numbers | st.sampled_from(["x", "y", "no", NAN, [1, "x"], [], [NAN]])
states = st.fixed_dictionaries(
    {},
    optional={"a": values, "b": values, "c": values, "d": st.fixed_dictionaries({}, optional={"e": values})},
)
shared = st.fixed_dictionaries({}, optional={"w": values})


def written(tree: ex.Tree) -> str:
    """A tree as somebody could have written it."""
    match tree:
        case ex.Constant(value=bool() as value):
            return str(value).lower()
        case ex.Constant(value=value):
            return repr(value)
        case ex.Path():
            return str(tree)
        case ex.Has(path=path):
            return f"has({path})"
        case ex.Items(values=items):
            return f"[{', '.join(map(written, items))}]"
        case ex.Not(value=value):
            return f"(not {written(value)})"
        case ex.Join() | ex.Compare() | ex.Compute():
            return f"({written(tree.left)} {tree.by} {written(tree.right)})"


@settings(max_examples=100, deadline=None)
@given(trees, states, shared, shared, st.booleans())
def test_compiled_is_what_python_says(
    tree: ex.Tree, state: dict[str, Any], world: dict[str, Any], said: dict[str, Any], strict: bool
) -> None:
    """The closures agree with plain Python on every state, and a denial has one reason."""
    params = {"p": said["w"]} if said else {}
    found = SkillCheck(SkillDefinition("act", preconditions=[written(tree)]), strict=strict)
    if found.problems:
        reject()  # too many brackets
    result = found.check("t", (state, world, params), {}, 0).only(Clause.CONDITIONS)
    expected = holds(tree, Facts(state, world, params, strict))
    assert bool(result) is expected
    assert len(result.reasons) == (0 if expected else 1)


@settings(max_examples=100, deadline=None)
@given(trees, states, shared)
def test_strict_differs_only_if_it_says_so(
    tree: ex.Tree, state: dict[str, Any], world: dict[str, Any]
) -> None:
    loose, strict = (holds(tree, Facts(state, world, {}, mode)) for mode in (False, True))
    assert loose is strict or strict_differs(tree)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_written_and_read_again(tree: ex.Tree) -> None:
    try:
        again = ex.parse(written(tree))
    except ConditionWrong:
        reject()  # too many brackets
    assert written(again) == written(tree)


@settings(max_examples=100, deadline=None)
@given(
    st.text(alphabet="ab.()[]'\"\\ <>=!&|+-*/%,1 enotrandihs_{}:;@\n预", max_size=40) | st.text(max_size=20)
)
def test_any_text_is_read_or_refused_and_never_run(text: str) -> None:
    """Fuzz: nothing but a tree or ``ConditionWrong`` comes out, and what is read decides without harm."""
    try:
        tree = ex.parse(text)
    except ConditionWrong:
        return
    assert check(text) is holds(tree, Facts(STATE))


@pytest.mark.parametrize(
    "text", ["__class__", "a.__class__", "a.__class__.__base__", "print", "exit", "s", "w"]
)
def test_names_are_fields_and_nothing_else(text: str) -> None:
    registry = SkillRegistry([SkillDefinition("act", preconditions=[text])], strict=True)
    assert registry.check_preconditions("act", {"a": {"x": 1}}).reasons[0].code == "missing"


class Odd(float):
    """A number whose own words are Python."""

    def __repr__(self) -> str:
        return "__import__('os').abort()"

    __str__ = __repr__


class OddCount(int):
    __repr__ = __str__ = Odd.__repr__


def test_numbers_of_other_kinds_are_plain_numbers() -> None:
    constraints = {"cost": Odd(2.5), "cooldown": OddCount(3)}
    found = Charter(SkillRegistry([SkillDefinition("act", institutional_constraints=constraints)]))
    assert [reason.message for reason in found.check("act", resident(budget=2)).reasons] == [
        "Cost 2.5 exceeds 'budget' (2)"
    ]
    kept = found.skills["act"].institutional_constraints
    assert [type(kept[key]) for key in ("cost", "cooldown")] == [float, int]


def test_hostile_ids_and_texts_are_only_texts() -> None:
    name = "x'] or __import__('os').system('false') #\n"
    text = "kind == 'x\\' or 1 #'"
    found = Charter(
        SkillRegistry(
            [SkillDefinition(name, preconditions=[text], institutional_constraints={"cooldown": 1})]
        )
    )
    assert [reason.code for reason in found.check(name, resident(kind="y")).reasons] == ["precondition"]
    assert found.check(name, resident(kind="x' or 1 #"))


cel_numbers = st.integers(-20, 20)
cel_paths = st.sampled_from(["a", "b", "d.e"]).map(lambda name: ex.Path(tuple(name.split("."))))
# Of what is not negative a remainder is the same everywhere, and so is a quotient of floats.
cel_parts = cel_paths | st.builds(
    ex.Compute, st.just("%"), st.just(ex.Path(("count",))), st.integers(1, 9).map(ex.Constant)
)
cel_lists = st.lists(cel_numbers.map(ex.Constant), max_size=3).map(lambda v: ex.Items(tuple(v)))
cel_sums = st.recursive(
    cel_parts | cel_numbers.map(ex.Constant),
    lambda inner: st.builds(ex.Compute, st.sampled_from(["+", "-", "*"]), inner, inner),
    max_leaves=4,
)
cel_tests = (
    st.builds(ex.Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), cel_sums, cel_sums)
    | st.builds(
        ex.Compare,
        st.just("in"),
        cel_paths,
        st.lists(cel_numbers.map(ex.Constant), min_size=1, max_size=3).map(lambda v: ex.Items(tuple(v))),
    )
    | st.builds(ex.Compare, st.just("in"), cel_sums, st.just(ex.Path(("list",))))
    | st.builds(ex.Compare, st.sampled_from(["==", "!="]), st.just(ex.Path(("list",))), cel_lists)
    | st.builds(ex.Compare, st.sampled_from(["==", "!="]), cel_lists, cel_lists)
    | st.builds(
        ex.Compare,
        st.sampled_from(["<", ">="]),
        st.builds(ex.Compute, st.just("/"), st.just(ex.Path(("half",))), st.just(ex.Constant(4.0))),
        st.sampled_from([-0.5, 0.0, 0.25, 1.75]).map(ex.Constant),
    )
    | st.just(ex.Has(ex.Path(("d", "e"))))
    | st.sampled_from(["yes", "no"]).map(lambda name: ex.Path((name,)))
    | st.builds(
        ex.Compare,
        st.sampled_from(["==", "!="]),
        st.just(ex.Path(("text",))),
        st.sampled_from(["x", "y"]).map(ex.Constant),
    )
)
cel_trees = st.recursive(
    cel_tests,
    lambda inner: st.builds(ex.Not, inner) | st.builds(ex.Join, st.sampled_from(["and", "or"]), inner, inner),
    max_leaves=6,
)


def missing(tree: ex.Tree, state: dict[str, Any]) -> bool:
    """Return whether a tree reads a field that is not there; CEL may still give a result."""
    facts = Facts(state)
    return any(facts.at(path) is None for path in ex.paths_of(tree))


def as_cel(tree: ex.Tree) -> str:
    return written(tree).replace("(not ", "(!").replace(" and ", " && ").replace(" or ", " || ")


@settings(max_examples=80, deadline=None)
@given(
    cel_trees,
    st.fixed_dictionaries(
        {
            "yes": st.just(True),
            "no": st.just(False),
            "text": st.sampled_from(["x", "y"]),
            "a": cel_numbers,
            "count": st.integers(0, 40),
            "half": st.sampled_from([-1.5, 0.0, 0.5, 7.0]),
            "list": st.lists(cel_numbers, max_size=3),
        },
        optional={"b": cel_numbers},
    ),
    st.fixed_dictionaries({}, optional={"e": cel_numbers}),
)
def test_agrees_with_another_implementation(
    tree: ex.Tree, state: dict[str, Any], inner: dict[str, Any]
) -> None:
    """What has a value here has the same in the Common Expression Language; what has none is denied."""
    cel = pytest.importorskip("cel", reason="common-expression-language is not installed")
    state = {**state, "d": inner}
    assert ex.parse(as_cel(tree)) == ex.parse(written(tree))
    try:
        theirs = cel.evaluate(as_cel(tree), state)
    except Exception:  # noqa: BLE001 - whatever it raises for a missing field
        assert not check(as_cel(tree), state, strict=True)
        return
    if not missing(tree, state):
        assert check(as_cel(tree), state, strict=True) is theirs
