"""K2, K4: nothing planted goes unseen, nothing is left out in silence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.packs.support import make, serving
from tests.support import Place, write_skill
from vademecum import Policy, Toolkit
from vademecum.files import sha256_of
from vademecum.packs.lock import Locked
from vademecum.packs.npm_lock import folder_hash, not_for_npm, npm_lock_text, read_npm_lock
from vademecum.policy.engine import allowing


@pytest.fixture
def installed(place: Place) -> Place:
    make(place.cwd / "src", "a")
    assert place.vade("install", "src").code == 0
    return place


def skills(place: Place) -> Path:
    return place.cwd / ".agent/skills"


@pytest.mark.parametrize("where", ["planted", "group/planted", "a-group/deep/planted"])
@pytest.mark.parametrize("file", ["SKILL.md", "skill.md"])
def test_a_planted_skill_is_named(installed: Place, where: str, file: str) -> None:
    planted = write_skill(skills(installed), where)
    (planted / "SKILL.md").rename(planted / file)
    done = installed.vade("verify")
    assert (done.code, f"{where} sha256:" in done.out, "not-locked" in done.out) == (5, True, True)
    assert "vade lock NAME adopts" in done.out
    frozen = installed.vade("sync", "--frozen")
    assert (frozen.code, f"{where} is not in the lock" in frozen.err) == (5, True)
    assert f"Not in the lock: {where}" in installed.vade("sync").out
    assert installed.vade("lock", where).out.startswith(f"Adopted: {where} (source: local)\n")
    assert (installed.vade("verify").code, installed.vade("sync", "--frozen").code) == (0, 0)
    lock = json.loads((installed.cwd / ".agent/skills.lock.json").read_text())
    assert lock["skills"][where]["source"] == "local"


def test_a_skill_that_is_the_root_itself_is_not_locked(installed: Place) -> None:
    """The skills that are locked stay so: an entry for the root would make the lock unreadable."""
    lock = installed.cwd / ".agent/skills.lock.json"
    before = lock.read_bytes()
    (skills(installed) / "SKILL.md").write_text("---\nname: skills\ndescription: D\n---\n")
    assert installed.vade("lock").code != 0
    assert lock.read_bytes() == before


def test_a_skill_inside_another_is_not_locked_any_more(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/grp/x")
    assert place.vade("lock", "grp/x").code == 0
    write_skill(place.cwd, ".agent/skills/grp")
    assert "No longer locked: grp/x" in place.vade("lock").out
    assert [*json.loads((place.cwd / ".agent/skills.lock.json").read_text())["skills"]] == ["grp"]


def test_what_is_written_follows_the_mask(place: Place) -> None:
    make(place.cwd / "src", "a")
    words = ["sh", "-c", 'umask 002; exec "$0" -m vademecum install src', sys.executable]
    subprocess.run(words, cwd=place.cwd, env={**os.environ, "HOME": str(place.home)}, check=True)
    lock = place.cwd / ".agent/skills.lock.json"
    assert lock.stat().st_mode & 0o777 == 0o664


def test_no_program_of_the_project_runs_to_install(place: Place) -> None:
    for number in range(120):
        make(place.cwd / "src", f"skill-{number}")
    program = place.cwd / "bin/sync"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    assert place.vade("install", "src", PATH=f"bin:{os.environ['PATH']}").code == 0
    assert not (place.cwd / "ran").exists()


def test_a_lock_that_is_missing(installed: Place) -> None:
    (installed.cwd / ".agent/skills.lock.json").unlink()
    done = installed.vade("verify", "--json")
    assert (done.code, done.json["verified"], "is missing" in done.json["problem"]) == (5, False, True)
    assert [skill["name"] for skill in done.json["skills"]] == ["a"]
    assert installed.vade("sync", "--frozen").code == 5
    refused = installed.vade("sync")
    assert (refused.code, "is missing" in refused.err) == (5, True)
    assert (skills(installed) / "a/SKILL.md").is_file()
    shutil.rmtree(skills(installed) / "a")
    assert installed.vade("verify").code == 5  # something was installed here once


def test_a_new_lock_takes_nothing_away(installed: Place) -> None:
    """Without the old lock nobody can say that a skill is no longer wanted."""
    make(installed.cwd / "more", "b")
    make(installed.cwd / "more", "c")
    installed.vade("install", "more")
    (installed.cwd / ".agent/skills.lock.json").unlink()
    assert installed.vade("lock", "b").code == 0
    assert installed.vade("install", "more", "--only", "c").code == 0
    done = installed.vade("sync")
    assert done.out == (
        "Not in the lock: a\nvade lock NAME adopts a skill of your own.\nEverything else matches the lock\n"
    )
    assert installed.vade("uninstall", "c").code == 0
    assert (skills(installed) / "a/SKILL.md").is_file()


def test_a_skill_that_is_neither_here_nor_locked_is_not_found(installed: Place) -> None:
    done = installed.vade("verify", "aa")
    assert (done.code, "did you mean 'a'?" in done.err) == (4, True)


@pytest.mark.parametrize("file", ["scripts/__pycache__/run.pyc", ".DS_Store", "evals/x.json", ".git/config"])
def test_every_file_is_seen(installed: Place, file: str) -> None:
    planted = skills(installed) / "a" / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_bytes(b"\xff")
    assert f"  added {file}\n" in installed.vade("verify").out
    done = installed.vade("diff", "a")
    assert (done.code, done.out) == (1, f"{file} was added, and is not text or too long\n")
    assert installed.vade("sync", "--frozen").code == 5


def test_other_line_endings_are_a_difference(installed: Place) -> None:
    script = skills(installed) / "a/scripts/run.sh"
    script.write_bytes(script.read_bytes().replace(b"\n", b"\r\n"))
    done = installed.vade("diff", "a")
    assert (done.code, done.out) == (1, "scripts/run.sh differs in its line endings\n")


def test_what_interpreters_leave_is_removed_and_asks_nobody(installed: Place) -> None:
    cache = skills(installed) / "a/scripts/__pycache__"
    cache.mkdir()
    (cache / "run.pyc").write_bytes(b"x")
    assert installed.vade("sync").out == "Restored: a\n"
    assert not cache.exists()
    assert not (skills(installed) / ".trash").exists()


def test_each_hash_is_printed(installed: Place) -> None:
    (skill,) = installed.vade("verify", "--json").json["skills"]
    lock = json.loads((installed.cwd / ".agent/skills.lock.json").read_text())
    assert skill["digest"] == lock["skills"]["a"]["digest"]
    assert installed.vade("verify").out == f"a {skill['digest']}\n1 skill compared: all as locked\n"


def test_uninstall_by_source(installed: Place) -> None:
    assert installed.vade("install", "src", "--scope", "user").code == 0
    assert installed.vade("uninstall", "a", "--source", "user").code == 0
    assert not (installed.home / ".agent/skills/a").exists()
    assert installed.vade("uninstall", "a", "--source", "project").code == 0


def test_a_pack_with_a_directory_that_is_no_skill(place: Place) -> None:
    make(place.cwd / "src", "a")
    place.vade("pack", "src/a", "-o", "a.zip")
    with zipfile.ZipFile(place.cwd / "d4.zip", "w") as out, zipfile.ZipFile(place.cwd / "a.zip") as given:
        for info in given.infolist():
            if info.filename != "manifest.json":
                out.writestr(info, given.read(info))
        out.writestr("broken/readme.md", "x")
        out.writestr("__MACOSX/a/._SKILL.md", "x")
        out.writestr("empty/", "")
    done = place.vade("install", "d4.zip")
    assert (done.code, "broken, empty" in done.err, "--only" in done.err) == (1, True, True)
    assert not (skills(place) / "a").exists()
    assert place.vade("install", "d4.zip", "--only", "a").code == 0
    (place.cwd / "src/docs").mkdir()
    (place.cwd / "src/docs/x.md").write_text("x")
    done = place.vade("install", "src", "--force")
    assert (done.code, "Left out: docs (it contains no skill)" in done.out) == (0, True)


def test_a_document_in_small_letters_is_installed(place: Place) -> None:
    skill = make(place.cwd / "src", "small")
    (skill / "SKILL.md").rename(skill / "skill.md")
    assert place.vade("install", "src").code == 0
    assert "small" in place.vade("list").out
    assert place.vade("verify").code == 0


def test_shadowing_a_built_in_skill_gets_a_remark(place: Place) -> None:
    write_skill(place.cwd / "src", "file-diff")
    (change,) = place.vade("install", "src", "--json").json["changes"]
    assert "it is used instead of the built-in skill 'file-diff'" in change["remarks"]
    for scope in ("project", "user"):  # also if others override the built-in one
        assert place.vade("install", "src", "--scope", scope).code == 0
    (change,) = place.vade("install", "src", "--json").json["changes"]
    assert "it is used instead of the built-in skill 'file-diff'" in change["remarks"]


def test_a_file_address(place: Place) -> None:
    make(place.cwd / "with space", "a")
    address = (place.cwd / "with space").as_uri()
    assert place.vade("install", address).code == 0
    assert place.vade("install", "file://host/x").code == 1


def test_an_older_version_of_a_site_is_still_found(place: Place) -> None:
    make(place.cwd / "src", "a")
    write_skill(place.cwd / "src", "document")
    place.vade("publish", "src", "--to", "site")
    with serving(place.cwd / "site") as web:
        assert place.vade("install", f"{web.url}/").code == 0
        make(place.cwd / "src", "a", "two")
        write_skill(place.cwd / "src", "document", "---\nname: document\ndescription: Newer.\n---\n")
        place.vade("publish", "src", "--to", "site")
        for name in ("a", "document"):
            shutil.rmtree(skills(place) / name)
        assert place.vade("sync").out == "Restored: a\nRestored: document\n"
        assert (skills(place) / "a/scripts/run.sh").read_text() == "echo one\n"


def test_one_skill_that_cannot_be_had_does_not_stop_the_others(place: Place) -> None:
    for name in ("a", "b"):
        make(place.cwd / f"src-{name}", name)
        place.vade("install", f"src-{name}")
        shutil.rmtree(skills(place) / name)
    shutil.rmtree(place.cwd / "src-a")
    done = place.vade("sync", "--json")
    assert (done.code, [step["name"] for step in done.json["steps"]]) == (1, ["b"])
    assert [problem["source"] for problem in done.json["problems"]] == ["a"]
    assert (skills(place) / "b/SKILL.md").is_file()


def test_only_the_lock_of_the_npm_tool(place: Place) -> None:
    skill = make(place.cwd / "src", "a")
    (skill / "evals").mkdir()
    (skill / "evals/evals.json").write_text("{}")  # that tool counts it
    entry = {"source": "./src", "sourceType": "local", "computedHash": folder_hash(skill)}
    file = place.cwd / "skills-lock.json"
    file.write_text(json.dumps({"version": 1, "skills": {"a": entry}}))
    done = place.vade("verify", "--json")
    assert (done.code, [(s["name"], s["status"]) for s in done.json["skills"]]) == (5, [("a", "missing")])
    assert place.vade("sync").out == "Restored: a\n"
    assert place.vade("verify").code == 0
    shutil.rmtree(place.cwd / ".agent")
    (skill / "SKILL.md").write_text((skill / "SKILL.md").read_text() + "newer\n")
    done = place.vade("sync")
    assert (done.code, "skills-lock.json" in done.err) == (5, True)


def test_what_the_npm_tool_cannot_restore_is_said(place: Place) -> None:
    make(place.cwd / "src", "a")
    make(place.cwd / "src", "b")
    place.vade("pack", "src/a", "-o", "a.zip")
    place.vade("install", "a.zip", "src/b")
    done = place.vade("lock", "--npm")
    assert (done.code, "a comes from ./a.zip" in done.err, "b comes" in done.err) == (0, True, False)


COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("a", "local", ""),
        ("a", "./src/a", ""),
        ("a", "https://example.org/", ""),
        ("a", "git+file:///r", ""),
        ("a", "git+https://github.com/o/r.git@v1#deep/down/a", ""),
        ("a", "git+https://gitlab.com/o/r@v1#a", ""),
        ("a", "git+https://example.org/r.git@v1#.claude/skills/a", ""),
        ("a", "git+ssh://git@example.org/r.git@v1#skills/group/a", ""),
        ("team/a", "local", "is in a group"),
        ("a", "run:1/a", "cannot restore"),
        ("a", "git+https://example.org/r", "cannot restore"),
        ("a", f"git+https://github.com/o/r@{COMMIT}#a", "cannot restore"),
        ("a", "git+file:///r.git@v1", "cannot restore"),
        ("a", "git+ssh://git@example.org/r@v1", "cannot restore"),
        ("a", "git+https://example.org/r.git#deep/down/a", "may not find it"),
        ("a", "git+https://example.org/r.git#tools", "may not find it"),
    ],
)
def test_what_the_npm_tool_can_restore(name: str, source: str, why: str) -> None:
    locked = Locked(source, COMMIT, "", ())
    found = not_for_npm({name: locked}).get(name, "")
    assert (why in found, bool(found)) == (True, bool(why)), found


def test_what_the_npm_tool_stores_is_understood(tmp_path: Path) -> None:
    entry = {"source": "example.org", "sourceType": "well-known", "computedHash": ""}
    (tmp_path / "skills-lock.json").write_text(json.dumps({"version": 1, "skills": {"a": entry}}))
    assert read_npm_lock(tmp_path / ".agent/skills")["a"][0] == "https://example.org/"
    locked = Locked("git+https://github.com/o/r.git", COMMIT, "", ())
    (tmp_path / "a").mkdir()
    text = npm_lock_text(tmp_path / "none", {"a": (locked, tmp_path / "a")})
    assert json.loads(text)["skills"]["a"]["source"] == "o/r"


def test_the_npm_locks_own_words_for_a_site(place: Place) -> None:
    make(place.cwd / "src", "a")
    place.vade("publish", "src", "--to", "site")
    with serving(place.cwd / "site") as web:
        place.vade("install", f"{web.url}/")
        place.vade("lock", "--npm")
        file = place.cwd / "skills-lock.json"
        (entry,) = json.loads(file.read_text())["skills"].values()
        index = json.loads((place.cwd / "site/.well-known/agent-skills/index.json").read_text())
        assert entry["sourceUrl"] == f"{web.url}/"
        assert entry["wellKnownDigest"] == index["skills"][0]["digest"]
        assert (entry["source"], entry["sourceType"]) == (web.url.removeprefix("http://"), "well-known")
        shutil.rmtree(place.cwd / ".agent")
        assert place.vade("sync").out == "Restored: a\n"


def record(place: Place, outputs: dict[str, str], run_id: str = "20260101-000000-abcd") -> Path:
    """A run of an agent whose script left these files."""
    run = place.cwd / ".agent/runs" / run_id
    listed = []
    for name, text in outputs.items():
        file = run / "outputs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        listed.append({"path": name, "file": str(file), "bytes": len(text), "sha256": sha256_of(file)})
    event = {"n": 1, "time": 1.0, "type": "tool_called", "result": {"outputs": listed}}
    (run / "events.jsonl").write_text(json.dumps(event) + "\n")
    return run


def test_a_skill_that_an_agent_wrote(place: Place) -> None:
    document = "---\nname: made\ndescription: What it does.\n---\n"
    run = record(
        place, {"drafts/made/SKILL.md": document, "drafts/made/scripts/x.py": "print()\n", "b.txt": "x"}
    )
    done = place.vade("install", f"run:{run.name}/made")
    assert (done.code, done.out) == (0, "Installed: made\n  it contains scripts: scripts/x.py\n"), done.err
    assert place.vade("verify").code == 0
    lock = json.loads((place.cwd / ".agent/skills.lock.json").read_text())
    assert lock["skills"]["made"]["source"] == f"run:{run.name}/made"
    assert place.vade("install", f"run:{run.name}/other").code == 4
    assert place.vade("install", "run:nothing/made").code == 4
    (run / "outputs/drafts/made/SKILL.md").write_text(document + "swapped\n")
    assert place.vade("install", f"run:{run.name}/made", "--force").code == 5
    risky = "---\nname: risky\ndescription: x\nallowed-tools: Write\n---\n"
    run = record(place, {"risky/SKILL.md": risky}, "20260102-000000-abcd")
    assert "--allow-unsafe" in place.vade("install", f"run:{run.name}/risky").err


def test_a_skill_that_an_agent_wrote_into_the_project(place: Place) -> None:
    cwd = place.cwd / "below"
    cwd.mkdir()
    context = replace(place.context, cwd=cwd)
    policy = Policy.load(context, run=allowing(["write_file", "edit_file", "delete_file"]))
    kit = Toolkit(context=context, policy=policy, tools=["write_file", "edit_file", "delete_file"])
    document = "---\nname: own\ndescription: What it does.\n---\n"
    for tool, path, words in (
        ("write_file", "./drafts/own/SKILL.md", {"content": document}),
        ("edit_file", "drafts/own/SKILL.md", {"old": "does", "new": "did"}),
        ("write_file", "drafts/own/scripts/x.py", {"content": "print()\n"}),
        ("write_file", "drafts/own/gone.md", {"content": "x"}),
        ("delete_file", "drafts/own/gone.md", {}),
    ):
        assert kit.call(tool, {"path": path, **words}).ok
    kit.close()
    (run,) = (place.cwd / ".agent/runs").glob("2*")
    source = f"run:{run.name}/own"
    done = place.vade("install", source)
    assert (done.code, done.out) == (0, "Installed: own\n  it contains scripts: scripts/x.py\n"), done.err
    assert "What it did." in (skills(place) / "own/SKILL.md").read_text()
    assert (skills(place) / "own/gone.md").exists() is False
    stray = cwd / "drafts/own/notes.md"
    stray.write_text("mine")
    done = place.vade("install", source, "--force")
    assert (done.code, "'notes.md'" in done.err, "vade install below/drafts/own" in done.err) == (
        1,
        True,
        True,
    )
    stray.unlink()
    script = cwd / "drafts/own/scripts/x.py"
    for change in (
        lambda: script.write_text("print(1)\n"),
        script.unlink,
        lambda: script.symlink_to(place.home / "x.py"),
    ):
        change()
        done = place.vade("install", source, "--force")
        assert (done.code in {1, 5}, "x.py'" in done.err, "nothing was installed" in done.err) == (True,) * 3
    assert (skills(place) / "own/scripts/x.py").read_text() == "print()\n"


def test_wrong_places_are_sentences(place: Place) -> None:
    make(place.cwd / "src", "a")
    place.vade("install", "src")
    place.vade("uninstall", "a")
    again = [place.vade("restore", "a") for _ in range(2)]
    assert ([done.code for done in again], "did you mean" in again[1].err) == ([0, 4], False)
    (place.cwd / "closed").mkdir()
    (place.cwd / "closed").chmod(0)
    for words, env in (
        (["pack", "src/a", "-o", "/nonexistent/x.zip"], {}),
        (["export", "file-diff", "-o", "/nonexistent/x.zip"], {}),
        (["publish", "src", "--to", "/proc/x"], {}),
        (["install", "src", "--scope", "user"], {"HOME": "/proc/x"}),
        (["keygen"], {"HOME": "/proc/x"}),
        (["link", "file-diff", "--to", "claude", "--scope", "user"], {"HOME": "/dev/null"}),
        (["update", "x", "--scope", "user"], {"HOME": "/dev/null"}),
        (["lock", "--scope", "user"], {"HOME": "/dev/null"}),
        (["install", "closed"], {}),
    ):
        done = place.vade(*words, cwd=place.cwd, **env)
        assert done.code in {1, 2, 4}, (words, done)
        assert "restore it" not in done.err, (words, done)
        assert (done.err.count("\n"), done.err[:6]) == (1, "vade: "), (words, done)


def test_a_signing_key_that_others_can_read_is_refused(place: Place) -> None:
    make(place.cwd / "src", "a")
    assert place.vade("keygen").code == 0
    (key,) = (place.home / ".agent/keys").glob("*.pem")
    key.chmod(0o640)
    done = place.vade("sign", "src/a")
    assert (done.code, f"run chmod 600 {key}" in done.err) == (2, True), done.err
    key.chmod(0o600)
    assert place.vade("sign", "src/a").code == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("https://ada:secret@example.org/x.zip", "must not contain a user name or a password"),
        ("git+https://ada@example.org/r", "must not contain a user name or a password"),
        ("https:///x.zip", "has no host"),
        ("http://example.org/x.zip", "is not encrypted"),
        ("plugins/marketplace.json", "is a list, not an archive"),
    ],
)
def test_sources_that_cannot_be_are_told_why(place: Place, source: str, words: str) -> None:
    (place.cwd / "plugins").mkdir()
    (place.cwd / "plugins/marketplace.json").write_text('{"plugins": []}')
    done = place.vade("install", source)
    assert (done.code, words in done.err, "secret" in done.err) == (1, True, False), done.err


def test_messages_name_the_thing_and_what_to_do(place: Place) -> None:
    skill = make(place.cwd / "src", "a")
    write_skill(place.cwd, "colon", "---\nname: colon\ndescription: Use when: asked\n---\n")
    (place.cwd / "cities.csv").write_text("city\n")
    missing = (place.cwd / "nothere").as_uri()
    for words, code, said in (
        (["install", f"git+{missing}"], 1, "nothere' does not appear to be a git repository; Could not"),
        (["install", "src/a/SKILL.md"], 1, f"is one file of a skill: name its directory, {skill}."),
        (["install", "colon"], 1, "SKILL.md in ./colon is not valid (line 3: "),
        (["verify-pack", "cities.csv"], 1, "is not an archive that can be read (truncated header): name a"),
        (
            ["verify-pack", "/dev/null"],
            1,
            "/dev/null is neither a plain file nor a directory: name an archive.",
        ),
        (["diff", "nosuch"], 4, "'nosuch' was not installed here: vade verify lists the installed skills."),
    ):
        done = place.vade(*words)
        assert (done.code, said in done.err) == (code, True), (words, done.err)
        assert ("nothing was installed" in done.err) == (words[1] in {f"git+{missing}", "colon"}), words


def test_uninstalling_is_not_called_replacing(installed: Place) -> None:
    write_skill(skills(installed), "own")
    (skills(installed) / "a/SKILL.md").write_text("edited")
    for name in ("a", "own"):
        done = installed.vade("uninstall", name)
        assert (done.code, "--force removes it (it is kept in .trash)." in done.err) == (1, True), done.err
        done = installed.vade("uninstall", name, "--purge")
        assert (done.code, "--force deletes it." in done.err) == (1, True), done.err


def test_what_is_not_there_is_not_found(place: Place) -> None:
    make(place.cwd / "src", "a")
    for words in (
        ["verify-pack", "nope"],
        ["sign", "src/a", "--key", "nope"],
        ["sign", "nope"],
        ["pack", "nope", "-o", "x.zip"],
        ["publish", "nope", "--to", "site"],
        ["source", "remove", "nope"],
    ):
        done = place.vade(*words)
        assert (done.code, "nope" in done.err, done.err.count("\n")) == (4, True, 1), (words, done.err)


def test_each_option_has_one_name_in_the_help(place: Place) -> None:
    for command, shown, other in (("uninstall", "--scope", "--source"), ("install", "--only", "--skill")):
        words = place.vade(command, "--help").out.split()
        assert (words.count(shown), [word for word in words if word.startswith(other)]) == (1, []), words
    # The default, and the last of both, count.
    make(place.cwd / "src", "a")
    assert place.vade("install", "src", "--skill", "a", "--scope", "user").code == 0
    assert place.vade("uninstall", "a").code == 4
    assert place.vade("uninstall", "a", "--source", "user").code == 0
