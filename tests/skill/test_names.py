"""A3: names, with the reference library's wording."""

from __future__ import annotations

import pytest

from vademecum.skill import names
from vademecum.wildcards import comparable


@pytest.mark.parametrize(
    "name",
    ["a", "pdf-forms", "x1", "9lives", "a" * 64, "技能", "мой-навык", "मेरा-कौशल", "naïve", "한국어-기술"],
)
def test_valid(name: str) -> None:
    assert names.check(comparable(name)) == []


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("a" * 65, "name-too-long", f"Skill name '{'a' * 65}' exceeds 64 character limit (65 chars)"),
        ("Pdf", "name-uppercase", "Skill name 'Pdf' must be lowercase. Write: name: pdf"),
        ("-pdf", "name-hyphen-at-end", "Skill name cannot start or end with a hyphen. Write: name: pdf"),
        ("pdf-", "name-hyphen-at-end", "Skill name cannot start or end with a hyphen. Write: name: pdf"),
        ("a--b", "name-double-hyphen", "Skill name cannot contain consecutive hyphens. Write: name: a-b"),
        (
            "a_b",
            "name-characters",
            "contains invalid characters. Only letters, digits, and hyphens are allowed.",
        ),
        ("a b", "name-characters", "Write: name: a-b"),
        ("org/name", "name-characters", "Write: name: org-name"),
        ("*", "name-characters", "Write a short name such as pdf-forms"),
        ("a\u200bb", "name-characters", "invalid characters"),
        ("a\u202eb", "name-characters", "invalid characters"),
        ("a\u3164b", "name-characters", "invalid characters"),
        ("a\ufe0fb", "name-characters", "invalid characters"),
        ("\u0301a", "name-characters", "invalid characters"),
        ("..", "name-characters", "invalid characters"),
    ],
)
def test_invalid(name: str, code: str, message: str) -> None:
    problems = names.check(comparable(name), line=2)
    assert code in [problem.code for problem in problems]
    assert message in " ".join(problem.message for problem in problems)
    assert all(
        (problem.line, problem.field, problem.severity) == (2, "name", "error") for problem in problems
    )


def test_spellings_of_one_name_are_one() -> None:
    assert comparable("ｐｄｆ") == "pdf"
    assert comparable("nai\u0308ve") == comparable("naïve")


@pytest.mark.parametrize(
    "text", ["My Skill", "__x__", "a" * 80, "Ünï cödé", "--", "", "पी डी एफ", "\u0301\u0301a-"]
)
def test_slug_is_valid_or_empty(text: str) -> None:
    slug = names.slug(text)
    assert slug == "" or names.check(slug) == []
