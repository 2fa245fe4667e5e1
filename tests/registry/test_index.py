"""B4, B6, B7, B9-B11, A8, O1: the index and its report."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import Place, index_of, write_skill
from vademecum import BUILTIN_ROOT, IndexOptions, Reading, Root, SkillNotFound, build_index, refresh_index


def test_skills_are_listed_from_metadata_alone(root: Path) -> None:
    # O1, B5: a body that no reader could decode does not matter.
    write_skill(root, "a", b"---\nname: a\ndescription: A.\n---\n\xff\xfe\x00 not text at all")
    (skill,) = index_of(root).skills
    assert skill.to_json() == {
        "skill_id": "extra:a",
        "name": "a",
        "description": "A.",
        "source": "extra",
        "path": f"{root}/a",
        "controls": {
            "disable_model_invocation": False,
            "user_invocable": True,
            "allowed_tools": None,
            "run_mode": "inline",
        },
        "meta": {
            "version": None,
            "author": None,
            "license": None,
            "compatibility": None,
            "metadata": {},
            "secrets": [],
        },
        "diagnostics": [],
    }


def test_skill_id_is_source_name_and_version(root: Path) -> None:
    # B11
    write_skill(root, "a", "---\nname: a\ndescription: A.\nversion: 1.10\n---\n")
    assert index_of(root).get("a").skill_id == "extra:a@1.10"


def test_report(root: Path, tmp_path: Path) -> None:
    # B7
    write_skill(root, "good")
    write_skill(root, "bad", "no frontmatter")
    gone = tmp_path / "gone"
    ticks = iter([10.0, 12.5])
    index = build_index([root, gone], IndexOptions(), clock=lambda: next(ticks))
    report = json.loads(json.dumps(index.report.to_json()))
    assert report == {
        "roots": [
            {
                "source": "extra",
                "path": str(root),
                "priority": 20,
                "kind": "native",
                "status": "searched",
                "found": 2,
                "valid": 1,
            },
            {
                "source": "extra",
                "path": str(gone),
                "priority": 10,
                "kind": "native",
                "status": "absent",
                "found": 0,
                "valid": 0,
            },
        ],
        "found": 2,
        "valid": 1,
        "ignored": [
            {
                "path": f"{root}/bad/SKILL.md",
                "source": "extra",
                "code": "no-frontmatter",
                "line": 1,
                "message": report["ignored"][0]["message"],
                "problems": report["ignored"][0]["problems"],
            },
            {
                "path": str(gone),
                "source": "extra",
                "code": "root-absent",
                "line": None,
                "message": f"The root {gone} does not exist: create it, or remove it from the roots",
                "problems": report["ignored"][1]["problems"],
            },
        ],
        "conflicts": [],
        "diagnostics": [],
        "hash": index.hash,
        "read": 2,
        "seconds": 2.5,
    }


def test_conflict_in_one_root_goes_to_the_later_change(root: Path) -> None:
    # B4
    old = write_skill(root, "one", "---\nname: x\ndescription: old\nversion: 1\n---\n")
    new = write_skill(root, "two", "---\nname: x\ndescription: new\nversion: 2\n---\n")
    os.utime(old / "SKILL.md", (1_000, 1_000))
    os.utime(new / "SKILL.md", (2_000, 2_000))
    index = index_of(root)
    assert [skill.description for skill in index] == ["new"]
    assert [skill.description for skill in index.shadowed] == ["old"]
    (conflict,) = index.report.conflicts
    assert conflict.to_json() == {
        "name": "x",
        "source": "extra",
        "path": str(new),
        "overridden": [{"source": "extra", "path": str(old), "version": "1", "reason": "older"}],
    }


def test_conflict_of_one_age_goes_to_the_directory_that_bears_the_name(root: Path) -> None:
    for directory in ("a-copy", "x", "z-copy"):
        os.utime(write_skill(root, directory, name="x") / "SKILL.md", (1_000, 1_000))
    index = index_of(root)
    assert [skill.directory for skill in index] == ["x"]
    assert [other.reason for other in index.report.conflicts[0].overridden] == ["same-age", "same-age"]


def test_link_to_the_same_skill_is_no_real_conflict(place: Place) -> None:
    # Other installers keep one copy and link to it from each tool's directory.
    write_skill(place.cwd, ".agents/skills/x")
    (place.cwd / ".claude/skills").mkdir(parents=True)
    (place.cwd / ".claude/skills/x").symlink_to("../../.agents/skills/x")
    (conflict,) = place.build().report.conflicts
    assert [other.reason for other in conflict.overridden] == ["same-file"]


def test_link_in_another_tools_root_is_the_skill_it_leads_to(place: Place) -> None:
    write_skill(place.home, ".agent/skills/x")
    before = place.build()
    (place.cwd / ".claude/skills").mkdir(parents=True)
    (place.cwd / ".claude/skills/x").symlink_to(place.home / ".agent/skills/x")
    after = place.build()
    assert (after.get("x").source, after.shadowed, after.hash) == ("user", (), before.hash)
    assert after.get(f"{place.cwd}/.claude/skills/x") is after.get("x")
    # One file in two directories is two skills: what lies beside it may differ.
    other = place.cwd / ".codex/skills/x"
    other.mkdir(parents=True)
    os.link(place.home / ".agent/skills/x/SKILL.md", other / "SKILL.md")
    assert place.build().get("x").location == str(other)


def test_priorities_decide_whatever_the_order_given(tmp_path: Path) -> None:
    for name in ("low", "high"):
        write_skill(tmp_path / name, "x", f"---\nname: x\ndescription: {name}\n---\n")
    roots = [Root(tmp_path / "low", priority=1), Root(tmp_path / "high", priority=2)]
    for order in (roots, roots[::-1]):
        assert build_index(order, IndexOptions()).get("x").description == "high"


def test_get_by_case_source_and_namespace(place: Place) -> None:
    # A8, C2's matching
    write_skill(place.cwd, ".agent/skills/acme/pdf", "---\nname: pdf\ndescription: acme\n---\n")
    other = write_skill(place.cwd, ".agent/skills/globex/pdf", "---\nname: pdf\ndescription: globex\n---\n")
    os.utime(other / "SKILL.md", (1_000, 1_000))
    write_skill(place.home, ".agent/skills/pdf", "---\nname: pdf\ndescription: mine\n---\n")
    index = place.build()
    assert index.get("PDF").description == "acme"
    assert index.get("pdf", source="user").description == "mine"
    assert index.get("globex/pdf").description == "globex"
    assert index.get("@globex/pdf").reference == "globex/pdf"
    for name, source in (("pdf", "builtin"), ("nobody/pdf", None), ("pd", None), ("", None)):
        with pytest.raises(SkillNotFound):
            index.get(name, source=source)


def test_not_found_suggests(root: Path) -> None:
    write_skill(root, "csv-summary")
    with pytest.raises(SkillNotFound, match=r"No skill is called 'csv-sumary': did you mean 'csv-summary'\?"):
        index_of(root).get("csv-sumary")


def test_select_by_source(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/file-diff", name="file-diff")
    index = place.build()
    assert [s.name for s in index.select(source="builtin")] == ["csv-summary", "file-diff", "skill-author"]
    assert [s.name for s in index.select(source="project")] == ["file-diff"]
    assert index.get("file-diff").source == "project"


def test_who_sees_what(root: Path) -> None:
    # B10
    write_skill(root, "open")
    write_skill(root, "manual", "---\nname: manual\ndescription: x\ndisable-model-invocation: true\n---\n")
    write_skill(root, "inner", "---\nname: inner\ndescription: x\nuser-invocable: false\n---\n")
    index = index_of(root)
    assert [s.name for s in index.for_model()] == ["inner", "open"]
    assert [s.name for s in index.for_people()] == ["manual", "open"]


def test_hash_is_of_content_not_of_times_or_places(tmp_path: Path) -> None:
    # B9
    one, two = tmp_path / "one", tmp_path / "elsewhere" / "two"
    write_skill(one, "a")
    write_skill(one, "g/b")
    shutil.copytree(one, two)
    os.utime(two / "a" / "SKILL.md", (5, 5))
    first = index_of(one)
    assert first.hash == index_of(two).hash
    (two / "a" / "SKILL.md").write_text((two / "a" / "SKILL.md").read_text().replace("What", "Which"))
    assert first.hash != index_of(two).hash
    assert first.hash != index_of(one, IndexOptions(reading=Reading(lenient=True))).hash


def test_windows_line_ends_do_not_change_the_hash(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: A.\n---\nBody\n"
    write_skill(tmp_path / "lf", "a", text)
    write_skill(tmp_path / "crlf", "a", text.replace("\n", "\r\n"))
    assert index_of(tmp_path / "lf").hash == index_of(tmp_path / "crlf").hash


def test_strict_and_lenient(root: Path) -> None:
    # A5, A6
    write_skill(root, "a", "---\nname: a\ndescription: Use when: asked\n---\n")
    assert len(index_of(root)) == 0
    lenient = index_of(root, IndexOptions(reading=Reading(lenient=True)))
    assert [p.code for p in lenient.get("a").diagnostics] == ["unquoted-value"]


def test_the_written_name_is_an_alias_of_the_repaired_one(root: Path, tmp_path: Path) -> None:
    # A6: also for an index that comes from the cache, but never before a skill that really has the name
    write_skill(root, "a", "---\nname: My PDF_Skill\ndescription: One.\n---\n")
    write_skill(root, "b", "---\nname: acme/Forms\ndescription: Two.\n---\n")
    options = IndexOptions(reading=Reading(lenient=True), cache=tmp_path / "cache")
    for _ in range(2):
        index = index_of(root, options)
        assert [index.get(n).name for n in ("my-pdf-skill", "My PDF_Skill", "my pdf_skill")] == [
            "my-pdf-skill"
        ] * 3
        assert index.get("acme/Forms").name == "acme-forms"
    with pytest.raises(SkillNotFound):
        index.get("My PDF_Skill", source="user")


def test_refresh_all_or_only_what_changed(root: Path, tmp_path: Path) -> None:
    # B6
    for name in ("a", "b", "c"):
        write_skill(root, name)
    index = index_of(root, IndexOptions(cache=tmp_path / "cache"))
    later = 4_000_000_000.0  # long after the files were written, so that the cache trusts them
    index = refresh_index(index, clock=lambda: later)
    assert index.report.read == 3
    assert refresh_index(index, [], clock=lambda: later).report.read == 0
    assert refresh_index(index, [root / "b" / "SKILL.md"], clock=lambda: later).report.read == 1
    assert refresh_index(index, [root / "b"], clock=lambda: later).report.read == 1
    assert refresh_index(index, [root], clock=lambda: later).report.read == 3
    write_skill(root, "d")
    assert len(refresh_index(index)) == 4
    assert len(index) == 3  # a snapshot stays as it was


def test_paths_and_texts_are_roots_too(root: Path) -> None:
    write_skill(root, "a")
    assert len(build_index([str(root)], IndexOptions())) == len(build_index([root], IndexOptions())) == 1


def test_progress_is_reported(root: Path) -> None:
    for number in range(1001):
        write_skill(root, f"s{number}")
    seen: list[int] = []
    build_index([root], IndexOptions(), progress=seen.append)
    assert seen == [500, 1000]


def test_builtin_skills_are_there() -> None:
    names = [skill.name for skill in build_index([Root(BUILTIN_ROOT, "builtin")], IndexOptions())]
    assert names == ["csv-summary", "file-diff", "skill-author"]


def test_one_root_may_stand_alone(root: Path) -> None:
    write_skill(root, "a")
    for given in (root, str(root), Root(root)):
        assert [skill.name for skill in build_index(given, IndexOptions())] == ["a"]
