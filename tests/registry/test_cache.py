"""B8: what is remembered between processes, and when it is not believed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import VADE, Place, write_skill
from vademecum import IndexOptions, Reading, SkillIndex, build_index

LATER = 4_000_000_000.0  # seconds: long after any file of a test was written


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def build(root: Path, cache: Path, reading: Reading | None = None) -> SkillIndex:
    return build_index([root], IndexOptions(reading or Reading(), cache=cache), clock=lambda: LATER)


def without_times(index: SkillIndex) -> dict[str, object]:
    found = index.to_json()
    del found["report"]["seconds"], found["report"]["read"]
    return found


def test_unchanged_documents_are_not_read_again(root: Path, cache: Path) -> None:
    write_skill(
        root,
        "a",
        "---\nname: a\ndescription: A.\nmetadata: {x: {y: z}, k: v, secrets: [A_KEY]}\nallowed-tools: r w\ntags: [t]\n---\n",
    )
    write_skill(root, "g/b", "broken")
    first, second = build(root, cache), build(root, cache)
    assert (first.report.read, second.report.read) == (2, 0)
    assert without_times(first) == without_times(second)
    assert first.skills == second.skills
    assert second.get("a").meta.secrets == ("A_KEY",)


def test_every_kind_of_change_is_noticed(root: Path, cache: Path) -> None:
    for name in ("edited", "removed", "kept"):
        write_skill(root, name)
    build(root, cache)
    write_skill(root, "edited", "---\nname: edited\ndescription: New.\n---\n")
    (root / "removed" / "SKILL.md").unlink()
    write_skill(root, "added")
    index = build(root, cache)
    assert [skill.name for skill in index] == ["added", "edited", "kept"]
    assert index.get("edited").description == "New."
    assert index.report.read == 2
    assert build(root, cache).report.read == 0


def test_edit_that_keeps_size_and_time_is_noticed(root: Path, cache: Path) -> None:
    document = write_skill(root, "a", "---\nname: a\ndescription: One.\n---\n") / "SKILL.md"
    before = document.stat()
    build(root, cache)
    document.write_text("---\nname: a\ndescription: Two.\n---\n")
    os.utime(document, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert document.stat().st_size == before.st_size
    assert build(root, cache).get("a").description == "Two."  # the change time tells


def test_file_changed_just_now_is_not_trusted(root: Path, cache: Path) -> None:
    # Within the clock's resolution a second edit would bear the same times, so the file is read once more.
    write_skill(root, "a")
    for expected in (1, 1):
        index = build_index([root], IndexOptions(cache=cache))
        assert index.report.read == expected
    assert build(root, cache).report.read == 1
    assert build(root, cache).report.read == 0


def test_strict_and_lenient_have_caches_of_their_own(root: Path, cache: Path) -> None:
    write_skill(root, "a", "---\nname: A\ndescription: x\n---\n")
    assert len(build(root, cache)) == 0
    assert len(build(root, cache, Reading(lenient=True))) == 1
    assert len(build(root, cache)) == 0


@pytest.mark.parametrize("damage", ["garbage", "truncated", "flipped", "empty", "directory", "fifo"])
def test_damaged_cache_is_rebuilt_with_a_remark(root: Path, cache: Path, damage: str) -> None:
    write_skill(root, "a")
    build(root, cache)
    (file,) = cache.iterdir()
    data = file.read_bytes()
    file.unlink()
    match damage:
        case "garbage":
            file.write_bytes(os.urandom(500))
        case "truncated":
            file.write_bytes(data[:-5])
        case "flipped":
            file.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
        case "empty":
            file.touch()
        case "directory":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
    index = build(root, cache)
    assert [skill.name for skill in index] == ["a"]
    assert index.report.diagnostics[0].code == "cache-rebuilt"
    if damage not in {"directory"}:
        again = build(root, cache)
        assert (again.report.read, again.report.diagnostics) == (0, ())


def test_cache_of_another_version_is_rebuilt(root: Path, cache: Path) -> None:
    import zlib

    from msgspec import msgpack

    write_skill(root, "a")
    build(root, cache)
    (file,) = cache.iterdir()
    body = msgpack.encode(["vademecum-index-0", []])
    file.write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
    index = build(root, cache)
    assert (len(index), index.report.diagnostics[0].code) == (1, "cache-rebuilt")
    assert "another version" in index.report.diagnostics[0].message


def test_cache_that_cannot_be_written_is_a_remark(root: Path, tmp_path: Path) -> None:
    write_skill(root, "a")
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    index = build(root, blocked / "cache")
    assert (len(index), [p.code for p in index.report.diagnostics]) == (
        1,
        ["cache-rebuilt", "cache-not-written"],
    )


def test_cache_of_somebody_else_is_not_believed(root: Path, cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    write_skill(root, "a")
    build(root, cache)
    (file,) = cache.iterdir()
    os.chown(file, 65534, 65534)
    assert "another user" in build(root, cache).report.diagnostics[0].message


def test_cache_files_are_private_and_bounded(tmp_path: Path, cache: Path) -> None:
    for number in range(70):
        write_skill(tmp_path / f"r{number}", "a")
        build(tmp_path / f"r{number}", cache)
    files = list(cache.iterdir())
    assert len(files) == 64
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert cache.stat().st_mode & 0o777 == 0o700


def test_directory_name_that_is_not_text(root: Path, cache: Path) -> None:
    write_skill(root, "good")
    odd = os.fsencode(root) + b"/bad-\xff"
    os.mkdir(odd)
    with open(odd + b"/SKILL.md", "w") as out:
        out.write("---\nname: bad\ndescription: x\n---\n")
    for _ in range(2):
        index = build(root, cache)
        assert [skill.name for skill in index] == ["bad", "good"]
        assert index.report.diagnostics == ()


def test_many_processes_at_once(place: Place) -> None:
    for number in range(200):
        write_skill(place.cwd, f".agent/skills/s{number:03d}")
    code = "import vademecum; i = vademecum.build_index(); print(len(i), i.hash, [d.code for d in i.report.diagnostics])"

    def run(_: int) -> str:
        words = [sys.executable, "-c", code]
        return subprocess.run(
            words, cwd=place.cwd, env=place.env, capture_output=True, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(6) as pool:
        outputs = list(pool.map(run, range(18)))
    assert len(set(outputs)) == 1
    assert outputs[0].startswith("203 sha256:")
    assert outputs[0].endswith("[]\n")
    leftovers = [file for file in (place.home / "cache").iterdir() if not file.name.startswith("index-")]
    assert leftovers == []


def test_crafted_cache_is_not_believed(root: Path, cache: Path) -> None:
    import zlib

    from msgspec import msgpack

    from vademecum.registry.cache import FORMAT

    write_skill(root, "a")
    build(root, cache)
    (file,) = cache.iterdir()
    for content in (
        [FORMAT, [[[[1, 2, 3, 4], [7, "Use when testing."]]]]],
        [FORMAT, [[["x", ["a", "Use when testing."]]]]],
        [FORMAT],
        {"a": 1},
        7,
    ):
        body = msgpack.encode(content)
        file.write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
        index = build(root, cache)
        assert ([skill.name for skill in index], index.report.diagnostics[0].code) == (["a"], "cache-rebuilt")


def test_file_from_the_future_is_remembered(root: Path, cache: Path) -> None:
    document = write_skill(root, "a") / "SKILL.md"
    os.utime(document, (2 * LATER, 2 * LATER))
    build(root, cache)
    assert build(root, cache).report.read == 0


def test_root_whose_path_is_not_text(tmp_path: Path, cache: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r-\xff"))
    write_skill(root, "a")
    write_skill(root, "b", "broken")
    for _ in range(2):  # what a cache cannot name is read each time
        index = build(root, cache)
        assert ([skill.name for skill in index], index.report.read) == (["a"], 2)


def test_unchanged_tree_costs_one_listing_a_group_and_opens_no_document(root: Path, cache: Path) -> None:
    for number in range(30):
        write_skill(root, f"g{number % 3}/s{number}")
    build(root, cache)
    code = (
        "import sys, vademecum as vm; from pathlib import Path; from collections import Counter\n"
        "root, options = sys.argv[1], vm.IndexOptions(cache=Path(sys.argv[2]))\n"
        "vm.build_index, seen = vm.build_index, Counter()\n"
        "def watch(event, arguments):\n"
        "    if event in {'open', 'os.scandir', 'os.listdir'} and str(arguments[0]).startswith(root):\n"
        "        seen[event] += 1\n"
        "sys.addaudithook(watch)\n"
        "index = vm.build_index([root], options, clock=lambda: 4_000_000_000.0)\n"
        "print(len(index), index.report.read, dict(seen))"
    )
    words = [sys.executable, "-c", code, str(root), str(cache)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "30 0 {'os.scandir': 4}"


@pytest.mark.extras  # six seconds
def test_killed_at_any_moment_it_leaves_a_readable_cache_or_none(place: Place) -> None:
    for number in range(1500):
        write_skill(place.cwd, f".agent/skills/s{number}")
    expected = place.build().hash
    moments = random.Random(5)
    for _ in range(25):
        started = subprocess.Popen([VADE, "refresh"], cwd=place.cwd, env=place.env, stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.05, 0.4))
        started.kill()
        started.wait()
    found = place.vade("list", "--json").json
    assert found["hash"] == expected
    assert [d for d in found["report"]["diagnostics"] if d["code"] != "cache-rebuilt"] == []
    assert len(list((place.home / "cache").glob(".index-*"))) <= 9
