"""A2-A7: what each field must be, in strict and in lenient mode."""

from __future__ import annotations

import pytest

from vademecum import Reading
from vademecum.skill.document import parse_document
from vademecum.skill.skill import Controls, Document, Meta

LENIENT = Reading(lenient=True)


def parsed(lines: str, reading: Reading | None = None, directory: str = "pdf") -> Document:
    return parse_document(f"---\n{lines}\n---\n".encode(), directory=directory, reading=reading)


def codes(document: Document) -> list[str]:
    return [problem.code for problem in document.problems]


BASE = "name: pdf\ndescription: Fill in forms."


def test_all_fields() -> None:
    # A2
    document = parsed(
        f"{BASE}\nversion: 1.10\nauthor: Ada\nlicense: MIT\ncompatibility: Python\nmetadata: {{a: b}}\n"
        "disable-model-invocation: yes\nuser-invocable: false\nallowed-tools: [read_file, grep]\n"
        "run-mode: subagent\nhomepage: here\ntags: [x, y]"
    )
    assert document == Document(
        "pdf",
        "Fill in forms.",
        Controls(
            disable_model_invocation=True,
            user_invocable=False,
            allowed_tools=("read_file", "grep"),
            run_mode="subagent",
        ),
        Meta("1.10", "Ada", "MIT", "Python", {"a": "b"}),
        {"homepage": "here", "tags": ("x", "y")},
        (),
        document.digest,
    )


def test_version_and_author_are_read_from_metadata_too() -> None:
    meta = parsed(f'{BASE}\nmetadata: {{version: "2.0", author: Ada}}').meta
    assert (meta.version, meta.author) == ("2.0", "Ada")
    assert parsed(f"{BASE}\nversion: 3\nmetadata: {{version: 2}}").meta.version == "3"


@pytest.mark.parametrize(
    ("lines", "code", "field", "line", "words"),
    [
        ("description: x", "missing-field", "name", None, "Missing required field in frontmatter: name"),
        (
            "name: pdf",
            "missing-field",
            "description",
            None,
            "Missing required field in frontmatter: description",
        ),
        ("name:\ndescription: x", "empty-field", "name", 2, "Field 'name' must be a non-empty string"),
        ("name: pdf\ndescription: '  '", "empty-field", "description", 3, "must be a non-empty string"),
        (
            f"name: pdf\ndescription: {'x' * 1025}",
            "description-too-long",
            "description",
            3,
            "1024 character limit",
        ),
        (
            f"{BASE}\ncompatibility: {'x' * 501}",
            "compatibility-too-long",
            "compatibility",
            4,
            "500 character",
        ),
        ("name: pdf\ndescription: a <b> c", "angle-bracket", "description", 3, "angle bracket"),
        (f"{BASE}\ncompatibility: a > b", "angle-bracket", "compatibility", 4, "angle bracket"),
        ("name: [a]\ndescription: x", "wrong-shape", "name", 2, "not a list"),
        ("name: pdf\ndescription: {a: b}", "wrong-shape", "description", 3, "not nested"),
        (f"{BASE}\nmetadata: text", "wrong-shape", "metadata", 4, "not text"),
        (f"{BASE}\nallowed-tools: {{a: b}}", "wrong-shape", "allowed-tools", 4, "must be text"),
        (f"{BASE}\nuser-invocable: maybe", "wrong-value", "user-invocable", 4, "true or false"),
        (f"{BASE}\nrun-mode: fast", "wrong-value", "run-mode", 4, "inline or subagent"),
    ],
)
def test_strict_refuses(lines: str, code: str, field: str, line: int | None, words: str) -> None:
    # A5, A7
    document = parsed(lines)
    assert not document.valid
    problem = document.problems[0]
    assert (problem.code, problem.field, problem.line) == (code, field, line)
    assert words in problem.message


def test_one_pass_reports_everything() -> None:
    document = parsed("name: Bad--Name-\ndescription: a <b>\nrun-mode: x\nuser-invocable: y")
    assert codes(document) == [
        "name-uppercase",
        "name-hyphen-at-end",
        "name-double-hyphen",
        "angle-bracket",
        "wrong-value",
        "wrong-value",
    ]


@pytest.mark.parametrize(
    ("lines", "code", "name", "description"),
    [
        ("name: pdf", "default-description", "pdf", "No description."),
        ("description: x", "default-name", "pdf", "x"),
        ("name: pdf\ndescription: Use when: asked", "unquoted-value", "pdf", "Use when: asked"),
        ("name: pdf\ndescription: a <b>", "angle-bracket", "pdf", "a &lt;b&gt;"),
        ("name: My PDF_Skill\ndescription: x", "name-repaired", "my-pdf-skill", "x"),
        (f"name: pdf\ndescription: {'x' * 2000}", "description-too-long", "pdf", "x" * 1024),
    ],
)
def test_lenient_repairs_and_says_so(lines: str, code: str, name: str, description: str) -> None:
    # A6
    document = parsed(lines, LENIENT)
    assert document.valid
    assert (document.name, document.description) == (name, description)
    assert code in codes(document)


def test_repaired_document_keeps_its_other_values_and_lines() -> None:
    document = parsed("name: Pdf\ndescription: Use when: a\n  or: b\nrun-mode: x\nlicense: MIT", LENIENT)
    assert (document.name, document.description) == ("pdf", "Use when: a or: b")
    assert [(p.code, p.line) for p in document.problems] == [
        ("unquoted-value", 3),
        ("name-repaired", 2),
        ("wrong-value", 5),
    ]


@pytest.mark.parametrize(
    ("written", "tools"),
    [
        ("Bash(git:*) Bash(jq:*) Read", ("Bash(git:*)", "Bash(jq:*)", "Read")),
        ("read_file", ("read_file",)),
        ("[Read, 'Bash(git add:*)']", ("Read", "Bash(git add:*)")),
        ("Bash(git add:*) Read", ("Bash(git add:*)", "Read")),
        ("\n  - Read\n  - Grep", ("Read", "Grep")),
        ("[]", ()),
    ],
)
def test_allowed_tools(written: str, tools: tuple[str, ...]) -> None:
    document = parsed(f"{BASE}\nallowed-tools: {written}")
    assert (document.controls.allowed_tools, codes(document)) == (tools, [])


def test_commas_between_tools_are_split_with_a_remark() -> None:
    document = parsed(f"{BASE}\nallowed-tools: Read, Bash(a, b),Grep", LENIENT)
    assert document.controls.allowed_tools == ("Read", "Bash(a, b)", "Grep")
    assert codes(document) == ["tools-split"]


def test_a_bound_that_cannot_be_read_allows_nothing() -> None:
    # Lenient reading must not widen: no tools, rather than no bound.
    for written in ("{a: b}", "''"):
        assert parsed(f"{BASE}\nallowed-tools: {written}", LENIENT).controls.allowed_tools == ()


def test_angle_brackets_can_be_let_through() -> None:
    open_reading = Reading(block_angle_brackets=False)
    assert parsed("name: pdf\ndescription: a <b>", open_reading).description == "a <b>"
    # They are no matter where no model looks.
    assert parsed(f"{BASE}\nauthor: Ada <ada@example.org>").valid
    # The indicator of a folded block is not a value.
    assert parsed("name: pdf\ndescription: >\n  Fill in forms.").valid


def test_name_that_differs_from_its_directory_is_a_remark() -> None:
    # A3
    document = parsed(BASE, directory="other")
    assert document.valid
    assert codes(document) == ["name-directory-mismatch"]
    assert "Directory name 'other' must match skill name 'pdf'" in document.problems[0].message


def test_nested_values_are_dropped_where_they_are_not_read() -> None:
    # A4
    document = parsed(f"{BASE}\nhooks: {{a: {{b: c}}}}\nmetadata: {{x: {{y: z}}, k: v}}")
    assert document.valid
    assert document.meta.metadata == {"k": "v"}
    assert sorted(codes(document)) == ["nested-value", "nested-value"]


def test_hidden_characters_are_removed_with_a_remark() -> None:
    document = parsed('name: pdf\ndescription: "Fi\\u200bll \\x1b[31mforms\\U000e0041"')
    assert document.description == "Fill [31mforms"
    assert codes(document) == ["hidden-characters"]
    assert "3 hidden characters" in document.problems[0].message


def test_persian_and_emoji_keep_their_joiners() -> None:
    text = "می\u200cخواهم 👨\u200d👩\u200d👧 ⚠\ufe0f"
    document = parsed(f"name: pdf\ndescription: {text}")
    assert (document.description, codes(document)) == (text, [])


def test_control_that_cannot_be_understood_is_an_error_in_any_mode() -> None:
    for line in (
        "disable-model-invocation: [true]",
        "user-invocable: {a: b}",
        "user-invocable:",
        "run-mode: [x]",
    ):
        document = parsed(f"{BASE}\n{line}", LENIENT)
        assert [(p.code, p.severity) for p in document.problems] == [("wrong-value", "error")]


def test_lenient_reading_never_makes_up_an_empty_name() -> None:
    document = parsed("description: x", LENIENT, directory="!!!")
    assert (document.valid, codes(document)) == (False, ["missing-field"])
    assert not parsed("name: '!!!'\ndescription: x", LENIENT, directory="???").valid


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('"a" b: c', '"a" b: c'),
        ("'a' and: b", "'a' and: b"),
        ("a: b\n\n  second: paragraph", "a: b second: paragraph"),
        ("@handle does it", "@handle does it"),
        ("`code` first", "`code` first"),
    ],
)
def test_lenient_repair(value: str, read: str) -> None:
    document = parsed(f"name: pdf\ndescription: {value}\nlicense: MIT", LENIENT)
    assert (document.description, document.meta.license) == (read, "MIT")


def test_problems_are_bounded_and_an_error_is_never_lost_among_them() -> None:
    nested = "\n".join(f"k{n}: {{a: {{b: c}}}}" for n in range(150))
    document = parsed(f"{BASE}\n{nested}\nrun-mode: x")
    assert (document.valid, codes(document)) == (False, ["wrong-value"])
    assert len(parsed(f"{BASE}\n{nested}").problems) == 50


def test_duplicate_keys_inside_metadata() -> None:
    assert codes(parsed(f"{BASE}\nmetadata:\n  a: 1\n  a: 2")) == ["duplicate-field"]


def test_tools_with_parentheses_inside() -> None:
    tools = parsed(f"{BASE}\nallowed-tools: Bash(echo $(date)) Read Bash(open").controls.allowed_tools
    assert tools == ("Bash(echo $(date))", "Read", "Bash(open")
