"""A1, B5: the opening block, and nothing but it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vademecum import Problem
from vademecum.skill import frontmatter
from vademecum.skill.frontmatter import body_start, find_block, read_opening

USUAL = b"---\nname: a\n---\n# Body\n"


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (USUAL, "name: a\n"),
        (b"\xef\xbb\xbf" + USUAL, "name: a\n"),
        (b"---\r\nname: a\r\n---\r\nBody", "name: a\n"),
        (b"---  \nname: a\n--- \t\nBody", "name: a\n"),
        (b"---\nname: a\n---", "name: a\n"),
        (b"---\nname: a\n---  ", "name: a\n"),
        (b"---\ndescription: a --- b\n---\n", "description: a --- b\n"),
        (b"---\nname: a---\nb: ---c\n---\n", "name: a---\nb: ---c\n"),
        (b"---\nd: |\n  ---\n  x\n---\n", "d: |\n  ---\n  x\n"),
        (b"---\n---\n", ""),
        ("---\nname: 技能\n---\n".encode(), "name: 技能\n"),
        (b"---\nname: a\n---\n\xff\xfe the body is not looked at", "name: a\n"),
    ],
)
def test_block_is_cut_out(head: bytes, text: str) -> None:
    assert find_block(head) == text


@pytest.mark.parametrize(
    ("head", "code", "line"),
    [
        (b"", "no-frontmatter", 1),
        (b"# Title\n", "no-frontmatter", 1),
        (b"\n---\nname: a\n---\n", "no-frontmatter", 1),
        (b"----\nname: a\n---\n", "no-frontmatter", 1),
        (b"---\nname: a\n", "unclosed-frontmatter", 1),
        (b"---\nname: a\n ---\n", "unclosed-frontmatter", 1),
        ("---\nname: a\n---\n".encode("utf-16"), "not-utf8", 1),
        (b"\x7fELF\0\0\0", "binary", 1),
        (b"---\nname: a\ndescription: \xff\n---\n", "not-utf8", 3),
        (b"---\n" + b"a: b\n" * 201 + b"---\n", "frontmatter-too-long", 1),
        (b"---\nname: a\nx: " + b"y" * 5000 + b"\n---\n", "line-too-long", 3),
        (b"---\n" + b"x" * 70_000, "frontmatter-too-long", 1),
    ],
)
def test_no_block_says_why(head: bytes, code: str, line: int) -> None:
    found = find_block(head)
    assert isinstance(found, Problem)
    assert (found.code, found.line, found.severity) == (code, line, "error")


def test_two_hundred_lines_are_accepted() -> None:
    assert isinstance(find_block(b"---\n" + b"a: b\n" * 200 + b"---\n"), str)


def test_body_starts_after_the_block() -> None:
    for data in (USUAL, b"\xef\xbb\xbf" + USUAL, USUAL.replace(b"\n", b"\r\n")):
        assert data[body_start(data) :].strip() == b"# Body"


def test_one_read_for_the_usual_case(tmp_path: Path) -> None:
    # B5: of a body of 50 MB only what shares the first read is fetched.
    path = tmp_path / "SKILL.md"
    path.write_bytes(USUAL + b"x" * 50_000_000)
    assert len(read_opening(path)) == frontmatter.FIRST_READ


def test_long_block_is_read_to_its_end_and_no_further_than_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    long = b"---\nname: a\nx: |\n" + b"  line\n" * 190 + b"y: |\n" + b"  " + b"z" * 4000 + b"\n---\nBody"
    path.write_bytes(long)
    assert isinstance(find_block(read_opening(path)), str)
    path.write_bytes(b"---\n" + b"x" * 50_000_000)
    assert len(read_opening(path)) == frontmatter.MAX_FRONTMATTER_BYTES + 1


def test_fence_on_the_border_of_the_first_read(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    for length in range(frontmatter.FIRST_READ - 8, frontmatter.FIRST_READ + 2):
        head = b"---\nx: " + b"y" * (length - 8) + b"\n"
        path.write_bytes(head + b"---\nname: not this\n---\n")
        block = find_block(read_opening(path))
        assert isinstance(block, Problem if len(head) - 5 > frontmatter.MAX_LINE_CHARS else str), length
        if isinstance(block, str):
            assert block == head.decode()[4:]
