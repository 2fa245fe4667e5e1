"""Runs that earlier versions recorded: each can still be replayed without a difference, and shown."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.support import Place

RECORDED = Path(__file__).parent / "recorded"
EXPECTED: dict[str, dict[str, Any]] = json.loads((RECORDED / "expected.json").read_text("utf-8"))


def recorded(name: str, tmp_path: Path) -> tuple[Place, Path]:
    """Put a run back into a copy of the project that it was recorded in; return the place and the record."""
    project, run_id = EXPECTED[name]["project"], EXPECTED[name]["run"]
    place = Place(tmp_path / "project", tmp_path / "home")
    shutil.copytree(RECORDED / project, place.cwd)
    shutil.copytree(RECORDED / "home", place.home)
    run = place.cwd / ".agent" / "runs" / run_id
    shutil.copytree(RECORDED / "runs" / run_id, run)
    return place, run


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text("utf-8").splitlines()]


def test_every_record_is_expected() -> None:
    assert {run.name for run in (RECORDED / "runs").iterdir()} == {each["run"] for each in EXPECTED.values()}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_replay_finds_no_difference(name: str, tmp_path: Path) -> None:
    place, run = recorded(name, tmp_path)
    done = place.vade("runs", "replay", run.name, "--json")
    found = done.json
    assert (done.code, found["compared"], found["differences"]) == (0, EXPECTED[name]["compared"], [])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_record_is_shown_whole(name: str, tmp_path: Path) -> None:
    place, run = recorded(name, tmp_path)
    written = events(run)
    shown = place.vade("runs", "show", run.name, "--json")
    assert (shown.code, shown.json["status"]) == (0, EXPECTED[name]["status"])
    heads = [(event["n"], event["type"]) for event in shown.json["events"]]
    assert heads == [(event["n"], event["type"]) for event in written]

    page = place.home / "page.html"
    done = place.vade("runs", "show", run.name, "--html", str(page))
    assert (done.code, done.err) == (0, "")
    text = page.read_text("utf-8")
    shown_words = set(re.findall(r"\w+", unescape(text)))
    assert set(re.findall(r"\w+", written[0]["request"])) <= shown_words
    assert set(re.findall(r"\w+", written[-1].get("answer", ""))) <= shown_words
    assert "is damaged" not in text  # the page says so of an event that it cannot show


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "differing"),
    [
        ("two-skills", "skills/letter-style/SKILL.md", "Short", "Long", ["skill_loaded"]),
        ("resource-section", "skills/unit-tables/references/units.md", "0.45", "0.5", ["resource_loaded"]),
        ("script-remembered", "skills/house-keeping/scripts/tidy.sh", "nothing", "no", ["tool_called"]),
        ("script-denied", "config.json", "purge.sh", "other.sh", ["tool_called"]),
        (
            "charter-refuses",
            "runs/*/observations/*",
            '"cost": 3',
            '"cost": 1',
            ["charter", "outcome", "outcome"],
        ),
    ],
    ids=["instructions", "resource", "script", "rules", "charter"],
)
def test_a_replay_finds_what_was_changed(
    name: str, file: str, old: str, new: str, differing: list[str], tmp_path: Path
) -> None:
    place, run = recorded(name, tmp_path)
    texts = {found: found.read_text("utf-8") for found in (place.cwd / ".agent").glob(file)}
    (changed,) = (found for found, text in texts.items() if old in text)
    changed.write_text(texts[changed].replace(old, new), "utf-8")
    done = place.vade("runs", "replay", run.name, "--json")
    types = {event["n"]: event["type"] for event in events(run)}
    assert done.code == 1
    assert done.json["compared"] == EXPECTED[name]["compared"]
    assert [types[difference["event"]] for difference in done.json["differences"]] == differing
