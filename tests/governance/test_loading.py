"""M1: a charter file is read with every problem and its line."""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from tests.governance.support import D1, broker_of, charter, problems, resident
from vademecum.errors import CharterRefused
from vademecum.governance import Actor, Charter, Role, lint_charter
from vademecum.governance.charter import lint_text

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
        (with_keys("output_schema:", "  a:", "    typ: number"), [(9, "missing-key"), (10, "unknown-key")]),
        (with_keys("description: a", "description: b"), [(9, "duplicate-key")]),
        (HEAD.replace("skill_id: act", "skill_id: rest"), [(5, "duplicate-id")]),
        (HEAD.replace("    implementation_mapping: act\n", ""), [(5, "missing-key")]),
        (HEAD + "default_skill: nope\n", [(8, "unknown-reference")]),
        (HEAD + "roles:\n  farmer:\n    skills:\n      - act\n      - fly\n  '*': {skills: ['*']}\n", [(12, "unknown-reference")]),
        (with_keys("preconditions:", "  - is_owner", "  - budget >"), [(10, "condition")]),
        (with_keys("institutional_constraints: {cost: -4}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: 'a +'}"), [(8, "condition")]),
        (with_keys("output_schema: {a: {type: numbr}}"), [(8, "value")]),
        (HEAD.replace("mapping: act", "mapping: 'os.system; rm'"), [(7, "value")]),
        (HEAD.replace("mapping: act", "mapping: skill:csv/scripts/a.py"), []),
        ("skills: [a\n", [(2, "invalid-yaml")]),
        ("- a\n", [(1, "not-a-mapping")]),
        ("", [(1, "not-a-mapping")]),
        ("skills: *a\n", [(1, "invalid-yaml")]),
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
        (with_keys("institutional_constraints: {cost: yes}"), [(8, "value")]),
        (with_keys("institutional_constraints: {cost: [1]}"), [(8, "value")]),
        (with_keys("cost: 5"), [(8, "unknown-key")]),
        (with_keys("precondition: [a]"), [(8, "unknown-key")]),
        (HEAD.replace("[farmer]", "farmer"), [(6, "value")]),
        (HEAD.replace("mapping: act", "mapping: sim.noop"), []),
        (with_keys("institutional_constraints:", "  cooldown:"), [(9, "value")]),
        (with_keys("institutional_constraints:", "  pays_with:"), [(9, "value")]),
        (with_keys("output_schema:", "  a:", "    type: string", "    enum: [[red], [blue]]"), [(11, "value"), (11, "value")]),
        (with_keys("output_schema:", "  a:", "    type: string", "    enum: []"), [(11, "value")]),
        (with_keys("output_schema:", "  a: {min: 0, max: 1}"), [(9, "missing-key")]),
    ],
)  # fmt: skip
def test_every_problem_has_its_line(text: str, expected: list[tuple[int, str]]) -> None:  # M1
    assert [found for found in problems(text) if found[1] != "no-feasible-skill"] == expected


def test_several_problems_are_all_said() -> None:  # M1
    text = with_keys("costs: 5", "preconditions: ['a >']", "season: dry") + "default_skill: x\n"
    assert problems(text) == [
        (8, "unknown-key"),
        (9, "condition"),
        (10, "unknown-key"),
        (11, "unknown-reference"),
    ]


WILD = """\
version: 2
metadata: {author: somebody}
skills:
  - skill_id: rest
    skill_type: passive
    eligible_agent_types: ["*"]
    institutional_constraints: {cost: 5, once_only: true, season: [wet, dry]}
    output_schema: {type: object, properties: {decision: {type: string}}, required: [decision]}
    conflicts_with: []
    implementation_mapping: sim.noop
"""


def test_a_charter_as_it_is_found_loads_with_remarks(tmp_path: Path) -> None:
    found = lint_text(WILD)
    assert found.valid
    assert {(problem.code, problem.severity) for problem in found.problems} == {("unknown-key", "warning")}
    assert [problem.line for problem in found.problems] == [1, 2, 5, 7, 7, 8, 9]
    assert "has no effect" in found.problems[0].message
    rest = charter(WILD, tmp_path).skills["rest"]
    assert (rest.output_schema, rest.implementation_mapping) == ({}, "sim.noop")
    assert rest.institutional_constraints["season"] == ("wet", "dry")
    assert (rest.extra["skill_type"], rest.extra["conflicts_with"]) == ("passive", ())
    broker = broker_of(WILD, {"sim.noop": lambda agent: "done"})
    assert broker.propose(resident(budget=9), "rest").output == "done"
    assert Charter.from_json(broker.charter.to_json()).digest == broker.charter.digest


PUBLISHED = """\
annual: true
cost_type: one_time
once_only: true
permanent: true
requires_grant: false
subsidy_eligible: true
magnitude_type: percentage
max_magnitude_pct: 30
reduction_factor: 0.75
min_savings: 10000
adjustment_range: [0.05, 0.15]
coverage: contents_only
"""


def test_descriptive_constraints_of_published_charters_are_no_misspellings() -> None:
    text = with_keys("institutional_constraints:", *(f"  {line}" for line in PUBLISHED.splitlines()))
    found = lint_text(text)
    assert found.valid
    assert {(problem.code, problem.severity) for problem in found.problems} == {("unknown-key", "warning")}
    assert len(found.problems) == 12


@pytest.mark.parametrize("cost", [".nan", ".inf", "-5", "yes", "1" + "0" * 400, "1e999"])
def test_a_cost_in_a_file_that_is_no_cost_is_refused_in_a_sentence_about_the_cost(cost: str) -> None:
    (found,) = lint_text(with_keys(f"institutional_constraints: {{cost: {cost}}}")).problems
    assert (found.severity, found.line) == ("error", 8)
    assert found.message.startswith("The cost ")


def test_without_a_mapping_the_engine_is_asked_for_the_skill() -> None:
    """Charters in use leave it out, and describe each skill with keys of their own."""
    text = "domain: gossip\nskills:\n- {skill_id: like, category: adopt, eligible_agent_types: [user]}\n"
    assert [(problem.code, problem.severity) for problem in lint_text(text).problems] == [
        ("unknown-key", "warning"), ("unknown-key", "warning"), ("missing-key", "warning"),
    ]  # fmt: skip
    broker = broker_of(text, {"like": lambda agent: "liked"})
    assert broker.propose(Actor("u", "user"), "like").output == "liked"


def test_numbers_are_texts_as_they_are_written() -> None:
    text = "skills:\n- {skill_id: 1.10, eligible_agent_types: [7, 1e3, true], implementation_mapping: f}\n"
    registry = lint_text(text).registry
    assert registry is not None
    assert registry.skills["1.10"].eligible_agent_types == ("7", "1e3", "true")


def test_lint_says_what_strict_would_change() -> None:
    text = with_keys(
        "preconditions:", "  - is_owner", "  - budget > 5", "  - kind != 'farm'", "  - not flooded"
    )
    (found,) = lint_text(text).problems
    assert (found.code, found.severity, found.line) == ("not-strict", "warning", 9)
    assert found.message.endswith("lines 9, 11, 12.")
    assert lint_text(f"strict: true\n{text}").problems == ()
    assert lint_text(with_keys("preconditions: [budget > 5]")).problems == ()


def test_a_large_charter_is_read_in_time() -> None:
    """Counted in calls, not in seconds: twice as many skills take about twice as many."""

    def calls(count: int) -> int:
        form = "  - {{skill_id: s{}, eligible_agent_types: [t], implementation_mapping: f}}\n"
        text = "skills:\n" + "".join(map(form.format, range(count)))
        roles = "".join(f"  t{n}: {{skills: [s{n}]}}\n" for n in range(count))
        profile = cProfile.Profile()
        profile.runcall(lint_text, f"{text}roles:\n  t: {{skills: ['*']}}\n{roles}")
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)
    few, many = calls(100), calls(200)
    assert many < 2.5 * few


def test_nobody_can_ever_use_it() -> None:
    roles = "roles:\n  baker:\n    skills: [rest]\n"
    assert problems(HEAD + roles) == [(5, "unreachable"), (6, "no-feasible-skill")]


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
        CharterRefused,
        match=r"line 2: There is no key 'skil_id': did you mean .* \(and 1 more: vade govern lint",
    ) as caught:
        charter(D1.replace('skill_id: "do_nothing"', "skil_id: 1"), tmp_path)
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
