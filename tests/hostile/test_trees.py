"""Roots that are not what they seem, disks that do not cooperate."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.support import Place, index_of, reasons, write_skill
from vademecum import IndexOptions, build_index


def test_root_that_is_a_file(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    write_skill(root, "good")
    index = build_index([file, root], IndexOptions())
    assert [skill.name for skill in index] == ["good"]
    assert index.report.ignored[0].reason.code == "root-not-a-directory"
    assert index.report.roots[0].status == "not-a-directory"


def test_default_root_that_is_a_file_is_reported_by_its_status(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent" / "skills").write_text("x")
    statuses = {root.status for root in place.build().report.roots}
    assert "not-a-directory" in statuses
    assert place.vade("doctor").code == 1


def test_root_that_vanishes_and_returns_during_scans(root: Path) -> None:
    for number in range(50):
        write_skill(root, f"g{number % 5}/s{number}")
    stop = threading.Event()
    away = root.with_name("away")

    def flicker() -> None:
        while not stop.is_set():
            os.rename(root, away)
            os.rename(away, root)

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        sizes = {len(index_of(root)) for _ in range(150)}
    finally:
        stop.set()
        thread.join()
    assert max(sizes) <= 50  # and nothing was raised
    assert len(index_of(root)) == 50


def test_documents_that_vanish_during_scans(root: Path) -> None:
    stop = threading.Event()
    write_skill(root, "steady")

    def churn() -> None:
        while not stop.is_set():
            write_skill(root, "fleeting")
            shutil.rmtree(root / "fleeting")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(300):
            assert "steady" in [skill.name for skill in index_of(root)]
    finally:
        stop.set()
        thread.join()


def test_fifo_that_takes_the_place_of_a_document_during_scans(root: Path) -> None:
    # Between the look and the open: an ordinary open would wait for a writer for ever.
    place = write_skill(root, "x")
    os.mkfifo(root / "pipe")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(place / "SKILL.md", root / "kept")
            os.rename(root / "pipe", place / "SKILL.md")
            os.rename(place / "SKILL.md", root / "pipe")
            os.rename(root / "kept", place / "SKILL.md")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(500):
            index_of(root)
    finally:
        stop.set()
        thread.join()
    assert [skill.name for skill in index_of(root)] == ["x"]


def test_home_that_does_not_exist(place: Place) -> None:
    missing = place.home / "missing"
    assert [skill.source for skill in Place(place.cwd, missing).build()] == ["builtin"] * 3
    done = place.vade("list", "--json", HOME=str(missing), VADE_CACHE_DIR="")
    assert (done.code, len(done.json["skills"]), done.json["report"]["diagnostics"]) == (0, 3, [])
    assert "no home directory" in place.vade("doctor", HOME=str(missing), VADE_CACHE_DIR="").out
    assert not missing.exists()


def test_no_home_variable_at_all(place: Place) -> None:
    assert place.vade("list", HOME="").code == 0


def test_working_directory_that_was_deleted(place: Place) -> None:
    import subprocess

    from tests.support import VADE

    gone = place.cwd / "gone"
    gone.mkdir()
    words = ["sh", "-c", f"rmdir '{gone}' && exec '{VADE}' list"]
    done = subprocess.run(words, cwd=gone, env=place.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("vade: The working directory no longer exists")


def test_read_only_disk(place: Place) -> None:
    # /proc accepts no files from anybody, root included.
    write_skill(place.cwd, ".agent/skills/x")
    done = place.vade("list", "--json", VADE_CACHE_DIR="/proc/vademecum")
    assert done.code == 0
    assert done.json["report"]["diagnostics"][-1]["code"] == "cache-not-written"
    made = place.vade("new", "y", "--dir", "/proc")
    assert (made.code, made.out) == (2, "")
    assert made.err.startswith("vade: /proc/y cannot be made")


def test_names_on_disk_cannot_steer_a_terminal(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/a\x1b[2Jb\nc", "---\nname: x\n---\n")
    write_skill(place.cwd, ".agent/skills/d", '---\nname: d\ndescription: "a\\e[2Jb\\u202ec"\n---\n')
    for words in (["list"], ["doctor"], ["inspect", "d"], ["validate", ".agent/skills"], ["list", "--json"]):
        done = place.vade(*words)
        assert done.out
        assert "\x1b" not in done.out
        assert "\u202e" not in done.out
        assert "Traceback" not in done.err


def test_file_name_that_is_not_text(place: Place) -> None:
    odd = os.fsencode(place.cwd) + b"/.agent/skills/bad-\xff"
    os.makedirs(odd)
    with open(odd + b"/SKILL.md", "w") as out:
        out.write("---\nname: bad\ndescription: x\n---\n")
    assert place.vade("list", "--json").json["skills"][0]["path"].endswith("bad-\udcff")
    for words in (["list"], ["doctor"], ["inspect", "bad"]):
        assert "Traceback" not in place.vade(*words).err


@pytest.mark.parametrize("variable", [":", "::", "\\", "relative/x", "~", "/nonexistent"])
def test_odd_root_variables(place: Place, variable: str) -> None:
    assert place.vade("list", VADE_SKILL_ROOTS=variable).code == 0


def test_explicit_root_that_is_absent_is_said(place: Place) -> None:
    done = place.vade("list", "--root", "gone", "--no-default-roots")
    assert (done.code, done.err) == (0, "")
    assert "1 root was not searched: vade doctor" in done.out
    doctor = place.vade("doctor", "--root", "gone", "--no-default-roots")
    assert doctor.code == 1
    assert "does not exist: create it" in doctor.out


def test_one_bad_file_among_many_loses_nothing(root: Path) -> None:
    for number in range(100):
        write_skill(root, f"s{number}")
    write_skill(root, "bad", b"\xff\xfe\x00")
    index = index_of(root)
    assert (len(index), len(reasons(index))) == (100, 1)
