"""The wording that skill authors know from the reference library, each followed by what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import write_skill
from vademecum import validate_skill


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("# Title\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("---\nname: x\n", "SKILL.md frontmatter not properly closed with ---"),
        ("---\nname: x\ndescription: a: b\n---\n", "Invalid YAML in frontmatter: "),
        ("---\n- x\n---\n", "SKILL.md frontmatter must be a YAML mapping"),
        (
            "---\nname: x\ndescription: y\nb: 1\na: 2\n---\nz",
            "Unexpected fields in frontmatter: a, b. Only allowed-tools, ",
        ),
        ("---\ndescription: y\n---\n", "Missing required field in frontmatter: name"),
        ("---\nname: x\n---\n", "Missing required field in frontmatter: description"),
        ("---\nname: ''\ndescription: y\n---\n", "Field 'name' must be a non-empty string"),
        ("---\nname: x\ndescription: ''\n---\n", "Field 'description' must be a non-empty string"),
        (
            f"---\nname: {'x' * 70}\ndescription: y\n---\n",
            f"Skill name '{'x' * 70}' exceeds 64 character limit (70 chars)",
        ),
        ("---\nname: X\ndescription: y\n---\n", "Skill name 'X' must be lowercase"),
        ("---\nname: -x\ndescription: y\n---\n", "Skill name cannot start or end with a hyphen"),
        ("---\nname: x--y\ndescription: y\n---\n", "Skill name cannot contain consecutive hyphens"),
        (
            "---\nname: x_y\ndescription: y\n---\n",
            "Skill name 'x_y' contains invalid characters. Only letters, digits, and hyphens are allowed.",
        ),
        ("---\nname: y\ndescription: y\n---\nz", "Directory name 'x' must match skill name 'y'"),
        (
            f"---\nname: x\ndescription: {'y' * 1025}\n---\n",
            "Description exceeds 1024 character limit (1025 chars)",
        ),
        (
            f"---\nname: x\ndescription: y\ncompatibility: {'y' * 501}\n---\n",
            "Compatibility exceeds 500 character limit (501 chars)",
        ),
    ],
)
def test_wording(root: Path, text: str, wording: str) -> None:
    verdict = validate_skill(write_skill(root, "x", text))
    assert not verdict.valid
    message = next(p.message for p in verdict.problems if p.message.startswith(wording))
    assert len(message) > len(wording)  # and what to do about it


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("version", "write metadata: {version: …}"),
        ("author", "write metadata: {author: …}"),
        ("run-mode", "read here"),
    ],
)
def test_fields_that_only_we_read_are_a_remark_in_the_same_words(root: Path, field: str, advice: str) -> None:
    text = f"---\nname: x\ndescription: y\n{field}: inline\n---\nz"
    verdict = validate_skill(write_skill(root, "x", text))
    (problem,) = verdict.problems
    assert (verdict.valid, problem.severity, problem.line) == (True, "warning", 4)
    specified = "allowed-tools, compatibility, description, license, metadata, name"
    wording = f"Unexpected fields in frontmatter: {field}. Only {specified} are allowed. "
    assert problem.message.startswith(wording)
    assert advice in problem.message
