"""Skills from repositories: branches, tags, commits, and repositories that mean harm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packs.support import Answer, make, serving
from tests.support import Place, write_skill
from vademecum.errors import PackRefused
from vademecum.packs.sources.git import Repository
from vademecum.packs.sources.references import GitSource

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


def git(place: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=place, env=os.environ | IDENTITY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(repo: Path, message: str = "x") -> str:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message, "--allow-empty")
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    found = tmp_path / "repo"
    make(found / "skills", "mine")
    make(found / "more", "other")
    write_skill(found, ".claude/skills/mine")
    (found / "aux:odd name.txt").write_text("not part of any skill")
    git(found, "init", "-q", "-b", "main")
    commit(found)
    return found


def installed(place: Place) -> list[str]:
    root = place.cwd / ".agent/skills"
    return sorted(p.name for p in root.iterdir() if p.name[0] != ".") if root.is_dir() else []


def locked(place: Place, name: str) -> dict[str, str]:
    document = json.loads((place.cwd / ".agent/skills.lock.json").read_text())
    return document["skills"][name]  # type: ignore[no-any-return]


def test_branches_tags_commits_and_directories(place: Place, repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "tag", "-a", "v1", "-m", "one")
    (repo / "skills/mine/scripts/run.sh").write_text("echo two\n")
    second = commit(repo)
    url = f"git+file://{repo}"
    assert place.vade("install", f"{url}@v1").code == 0
    assert (installed(place), locked(place, "mine")["resolved"]) == (["mine", "other"], first)
    assert locked(place, "mine")["source"] == f"{url}@v1"
    assert (place.cwd / ".agent/skills/mine/scripts/run.sh").stat().st_mode & 0o100
    assert place.vade("update", "--dry-run").out == "Up to date: mine\nUp to date: other\n"
    assert place.vade("install", f"{url}@main#skills").code == 0
    assert locked(place, "mine")["resolved"] == second
    assert locked(place, "other")["source"] == f"{url}@v1"
    assert place.vade("install", f"{url}@{first}#more/other").code == 0
    assert locked(place, "other")["resolved"] == first
    assert place.vade("install", f"{url}@nope").code == 1
    assert place.vade("install", f"{url}#nope").code == 1


def test_updating_shows_what_differs(place: Place, repo: Path) -> None:
    url = f"git+file://{repo}@main"
    place.vade("install", url)
    assert place.vade("update").out == "Up to date: mine\nUp to date: other\n"
    (repo / "skills/mine/scripts/run.sh").write_text("echo two\n")
    newest = commit(repo)
    changes = place.vade("update", "--dry-run", "--json").json["updates"]
    assert [(one["name"], one["action"]) for one in changes] == [("mine", "replace"), ("other", "same")]
    assert "Would be updated: mine" in place.vade("update", "mine", "--dry-run").out
    shown = place.vade("update", "mine").out
    assert "  -echo one\n  +echo two\n" in shown
    assert locked(place, "mine")["resolved"] == newest
    assert place.vade("update", "nope").code == 4


def test_the_lock_brings_back_the_very_commit(place: Place, repo: Path) -> None:
    place.vade("install", f"git+file://{repo}@main", "--skill", "mine")
    (repo / "skills/mine/scripts/run.sh").write_text("echo two\n")
    commit(repo)
    shutil.rmtree(place.cwd / ".agent/skills")
    done = place.vade("sync")
    assert done.out == "Restored: mine\n", done.err
    assert (place.cwd / ".agent/skills/mine/scripts/run.sh").read_text() == "echo one\n"
    assert place.vade("verify").code == 0


def test_links_and_submodules_in_a_skill_are_refused_by_name(place: Place, repo: Path) -> None:
    (repo / "skills/mine/secret").symlink_to("/etc/passwd")
    (repo / "CLAUDE.md").symlink_to("README.md")
    commit(repo)
    done = place.vade("install", f"git+file://{repo}")
    assert (done.code, "'skills/mine/secret' is a link" in done.err) == (1, True)
    assert installed(place) == []
    (repo / "skills/mine/secret").unlink()
    commit(repo)
    assert place.vade("install", f"git+file://{repo}").code == 0  # the link outside of skills harms nobody
    head = git(repo, "rev-parse", "HEAD")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{head},skills/mine/module")
    git(repo, "commit", "-q", "-m", "module")
    assert (
        "'skills/mine/module' is a link or another repository"
        in place.vade("install", f"git+file://{repo}").err
    )


def test_nothing_of_a_repository_runs(place: Place, repo: Path) -> None:
    proof = place.home / "proof"
    (repo / ".gitattributes").write_text("*.sh filter=evil export-ignore\n* text eol=crlf ident\n")
    for hook in ("post-checkout", "post-merge", "pre-upload", "post-index-change"):
        file = repo / ".git/hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {proof}\n")
        file.chmod(0o755)
    commit(repo)
    for key in ("filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "uploadpack.packObjectsHook"):
        git(repo, "config", key, f"touch {proof}")
    git(repo, "config", "core.sshCommand", f"touch {proof}")
    proof.unlink(missing_ok=True)  # the hooks ran for us, who made the repository
    assert place.vade("install", f"git+file://{repo}#skills").code == 0
    assert not proof.exists()
    assert (place.cwd / ".agent/skills/mine/scripts/run.sh").read_bytes() == b"echo one\n"


@pytest.mark.parametrize(
    "typed",
    [
        "git+ext::sh -c touch",
        "git+https://example.org/a@--upload-pack=x",
        "git+file:///x#../..",
        "ftp://example.org/x.zip",
        "git+ext://x/y",
    ],
)
def test_addresses_that_are_none(place: Place, typed: str) -> None:
    done = place.vade("install", typed)
    assert done.code in {1, 4}
    assert "Traceback" not in done.err


def test_time_and_a_missing_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as web:
        web.answers["/x.git/info/refs?service=git-upload-pack"] = Answer(endless=True, pause=0.05)
        with pytest.raises(PackRefused, match="took longer than"):
            Repository(tmp_path / "a", seconds=0.5).fetch(GitSource(f"{web.url}/x.git"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackRefused, match="git is not installed"):
        Repository(tmp_path / "b")


def test_a_directory_of_skills_with_links_beside_them(place: Place) -> None:
    make(place.cwd / "src", "mine")
    (place.cwd / "src/link").symlink_to("/etc")
    assert place.vade("install", "src").code == 0
    (place.cwd / "src/mine/link").symlink_to("/etc/passwd")
    assert "'mine/link' is a link" in place.vade("install", "src").err
