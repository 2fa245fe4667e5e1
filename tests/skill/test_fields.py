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
    # The indicator of a folded block is not a value.
    assert parsed("name: pdf\ndescription: >\n  Fill in forms.").valid


@pytest.mark.parametrize(
    "line",
    [
        "author: Ada <ada@example.org>",
        "metadata:\n  k: a <b>",
        "x-other: '>'",
        "tags: [a, <b>]",
        "license: <MIT>",
    ],
)
def test_angle_brackets_in_a_field_that_no_model_sees_are_a_remark(line: str) -> None:
    # A4
    document = parsed(f"{BASE}\n{line}")
    assert [(p.code, p.severity, p.line) for p in document.problems] == [("angle-bracket", "warning", 4)]
    assert codes(parsed(f"{BASE}\n{line}", Reading(block_angle_brackets=False))) == []
    assert codes(parsed(f"{BASE}\nmetadata:\n  k: >\n    folded")) == []


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


@pytest.mark.parametrize(
    ("metadata", "secrets", "found"),
    [
        ("metadata: {secrets: A_KEY B_KEY}", ("A_KEY", "B_KEY"), []),
        ('metadata: {secrets: "A_KEY, B_KEY,A_KEY"}', ("A_KEY", "B_KEY"), []),
        ("metadata:\n  secrets:\n  - A_KEY\n  - B_KEY", ("A_KEY", "B_KEY"), []),
        (
            'metadata: {"openclaw": {"requires": {"env": ["A_KEY"], "bins": ["x"]}}}',
            ("A_KEY",),
            ["nested-value"],
        ),
        (
            "metadata:\n  clawdbot:\n    x: {env: [NO]}\n    requires:\n      env: [A_KEY]",
            ("A_KEY",),
            ["nested-value"],
        ),
        ("metadata: {moltbot: {requires: {env: A_KEY}}, k: v}", ("A_KEY",), ["nested-value"]),
        (
            "metadata: {openclaw: {requires: {env: [B, A]}}, clawdbot: {requires: {env: [A, C]}}}",
            ("B", "A", "C"),
            ["nested-value", "nested-value"],
        ),
        ("metadata: {openclaw: {requires: {env: [[A]]}}}", (), ["nested-value"]),
        ("metadata: {openclaw: {requires: [A]}}", (), ["nested-value"]),
        ("metadata: {other: {requires: {env: [A]}}}", (), ["nested-value"]),
        ("metadata: {secrets: A_KEY LD_PRELOAD a-b}", ("A_KEY",), ["secret-name"]),
        ("requires: {env: [A]}", (), ["nested-value"]),
    ],
)
def test_secrets_that_scripts_want(metadata: str, secrets: tuple[str, ...], found: list[str]) -> None:
    # A4, P4
    document = parsed(f"{BASE}\n{metadata}")
    assert (document.valid, document.meta.secrets, codes(document)) == (True, secrets, found)


def test_there_is_an_end_to_secrets() -> None:
    many = " ".join(f"KEY_{number}" for number in range(60))
    document = parsed(f"{BASE}\nmetadata: {{secrets: {many}}}")
    assert (len(document.meta.secrets), codes(document)) == (50, ["secret-name"])


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
        ("a: b\n# a comment", "a: b"),
        ("'it's fine'", "it's fine"),
        ('"say "hello" to it"', 'say "hello" to it'),
        ('"never closed', "never closed"),
        ("'a' and 'b'", "'a' and 'b'"),
    ],
)
def test_lenient_repair(value: str, read: str) -> None:
    document = parsed(f"name: pdf\ndescription: {value}\nlicense: MIT", LENIENT)
    assert (document.description, document.meta.license) == (read, "MIT")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (f"{BASE}\nlicense: MIT: see LICENSE", [("unquoted-value", 4)]),
        (f"{BASE}\nargument-hint: a: b\nlicense: MIT: x", [("unquoted-value", 4), ("unquoted-value", 5)]),
        (f"{BASE}\nargument-hint: [a] [b]", [("unquoted-value", 4)]),
        (f"{BASE}\nmetadata:\n  k: v\n  note: use: this\n  last: z", [("unquoted-value", 6)]),
        (f"{BASE}\nmetadata:\n  k: v\n  bad: {{a: [b\n  last: z", [("unreadable-value", 6)]),
        (f"{BASE}\nmetadata: {{k: v\nlicense: MIT", [("unreadable-value", 4)]),
        (f"{BASE}\nhooks:\n  - a: b: c\nlicense: MIT", [("unreadable-value", 4)]),
        ("Name: pdf\nDescription: Fill in forms.", [("field-repaired", 2), ("field-repaired", 3)]),
        ("NAME: pdf\ndescription: Fill in forms.", [("field-repaired", 2)]),
        ("name: pdf\n  description: Fill in forms.", [("field-repaired", 3)]),
        ("name: pdf\n\tdescription: Fill in forms.", [("field-repaired", 3)]),
        ("name：pdf\ndescription：Fill in forms.", [("field-repaired", 2), ("field-repaired", 3)]),
        ("name: pdf\ndescription：Fill in forms.", [("field-repaired", 3)]),
        ("name:pdf\ndescription:Fill in forms.", [("field-repaired", 2), ("field-repaired", 3)]),
        ("name: pdf\ndescription: Fill\x80 in\x01 forms.", [("hidden-characters", 3)]),
        ("name: pdf\ndescription: |\n  Fill in\nforms.", [("unquoted-value", 3)]),
        (f"{BASE}\nallowed-tools: [Read, Bash(git:*)\nlicense: MIT", [("unreadable-value", 4)]),
        (f"{BASE}\ntags：a\nlicense: MIT", [("field-repaired", 4)]),
        (f"{BASE}\nmetadata:\n  作者：张\n  last: z", [("field-repaired", 5)]),
        (f"{BASE}\nmetadata:\n\tk: v\n\tlast: z", [("field-repaired", 5)]),
        (f"{BASE}\nmetadata:\n  k: v\n\tlast: z", [("field-repaired", 6)]),
        ('name: pdf\ndescription: "Fill in forms.\nlicense: MIT', [("unquoted-value", 3)]),
    ],
)
def test_lenient_repair_keeps_the_skill(lines: str, found: list[tuple[str, int]]) -> None:
    # A6, A7: one broken field costs that field at most, and every repair names its line.
    assert (parsed(lines).valid, parsed(lines, LENIENT).valid) == (False, True)
    document = parsed(lines, LENIENT)
    assert (document.name, document.description) == ("pdf", "Fill in forms.")
    assert [(problem.code, problem.line) for problem in document.problems] == found


def test_repaired_values_are_what_was_written() -> None:
    document = parsed(f"{BASE}\nargument-hint: [a] [b]\nmetadata:\n  k: v\n  note: use: this", LENIENT)
    assert (document.extra, document.meta.metadata) == (
        {"argument-hint": "[a] [b]"},
        {"k": "v", "note": "use: this"},
    )
    for metadata in ("  作者：张\n  k: v", "\t作者: 张\n\tk: v", "  作者: 张\n\tk: v"):
        assert parsed(f"{BASE}\nmetadata:\n{metadata}", LENIENT).meta.metadata == {"作者": "张", "k": "v"}
    assert parsed(f"{BASE}\ntags：a", LENIENT).extra == {"tags": "a"}
    tools = parsed(f"{BASE}\nallowed-tools: [Read, Bash(git:*)", LENIENT).controls.allowed_tools
    assert tools == ()


@pytest.mark.parametrize(
    "lines",
    [
        "name: pdf\ndescription: |\n  text\n allowed-tools: Read",
        "name: pdf\ndescription: a: b\n  more\n  disable-model-invocation: true",
        f'{BASE}\n"allowed-tools":\n  - a: b: c',
        f"{BASE}\nallowed_tools:\n  - a: b: c",
        f"{BASE}\nmetadata:\n  k: a: b\n  allowed-tools: Read",
    ],
)
def test_a_repair_never_loses_a_control(lines: str) -> None:
    # A6: a bound that cannot be found again keeps the skill out, or allows nothing
    document = parsed(lines, LENIENT)
    assert not document.valid or document.controls.allowed_tools == ()


def test_no_side_of_a_merge_conflict_is_chosen() -> None:
    text = f"{BASE}\n<<<<<<< ours\nlicense: A\n=======\nlicense: B\n>>>>>>> theirs"
    assert [(p.code, p.line) for p in parsed(text, LENIENT).problems] == [("invalid-yaml", 4)]


@pytest.mark.parametrize("nothing", ["~", "null", "", "''"])
def test_no_value_is_not_a_text(nothing: str) -> None:
    # A7
    document = parsed(f"name: pdf\ndescription: {nothing}")
    assert [(p.code, p.line) for p in document.problems] == [("empty-field", 3)]


def test_capital_field_is_named_in_strict_mode() -> None:
    (problem,) = parsed("name: pdf\nDescription: x").problems
    assert (problem.code, problem.line) == ("missing-field", 3)
    assert "Write 'Description' in lowercase" in problem.message


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
