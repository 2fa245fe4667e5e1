"""The recording in the README shows what the program does today, and is nothing but a picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = DOCS / "first-minutes.svg"
SVG = "{http://www.w3.org/2000/svg}"


def lines(picture: Path) -> list[str]:
    """All lines of the session, typed and printed, as they stand on the screen."""
    found: dict[float, str] = {}
    screen = ElementTree.parse(picture).getroot().find(f"{SVG}svg")
    assert screen is not None
    for text in screen.iter(f"{SVG}text"):
        row = float(text.attrib["y"])
        found[row] = f"{found.get(row, '')} {text.text}".strip()
    return [found[row] for row in sorted(found)]


def test_it_shows_what_the_program_does_today(tmp_path: Path) -> None:
    again = tmp_path / "again.svg"
    subprocess.run(
        [sys.executable, "-m", "docs.record", str(again)], cwd=DOCS.parent, check=True, timeout=120
    )
    assert lines(again) == lines(RECORDED), "vade prints something else now: make recording"


def test_it_shows_the_first_minutes() -> None:
    shown = "\n".join(lines(RECORDED))
    for words in (
        "$ vade validate\n",
        "$ vade list\n",
        "$ vade search 填写申请表格 -n 1\n",
        "$ vade new pdf-forms",
        "error line 3: Invalid YAML in frontmatter",
        "✓ ~/project/.agent/skills/notes valid\n",
        "The files differ: 1 line removed, 1 line added",
    ):
        assert words in shown


def test_it_is_one_picture_that_fits() -> None:
    text = RECORDED.read_text("utf-8")
    assert not re.search(r"<script|\bhref|url\(|@import|\bon\w+=", text)
    assert text.count("http") == 1  # the name of the format
    assert not re.search(r"/tmp/|/home/|/root/", text)
    assert len(text) < 100_000
    (seconds,) = set(re.findall(r"animation:[rms]\d* ([\d.]+)s infinite", text))
    assert 20 <= float(seconds) <= 30
    screen = ElementTree.parse(RECORDED).getroot().find(f"{SVG}svg")
    assert screen is not None
    for piece in screen.iter(f"{SVG}text"):
        last = float(piece.attrib["x"].split()[-1]) + float(piece.attrib.get("textLength", 0))
        assert last <= float(screen.attrib["width"]) + 0.01
