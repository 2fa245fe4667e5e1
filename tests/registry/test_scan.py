"""B3: groups, links, limits, hidden entries."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support import index_of, reasons, write_skill
from vademecum import IndexOptions
from vademecum.config import ScanSettings


def names(root: Path, **scan: object) -> list[str]:
    return [s.name for s in index_of(root, IndexOptions(scan=ScanSettings(**scan)))]  # type: ignore[arg-type]


def test_groups_and_hidden_entries(root: Path) -> None:
    write_skill(root, "a")
    write_skill(root, "group/b")
    write_skill(root, "group/deeper/c")
    write_skill(root, ".hidden/d")
    write_skill(root, "group/.e/f")
    write_skill(root, "node_modules/g")
    (root / "README.md").write_text("not a skill")
    (root / "empty").mkdir()
    assert names(root) == ["a", "b", "c"]


def test_no_descent_below_a_document(root: Path) -> None:
    write_skill(root, "a")
    write_skill(root, "a/assets/template", name="template")
    assert names(root) == ["a"]


def test_a_broken_document_still_ends_the_descent(root: Path) -> None:
    write_skill(root, "a", "broken")
    write_skill(root, "a/b")
    assert names(root) == []


def test_root_that_is_itself_a_skill(root: Path) -> None:
    place = write_skill(root, "solo")
    (skill,) = index_of(place).skills
    assert (skill.name, skill.path, skill.namespace, skill.diagnostics) == ("solo", place, "", ())


def test_other_spellings_of_the_file(root: Path) -> None:
    for name in ("skill.md", "Skill.md"):
        place = write_skill(root, name.replace(".", "-").lower() + "-x")
        (place / "SKILL.md").rename(place / name)
    skills = index_of(root).skills
    assert [problem.code for skill in skills for problem in skill.diagnostics] == [
        "file-name"
    ]  # one won the name
    both = write_skill(root, "both", "---\nname: both\ndescription: upper\n---\n")
    (both / "skill.md").write_text("---\nname: both\ndescription: lower\n---\n")
    assert index_of(root).get("both").description == "upper"


def test_depth_is_bounded_and_said(root: Path) -> None:
    write_skill(root, "1/2/3/4/deep")
    assert names(root, max_depth=4) == ["deep"]
    index = index_of(root, IndexOptions(scan=ScanSettings(max_depth=2)))
    assert (len(index), reasons(index)) == (0, {"1/2/3": "too-deep"})


def test_count_is_bounded_and_said(root: Path) -> None:
    for number in range(20):
        write_skill(root, f"s{number:02d}")
    assert len(names(root, max_directories=20)) == 20
    assert index_of(root, IndexOptions(scan=ScanSettings(max_directories=20))).report.ignored == ()
    index = index_of(root, IndexOptions(scan=ScanSettings(max_directories=5)))
    assert [skill.name for skill in index] == ["s00", "s01", "s02", "s03", "s04"]
    assert reasons(index) == {"s05": "too-many"}
    for most, hidden in ((5, "at least 5 skills were"), (15, "5 skills were"), (19, "1 skill was")):
        (left_out,) = index_of(root, IndexOptions(scan=ScanSettings(max_directories=most))).report.ignored
        assert f"so {hidden} not read: split it, or raise scan.max_directories" in left_out.reason.message


def test_linked_directories_and_linked_documents(root: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    write_skill(shared, "linked-dir")
    document = write_skill(shared, "linked-file") / "SKILL.md"
    (root / "linked-dir").symlink_to(shared / "linked-dir")
    (root / "linked-file").mkdir()
    (root / "linked-file" / "SKILL.md").symlink_to(document)
    assert names(root) == ["linked-dir", "linked-file"]
    index = index_of(root, IndexOptions(scan=ScanSettings(follow_links=False)))
    assert (len(index), set(reasons(index).values())) == (0, {"link"})


def test_loops_end(root: Path) -> None:
    write_skill(root, "group/a")
    (root / "group" / "up").symlink_to("..")
    (root / "group" / "self").symlink_to("self")
    (root / "group" / "twin").symlink_to("../group")
    index = index_of(root)
    assert [skill.name for skill in index] == ["a"]
    assert reasons(index) == {"group/self": "link-loop", "group/twin": "link-loop", "group/up": "link-loop"}


def test_order_of_the_file_system_does_not_matter(tmp_path: Path) -> None:
    forward, backward = tmp_path / "1" / "r", tmp_path / "2" / "r"
    names = [f"g{n % 3}/s{n}" for n in range(30)]
    for root, order in ((forward, names), (backward, list(reversed(names)))):
        for name in order:
            write_skill(root, name)
    one, two = (index_of(root).to_json() for root in (forward, backward))
    for found in (one, two):
        found["report"]["seconds"] = 0
    text = str(two).replace(str(backward), str(forward))
    assert str(one) == text


def test_many_levels_of_links_do_not_multiply(root: Path) -> None:
    # Each level links twice to the next: 2^12 ways, 13 directories.
    for level in range(12):
        (root / f"l{level}").mkdir()
        for way in "ab":
            os.symlink(f"../l{level + 1}", root / f"l{level}" / way)
    write_skill(root, "l12/x")
    index = index_of(root, IndexOptions(scan=ScanSettings(max_depth=20)))
    assert [skill.name for skill in index] == ["x"]
    assert len(index.report.ignored) < 50
