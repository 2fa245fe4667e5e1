"""The scripts of the built-in skills work when run by hand, with nothing but the standard library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import PYTHON
from vademecum import BUILTIN_ROOT

COMPARE = BUILTIN_ROOT / "file-diff/scripts/compare.py"
SUMMARISE = BUILTIN_ROOT / "csv-summary/scripts/summarise.py"


def run(script: Path, *words: str | Path) -> tuple[int, str, str]:
    # -I: neither this environment's packages nor its variables.
    done = subprocess.run(
        [PYTHON, "-I", "-S", str(script), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "old", tmp_path / "new"


def test_same_files(pair: tuple[Path, Path]) -> None:
    for path in pair:
        path.write_text("一\ntwo\n")
    code, out, err = run(COMPARE, *pair)
    assert (code, err) == (0, "")
    assert out.startswith("The files are the same (8 bytes, sha256 ")


def test_different_files(pair: tuple[Path, Path]) -> None:
    old, new = pair
    old.write_text("a\nb\nc\n")
    new.write_text("a\nB\nc\nd\n")
    code, out, _ = run(COMPARE, old, new)
    assert code == 1
    assert out == (
        "The files differ: 1 line removed, 2 lines added, 57.1% alike.\n"
        f"--- {old}\n+++ {new}\n@@ lines 1-3 -> lines 1-4 @@\n a\n-b\n+B\n c\n+d\n"
    )
    assert run(COMPARE, old, new, "--context", "0")[1].count("\n a\n") == 0


def test_what_can_be_ignored(pair: tuple[Path, Path]) -> None:
    old, new = pair
    old.write_text("Hello   world \nx\n")
    new.write_text("hello world\r\nx\r\n")
    assert run(COMPARE, old, new)[0] == 1
    assert run(COMPARE, old, new, "--ignore-space", "--ignore-case")[0] == 0


def test_binary_large_and_missing_files(pair: tuple[Path, Path]) -> None:
    old, new = pair
    old.write_bytes(b"\x00\xff" * 100)
    new.write_bytes(b"\x00\xff" * 99 + b"\x01\xff\x00")
    code, out, _ = run(COMPARE, old, new)
    assert code == 1
    assert "first difference at byte 199; 2 bytes differ in all" in out
    old.write_text("".join(f"{n}\n" for n in range(30_000)))
    new.write_text("".join(f"{n if n != 777 else 'x'}\n" for n in range(30_000)))
    code, out, _ = run(COMPARE, old, new)
    assert (code, "778:\n-777\n+x\n" in out) == (1, True)
    new.unlink()
    assert run(COMPARE, old, new) == (2, "", f"compare: {new}: no such file\n")
    assert run(COMPARE, old, old.parent)[0] == 2


def test_summary(tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    file.write_text(
        'city,qty,price,day,ok,mixed\nRome,3,1.5,2024-01-02,yes,1\n北京,,"1,200.75",2024-02-01,no,x\nRome,5,2,2023-12-31,yes,2\n'
    )
    code, out, err = run(SUMMARISE, file)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "**sales.csv**: 3 rows, 6 columns",
        "",
        "| column | type                | least      | most       | mean    | missing | different | most frequent |",
        "|--------|---------------------|------------|------------|---------|---------|-----------|---------------|",
        "| city   | text                | Rome       | 北京       |         | 0       | 2         | Rome (2×)     |",
        "| qty    | integer             | 3          | 5          | 4       | 1 (33%) | 2         |               |",
        "| price  | number              | 1.5        | 1200.75    | 401.417 | 0       | 3         |               |",
        "| day    | date                | 2023-12-31 | 2024-02-01 |         | 0       | 3         |               |",
        "| ok     | boolean             | no         | yes        |         | 0       | 2         | yes (2×)      |",
        "| mixed  | mixed (integer 67%) |            |            |         | 0       | 3         |               |",
    ]


@pytest.mark.parametrize(
    ("data", "words", "expected"),
    [
        ("a;b\n1;2\n", [], "1 row, 2 columns"),
        ("a\tb\n1\t2\n", [], "1 row, 2 columns"),
        ("名称,数量\n苹果,3\n".encode("gb18030"), [], "| 名称   | text    | 苹果"),
        ("a,b\n1,2\n".encode("utf-16"), [], "1 row, 2 columns"),
        ("\ufeffa,b\n1,2\n", [], "| a      |"),
        ("1,2\n3,4\n", ["--no-header"], "2 rows, 2 columns"),
        ("a,b\n1\n1,2,3\n", [], "2 rows do not have 2 cells."),
        ("a\n" + "x\n" * 100_000, [], "100,000 rows, 1 column"),
        ("a|b\n1|2\n", ["--separator", "|"], "1 row, 2 columns"),
    ],
)
def test_kinds_of_tables(tmp_path: Path, data: str | bytes, words: list[str], expected: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    code, out, err = run(SUMMARISE, file, *words)
    assert (code, err) == (0, "")
    assert expected in out


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", None])
def test_what_is_no_table(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "t.csv"
    if data is not None:
        file.write_bytes(data)
    code, out, err = run(SUMMARISE, file)
    assert (code, out) == (2, "")
    assert err.startswith(f"summarise: {file}: ")
    assert err.count("\n") == 1
