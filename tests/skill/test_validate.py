"""`validate` is the whole specification, body and files included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import write_skill
from vademecum import BUILTIN_ROOT, Reading, validate_skill


def found(place: Path, reading: Reading | None = None) -> list[tuple[str, str, int | None]]:
    return [(p.code, p.severity, p.line) for p in validate_skill(place, reading=reading).problems]


def skill(root: Path, body: str = "# Steps\n", extra: str = "") -> Path:
    return write_skill(root, "pdf", f"---\nname: pdf\ndescription: Forms.\n{extra}---\n{body}")


def test_good_skill_by_directory_and_by_file(root: Path) -> None:
    place = skill(root)
    assert validate_skill(place) == validate_skill(place / "SKILL.md")
    assert validate_skill(place).to_json() == {
        "path": str(place),
        "valid": True,
        "name": "pdf",
        "description": "Forms.",
        "problems": [],
    }


@pytest.mark.parametrize("name", ["csv-summary", "file-diff", "skill-author"])
def test_built_in_skills_have_not_a_single_remark(name: str) -> None:
    assert validate_skill(BUILTIN_ROOT / name).problems == ()


def test_what_is_not_there(root: Path) -> None:
    (root / "empty").mkdir()
    (root / "file").write_text("x")
    messages = [validate_skill(root / name).problems[0].message for name in ("gone", "file", "empty")]
    assert messages[0].startswith(f"Path does not exist: {root}/gone")
    assert messages[1].startswith(f"Not a directory: {root}/file")
    assert messages[2].startswith("Missing required file: SKILL.md")


def test_unknown_and_own_fields(root: Path) -> None:
    place = skill(root, extra="hooks: x\nmodel: y\nversion: 1\n")
    verdict = validate_skill(place)
    assert not verdict.valid
    unknown, own = verdict.problems
    assert unknown.message.startswith(
        "Unexpected fields in frontmatter: hooks, model. Only allowed-tools, compatibility, "
    )
    assert (unknown.line, own.code, own.severity, own.line) == (4, "extension-field", "warning", 6)


def test_a_misspelt_field_and_a_misspelt_tool(root: Path) -> None:
    text = "---\nname: x\ndesciption: y\nallowed-tools: Red(docs/*) Bsh TodoWrite mcp__x Grep\n---\nz"
    messages = [problem.message for problem in validate_skill(write_skill(root, "x", text)).problems]
    assert any("desciption (did you mean 'description'?). Only allowed-tools, " in each for each in messages)
    tools = [each for each in messages if each.startswith("'allowed-tools' names ")]
    assert [each.partition("nothing")[2] for each in tools] == [
        ": did you mean 'Read'?",
        ": did you mean 'Bash'?",
        "",
        "",
    ]


def test_name_must_be_the_directory(root: Path) -> None:
    place = write_skill(root, "other", name="pdf")
    assert found(place) == [("name-directory-mismatch", "error", 2)]


def test_file_must_be_called_skill_md(root: Path) -> None:
    place = skill(root)
    (place / "SKILL.md").rename(place / "skill.md")
    assert found(place) == [("file-name", "error", None)]


def test_long_and_empty_bodies_are_remarks(root: Path) -> None:
    assert found(skill(root, "line\n" * 501)) == [("body-too-long", "warning", 5)]
    assert found(skill(root, "line\n" * 500)) == []
    assert found(skill(root, "\n")) == [("empty-body", "warning", 5)]


def test_body_must_be_utf8(root: Path) -> None:
    place = skill(root)
    with (place / "SKILL.md").open("ab") as out:
        out.write(b"good\nbad \xff\n")
    assert found(place) == [("not-utf8", "error", 7)]


def test_files_that_the_body_names(root: Path) -> None:
    body = (
        "See [one](references/one.md#part) and [two](references/two.md).\n"
        "Run `scripts/three.py` and `scripts/four.py`, `scripts/*.py` are fine.\n"
        "[web](https://example.org/x.md) [anchor](#here) [mail](mailto:a@example.org)\n"
        "```\n[in code](gone.md) `scripts/gone.py`\n```\n"
        "[up](../other/SKILL.md)\n"
    )
    place = skill(root, body)
    for name in ("references/one.md", "scripts/three.py"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("x")
    assert found(place) == [
        ("missing-reference", "error", 5),
        ("missing-reference", "warning", 6),
        ("reference-outside", "warning", 11),
    ]


def test_link_out_of_the_skill(root: Path) -> None:
    place = skill(root)
    (place / "assets").mkdir()
    (place / "assets" / "inside.md").symlink_to("../SKILL.md")
    assert found(place) == []
    (place / "assets" / "passwd").symlink_to("/etc/passwd")
    (place / "assets" / "up").symlink_to("../..")
    assert found(place) == [("link-outside", "error", None), ("link-outside", "error", None)]


def test_lenient_reading_turns_errors_into_warnings(root: Path) -> None:
    place = write_skill(root, "pdf", "---\nname: pdf\ndescription: a <b>\n---\nBody\n")
    assert not validate_skill(place).valid
    assert validate_skill(place, reading=Reading(lenient=True)).valid


def test_fifo_and_huge_file(root: Path) -> None:
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "SKILL.md")
    assert found(root / "pipe") == [("unreadable", "error", None)]
    place = skill(root)
    with (place / "SKILL.md").open("ab") as out:
        out.truncate(11_000_000)
    assert found(place) == [("unreadable", "error", None)]


def test_bodies_that_only_look_wrong(root: Path) -> None:
    body = (
        "[a](my%20file.md) [b](<my file.md>) [c](?x) [d](#y) `handlers[name](event)`\n"
        "````\n[e](gone.md)\n```python\n[f](gone.md)\n````\n"
        "    [g](gone.md)\n"
    )
    place = skill(root, body)
    (place / "my file.md").write_text("x")
    (place / "back\\slash").symlink_to("SKILL.md")
    assert found(place) == []


def test_many_references_are_looked_up_once_and_bounded(root: Path) -> None:
    body = "](same)" * 50_000 + "\n" + " ".join(f"[x](n{number})" for number in range(5_000)) + "\n"
    assert len(found(skill(root, body))) == 200


def test_agrees_with_the_index_about_long_frontmatter(root: Path) -> None:
    from tests.support import index_of

    lines = "".join(f"  k{number}: {'x' * 1000}\n" for number in range(100))
    place = skill(root, extra=f"metadata:\n{lines}")
    assert not validate_skill(place).valid
    assert len(index_of(root)) == 0


def test_directory_that_cannot_be_listed(open_root: Path) -> None:
    place = skill(open_root)
    place.chmod(0)
    code = (
        "import os, sys, vademecum as vm\n"
        "vm.validate_skill(vm.BUILTIN_ROOT / 'file-diff')  # imports what is needed while it still can\n"
        "os.geteuid() or os.setuid(65534)\n"
        "print([p.code for p in vm.validate_skill(sys.argv[1]).problems])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False
    )
    place.chmod(0o755)
    assert (done.stdout, done.stderr) == ("['unreadable']\n", "")
