"""The generated pages are what the program says today, and nothing that it can say is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from docs.build_reference import PLACE, generated
from docs.reference_events import KINDS, recorded_events

from tests.e2e.documents import TOP, text_of

SOURCE = TOP / "src" / "vademecum"


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in SOURCE.rglob("*.py"):
        if "builtin" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                yield name, node


def texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value:
            yield inner.value


def test_the_generated_pages_are_up_to_date() -> None:
    for name, text in generated().items():
        assert (PLACE / name).read_text("utf-8") == text, f"run: python -m docs.build_reference ({name})"


def test_arguments_and_own_options_of_commands_are_whole() -> None:
    page = text_of("docs/reference/cli.md")
    assert not re.findall(r"^\| `[^`]*[][.][^`]*` \|", page, re.MULTILINE)
    validate = page.partition("## vade validate\n")[2].partition("\n## ")[0]
    assert "`--lenient` |  | Report problems that lenient reading repairs" in validate


def test_every_kind_of_event_is_documented() -> None:
    used = {
        node.args[0].value
        for name, node in calls()
        if name in {"add", "add_bounded", "add_encoded", "write"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and (node.keywords or name == "add_encoded")
    }
    assert len(used) > 15
    assert used == set(KINDS)


def test_every_field_of_an_event_is_documented() -> None:
    found = recorded_events()
    assert set(found) == set(KINDS)
    for kind, events in found.items():
        fields = {field for event in events for field in event} - {"n", "time", "type"}
        assert fields <= set(KINDS[kind][1]), kind


def test_every_event_that_passes_by_is_documented() -> None:
    passing = {text for name, node in calls() if name == "passing" for text in texts(node.args[0])}
    assert passing
    assert {kind for kind in passing if f"`{kind}`" not in text_of("docs/reference/events.md")} == set()


def test_every_error_code_is_documented() -> None:
    page = text_of("docs/reference/errors.md")
    used = {
        text
        for _, node in calls()
        for keyword in node.keywords
        if keyword.arg == "code"
        for text in texts(keyword.value)
    }
    source = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    used |= set(re.findall(r'^    code = "([a-z-]+)"', source, re.MULTILINE))
    used |= set(re.findall(r'_refused\(skill, relative, "([a-z-]+)"', source))
    assert len(used) > 50
    assert {code for code in used if f"| `{code}` |" not in page} == set()


def test_every_status_and_reason_of_an_ending_is_documented() -> None:
    page = text_of("docs/reference/events.md")
    loop = (SOURCE / "agent" / "loop.py").read_text("utf-8")
    reasons = re.findall(r'(?:return |_GaveUp\((?:.* else )?)"([a-z]+_[a-z_]+)"', loop)
    assert {"max_turns", "max_context", "max_script_runs", "bad_replies", "repeated_failure"} <= set(reasons)
    used = set(reasons) | set(re.findall(r'_end\("(\w+)"', loop))
    assert len(used) > 8
    assert {word for word in used if f"`{word}`" not in page} == set()
