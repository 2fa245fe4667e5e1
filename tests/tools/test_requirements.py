"""P3: what a script declares, read strictly: plain requirements, and every problem with its line."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from vademecum.errors import PathRefused, ToolRefused
from vademecum.tools.packages.requirements import MAX_REQUIREMENTS_BYTES, is_installed, requirements_of

SCRIPT = "scripts/x.py"


def of_block(*lines: str, place: Path = Path("/nonexistent")) -> tuple[str, ...]:
    text = "\n".join(["import os", "# /// script", *(f"# {line}" for line in lines), "# ///", "print(1)"])
    return requirements_of(text, place, SCRIPT)


def of_file(place: Path, text: str | bytes, name: str = "requirements.txt") -> tuple[str, ...]:
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return requirements_of("print(1)\n", place, SCRIPT)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("print(1)\n", ()),
        ("# /// script\n# dependencies = []\n# ///\n", ()),
        ("# /// script\n# requires-python = '>=3.8'\n# ///\n", ()),
        ("# /// script\n# dependencies = ['B_b.c >= 1, <2', 'a']\n# ///\n", ("a", "b-b-c<2,>=1")),
        ("# /// script\r\n# dependencies = ['a']\r\n# ///\r\n", ("a",)),
        ("# /// script\n# dependencies = ['a[Y,x]~=1.0', 'A[x,y]~=1.0']\n# ///\n", ("a[x,y]~=1.0",)),
        ("# /// script\n# dependencies = ['a; python_version < \"3\"']\n# ///\n", ()),
        ("# /// script\n# dependencies = ['a; python_version > \"3\"']\n# ///\n", ("a",)),
        ("# /// script\n# dependencies = [\n#   'a',  # why\n#\n#   'b',\n# ]\n# ///\n", ("a", "b")),
        ('# /// script\n# dependencies = ["a"]\n# x = """\n# ///\n# """\n# ///\n', ("a",)),
        ("# /// script\n# dependencies = ['a']\n# [tool.other]\n# x = 1\n# ///\n", ("a",)),
        # Not a block: another kind, no end, indented, or a character that only looks like the end of a line.
        ("# /// other\n# dependencies = ['a']\n# ///\n", ()),
        ("# /// script\n# dependencies = ['a']\nprint(1)\n", ()),
        ("x = '''\n  # /// script\n  # dependencies = ['a']\n  # ///\n'''\n", ()),
        ("x = 1\u2028# /// script\u2028# dependencies = ['a']\u2028# ///\n", ()),
    ],
)
def test_a_block_in_the_script(tmp_path: Path, text: str, wanted: tuple[str, ...]) -> None:
    assert requirements_of(text, tmp_path, SCRIPT) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ()),
        ("\n# only a comment\n", ()),
        ("a\nb==1.0  # why\n\n  c[d]>2 ; python_version > '3'\n", ("a", "b==1.0", "c[d]>2")),
        ("\ufeffa\r\nb\r\n", ("a", "b")),
    ],
)
@pytest.mark.parametrize("name", ["requirements.txt", "scripts/requirements.txt"])
def test_a_file_of_the_skill(tmp_path: Path, text: str, wanted: tuple[str, ...], name: str) -> None:
    assert of_file(tmp_path, text, name) == wanted


def test_the_nearest_declaration_counts(tmp_path: Path) -> None:
    assert of_file(tmp_path, "far") == ("far",)
    assert of_file(tmp_path, "near", "scripts/requirements.txt") == ("near",)
    assert of_block("dependencies = ['own']", place=tmp_path) == ("own",)
    assert of_block("dependencies = []", place=tmp_path) == ()


@pytest.mark.parametrize(
    ("line", "objection"),
    [
        ("-r other.txt", "is an option that reads another file: copy its lines here"),
        ("--constraint=c.txt", "is an option that reads another file: copy its lines here"),
        ("--index-url https://ada:hunter2@index.example/simple", "has an option: write a name"),
        ("-e .", "has an option: write a name"),
        ("a==1 --hash=sha256:00", "has an option: write a name"),
        ("a==1 \\", "continues on the next line: write it on one line"),
        (
            "a @ https://index.example/a-1.0.whl",
            "is an address: write a name and its versions, such as 'name>=1.2'",
        ),
        ("a@git+ssh://git@index.example/a", "is an address: "),
        ("https://ada:hunter2@index.example/a.whl", "is an address: "),
        ("git+file:x", "is an address: "),
        ("./a", "is a path: "),
        ("/srv/a-1.0.whl", "is a path: "),
        ("~/a", "is a path: "),
        ("a-1.0-py3-none-any.whl", "is a path: "),
        ("a @ file:../a", "is a path: "),
        ("a b", "is not a requirement: "),
        ("a >>= 1", "is not a requirement: "),
        ("a; nonsense > '3'", "is not a requirement: "),
        ("a; python_version > 3", "is not a requirement: "),
        ("${TOKEN}", "is not a requirement: "),
    ],
)
def test_what_is_not_allowed_is_refused_by_line(tmp_path: Path, line: str, objection: str) -> None:
    with pytest.raises(ToolRefused) as in_file:
        of_file(tmp_path, f"good\n\n{line}\n")
    assert (in_file.value.code, "requirements.txt, line 3: " in str(in_file.value)) == ("dependencies", True)
    with pytest.raises(ToolRefused) as in_block:
        of_block("dependencies = [", "  'good',", f"  {line!r},", "]")
    for refused in (in_file, in_block):
        assert objection in str(refused.value)
        assert "hunter2" not in str(refused.value)
    if "\\" not in line and "'" not in line:
        assert "scripts/x.py, line 5: " in str(in_block.value)


def test_every_problem_is_named_up_to_a_number(tmp_path: Path) -> None:
    with pytest.raises(ToolRefused) as refused:
        of_file(tmp_path, "-r a\nfine\n./b\n")
    assert str(refused.value) == (
        "The script cannot be run: requirements.txt, line 1: '-r a' is an option that reads another file: "
        "copy its lines here; requirements.txt, line 3: './b' is a path: write a name and its versions, "
        "such as 'name>=1.2'."
    )
    with pytest.raises(ToolRefused, match="and 995 more") as many:
        of_file(tmp_path, "-e .\n" * 1000)
    assert len(str(many.value)) < 1500


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["dependencies = ["], "line 2: its '# /// script' block is not valid TOML"),
        (["dependencies = " + "[" * 3000], "is not valid TOML"),
        (["dependencies = 'x'"], "line 3: 'dependencies' is not a list of strings"),
        (["dependencies = [1]"], "'dependencies' is not a list of strings"),
        (["dependencies = ['uvicorn']", "[tool.uv]"], "line 4: [tool.uv] is not read here: remove it"),
        (["dependencies = []", "[tool.uv.sources]", "a = {path = '.'}"], "[tool.uv] is not read here"),
        (["requires-python = 'new'"], "line 3: 'new' is not a range of versions: write '>=3.11'"),
        (["dependencies = []", "# ///", "# /// script", "dependencies = []"], "not valid TOML"),
    ],
)
def test_a_block_that_cannot_be_used(lines: list[str], said: str) -> None:
    with pytest.raises(ToolRefused) as refused:
        of_block(*lines)
    assert (refused.value.code, said in str(refused.value)) == ("dependencies", True), refused.value


def test_a_requirement_cannot_bring_a_second_line() -> None:
    for item in ("good\\n--index-url=x", "good\\nother", "good>=1\\n,<2 \\n -e ."):
        with pytest.raises(ToolRefused):
            of_block(f'dependencies = ["{item}"]')


def test_a_second_block_is_refused() -> None:
    with pytest.raises(ToolRefused, match=r"scripts/x\.py, line 5: a second '# /// script' block: keep one"):
        requirements_of(
            "# /// script\n# dependencies = []\n# ///\n\n# /// script\n# ///\n# ///\n", Path("/x"), SCRIPT
        )


def test_another_python_is_required() -> None:
    assert of_block(f"requires-python = '>={platform.python_version()}'") == ()
    with pytest.raises(ToolRefused) as refused:
        of_block("requires-python = '>=3.99'")
    assert str(refused.value) == (
        "The script cannot be run: scripts/x.py, line 3: it requires Python '>=3.99' and this is "
        f"{platform.python_version()}: run vade with that Python."
    )


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ToolRefused, match="is larger than"):
        of_file(tmp_path, "#" * (MAX_REQUIREMENTS_BYTES + 1))
    with pytest.raises(ToolRefused, match=r"requirements\.txt is not UTF-8"):
        of_file(tmp_path, b"\xff\xfe")
    with pytest.raises(ToolRefused, match="requires 201 packages: at most 200 are provided"):
        of_file(tmp_path, "\n".join(f"p{number}" for number in range(201)))
    (tmp_path / "requirements.txt").unlink()
    (tmp_path / "requirements.txt").symlink_to("/etc/hostname")
    with pytest.raises(PathRefused):
        requirements_of("", tmp_path, SCRIPT)


def test_what_is_installed_already_needs_no_environment() -> None:
    assert is_installed("click")
    assert is_installed("packaging>=20")
    for missing in ("click>999", "no-such-package", "click[extra]"):
        assert not is_installed(missing)
