"""L1: cases in every shape they come in; a malformed one is named by file, case and field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.evals.support import final, write
from vademecum.errors import CaseRefused
from vademecum.evals.results import Header, read_evaluation, write_header
from vademecum.evals.suite import Malformed, read_suite


def test_a_directory_of_cases(tmp_path: Path) -> None:
    write(tmp_path / "suite/a/case.json", {"input": "一", "expected": {"output": ["甲", "乙"]}})
    write(
        tmp_path / "suite/b.yaml", "id: second\ninput: two\ntags: slow\nrepeat: 3\nmock: {turns: [hello]}\n"
    )
    write(tmp_path / "suite/many.json", {"cases": [{"id": 3, "input": "three"}]})
    write(tmp_path / "suite/files/data.json", "not a case")
    suite = read_suite(tmp_path / "suite")
    assert suite.malformed == ()
    assert [(case.id, case.input, case.repeat, case.tags) for case in suite.cases] == [
        ("second", "two", 3, ("slow",)),
        ("3", "three", 1, ()),
        ("a", "一", 1, ()),
    ]
    assert suite.cases[2].expected.output.contains == ("甲", "乙")
    assert suite.name == "suite"


def test_everything_a_case_can_say(tmp_path: Path) -> None:
    whole = {
        "id": "whole",
        "input": "do it",
        "files": {"a.txt": "text"},
        "setup": {"skills": ["x"], "answer": "no"},
        "expected": {
            "skills_any_of": ["x"],
            "skills_all_of": ["x"],
            "skills_none_of": ["y"],
            "trajectory": [{"must_occur": "load_skill", "before": "run_script"}, {"forbid": "write_file"}],
            "output": {"json": {"path": "a", "equals": 1}, "regex": "x+", "judge": "It is polite."},
        },
        "constraints": {"max_turns": 3, "max_tool_calls": 2, "max_script_runs": 1, "deny_tools": ["grep"]},
        "mock": {"turns": [final()]},
        "tags": ["one"],
        "repeat": 2,
    }
    (only,) = read_suite(write(tmp_path / "case.json", whole)).cases
    assert [constraint.name for constraint in only.expected.trajectory] == [
        "load_skill before run_script",
        "never call_tool:write_file",
    ]
    assert only.expected.output.judge == ("It is polite.",)
    assert only.constraints.deny_tools == ("grep",)
    assert (only.expects_skills, only.expected.skills_none_of) == (("x",), ("y",))


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("entry", "field", "words"),
    [
        ({"id": "x"}, "input", "Field required"),
        ({"id": "x", "input": "a", "outcome": 1}, "outcome", "there is no such field"),
        ({"id": "x", "input": "a", "expected": {"trajectory": [{"nope": 1}]}}, "expected.trajectory.0", "no constraint has the keys nope"),
        ({"id": "x", "input": "a", "expected": {"trajectory": [{"never": "tool:re:("}]}}, "expected.trajectory.0", "regular expression"),
        ({"id": "x", "input": "a", "expected": {"trajectory": [{"never": {"kind": "tool", "name": "re:("}}]}}, "expected.trajectory.0", "regular expression"),
        ({"id": "x", "input": "a", "expected": {"output": {"regex": "("}}}, "expected.output.regex.0", "regular expression"),
        ({"id": "x", "input": "a", "constraints": {"deny_tools": ["rocket"]}}, "constraints.deny_tools.0", "There is no tool 'rocket'"),
        ({"id": "x", "input": "a", "repeat": 0}, "repeat", "greater than or equal to 1"),
        ({"id": "x", "input": "a", "mock": {"turns": []}}, "mock.turns", "at least 1"),
        ({"id": "x", "input": "a", "mock": {"turns": [{"say": 1}]}}, "mock.turns.0", "a turn is"),
        ({"id": "x", "input": "a", "expected": {"trajectory": [{"never": "wirte_file"}]}}, "expected.trajectory.0", "did you mean 'write_file'"),
        ({"id": "x", "input": "a", "expected": {"output": {"regex": "(a)\\1"}}}, "expected.output.regex.0", "not valid in RE2"),
        ({"id": "x", "input": "a", "expected": {"output": {"json": {"equals": nested(300)}}}}, "", "nested more than 100 levels"),
        ({"id": "x", "input": "a", "mock": {"turns": [{"action": nested(300)}]}}, "", "nested more than 100 levels"),
    ],
)  # fmt: skip
def test_a_malformed_case_is_named_and_the_others_are_kept(
    tmp_path: Path, entry: object, field: str, words: str
) -> None:
    write(tmp_path / "s/cases.json", [entry, {"id": "good", "input": "fine"}])
    suite = read_suite(tmp_path / "s")
    assert [case.id for case in suite.cases] == ["good"]
    problem = suite.malformed[0]
    assert (problem.file, problem.case, problem.field) == ("cases.json", "x", field)
    assert re.search(words, problem.message), problem.message


def test_a_file_that_cannot_be_read_keeps_no_other_from_it(tmp_path: Path) -> None:
    write(tmp_path / "s/broken.json", "{")
    write(tmp_path / "s/broken.yaml", "a: [")
    write(tmp_path / "s/bomb.yaml", "a: &a [1]\nb: *a\n")
    (tmp_path / "s/bytes.json").write_bytes(b"\xff\xfe\x00")
    write(tmp_path / "s/good.json", {"input": "fine"})
    write(tmp_path / "s/twice.json", {"id": "good", "input": "fine"})
    suite = read_suite(tmp_path / "s")
    assert [case.id for case in suite.cases] == ["good"]
    found = {(wrong.file, wrong.field) for wrong in suite.malformed}
    assert found == {
        ("broken.json", ""),
        ("broken.yaml", ""),
        ("bomb.yaml", ""),
        ("bytes.json", ""),
        ("twice.json", "id"),
    }
    assert str(suite.malformed[-1]) == (
        "twice.json, case good, field id: another case has this id: give each its own."
    )


def test_evals_json_as_others_write_it(tmp_path: Path) -> None:  # L1
    skill = tmp_path / "pdf"
    write(skill / "SKILL.md", "---\nname: pdf-forms\ndescription: x\n---\n")
    entries = [
        {
            "id": 1,
            "prompt": "Fill it in",
            "expected_output": "A filled form",
            "files": ["evals/files/form.txt"],
            "assertions": ["It is filled", {"text": "It is signed"}, {"type": "contains", "value": "完成"}],
        },
        {
            "id": "two",
            "prompt": "Again",
            "expectations": [{"type": "regex", "pattern": "a+"}, {"name": "neat"}],
        },
        {"id": "bad", "prompt": ""},
        {"id": "worse", "prompt": "x", "assertions": [{"weight": 1}]},
    ]
    write(skill / "evals/evals.json", {"evals": entries})
    suite = read_suite(skill / "evals")
    one, two = suite.cases
    assert (suite.skill, suite.name) == ("pdf-forms", "pdf")
    assert one.expected.output.judge == ("A filled form", "It is filled", "It is signed")
    assert one.expected.output.contains == ("完成",)
    assert [(file.name, file.source) for file in one.files] == [("form.txt", "evals/files/form.txt")]
    assert (two.id, two.expected.output.regex, two.expected.output.judge) == ("two", ("a+",), ("neat",))
    assert [(wrong.case, wrong.field) for wrong in suite.malformed] == [
        ("bad", "prompt"),
        ("worse", "assertions.0"),
    ]


def test_nothing_that_an_eval_expects_is_left_out_in_silence(tmp_path: Path) -> None:
    entries = [
        {"id": 1, "prompt": "p", "expected_output": ["one", "two"]},
        {"id": 2, "prompt": "p", "assertions": [], "expectations": ["is kind"]},
        {"id": 3, "prompt": "p", "asertions": ["lost"]},
        {"id": 4, "prompt": "p", "expectd_output": "lost"},
        {"id": 5, "prompt": "p", "expected_output": {"text": "lost"}},
        {"id": 6, "prompt": "p", "assertions": [{"type": [], "text": "odd"}]},
        {"id": None, "prompt": "p", "expected_output": "by its number", "weight": 3},
        {"id": [1], "prompt": "p"},
        {"id": 8, "prompt": "p", "assertions": [{"text": " "}]},
    ]
    suite = read_suite(write(tmp_path / "evals.json", {"skill_name": "x", "evals": entries}))
    assert {case.id: case.expected.output.judge for case in suite.cases} == {
        "1": ("one", "two"),
        "2": ("is kind",),
        "6": ("odd",),
        "p": ("by its number",),
    }
    assert [(wrong.case, wrong.field, wrong.message) for wrong in suite.malformed] == [
        ("3", "asertions", "there is no such field: did you mean 'assertions'?"),
        ("4", "expectd_output", "there is no such field: did you mean 'expected_output'?"),
        ("5", "expected_output", "it is a text, or a list of texts."),
        ("#8", "id", "Input should be a valid string"),
        ("8", "assertions.0", suite.malformed[4].message),
    ]


def test_ids_of_others_count_within_their_file(tmp_path: Path) -> None:
    skill = {"skill_name": "x"}
    write(tmp_path / "s/evals.json", {**skill, "evals": [{"id": 1, "prompt": "p"}]})
    write(
        tmp_path / "s/triggers.json", {**skill, "triggers": [{"id": 1, "query": "q", "should_trigger": True}]}
    )
    write(tmp_path / "s/sub/evals.json", {**skill, "evals": [{"id": 1, "prompt": "r"}]})
    suite = read_suite(tmp_path / "s")
    assert [(case.id, case.input) for case in suite.cases] == [
        ("1", "p"),
        ("triggers-1", "q"),
        ("sub/evals-1", "r"),
    ]
    assert suite.malformed == ()


def test_what_a_case_brings_is_no_case(tmp_path: Path) -> None:
    write(
        tmp_path / "s/a.json", {"input": "x", "files": ["data.json", "z.yaml"], "setup": {"project": "site"}}
    )
    write(tmp_path / "s/data.json", {"k": 1})
    write(tmp_path / "s/z.yaml", "- not: a case\n")
    write(tmp_path / "s/site/package.json", {"name": "n"})
    write(tmp_path / "s/site/sub/real.json", {"input": "looks like one"})
    write(tmp_path / "s/up.json", {"input": "x", "setup": {"project": ".."}})
    suite = read_suite(tmp_path / "s")
    assert ([case.id for case in suite.cases], suite.malformed) == (["a", "up"], ())


def test_files_say_what_they_say(tmp_path: Path) -> None:
    """Dates are texts, a key that is there twice is said, and half a character breaks nothing."""
    write(
        tmp_path / "s/dates.yaml",
        "- {id: a, input: x, description: 2024-13-45}\n- {id: 2024-01-02, input: y}\n",
    )
    write(
        tmp_path / "s/twice.json", '{"id": "b", "input": "x", "expected": {"output": "good"}, "expected": {}}'
    )
    write(tmp_path / "s/twice.yaml", "id: c\ninput: x\ninput: y\n")
    write(tmp_path / "s/wrong.yaml", "id: 0b\ninput: [\n")
    (tmp_path / "s/half.json").write_text('[{"id": "\\ud800", "input": "x"}, {"id": "good", "input": "x"}]')
    suite = read_suite(tmp_path / "s")
    assert [case.id for case in suite.cases] == ["a", "2024-01-02", "good"]
    found = {wrong.file: (wrong.case, wrong.message) for wrong in suite.malformed}
    assert found["half.json"] == ("?", "it contains half a character (a lone surrogate): correct it")
    assert found["twice.json"] == (
        "",
        "the file is not JSON (the key 'expected' appears twice): correct it.",
    )
    assert found["twice.yaml"] == ("", "the file is not YAML (the key 'input' appears twice): correct it.")
    assert found["wrong.yaml"][1].startswith("the file is not YAML (")
    out = tmp_path / "out"
    write_header(out, Header("n", "", 0.0, (), (), suite.malformed, ()))
    assert read_evaluation(out).header.malformed == suite.malformed


def test_a_suite_is_called_like_its_directory_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "suite/a.json", {"input": "x"})
    (tmp_path / "suite/sub").mkdir()
    monkeypatch.chdir(tmp_path / "suite/sub")
    assert read_suite(Path("..")).name == read_suite(Path("../../suite/.")).name == "suite"


@pytest.mark.parametrize("name", ["triggers.json", "trigger-eval.json", "eval_queries.json"])
@pytest.mark.parametrize("key", [None, "triggers", "queries"])
def test_trigger_sets_as_others_write_them(tmp_path: Path, name: str, key: str | None) -> None:
    entries = [
        {"query": "fill this form", "should_trigger": True},
        {"query": "天气", "should_trigger": False},
    ]
    write(tmp_path / "pdf/SKILL.md", "---\nname: pdf-forms\ndescription: x\n---\n")
    write(tmp_path / "pdf/evals" / name, entries if key is None else {key: entries})
    yes, no = read_suite(tmp_path / "pdf/evals" / name).cases
    assert (yes.input, yes.expected.skills_any_of, yes.until) == ("fill this form", ("pdf-forms",), "loaded")
    assert (no.input, no.expected.skills_none_of, no.tags) == ("天气", ("pdf-forms",), ("trigger",))


def test_a_trigger_set_without_its_skill_says_so(tmp_path: Path) -> None:
    entries = [{"query": "x", "should_trigger": True}, {"query": "y", "skill": "z", "should_trigger": "yes"}]
    suite = read_suite(write(tmp_path / "triggers.json", entries))
    assert [(wrong.case, wrong.field) for wrong in suite.malformed] == [
        ("#1", "skill"),
        ("#2", "should_trigger"),
    ]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CaseRefused, match="There are no cases at"):
        read_suite(tmp_path / "nowhere")
    with pytest.raises(CaseRefused, match="contains no cases"):
        read_suite(tmp_path)


def test_a_problem_is_one_sentence() -> None:
    assert (
        str(Malformed("a.json", "x", "input", "Field required"))
        == "a.json, case x, field input: Field required"
    )


def test_results_and_records_are_not_suites(tmp_path: Path) -> None:
    write(tmp_path / "cases.json", [{"id": "one", "input": "x"}])
    for file in ("out/results.jsonl", "out/evaluation.json", "out/runs/1/run.json"):
        write(tmp_path / file, {"run_id": "1"})
    for file in ("events.jsonl", "index.json", "run.json"):
        write(tmp_path / "records/1" / file, {"run_id": "1"})
    suite = read_suite(tmp_path)
    assert ([case.id for case in suite.cases], suite.malformed) == (["one"], ())


def test_a_mistake_is_named_with_its_file_and_what_was_meant(tmp_path: Path) -> None:
    write(tmp_path / "bad.yaml", "a: [\n")
    write(tmp_path / "key.yaml", '- id: one\n  input: x\n  constrants: {max_turn: 1}\n  files: {a: ""}\n')
    write(tmp_path / "deep.yaml", "- id: two\n  input: x\n  constraints: {max_turn: 1}\n")
    assert [str(wrong) for wrong in read_suite(tmp_path).malformed] == [
        "bad.yaml: the file is not YAML (while parsing a flow node "
        "did not find expected node content in line 2, column 1): correct it.",
        "deep.yaml, case two, field constraints.max_turn: there is no such field: did you mean 'max_turns'?",
        "key.yaml, case one, field constrants: there is no such field: did you mean 'constraints'?",
    ]
