"""The flood plain on Mesa, as it ships: the table, the page, the record; the same seed, the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support import Place

TOP = Path(__file__).parents[2]

pytestmark = pytest.mark.extras


def flood(place: Place, *words: str) -> tuple[str, bytes, bytes]:
    pytest.importorskip("mesa", reason="Mesa is not installed (the extra `mesa`)")
    done = place.vade("govern", "simulate", str(TOP / "examples/flood"), *words)
    assert done.code == 0, done.err
    found = re.search(r"vade runs replay (\S+)", done.out)
    assert found is not None
    record = place.cwd / ".agent" / "runs" / found[1] / "events.jsonl"
    lines = record.read_bytes().splitlines()[1:-1]
    return done.out.replace(found[1], "RUN"), (place.cwd / "flood.html").read_bytes(), b"\n".join(lines)


def test_the_same_seed_the_same_bytes(place: Place) -> None:
    words = ("--agents", "60", "--steps", "20")
    one, again, other = flood(place, *words), flood(place, *words), flood(place, *words, "--seed", "2")
    assert one == again
    assert one[1] != other[1]
    assert one[1].count(b"<svg") == 9
    assert place.vade("runs", "replay").code == 0


def test_the_charter_makes_a_difference(place: Place) -> None:
    flood(place, "--agents", "200", "--steps", "50")
    done = place.vade(
        "govern", "simulate", str(TOP / "examples/flood"), "--agents", "200", "--json", "--no-record"
    )
    runs = json.loads(done.out)["runs"]
    enforced, without = (runs[name]["figures"] for name in ("with the charter", "without"))
    assert enforced["intents"] == enforced["carried out"] + enforced["against the charter"]
    assert without["intents"] == without["carried out"]
    assert enforced["treasury, million"] < without["treasury, million"]  # who enforces, pays


def test_any_model_decides_by_option(place: Place) -> None:
    """Each kind of agent is asked, gets what its role may read, and does what the charter allows."""
    pytest.importorskip("mesa", reason="Mesa is not installed (the extra `mesa`)")
    tape = place.cwd / "answers.json"
    tape.write_text(json.dumps([{"skill": "set_subsidy", "parameters": {"rate": 0.9}}, "nonsense"] * 60))
    done = place.vade(
        "govern", "simulate", str(TOP / "examples/flood"), "--agents", "10", "--steps", "2", "--json",
        "--model", f"scripted:{tape}",
    )  # fmt: skip
    assert done.code == 0, done.err
    events = place.vade("runs", "show", done.json["run_id"], "--json").json["events"]
    outcomes = [event for event in events if event["type"] == "outcome"]
    assert {event["agent_type"] for event in outcomes} == {"household", "government", "insurer"}
    codes = {reason["code"] for event in outcomes for reason in event.get("reasons", ())}
    assert {"parameter", "not-found"} <= codes
    assert {event["executed"] for event in outcomes} == {None, "do_nothing"}
    assert place.vade("runs", "replay", done.json["run_id"]).code == 0


def test_the_documentation_shows_what_it_prints(place: Place) -> None:
    """`docs/governance.md` has the table of 1,000 households and 50 years."""
    pytest.importorskip("mesa", reason="Mesa is not installed (the extra `mesa`)")
    (place.cwd / "examples").symlink_to(TOP / "examples")
    done = place.vade("govern", "simulate", "examples/flood", "--agents", "1000", "--steps", "50")
    shown = re.sub(r"\S+-\S+-\w{7}", "RUN", done.out)
    page = re.sub(r"\d{8}-\d{6}-[0-9a-f]{7}", "RUN", (TOP / "docs/governance.md").read_text("utf-8"))
    assert shown in page
