"""K1-K3: skills are packed the same everywhere, arrive whole or not at all, and are what the lock says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packs.support import make
from tests.support import Place, write_skill
from vademecum.errors import ConfigError, PackRefused
from vademecum.packs.content import SkillFile, digest_of, files_of
from vademecum.packs.install import Options, install
from vademecum.packs.install_root import InstallRoot, verify
from vademecum.packs.sources.fetching import local_source
from vademecum.skill.assets import directory_digest


def test_a_pack_is_the_same_bytes_every_time(place: Place) -> None:
    for name in ("a", "b"):
        skill = make(place.cwd / "src", name)
        for junk in (
            "__pycache__/x.pyc",
            "scripts/y.pyc",
            ".DS_Store",
            "evals/evals.json",
            "node_modules/x/y.js",
        ):
            (skill / junk).parent.mkdir(parents=True, exist_ok=True)
            (skill / junk).write_text("junk")
    first = place.vade("pack", "src/a", "src/b", "-o", "one.zip", "--json").json
    os.utime(place.cwd / "src/a/SKILL.md", (1, 1))
    second = place.vade("pack", "src/b", "src/a", "-o", "two.zip", "--json").json
    assert first["sha256"] == second["sha256"]
    assert zipfile.ZipFile(place.cwd / "one.zip").namelist() == [
        "manifest.json",
        "a/SKILL.md",
        "a/scripts/run.sh",
        "b/SKILL.md",
        "b/scripts/run.sh",
    ]
    manifest = json.loads(zipfile.ZipFile(place.cwd / "one.zip").read("manifest.json"))
    assert manifest["format_version"] == 1
    assert manifest["skills"][0]["files"][1]["executable"] is True


def test_the_digest_is_the_one_that_others_share(tmp_path: Path) -> None:
    skill = make(tmp_path, "a")
    assert digest_of(files_of(skill)) == directory_digest(str(skill))
    assert digest_of([SkillFile("b", "1", 1), SkillFile("a", "2", 1)]) == digest_of(
        [SkillFile("a", "2", 9), SkillFile("b", "1", 1)]
    )


@pytest.mark.parametrize("what", ["link", "fifo", "invalid"])
def test_what_cannot_be_packed(place: Place, what: str) -> None:
    skill = make(place.cwd, "a")
    match what:
        case "link":
            (skill / "x").symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(skill / "x")
        case "invalid":
            (skill / "SKILL.md").write_text("nothing")
    done = place.vade("pack", "a", "-o", "x.zip")
    assert (done.code, (place.cwd / "x.zip").exists()) == (1, False)


def test_a_round_trip(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("pack", "src/mine", "-o", "mine.skill")
    assert place.vade("install", "mine.skill", "--dry-run").out.startswith("Would be installed: mine\n")
    assert not (place.cwd / ".agent/skills/mine").exists()
    assert (
        place.vade("install", "mine.skill").out == "Installed: mine\n  it contains scripts: scripts/run.sh\n"
    )
    assert "mine" in place.vade("list").out  # K3
    assert os.access(place.cwd / ".agent/skills/mine/scripts/run.sh", os.X_OK)
    assert place.vade("verify").code == 0
    assert place.vade("install", "mine.skill").out == "Unchanged: mine\n"
    lock = (place.cwd / ".agent/skills.lock.json").read_text()
    make(place.cwd / "src", "mine", "two")
    place.vade("pack", "src/mine", "-o", "mine.skill")
    assert "  changed scripts/run.sh\n" in place.vade("install", "mine.skill").out
    assert lock != (place.cwd / ".agent/skills.lock.json").read_text()
    assert place.vade("uninstall", "mine").code == 0
    assert "mine" not in place.vade("list").out
    assert place.vade("uninstall", "mine").code == 4
    assert place.vade("restore", "mine").code == 0
    assert (place.cwd / ".agent/skills/mine/scripts/run.sh").read_text() == "echo two\n"
    assert place.vade("uninstall", "mine", "--purge", "--json").json == {
        "uninstalled": ["mine"],
        "kept": False,
    }
    assert place.vade("install", "nope.zip").code == 4


def test_local_edits_are_never_lost(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("pack", "src/mine", "-o", "mine.zip")
    place.vade("install", "mine.zip", "--scope", "user")
    edited = place.home / ".agent/skills/mine/scripts/run.sh"
    edited.write_text("echo edited\n")
    edited.with_name("more.sh").write_text("x")
    done = place.vade("verify", "--scope", "user", "--json")
    assert (done.code, done.json["skills"][0]["differences"]) == (
        5,
        ["added scripts/more.sh", "changed scripts/run.sh"],
    )
    for words in (["install", "mine.zip"], ["uninstall", "mine"]):
        refused = place.vade(*words, "--scope", "user")
        assert (refused.code, "was changed since it was installed" in refused.err) == (1, True)
    assert edited.read_text() == "echo edited\n"
    assert place.vade("install", "mine.zip", "--scope", "user", "--force").code == 0
    kept = list((place.home / ".agent/skills/.trash/mine").glob("*/scripts/run.sh"))
    assert [file.read_text() for file in kept] == ["echo edited\n"]
    write_skill(place.home, ".agent/skills/by-hand")
    assert "was not installed by vade" in place.vade("uninstall", "by-hand", "--scope", "user").err


def test_an_archive_that_must_have_a_digest(place: Place) -> None:
    make(place.cwd / "src", "mine")
    digest = place.vade("pack", "src/mine", "-o", "mine.zip", "--json").json["sha256"]
    assert place.vade("install", f"mine.zip#sha256={'0' * 64}").code == 5
    assert place.vade("install", f"mine.zip#sha256={digest}").code == 0


def test_some_out_of_many(place: Place) -> None:
    for name in ("a", "b", "c"):
        make(place.cwd / "src", name)
    assert place.vade("install", "src", "--skill", "b").code == 0
    assert sorted(p.name for p in (place.cwd / ".agent/skills").iterdir() if p.name[0] != ".") == ["b"]
    assert "it has a, b, c" in place.vade("install", "src", "--skill", "z").err


def test_all_or_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make(tmp_path / "src", name)
    (tmp_path / "src/b/SKILL.md").write_text("---\nname: b\n---\n")
    with pytest.raises(PackRefused, match="not valid"):
        install(local_source(tmp_path / "src"), InstallRoot(tmp_path / "root"), Options())
    assert [p.name for p in (tmp_path / "root").iterdir()] == [".lock"]


def test_a_read_only_root_and_a_damaged_lock(place: Place) -> None:
    make(place.cwd / "src", "mine")
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/skills").write_text("a file")
    assert place.vade("install", "src").code == 2
    (place.cwd / ".agent/skills").unlink()
    (place.cwd / ".agent/skills.lock.json").write_text("{")
    assert place.vade("install", "src").code == 5
    assert not (place.cwd / ".agent/skills/mine").exists()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)], check=False, capture_output=True
    ).returncode:
        pytest.skip("a small file system cannot be made here")
    try:
        make(tmp_path / "src", "a")
        (tmp_path / "src/a/big").write_bytes(os.urandom(500_000))
        (place / "root/there").mkdir(parents=True)
        with pytest.raises(PackRefused, match=r"No space left on device\): nothing was changed"):
            install(local_source(tmp_path / "src"), InstallRoot(place / "root"), Options())
        assert sorted(p.name for p in (place / "root").iterdir()) == [".lock", "there"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def content(root: Path) -> dict[str, str]:
    return {
        place.name: directory_digest(str(place)) for place in sorted(root.iterdir()) if place.name[0] != "."
    }


def test_killed_at_any_point_it_is_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.packs.killing", str(tmp_path), "200"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 200
    # The points were well chosen: many were in the middle, and both outcomes came of them.
    assert found["old"] > 10
    assert found["new"] > 10
    assert found["recovered"] > 10
    assert sorted(found["said"]) == ["Finished an", "Removed the"]


AT_ONCE = """
import sys
from pathlib import Path
from vademecum.errors import ConfigError, PackRefused
from vademecum.packs.install import Options
from vademecum.packs.sources.fetching import local_source
from vademecum.packs.install import install, uninstall
from vademecum.packs.install_root import InstallRoot
shelf = InstallRoot(Path(sys.argv[1], "root"))
for _ in range(10):
    if int(sys.argv[2]) % 2:
        install(local_source(Path(sys.argv[1], "src")), shelf, Options(force=True))
    else:
        try:
            uninstall([f"s{n}" for n in range(4)], shelf, purge=True)
        except PackRefused as error:
            assert error.code == "not-installed"
"""


def test_eight_processes_at_once(tmp_path: Path) -> None:
    for number in range(4):
        make(tmp_path / "src", f"s{number}")
    words = [sys.executable, "-c", AT_ONCE, str(tmp_path)]
    all_of_them = [subprocess.Popen([*words, str(number)]) for number in range(8)]
    assert [one.wait(timeout=60) for one in all_of_them] == [0] * 8
    root = tmp_path / "root"
    assert len(content(root)) in {0, 4}
    assert len(verify(InstallRoot(root))[0]) == len(content(root))
    assert all(verdict.status == "ok" for verdict in verify(InstallRoot(root))[0])


def test_a_read_only_root(tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("a read-only file system cannot be made here")
    try:
        with pytest.raises(ConfigError, match="make it writable"):
            install(local_source(make(tmp_path / "src", "a")), InstallRoot(place / "root"), Options())
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_journal_that_came_with_a_project_writes_nothing_anywhere(place: Place) -> None:
    target = place.home / ".bashrc"
    skills = place.cwd / ".agent/skills"
    make(skills, "mine")
    own = os.stat(skills)
    journals: list[dict[str, object]] = [
        {"moves": [], "files": {str(target): "evil"}},
        {"moves": [], "files": {"../../../home/.bashrc": "evil"}},
        {"moves": [{"place": "../../../home", "staged": False, "kept": False}], "files": {}},
        {"moves": [{"place": "mine", "staged": False, "kept": False}], "root": 1},
    ]
    for journal in journals:
        document = {"moment": "20260101T000000.000000", "root": own.st_ino, **journal}
        (skills / ".journal.json").write_text(json.dumps(document))
        for words in (["list"], ["verify"], ["install", str(make(place.home / "src", "other"))]):
            done = place.vade(*words)
            code = 0 if words == ["list"] else 2
            assert (done.code, "belongs to another directory" in done.err) == (code, True), (
                journal,
                done.err,
            )
        assert not target.exists()
        assert (skills / "mine/SKILL.md").is_file()
        assert place.home.is_dir()


def test_names_and_places_that_lead_out(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("install", "src")
    outside = make(place.home, "outside")
    for words in (["uninstall", "--force"], ["restore"], ["diff"], ["lock"]):
        for name in ("../../../home/outside", "..", ".", ".trash", str(outside)):
            assert place.vade(*words, name).code == 4, (words, name)
    assert outside.is_dir()
    lock = place.cwd / ".agent/skills.lock.json"
    document = json.loads(lock.read_text())
    document["skills"]["../../../home/outside"] = document["skills"]["mine"]
    lock.write_text(json.dumps(document))
    for words in (["sync"], ["verify"], ["install", "src"], ["update"]):
        assert place.vade(*words).code == 5
    lock.unlink()
    for name in (".trash", ".staging"):
        shutil.rmtree(place.cwd / ".agent/skills" / name, ignore_errors=True)
        (place.cwd / ".agent/skills" / name).symlink_to(place.home)
        done = place.vade("uninstall", "mine", "--force")
        assert (done.code, "is a link" in done.err) == (2, True)
        (place.cwd / ".agent/skills" / name).unlink()
