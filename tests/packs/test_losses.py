"""Nothing lost, nobody in: what a reviewer found, and what must not come back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packs.support import Answer, make, serving
from tests.packs.test_git import commit, git
from tests.support import Place, write_skill
from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.install import Options, install
from vademecum.packs.install_root import InstallRoot, install_ground, verify
from vademecum.packs.sources.fetching import Fetching, local_source
from vademecum.packs.sources.references import GitSource, SiteSource, reference_to
from vademecum.packs.transaction import tidied
from vademecum.registry.roots import needs_recovery


@pytest.fixture
def skills(place: Place) -> Path:
    return place.cwd / ".agent/skills"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError])
def test_stopped_at_every_rename_it_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]
) -> None:
    names = ["a", "b", "c"]
    shelf = InstallRoot(tmp_path / "project/.agent/skills")
    for version in ("one", "two"):
        for name in names:
            make(tmp_path / version, name, version)
    texts = {v: {n: digest_of(files_of(tmp_path / v / n)) for n in names} for v in ("one", "two")}
    really = os.rename
    for point in range(100):
        shutil.rmtree(tmp_path / "project", ignore_errors=True)
        install(local_source(tmp_path / "one"), shelf, Options())
        left = point

        def rename(source: Path, target: Path) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise fault
            really(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", rename)
            try:
                install(local_source(tmp_path / "two"), shelf, Options())
            except (KeyboardInterrupt, PackRefused):
                stopped = True
            else:
                stopped = False
        tidied(install_ground(shelf.root))
        assert not needs_recovery(shelf.root)
        found = {name: digest_of(files_of(shelf.root / name)) for name in names}
        assert found in texts.values(), point
        assert all(verdict.status == "ok" for verdict in verify(shelf)[0])
        if not stopped:
            assert found == texts["two"]
            return
    raise AssertionError("it never came to its end")


def test_ones_own_work_is_not_replaced_because_it_is_locked(place: Place, skills: Path) -> None:
    (make(skills, "mine") / "notes.md").write_text("weeks of work\n")
    make(place.cwd / "src", "mine")
    place.vade("lock")
    done = place.vade("install", "src")
    assert (done.code, (skills / "mine/notes.md").exists()) == (1, True)
    assert place.vade("install", "src", "--force").code == 0
    assert place.vade("restore", "mine").code == 0
    assert (skills / "mine/notes.md").read_text() == "weeks of work\n"


def test_what_is_left_out_of_packs_is_not_thrown_away(place: Place, skills: Path) -> None:
    make(place.cwd / "src", "mine")
    place.vade("install", "src")
    (skills / "mine/evals").mkdir()
    (skills / "mine/evals/evals.json").write_text("{}")
    assert "added evals/evals.json" in place.vade("verify").out
    make(place.cwd / "src", "mine", "two")
    assert place.vade("update", "--force").code == 0
    assert place.vade("restore", "mine").code == 0
    assert (skills / "mine/evals/evals.json").read_text() == "{}"
    place.vade("uninstall", "mine", "--force")
    assert place.vade("restore", "mine").code == 0
    assert (skills / "mine/evals/evals.json").exists()


def test_a_manifest_that_is_a_skills_own_file_arrives(place: Place, skills: Path) -> None:
    skill = make(place.cwd / "src", "mine")
    (skill / "manifest.json").write_text('{"manifest_version": 3}')
    place.vade("keygen", "--trust")
    place.vade("sign", "src/mine")
    assert place.vade("install", "src/mine", "--require-signature").code == 0
    assert (skills / "mine/manifest.json").exists()


def test_a_skill_that_is_not_valid_comes_back_as_it_was(place: Place, skills: Path) -> None:
    (skills / "foo").mkdir(parents=True)
    (skills / "foo/SKILL.md").write_text("---\nname: bar\n---\n")
    assert place.vade("uninstall", "foo", "--force").code == 0
    assert place.vade("restore", "foo").code == 0
    assert (skills / "foo/SKILL.md").read_text() == "---\nname: bar\n---\n"


def test_a_lock_that_came_with_a_project_opens_no_door(place: Place, skills: Path) -> None:
    skill = write_skill(
        place.cwd / "src", "evil", "---\nname: evil\ndescription: x\nallowed-tools: Write\n---\n"
    )
    assert skill.is_dir()
    assert place.vade("install", "src", "--allow-unsafe").code == 0
    lock = (place.cwd / ".agent/skills.lock.json").read_text()
    shutil.rmtree(skills)
    done = place.vade("sync")
    assert (done.code, "--allow-unsafe" in done.err) == (1, True)
    (place.home / ".agent").mkdir(exist_ok=True)
    (place.home / ".agent/config.json").write_text('{"security": {"require_signatures": ["project"]}}')
    assert place.vade("sync", "--allow-unsafe").code == 5
    assert not (skills / "evil").exists()
    assert (place.cwd / ".agent/skills.lock.json").read_text() == lock


def test_the_signer_stays_known_whatever_happens(place: Place, skills: Path) -> None:
    make(place.cwd / "src", "mine")
    place.vade("keygen")
    place.vade("pack", "src/mine", "-o", "mine.zip")
    place.vade("sign", "mine.zip")
    place.vade("install", "mine.zip")

    def signer() -> str | None:
        document = json.loads((place.cwd / ".agent/skills.lock.json").read_text())
        return document["skills"]["mine"]["signer"]  # type: ignore[no-any-return]

    first = signer()
    assert first is not None
    place.vade("uninstall", "mine")
    place.vade("restore", "mine")
    assert signer() == first
    (skills / "mine/SKILL.md").write_text((skills / "mine/SKILL.md").read_text() + "edited\n")
    assert place.vade("sync", "--force").code == 0
    assert place.vade("restore", "mine").code == 0  # the edits come back
    assert (skills / "mine/SKILL.md").read_text().endswith("edited\n")
    place.vade("lock")
    assert signer() == first
    make(place.cwd / "unsigned", "mine", "other")
    assert place.vade("install", "unsigned", "--force").code == 5


@pytest.mark.parametrize("name", [".git", ".GIT", "scripts/.git", "git~1"])
def test_nothing_of_git_arrives(place: Place, skills: Path, name: str) -> None:
    import tarfile

    skill = make(place.cwd / "src", "mine")
    (skill / "fake").write_text("x")
    with tarfile.open(place.cwd / "x.tar.gz", "w:gz") as out:
        out.add(skill, "mine")
        out.add(skill / "fake", f"mine/{name}")
        out.add(skill / "fake", f"mine/{name}x/config")
    assert place.vade("install", "x.tar.gz").code == 0
    assert not (skills / "mine" / name).exists()
    (skills / "mine/.git").write_text("gitdir: fake")
    assert "added .git" in place.vade("verify").out


def test_compiled_files_are_not_run(place: Place, skills: Path) -> None:
    skill = make(skills, "mine")
    (skill / "scripts/helper.py").write_text("WORD = 'good'\n")
    (skill / "scripts/run.py").write_text("import helper\nprint(helper.WORD)\n")
    code = "import py_compile, sys; py_compile.compile(sys.argv[1], invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    (skill / "scripts/helper.py").write_text("WORD = 'tampered'\n")
    subprocess.run([sys.executable, "-c", code, str(skill / "scripts/helper.py")], check=True)
    (skill / "scripts/helper.py").write_text("WORD = 'good'\n")
    assert list(skill.rglob("*.pyc"))
    done = place.vade("exec", "--yes", "mine", "run.py")
    assert (done.code, done.out) == (0, "good\n"), done.err


def test_a_site_leads_to_no_private_address() -> None:
    from vademecum.packs.sources.references import hop_of
    from vademecum.packs.sources.web import led_to

    public = hop_of("https://example.org/")
    for url in ("http://127.0.0.1:8000/admin", "https://127.0.0.1/x", "https://169.254.169.254/latest"):
        with pytest.raises(PackRefused):
            led_to(url, public)
    assert led_to("https://example.org/x.zip", public) == "https://example.org/x.zip"


@pytest.mark.parametrize(
    "typed",
    [
        "git+https://user:secret@example.org/a.git",
        "git+http://example.org/a.git",
        "http://10.0.0.1/a.git",
    ],
)
def test_repositories_that_are_not_taken(place: Place, typed: str) -> None:
    done = place.vade("install", typed)
    assert done.code == 1
    assert "secret" not in done.err


def test_a_branch_with_a_similar_name_hides_no_update(place: Place, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    make(repo, "mine")
    git(repo, "init", "-q", "-b", "main")
    commit(repo)
    git(repo, "branch", "z/main")
    place.vade("install", f"git+file://{repo}@main")
    make(repo, "mine", "two")
    commit(repo)
    assert place.vade("update", "--dry-run", "--json").json["updates"][0]["action"] == "replace"


def test_several_sources_are_all_or_nothing(place: Place, skills: Path) -> None:
    make(place.cwd / "good", "a")
    make(place.cwd / "bad", "b")
    (place.cwd / "bad/b/SKILL.md").write_text("nothing")
    assert place.vade("install", "good", "bad").code == 1
    assert not (skills / "a").exists()
    assert "Two of these sources" in place.vade("install", "good", "good/a").err
    make(place.cwd / "bad", "b")
    assert place.vade("install", "good", "bad").code == 0
    make(place.cwd / "good", "a", "two")
    shutil.rmtree(place.cwd / "bad")
    done = place.vade("update", "--json")
    assert (done.code, [one["name"] for one in done.json["updates"]]) == (1, ["a"])
    assert done.json["problems"][0]["code"] == "missing"


def test_looking_changes_nothing(place: Place) -> None:
    make(place.cwd / "src", "mine")
    before = sorted(place.cwd.rglob("*"))
    assert place.vade("install", "src", "--dry-run").code == 0
    assert place.vade("sync", "--frozen").code == 5  # there is no lock
    assert place.vade("verify").out == "No skill is installed here, and none is locked\n"
    assert sorted(place.cwd.rglob("*")) == before


def test_what_could_not_be_installed_is_not_packed(place: Place) -> None:
    skill = make(place.cwd / "src", "mine")
    (skill / "con.md").write_text("x")
    done = place.vade("pack", "src/mine", "-o", "x.zip")
    assert (done.code, "rename it" in done.err) == (1, True)


def test_the_npm_lock_keeps_what_it_knows(place: Place, skills: Path) -> None:
    file = place.cwd / "skills-lock.json"
    entry = {
        "source": "anthropics/skills",
        "ref": "main",
        "sourceType": "github",
        "skillPath": "skills/pdf/SKILL.md",
    }
    file.write_text(json.dumps({"version": 1, "lastSelected": ["x"], "skills": {"pdf": entry}}))
    make(skills, "pdf")
    place.vade("lock")
    document = json.loads(file.read_text())
    assert document["lastSelected"] == ["x"]
    assert {**entry, "computedHash": document["skills"]["pdf"]["computedHash"]} == document["skills"]["pdf"]


def test_a_lock_that_contradicts_itself(place: Place) -> None:
    make(place.cwd / "src", "mine")
    place.vade("install", "src")
    lock = place.cwd / ".agent/skills.lock.json"
    text = lock.read_text()
    for broken in (
        text.replace('"digest": "sha256:', '"digest": "sha256:0'),
        text.replace('"mine"', json.dumps("m" * 300)),
        '{"skills":' * 100_000,
    ):
        lock.write_text(broken)
        assert place.vade("sync").code == 5
        assert place.vade("verify").code == 5


def test_a_name_of_two_meanings_is_remembered_as_one(place: Place) -> None:
    from vademecum.packs.sources.references import remembered

    found = reference_to("owner/repo@v1#skills", context=place.context)
    assert found == GitSource("https://github.com/owner/repo", "v1", "skills")
    kept = remembered(found, base=place.cwd)
    (place.cwd / "owner/repo").mkdir(parents=True)
    assert reference_to(kept, context=place.context, base=place.cwd) == found


def test_a_signature_that_may_not_be_read_is_none(place: Place, tmp_path: Path) -> None:
    make(place.cwd / "src", "mine")
    place.vade("pack", "src/mine", "-o", "mine.zip")
    with serving(place.cwd) as web:
        web.answers["/mine.zip.sig"] = Answer(status=403)
        assert place.vade("install", f"{web.url}/mine.zip").code == 0
        web.answers["/.well-known/agent-skills/index.json"] = Answer(status=403)
        with (
            pytest.raises(PackRefused, match="cannot be read"),
            Fetching(place.context).fetched(SiteSource(f"{web.url}/"), "x"),
        ):
            pass


def test_only_harmless_files_may_be_unsigned() -> None:
    from tests.packs.test_signatures import FILES, HINT, KEY, oms
    from vademecum.packs.content import SkillFile
    from vademecum.packs.signatures import oms_signer

    trusted = (("them", KEY.public_key()),)
    for path in (".github/config", ".gitmodules"):
        with pytest.raises(IntegrityFailed, match="does not match"):
            oms_signer(oms(FILES, KEY, HINT), [*FILES, SkillFile(path, "0", 1)], trusted, place="x")
