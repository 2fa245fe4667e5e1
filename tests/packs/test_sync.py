"""The lock: made, kept, followed; and what the npm tool's own lock has to do with it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packs.support import make
from tests.support import Place, write_skill
from vademecum.packs.npm_lock import folder_hash


@pytest.fixture
def packed(place: Place) -> Place:
    for name in ("a", "b"):
        make(place.cwd / "src", name)
    place.vade("pack", "src/a", "src/b", "-o", "both.zip")
    assert place.vade("install", "both.zip").code == 0
    return place


def skills(place: Place) -> Path:
    return place.cwd / ".agent/skills"


def lock_of(place: Place) -> dict[str, dict[str, str]]:
    return json.loads((place.cwd / ".agent/skills.lock.json").read_text())["skills"]  # type: ignore[no-any-return]


def test_edits_are_shown_and_kept(packed: Place) -> None:
    assert packed.vade("diff", "a").out == "a has no edits\n"
    (skills(packed) / "a/scripts/run.sh").write_text("echo edited\n")
    (skills(packed) / "a/scripts/run.sh").chmod(0o644)
    (skills(packed) / "a/blob").write_bytes(b"\xff\xfe")
    done = packed.vade("diff", "a")
    assert done.code == 1
    for part in (
        "-echo one\n+echo edited\n",
        "run.sh is no longer executable\n",
        "blob was added, and is not text",
    ):
        assert part in done.out
    assert packed.vade("diff", "a", "--json").json["diff"] == done.out.splitlines()
    assert packed.vade("diff", "nope").code == 4
    refused = packed.vade("sync")
    assert (refused.code, "vade diff a" in refused.err) == (1, True)
    assert packed.vade("sync", "--frozen").code == 5
    assert packed.vade("sync", "--force").out == "Restored: a\n"
    assert packed.vade("verify").code == 0
    assert packed.vade("restore", "a").code == 0
    assert (skills(packed) / "a/scripts/run.sh").read_text() == "echo edited\n"


def test_sync_makes_the_root_equal_to_the_lock(packed: Place) -> None:
    lock = packed.cwd / ".agent/skills.lock.json"
    before = lock.read_text()
    assert packed.vade("sync").out == "Everything matches the lock\n"
    shutil.rmtree(skills(packed) / "b")
    assert packed.vade("sync", "--frozen").code == 5
    assert packed.vade("sync").out == "Restored: b\n"
    document = json.loads(before)
    del document["skills"]["b"]
    lock.write_text(json.dumps(document))
    write_skill(skills(packed), "by-hand")
    steps = packed.vade("sync", "--json").json["steps"]
    assert [(step["name"], step["action"]) for step in steps] == [("b", "removed"), ("by-hand", "not-locked")]
    assert sorted(p.name for p in skills(packed).iterdir() if p.name[0] != ".") == ["a", "by-hand"]
    lock.write_text(before)
    assert (
        packed.vade("sync").out
        == "Restored: b\nNot in the lock: by-hand\nvade lock NAME adopts a skill of your own.\n"
    )
    assert lock.read_text() == before


def test_a_new_version_in_the_lock_is_taken(packed: Place) -> None:
    old = (packed.cwd / ".agent/skills.lock.json").read_text()
    make(packed.cwd / "src", "a", "two")
    packed.vade("pack", "src/a", "-o", "newer.zip")
    assert packed.vade("install", "newer.zip").code == 0
    (packed.cwd / ".agent/skills.lock.json").write_text(old)  # as if a colleague had gone back
    assert packed.vade("sync").out == "Restored: a\n"
    assert (skills(packed) / "a/scripts/run.sh").read_text() == "echo one\n"


def test_a_source_that_has_something_else_by_now(packed: Place) -> None:
    make(packed.cwd / "src", "a", "two")
    packed.vade("pack", "src/a", "src/b", "-o", "both.zip")
    shutil.rmtree(skills(packed) / "a")
    done = packed.vade("sync")
    assert (done.code, "no longer has the 'a' that is locked" in done.err) == (5, True)
    assert not (skills(packed) / "a").exists()
    (packed.cwd / "both.zip").unlink()
    assert packed.vade("sync").code == 1
    done = packed.vade("update", "--json")
    assert (done.code, [one["code"] for one in done.json["problems"]]) == (1, ["missing"])


def test_locking_what_is_here(packed: Place) -> None:  # K4
    write_skill(skills(packed), "by-hand")
    (skills(packed) / "a/more").write_text("x")
    done = packed.vade("lock", "--json").json
    assert (done["changed"], done["skills"]) == (["a", "by-hand"], ["a", "b", "by-hand"])
    assert packed.vade("verify").code == 0
    assert lock_of(packed)["by-hand"]["source"] == "local"
    assert lock_of(packed)["b"]["source"] == "./both.zip"
    assert packed.vade("update", "--dry-run", "b").out == "Up to date: b\n"
    assert packed.vade("update", "by-hand").code == 1
    assert packed.vade("diff", "by-hand").out == "by-hand has no edits\n"
    shutil.rmtree(skills(packed) / "by-hand")
    done = packed.vade("sync")
    assert (done.code, "restore it from version control" in done.err) == (5, True)
    assert packed.vade("lock").out.startswith("No longer locked: by-hand (it is gone)\n")
    assert "by-hand" not in lock_of(packed)
    assert packed.vade("lock", "nope").code == 4


def test_the_lock_is_the_same_bytes_wherever_the_project_lies(packed: Place, tmp_path: Path) -> None:
    lock = (packed.cwd / ".agent/skills.lock.json").read_bytes()
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.copy(packed.cwd / "both.zip", other)
    assert packed.vade("install", "both.zip", cwd=other).code == 0
    assert (other / ".agent/skills.lock.json").read_bytes() == lock
    assert b"time" not in lock


def test_restoring_remembers_where_it_came_from(packed: Place) -> None:
    before = lock_of(packed)["a"]
    packed.vade("uninstall", "a")
    assert packed.vade("restore", "a").code == 0
    assert lock_of(packed)["a"] == before
    assert packed.vade("restore", "a").code == 4
    write_skill(packed.cwd / ".agent/skills", "team/pdf")
    assert packed.vade("uninstall", "team/pdf", "--force").code == 0
    assert packed.vade("restore", "team").code == 4  # a group, not a skill
    assert packed.vade("restore", "team/pdf").code == 0


def test_what_is_replaced_by_force_is_kept(packed: Place) -> None:
    make(packed.cwd / "src", "a", "two")
    packed.vade("pack", "src/a", "src/b", "-o", "both.zip")
    assert packed.vade("install", "both.zip").code == 0
    assert not (skills(packed) / ".trash").exists()
    make(packed.cwd / "src", "a", "three")
    packed.vade("pack", "src/a", "src/b", "-o", "both.zip")
    assert packed.vade("install", "both.zip", "--force").code == 0
    packed.vade("restore", "a")
    assert (skills(packed) / "a/scripts/run.sh").read_text() == "echo two\n"


def test_the_lock_of_the_npm_tool(packed: Place) -> None:
    file = packed.cwd / "skills-lock.json"
    assert not file.exists()
    assert packed.vade("lock", "--npm").code == 0
    document = json.loads(file.read_text())
    assert (document["version"], sorted(document["skills"])) == (1, ["a", "b"])
    document["skills"]["theirs"] = {"source": "x/y", "sourceType": "github", "computedHash": "0"}
    file.write_text(json.dumps(document))
    packed.vade("uninstall", "a")
    assert sorted(json.loads(file.read_text())["skills"]) == ["b", "theirs"]
    file.write_text("{")
    assert packed.vade("uninstall", "b").code == 5
    assert (skills(packed) / "b").is_dir()


NPM_HASH = """
const fs = require("fs"), path = require("path"), crypto = require("crypto");
const base = process.argv[1], found = [];
(function walk(place) {
  for (const entry of fs.readdirSync(place, { withFileTypes: true })) {
    const full = path.join(place, entry.name);
    if (entry.isDirectory()) walk(full);
    else found.push(path.relative(base, full));
  }
})(base);
const hash = crypto.createHash("sha256");
for (const name of found.sort((a, b) => a.localeCompare(b))) hash.update(name).update(fs.readFileSync(path.join(base, name)));
console.log(hash.digest("hex"));
"""


def test_its_digest_is_the_one_that_tool_computes(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    skill = make(tmp_path, "a")
    for name in (
        "README.md",
        "readme.txt",
        "a_b",
        "a-b",
        "a.b",
        "ab",
        "Ab",
        "a/b",
        "a1",
        "a10",
        "Z",
        "z/y",
        "z.y",
        "技能.md",
    ):
        (skill / "references" / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / "references" / name).write_text(name)
    done = subprocess.run(["node", "-e", NPM_HASH, str(skill)], capture_output=True, text=True, check=True)
    assert folder_hash(skill) == done.stdout.strip()


def test_what_a_person_would_not_notice_is_said(place: Place) -> None:
    write_skill(place.cwd / "src", "file-dlff")
    (change,) = place.vade("install", "src", "--json").json["changes"]
    assert change["remarks"] == ["its name could be taken for 'file-diff', which is another skill"]


def test_the_next_command_says_what_it_cleaned(packed: Place) -> None:
    staging = skills(packed) / ".staging/x"
    staging.mkdir(parents=True)
    done = packed.vade("list", "--json")
    assert "Removed the prepared files of an interrupted change." in done.err
    assert not staging.exists()
    assert packed.vade("list").err == ""


def test_what_is_unchanged_keeps_its_source(packed: Place) -> None:
    lock = packed.cwd / ".agent/skills.lock.json"
    before = lock.read_bytes()
    shutil.copytree(skills(packed) / "a", packed.cwd / "copy/a")
    done = packed.vade("install", "copy")
    assert done.out.startswith("Unchanged: a\n")
    assert "its source stays ./both.zip: uninstall it first to change that" in done.out
    assert lock.read_bytes() == before
    shutil.rmtree(skills(packed) / "a")
    assert packed.vade("sync").out == "Restored: a\n"
    # A skill or a version that the lock does not know is locked.
    make(packed.cwd / "copy", "a", "two")
    shutil.copytree(packed.cwd / "copy/a", skills(packed) / "a", dirs_exist_ok=True)
    assert packed.vade("install", "copy").out.startswith("Unchanged: a\n")
    assert (lock_of(packed)["a"]["source"], packed.vade("verify").code) == ("./copy", 0)
    lock.unlink()
    assert packed.vade("install", "copy").out.startswith("Unchanged: a\n")
    assert lock_of(packed)["a"]["source"] == "./copy"


@pytest.mark.parametrize(
    "source", [".", ".agent/skills", ".agent/skills/a", "linked/a", ".agent/skills/g/own"]
)
@pytest.mark.parametrize("how", ["--force", "--dry-run"])
def test_a_root_is_not_installed_from_itself(place: Place, source: str, how: str) -> None:
    for name in ("a", "b"):
        make(place.cwd / "src", name)
    assert place.vade("install", "src").code == 0
    shutil.rmtree(place.cwd / "src")
    make(skills(place), "g/own")
    (place.cwd / "linked").symlink_to(".agent/skills")
    before = (place.cwd / ".agent/skills.lock.json").read_bytes()
    done = place.vade("install", source, how)
    assert (done.code, "where skills are installed: name the source" in done.err) == (1, True), done
    assert "vade lock" in done.err
    assert (place.cwd / ".agent/skills.lock.json").read_bytes() == before
    assert place.vade("install", source, how, "--scope", "user").code == 0
    assert place.vade("verify").code == 5  # only because of the skill that was not locked


def test_sync_names_the_skill_that_it_cannot_restore(packed: Place) -> None:
    shutil.rmtree(skills(packed) / "a")
    (packed.cwd / "both.zip").unlink()
    done = packed.vade("sync")
    assert (done.code, done.err.startswith("vade: a: There is no './both.zip' to install from")) == (1, True)
    (problem,) = packed.vade("sync", "--json").json["problems"]
    assert (problem["source"], problem["code"]) == ("a", "missing")


def test_an_edit_is_still_one_after_uninstalling_and_restoring(packed: Place) -> None:
    lock = packed.cwd / ".agent/skills.lock.json"
    before = lock.read_bytes()
    edited = skills(packed) / "a/SKILL.md"
    edited.write_text(edited.read_text() + "edited\n")
    verified = packed.vade("verify")
    assert verified.code == 5
    assert packed.vade("uninstall", "a", "--force").code == 0
    assert packed.vade("restore", "a").code == 0
    assert edited.read_text().endswith("edited\n")
    assert lock.read_bytes() == before
    assert packed.vade("verify") == verified
    assert "+edited" in packed.vade("diff", "a").out
    assert packed.vade("sync").code == 1
    assert edited.read_text().endswith("edited\n")


def test_a_skill_that_was_not_locked_is_not_locked_by_restoring_it(packed: Place) -> None:
    make(skills(packed), "planted")
    verified = packed.vade("verify")
    assert packed.vade("uninstall", "planted", "--force").code == 0
    assert packed.vade("restore", "planted").code == 0
    assert packed.vade("verify") == verified
    make(packed.cwd / "src", "planted", "two")
    assert packed.vade("install", "src/planted", "--force").code == 0
    assert packed.vade("restore", "planted").code == 0
    assert packed.vade("verify") == verified
