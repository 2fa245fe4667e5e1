"""Skills from the web: archives, sites in both versions, and servers that mean harm. Nothing is ever half there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packs.support import Answer, Web, make, serving
from tests.support import Place
from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.packing import publish
from vademecum.packs.sources.fetching import Fetching
from vademecum.packs.sources.references import SiteSource
from vademecum.packs.sources.web import SCHEMA
from vademecum.packs.sources.web import Web as Way

INDEX = "/.well-known/agent-skills/index.json"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(tmp_path / "site") as found:
        yield found


@pytest.fixture
def site(place: Place, web: Web) -> Web:
    make(place.cwd / "src", "mine")
    make(place.cwd / "src", "你的")
    (place.cwd / "src/plain").mkdir()
    (place.cwd / "src/plain/SKILL.md").write_text("---\nname: plain\ndescription: Only a document.\n---\n")
    done = place.vade("publish", "src", "--to", str(web.folder))
    assert done.code == 0, done.err
    return web


def roots(place: Place) -> list[str]:
    root = place.cwd / ".agent/skills"
    return sorted(p.name for p in root.iterdir() if p.name[0] != ".") if root.is_dir() else []


def test_a_site_is_published_and_installed_from(place: Place, site: Web) -> None:
    index = json.loads((site.folder / INDEX[1:]).read_text())
    assert index["$schema"] == SCHEMA
    assert [(skill["name"], skill["type"]) for skill in index["skills"]] == [
        ("mine", "archive"),
        ("plain", "skill-md"),
        ("你的", "archive"),
    ]
    assert place.vade("install", f"{site.url}/", "--skill", "mine").code == 0
    assert roots(place) == ["mine"]
    done = place.vade("install", f"{site.url}/", "--json")
    assert [(c["name"], c["action"]) for c in done.json["changes"]] == [
        ("mine", "same"),
        ("plain", "new"),
        ("你的", "new"),
    ]
    assert (place.cwd / ".agent/skills/mine/scripts/run.sh").stat().st_mode & 0o100
    lock = json.loads((place.cwd / ".agent/skills.lock.json").read_text())["skills"]
    assert lock["mine"]["source"] == f"{site.url}/"
    assert lock["mine"]["resolved"] == index["skills"][0]["digest"]
    assert place.vade("install", f"{site.url}/", "--skill", "nope").code == 4


def test_publishing_again_keeps_what_locks_name(tmp_path: Path) -> None:
    from vademecum.packs.content import files_of
    from vademecum.packs.packing import PackedSkill

    def publish_all(*names: str) -> set[str]:
        skills = [
            PackedSkill(n, None, tmp_path / "src" / n, files_of(tmp_path / "src" / n), "x") for n in names
        ]
        publish(skills, tmp_path / "site")
        return {str(p.relative_to(tmp_path / "site")) for p in (tmp_path / "site").rglob("*") if p.is_file()}

    make(tmp_path / "src", "a")
    make(tmp_path / "src", "b")
    first = publish_all("a", "b")
    assert publish_all("a", "b") == first
    make(tmp_path / "src", "a", "two")
    second = publish_all("a", "b")
    assert second > first  # whoever read the list before still finds what it says
    make(tmp_path / "src", "a", "three")
    assert publish_all("a") > second  # the list no longer names the other, and locks still find it
    index = json.loads((tmp_path / "site" / INDEX[1:]).read_text())
    assert [skill["name"] for skill in index["skills"]] == ["a"]


def test_an_archive_with_and_without_its_digest(place: Place, web: Web) -> None:
    make(place.cwd / "src", "mine")
    web.folder.mkdir()
    made = place.vade("pack", "src/mine", "-o", str(web.folder / "mine.zip"), "--json").json
    url = f"{web.url}/mine.zip"
    assert place.vade("install", f"{url}#sha256={'0' * 64}").code == 5
    assert roots(place) == []
    assert place.vade("install", f"{url}#sha256={made['sha256']}").code == 0
    assert place.vade("install", url).code == 0
    assert roots(place) == ["mine"]
    assert place.vade("install", f"{web.url}/nope.zip").code == 4
    assert place.vade("install", "http://example.org/x.zip").err.startswith(
        "vade: http://example.org/x.zip is not"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(b"other bytes"), "has sha256"),
        (Answer(status=500), "HTTP 500"),
        (Answer(status=302, headers={"Location": "file:///etc/passwd"}), "not http or https"),
        (Answer(status=302, headers={"Location": "http://example.org/x"}), "not encrypted"),
        (Answer(status=302, headers={"Location": INDEX.replace("index.json", "x")}), "redirects more than"),
        (Answer(headers={"Content-Length": str(1 << 30)}), "larger than"),
        (Answer(b"short", headers={"Content-Length": "1000"}), "could not be fetched"),
    ],
    ids=["other-bytes", "error", "to-a-file", "unencrypted", "in-circles", "one-gigabyte", "cut-short"],
)
def test_a_site_that_means_harm(place: Place, web: Web, answer: Answer, words: str) -> None:
    offer = {"name": "x", "type": "archive", "description": "d", "url": "x", "digest": f"sha256:{'1' * 64}"}
    web.answers[INDEX] = Answer(json.dumps({"$schema": SCHEMA, "skills": [offer]}).encode())
    web.answers[INDEX.replace("index.json", "x")] = answer
    done = place.vade("install", f"{web.url}/")
    assert done.code in {1, 5}
    assert words in done.err
    assert roots(place) == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"[", "not a list of skills"),
        (b'{"$schema": "https://example.org/9.9", "skills": []}', "update vademecum"),
        (b'{"skills": [{"name": "../x", "files": ["SKILL.md"]}]}', "not a valid name"),
        (b'{"skills": [{"name": "a", "files": ["SKILL.md"]}, {"name": "a", "files": []}]}', "twice"),
        (b'{"skills": [{"name": "a", "files": ["SKILL.md", "../../evil"]}]}', "goes up"),
        (b'{"skills": [{"name": "a", "files": ["x"]}]}', "no SKILL.md"),
        (
            b'{"$schema": "%b", "skills": [{"name": "a", "type": "archive", "url": "x"}]}' % SCHEMA.encode(),
            "no sha256",
        ),
    ],
)
def test_lists_that_are_wrong(place: Place, web: Web, document: bytes, words: str) -> None:
    web.answers[INDEX] = Answer(document)
    web.answers["/.well-known/agent-skills/a/SKILL.md"] = Answer(b"---\nname: a\ndescription: b\n---\n")
    done = place.vade("install", f"{web.url}/")
    assert (done.code in {1, 5}, words in done.err) == (True, True), done.err
    assert roots(place) == []


def test_unknown_types_are_passed_over(place: Place, site: Web) -> None:
    index = json.loads((site.folder / INDEX[1:]).read_text())
    index["skills"].append({"name": "new", "type": "hologram", "description": "", "url": "x", "digest": "x"})
    site.answers[INDEX] = Answer(json.dumps(index).encode())
    assert place.vade("install", f"{site.url}/").code == 0
    assert roots(place) == ["mine", "plain", "你的"]


def test_what_never_ends_is_ended(web: Web, tmp_path: Path) -> None:
    web.answers["/slow.zip"] = Answer(endless=True, pause=0.05)
    times = iter([0.0, 10.0, 100.0])
    with pytest.raises(PackRefused, match="took longer than 60 seconds"):
        Way(lambda done, total: None, 60.0, lambda: next(times)).download(
            f"{web.url}/slow.zip", tmp_path / "x"
        )
    web.answers[INDEX] = Answer(endless=True)
    index = SiteSource(f"{web.url}/")
    with (
        pytest.raises(PackRefused, match="larger than 5,242,880 bytes"),
        Fetching(Context(cwd=tmp_path, home=tmp_path, env={})).fetched(index, "x") as it,
    ):
        it.open()
    web.answers["/big"] = Answer(endless=True)
    with pytest.raises(PackRefused, match="larger than 100,000 bytes"):
        Way(lambda done, total: None).download(f"{web.url}/big", tmp_path / "x", cap=100_000)


def test_a_digest_that_does_not_match_keeps_nothing(web: Web, tmp_path: Path) -> None:
    web.answers["/x"] = Answer(b"data")
    with pytest.raises(IntegrityFailed):
        Way(lambda done, total: None).download(f"{web.url}/x", tmp_path / "x", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(place: Place) -> None:
    done = place.vade("install", "http://127.0.0.1:9/")
    assert (done.code, "could not be fetched" in done.err) == (1, True)


def test_older_lists_quote_names_and_check_all_of_them_first(place: Place, tmp_path: Path) -> None:
    document = b"---\nname: mine\ndescription: What it does.\n---\n"
    files = ["SKILL.md", "50%25.md", "50%.md", "x.md#y", "a b?.md"]
    offer = {"name": "mine", "description": "What it does.", "files": files}
    folder = tmp_path / "site/.well-known/skills/mine"
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(document if name == "SKILL.md" else name.encode())
    index = folder.parent / "index.json"
    index.write_text(json.dumps({"skills": [offer]}))
    with serving(tmp_path / "site") as web:
        assert place.vade("install", f"{web.url}/").code == 0
        skill = place.cwd / ".agent/skills/mine"
        assert {name: (skill / name).read_text() for name in files[1:]} == {name: name for name in files[1:]}
        index.write_text(json.dumps({"skills": [offer | {"files": [*files, "../../evil"]}]}))
        web.asked.clear()
        assert "goes up" in place.vade("install", f"{web.url}/", "--force").err
        assert not any("/mine/" in path for path in web.asked)
