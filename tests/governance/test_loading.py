"""M1: a charter file is read with every problem and its line."""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from tests.governance.support import D1, charter, problems
from vademecum.errors import CharterRefused
from vademecum.governance import Role, lint_charter
from vademecum.governance.loading import lint_text

HEAD = """\
skills:
  - skill_id: rest
    eligible_agent_types: ["*"]
    implementation_mapping: rest
  - skill_id: act
    eligible_agent_types: [farmer]
    implementation_mapping: act
"""


def with_keys(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (with_keys("costs: 5"), [(8, "unknown-key")]),
        (HEAD + "extra: 1\n", [(8, "unknown-key")]),
        (with_keys("institutional_constraints:", "  cost: 5", "  couldown: 2"), [(10, "unknown-key")]),
        (with_keys("institutional_constraints:", "  limits:", "    agents: 2"), [(9, "unknown-key")]),
        (with_keys("output_schema:", "  a:", "    typ: number"), [(10, "unknown-key"), (10, "missing-key")]),
        (with_keys("description: a", "description: b"), [(9, "duplicate-key")]),
        (HEAD.replace("skill_id: act", "skill_id: rest"), [(5, "duplicate-id")]),
        (HEAD.replace("    implementation_mapping: act\n", ""), [(5, "missing-key")]),
        (with_keys("depends_on:", "  - rest", "  - nope"), [(10, "unknown-reference")]),
        (with_keys("conflicts_with: [nope]"), [(8, "unknown-reference")]),
        (HEAD + "default_skill: nope\n", [(8, "unknown-reference")]),
        (HEAD + "roles:\n  farmer:\n    skills:\n      - act\n      - fly\n  '*': {skills: ['*']}\n", [(12, "unknown-reference")]),
        (with_keys("preconditions:", "  - is_owner", "  - budget >"), [(10, "condition")]),
        (with_keys("preconditions:", "  - a", "  - b", "  - not a"), [(11, "contradiction")]),
        (with_keys("preconditions:", "  - age > 60", "  - age < 18"), [(10, "contradiction")]),
        (with_keys("preconditions:", "  - kind in ['a', 'b']", "  - kind == 'c'"), [(10, "contradiction")]),
        (with_keys("preconditions: [budget < 40]", "institutional_constraints:", "  cost: 50"), [(10, "contradiction")]),
        (with_keys("preconditions: ['1 > 2']"), [(8, "contradiction")]),
        (with_keys("preconditions: ['1 < 2']"), [(8, "always-true")]),
        (with_keys("depends_on: [act]"), [(8, "contradiction")]),
        (with_keys("institutional_constraints: {cost: -4}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: 'a +'}"), [(8, "condition")]),
        (with_keys("output_schema: {a: {type: number, min: 3, max: 2}}"), [(8, "contradiction")]),
        (with_keys("output_schema: {a: {type: numbr}}"), [(8, "value")]),
        (HEAD.replace("mapping: act", "mapping: 'os.system; rm'"), [(7, "value")]),
        (HEAD.replace("mapping: act", "mapping: skill:csv/scripts/a.py"), []),
        ("skills: [a\n", [(2, "invalid-yaml")]),
        ("- a\n", [(1, "not-a-mapping")]),
        ("", [(1, "not-a-mapping")]),
        ("skills: *a\n", [(1, "invalid-yaml"), (1, "value")]),
        ("default_skill: a\n", [(1, "missing-key"), (1, "unknown-reference")]),
        ("skills: 3\n", [(1, "value")]),
        ("skills: []\n", [(1, "value")]),
        (with_keys("institutional_constraints: {cost: -(50)}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: '-50'}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: 2 - 3}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: \"'x'\"}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: 'true'}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: a > 3}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: }"), [(8, "value")]),
        (with_keys("institutional_constraints:", "  cooldown:"), [(9, "value")]),
        (with_keys("institutional_constraints:", "  pays_with:"), [(9, "value")]),
        (with_keys("institutional_constraints:", "  limits:", "    type: 1", "    agent:"), [(11, "value")]),
        (with_keys("institutional_constraints:", "  limits:", "    agent: [1]"), [(10, "value")]),
        (with_keys("institutional_constraints:", "  limits:"), [(9, "value")]),
        (with_keys("output_schema:", "  a:", "    type: string", "    enum: [[red], [blue]]"), [(11, "value"), (11, "value")]),
        (with_keys("output_schema:", "  a:", "    type: string", "    enum: []"), [(11, "value")]),
        (with_keys("output_schema:", "  a: {type: integer, enum: [a]}"), [(9, "contradiction")]),
        (with_keys("output_schema:", "  a: {type: integer, min: 10, enum: [5, 12]}"), [(9, "contradiction")]),
        (with_keys("output_schema:", "  a: {min: 0, max: 1}"), [(9, "missing-key")]),
    ],
)  # fmt: skip
def test_every_problem_has_its_line(text: str, expected: list[tuple[int, str]]) -> None:  # M1
    assert [found for found in problems(text) if found[1] != "no-feasible-skill"] == expected


def test_several_problems_are_all_said() -> None:  # M1
    text = with_keys("costs: 5", "preconditions: ['a >']", "depends_on: [nope]") + "default_skill: x\n"
    assert problems(text) == [
        (8, "unknown-key"),
        (9, "condition"),
        (10, "unknown-reference"),
        (11, "unknown-reference"),
    ]


def test_a_circle_of_dependencies() -> None:
    text = HEAD.replace("mapping: rest", "mapping: rest\n    depends_on: [act]") + "    depends_on: [rest]\n"
    found = lint_text(text).problems
    assert [(problem.line, problem.code) for problem in found] == [(5, "contradiction"), (9, "contradiction")]
    assert "rest → act → rest" in found[0].message


def chain(needs: dict[str, list[str]]) -> str:
    lines = ["skills:"]
    for name, others in needs.items():
        lines += [f"  - skill_id: {name}", "    eligible_agent_types: ['*']", "    implementation_mapping: f"]
        lines += [f"    depends_on: [{', '.join(others)}]"] if others else []
    return "\n".join(lines) + "\n"


def test_circles_that_the_first_entry_does_not_lead_to() -> None:
    two = lint_text(chain({"a": ["x", "b"], "b": ["x", "a"], "x": []})).problems
    assert [(problem.line, problem.code) for problem in two] == [(5, "contradiction"), (9, "contradiction")]
    three = lint_text(chain({"a": ["d", "b"], "b": ["d", "c"], "c": ["d", "a"], "d": []})).problems
    assert ["a → b → c → a" in three[0].message, len(three)] == [True, 3]
    apart = chain({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c", "a"], "e": ["a", "c"]})
    assert [problem.line for problem in lint_text(apart).problems] == [5, 9, 13, 17]
    assert problems(chain({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})) == []


def test_a_large_charter_is_read_in_time() -> None:
    """Counted in calls, not in seconds: twice as many skills take about twice as many."""

    def calls(count: int) -> int:
        text = chain({f"s{n}": [f"s{n - 1}"] if n else [] for n in range(count)}).replace(
            "['*']\n    implementation_mapping: f\n    depends_on",
            "[t]\n    implementation_mapping: f\n    depends_on",
        )
        roles = "".join(f"  t{n}: {{skills: [s{n}]}}\n" for n in range(count))
        profile = cProfile.Profile()
        profile.runcall(lint_text, f"{text}roles:\n  t: {{skills: ['*']}}\n{roles}")
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)
    few, many = calls(100), calls(200)
    assert many < 2.5 * few


def test_a_default_that_does_not_help() -> None:
    text = HEAD + "    output_schema: {p: {type: string, required: true}}\ndefault_skill: act\n"
    found = lint_text(text.replace('["*"]', "[baker]")).problems
    assert [(problem.line, problem.code, problem.severity) for problem in found] == [
        (9, "contradiction", "error"),
        (9, "unreachable", "warning"),
    ]
    assert problems(HEAD + "default_skill: rest\n") == []


def test_changes_that_no_role_may_write() -> None:
    roles = "roles:\n  farmer: {skills: ['*'], writes: [%s]}\n"
    for changes, writes, expected in (
        ("money", "place", [(8, "unreachable")]),
        ("money", "m*", []),
        ("home.floor", "home", []),
        ("home", "home.floor", []),
        ("world.dike", "'*'", [(8, "unreachable")]),
        ("'mon*'", "'*ey'", []),
    ):
        text = with_keys(f"allowed_state_changes: [{changes}]") + roles % writes
        assert problems(text) == expected, (changes, writes)


def test_nobody_can_ever_use_it() -> None:
    roles = "roles:\n  baker:\n    skills: [rest]\n"
    assert problems(HEAD + roles) == [(5, "unreachable"), (6, "no-feasible-skill")]
    roles = "roles:\n  baker:\n    skills: [rest, act]\n  farmer: {skills: [act]}\n"
    found = lint_text(HEAD + roles).problems
    assert [(problem.line, problem.code, problem.severity) for problem in found] == [
        (10, "unreachable", "warning")
    ]


def test_depending_on_what_one_can_never_do() -> None:
    text = HEAD.replace('["*"]', "[baker]") + "    depends_on: [rest]\n"
    assert problems(text) == [(8, "unreachable")]


def test_a_type_that_can_do_nothing() -> None:
    text = "skills:\n  - skill_id: act\n    eligible_agent_types: [farmer]\n    implementation_mapping: act\n"
    assert problems(text + "    preconditions: [a, not a]\n") == [
        (3, "no-feasible-skill"),
        (5, "contradiction"),
    ]


def test_no_rule_is_called_contradictory_that_is_not() -> None:
    for conditions in (
        "['a > 1', 'a < 2']",
        "['a or b', 'not a']",
        "['a + 1 > 5', 'a - 1 < 3']",
        "['a != 1', 'a != 2', 'a > 0']",
        "['a == 1 or a == 5', 'a > 3']",
        "['has(a)', 'a < 3 or a > 9', 'a > 2']",
        "['name > \"m\"', 'name < \"n\"']",
        "['a >= 3', 'a <= 3']",
        "['a > 1e17']",
        "['a < -1e17']",
        "['a > 1e308', 'a < 1.7e308']",
        "['a > 1152921504606846976', 'a < 1152921504606846978', 'a != 0.5']",
        "['a == [1, 2]']",
        "['a != [1, 2]', 'a == []']",
        "['a in [[1, 2]]']",
    ):
        assert problems(with_keys(f"preconditions: {conditions}")) == [], conditions


def test_chinese_types_fields_and_texts(tmp_path: Path) -> None:
    text = """\
skills:
  - skill_id: 搬迁
    description: 永久搬迁到更安全的区域
    eligible_agent_types: [居民]
    preconditions: ["not 已搬迁", "预算 > 100", "家.楼层 in [1, 2]"]
    implementation_mapping: 执行搬迁
roles:
  居民: {skills: ["搬*"], reads: ["*"], writes: ["位置"]}
"""
    found = charter(text, tmp_path)
    assert found.roles is not None
    assert found.roles.roles == {"居民": Role(("搬*",), ("*",), ("位置",))}


def test_a_broken_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        CharterRefused, match=r"line 2: There is no key 'x' here.* \(and 1 more: vade govern lint"
    ) as caught:
        charter(D1.replace('skill_id: "do_nothing"', "x: 1"), tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(CharterRefused, match="There is no charter at"):
        lint_charter(tmp_path / "nope.yaml")


def test_hostile_files(tmp_path: Path) -> None:
    bomb = "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(30))
    deep = "skills: " + "[" * 5000
    for text in (bomb, deep, "skills:\n  - !!python/object/apply:os.system ['x']\n", "\x00", "? [a]\n: b\n"):
        assert "error" in {problem.severity for problem in lint_text(text).problems}
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CharterRefused, match="cannot be read"):
        lint_charter(tmp_path / "x.yaml")
