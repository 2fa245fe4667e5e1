"""A4: values as they are written, lines where they are, nothing expanded."""

from __future__ import annotations

import pytest

from vademecum.skill.frontmatter import Value
from vademecum.skill.yaml_subset import read_fields


def values(text: str) -> dict[str, Value]:
    return {name: field.value for name, field in read_fields(text).by_name.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.10", "1.10"),
        ("yes", "yes"),
        ("2024-01-01", "2024-01-01"),
        ("0o17", "0o17"),
        ("null", ""),
        ("~", ""),
        ("'~'", "~"),
        ("'it''s'", "it's"),
        (r'"a\tb\u4e2d"', "a\tb中"),
        ("a --- b", "a --- b"),
        ("plain # a comment", "plain"),
        ('"no # comment"', "no # comment"),
        (">\n  folded\n  text", "folded text\n"),
        (">-\n  folded\n  text\n", "folded text"),
        ("|\n  kept\n  lines\n", "kept\nlines\n"),
        ("one\n  two\n  three", "one two three"),
        ("", ""),
        ("[a, b]", ("a", "b")),
        ("\n  - a\n  - 1.0", ("a", "1.0")),
        ("[]", ()),
        ("[a, [b]]", None),
        ("{a: b}", None),
    ],
)
def test_value_is_what_is_written(text: str, value: Value) -> None:
    assert values(f"x: {text}\n")["x"] == value


def test_metadata_keeps_text_and_drops_what_is_nested() -> None:
    fields = read_fields("name: a\nmetadata:\n  version: 1.10\n  deep: {a: [b]}\n  list: [x]\nlast: z\n")
    assert fields.by_name["metadata"].value == {"version": "1.10"}
    assert fields.by_name["last"].value == "z"
    assert [(p.code, p.severity, p.line) for p in fields.problems] == [
        ("nested-value", "warning", 5),
        ("nested-value", "warning", 6),
    ]


def test_every_field_knows_its_line() -> None:
    fields = read_fields("# comment\nname: a\n\ndescription: >\n  b\n  c\nlast: d\n").by_name
    assert {name: field.line for name, field in fields.items()} == {"name": 3, "description": 5, "last": 8}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("a: &x 1\nb: *x\n", {"yaml-anchor", "yaml-alias"}),
        ("a: !!str 1\n", {"yaml-tag"}),
        ("a: !!python/object/apply:os.system [id]\n", {"yaml-tag"}),
        ("x: {y: &z [*z]}\n", {"yaml-anchor", "yaml-alias"}),
        ("<<: *base\n", {"yaml-alias"}),
        ("a: 1\na: 2\n", {"duplicate-field"}),
    ],
)
def test_what_yaml_could_expand_is_refused_strictly_and_noted_leniently(text: str, codes: set[str]) -> None:
    strict, lenient = read_fields(text), read_fields(text, lenient=True)
    assert {(p.code, p.severity) for p in strict.problems} == {(code, "error") for code in codes}
    assert {(p.code, p.severity) for p in lenient.problems} == {(code, "warning") for code in codes}


@pytest.mark.parametrize(
    ("text", "code", "line", "hint"),
    [
        ("name: a\ndescription: Use when: needed\n", "invalid-yaml", 3, 'description: "…"'),
        ("name: a\n\tdescription: b\n", "invalid-yaml", 3, "'description' is indented"),
        ("name: a\nx: @b\n", "invalid-yaml", 3, "in quotes"),
        ("name: a\n<<<<<<< ours\nb: c\n=======\n>>>>>>> theirs\n", "invalid-yaml", 3, "merge conflict"),
        ("name: a\nb: \x01\n", "invalid-yaml", 3, "U+0001 is not allowed"),
        ("? [a]\n: b\n", "invalid-yaml", 2, "plain text"),
        ("a: b\n--- \nc: d\n", "invalid-yaml", 3, "second document"),
        ("name: a\ndescription：中文\n", "invalid-yaml", 3, "ASCII colon"),
        ('name: a\ndescription: "open\nb: c\n', "invalid-yaml", 3, "Close the quotation mark"),
        ("name: a\nx:\n\ty: b\n", "invalid-yaml", 4, "spaces, not tabs"),
        ("name：a\ndescription：b\n", "invalid-yaml", 2, "the colon after 'name' is full-width"),
        ("name: a\ndescription:b\n", "invalid-yaml", 3, "Add a space after the colon"),
        ("name:a\ndescription:b\n", "invalid-yaml", 2, "Add a space after the colon"),
        ("name: a\n  description: b\n", "invalid-yaml", 3, "'description' is indented"),
        ("name: a\ndescription: b\nmetadata: {k: v\nlicense: MIT\n", "invalid-yaml", 4, "Close every"),
        ("name: a\nmetadata:\n  {\n    k: [1, 2\n  }\nlicense: MIT\n", "invalid-yaml", 5, "Close every"),
        ("name: a\nmetadata:\n  {\n    k: v\nlicense: MIT\n", "invalid-yaml", 4, "Close every"),
        ("name: a\nmetadata:\n  x: y\n  k: a: b\nlicense: MIT\n", "invalid-yaml", 5, 'k: "…"'),
        ("name: a\ntools: [a\ndescription: x\n", "invalid-yaml", 3, "Close every"),
        ("name: a\nmetadata:\n  作者：张\n  k: v\n", "invalid-yaml", 4, "colon after '作者' is full-width"),
        ("name: a\ntags：b\nx: y\n", "invalid-yaml", 3, "the colon after 'tags' is full-width"),
        ("- a\n- b\n", "not-a-mapping", 2, "name: my-skill"),
        ("just text\n", "not-a-mapping", 2, "name: my-skill"),
        ("x: " + "[" * 200 + "]" * 200 + "\n", "invalid-yaml", 2, "Flatten"),
    ],
)
def test_broken_yaml_names_its_line_and_a_cure(text: str, code: str, line: int | None, hint: str) -> None:
    fields = read_fields(text)
    assert fields.broken
    assert [(p.code, p.line) for p in fields.problems] == [(code, line)]
    assert hint in fields.problems[0].message


def test_comments_alone_are_an_empty_mapping() -> None:
    assert read_fields("# nothing\n").by_name == {}
    assert not read_fields("").broken
