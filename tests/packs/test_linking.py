"""Skills for other agents: what is made, what is taken away again, and what never is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.packs.killing_links import tree
from tests.packs.support import make
from tests.support import Place, write_skill
from vademecum import BUILTIN_ROOT
from vademecum.config import COMPATIBLE
from vademecum.errors import ConfigError, IntegrityFailed, PackRefused
from vademecum.packs.links import Base, LinkResult, link, unlink
from vademecum.packs.lock import MAX_BYTES
from vademecum.skill.skill import Skill


@pytest.fixture
def base(place: Place) -> Base:
    return Base(place.cwd)


def skills_of(place: Place, *names: str) -> list[Skill]:
    index = place.build()
    return [index.get(name) for name in names]


def actions(done: list[LinkResult]) -> list[tuple[str, str, str]]:
    return [(one.name, one.agent, one.action) for one in done]


def remembered(base: Base) -> Any:
    return json.loads(base.file.read_text())


def test_links_are_made_and_undone_exactly(place: Place, base: Base) -> None:
    write_skill(place.cwd, "skills/文件比较")
    write_skill(place.home, ".agent/skills/mine")
    (place.cwd / ".gemini").mkdir()
    before = tree(place.cwd)
    skills = [*place.vade("list", "--root", "skills", "--json").json["skills"]]
    names = [skill["name"] for skill in skills]
    agents = [word for agent in COMPATIBLE for word in ("--to", agent)]
    done = place.vade("link", *names, *agents, "--root", "skills")
    assert (done.code, done.err, len(done.out.splitlines())) == (0, "", len(names) * len(COMPATIBLE))
    assert os.readlink(place.cwd / ".claude/skills/文件比较") == "../../skills/文件比较"
    assert os.readlink(place.cwd / ".opencode/skills/mine") == str(place.home / ".agent/skills/mine")
    assert (place.cwd / ".github/skills/file-diff/SKILL.md").read_bytes() == (
        BUILTIN_ROOT / "file-diff/SKILL.md"
    ).read_bytes()
    assert place.vade("unlink", "--all", "--to", "claude").code == 0
    assert not (place.cwd / ".claude").exists()
    assert place.vade("unlink", "--all").code == 0
    assert tree(place.cwd) == before


@pytest.mark.parametrize("kind", ["nothing", "file", "dangling"])
def test_nothing_is_taken_away_where_nothing_is_linked(place: Place, kind: str) -> None:
    agent = place.cwd / ".agent"
    if kind == "file":
        agent.write_text("")
    elif kind == "dangling":
        agent.symlink_to("nowhere")
    before = tree(place.cwd)
    done = place.vade("unlink", "--all")
    assert (done.code, done.out) == (0, "Nothing is linked here\n")
    assert place.vade("unlink", "x").code == 4
    assert tree(place.cwd) == before


def test_what_is_remembered(place: Place, base: Base) -> None:
    make(place.cwd / ".agent/skills", "x")
    link(skills_of(place, "x"), base, agents=["claude"])
    link(skills_of(place, "x"), base, agents=["codex"])
    assert remembered(base) == {
        "links": [
            {
                "name": "x",
                "agent": "claude",
                "place": ".claude/skills/x",
                "source": ".agent/skills/x",
            },
            {
                "name": "x",
                "agent": "codex",
                "place": ".codex/skills/x",
                "source": ".agent/skills/x",
            },
        ],
        "directories": [".claude", ".claude/skills", ".codex", ".codex/skills"],
        "version": 1,
    }


def test_a_project_that_moved_keeps_its_links(place: Place, base: Base, tmp_path: Path) -> None:
    make(place.cwd / ".agent/skills", "x")
    link(skills_of(place, "x"), base, agents=["claude"])
    moved = Base(place.cwd.rename(tmp_path / "elsewhere"))
    assert (moved.path / ".claude/skills/x/SKILL.md").is_file()
    assert actions(unlink(None, moved)) == [("x", "claude", "removed")]
    assert not (moved.path / ".claude").exists()


def test_for_the_user_all_lies_below_home(place: Place) -> None:
    write_skill(place.home, ".agent/skills/x")
    done = place.vade("link", "x", "--scope", "user", "--to", "opencode", "--to", "claude")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            f"Linked: {place.home}/.config/opencode/skills/x",
            f"Linked: {place.home}/.claude/skills/x",
        ],
    )
    assert not (place.cwd / ".agent").exists()
    # At home, the project is the home directory, and has the same memory.
    assert place.vade("unlink", "x", cwd=place.home).code == 0
    assert not (place.home / ".config").exists()


@pytest.mark.parametrize("where", ["cwd/.agent/skills", "home/.agent/skills", "home/.agents/skills", None])
def test_the_index_is_the_same_with_links(place: Place, where: str | None) -> None:
    name = "x" if where else "file-diff"
    if where:
        at, _, root = where.partition("/")
        write_skill(getattr(place, at), f"{root}/x")
    before, listed = place.build(), place.vade("list").out
    words = [word for agent in ("claude", "codex", "agents") for word in ("--to", agent)]
    for scope in ("project", "user"):
        assert place.vade("link", name, *words, "--scope", scope).code == 0
    after = place.build()
    assert [skill.to_json() for skill in after] == [skill.to_json() for skill in before]
    assert (after.shadowed, after.hash) == ((), before.hash)
    assert place.vade("list").out == listed
    doctor = place.vade("doctor")
    assert (doctor.code, "is used, not" in doctor.out) == (0, False)
    assert doctor.out.splitlines()[-1] == "Nothing was left out."
    (conflict,) = after.report.conflicts
    assert {other.reason for other in conflict.overridden} == {"same-file"}
    linked = str(place.cwd / ".claude/skills" / name)
    assert after.get(linked) is after.get(name)  # also by the path of the link


def test_a_native_root_keeps_its_links_and_real_namesakes_are_still_told(place: Place) -> None:
    write_skill(place.home, ".agent/skills/x")
    (place.cwd / ".agent/skills").mkdir(parents=True)
    (place.cwd / ".agent/skills/x").symlink_to(place.home / ".agent/skills/x")
    assert place.build().get("x").source == "project"
    write_skill(place.cwd, ".codex/skills/x", "---\nname: x\ndescription: Another one.\n---\n")
    assert f"{place.cwd}/.codex/skills/x, because native" in place.vade("doctor").out


def test_a_second_time_it_is_there_already(place: Place, base: Base) -> None:
    make(place.cwd / ".agent/skills", "x")
    skills = skills_of(place, "x")
    link(skills, base, agents=["claude"])
    before = tree(place.cwd)
    assert actions(link(skills, base, agents=["claude", "claude"])) == [("x", "claude", "there")]
    assert tree(place.cwd) == before
    assert actions(link(skills, base, agents=["claude", "codex"]))[1] == ("x", "codex", "linked")


@pytest.mark.parametrize("leads", ["../.agent/skills", "../.agents/skills"])
def test_directories_of_agents_that_are_links_themselves(place: Place, base: Base, leads: str) -> None:
    make(place.cwd / ".agent/skills", "x")
    (place.cwd / ".agents/skills").mkdir(parents=True)
    (place.cwd / ".claude").mkdir()
    (place.cwd / ".claude/skills").symlink_to(leads)
    before = tree(place.cwd)
    done = link(skills_of(place, "x"), base, agents=["claude", "agents"])
    assert [one.action for one in done] in (["there", "linked"], ["linked", "there"])
    unlink(None, base)
    assert tree(place.cwd) == before


def test_an_empty_directory_of_the_user_stays(place: Place, base: Base) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".claude/skills").mkdir(parents=True)
    (place.cwd / ".claude/skills/file-diff").symlink_to(BUILTIN_ROOT / "file-diff")
    before = tree(place.cwd)
    assert actions(link(skills_of(place, "file-diff"), base, agents=["claude"])) == [
        ("file-diff", "claude", "there")
    ]
    assert tree(place.cwd) == before
    (place.cwd / ".codex").write_text("a file")
    with pytest.raises(PackRefused, match="is not a directory"):
        link(skills_of(place, "file-diff"), base, agents=["codex"])
    assert tree(place.cwd) == before | {".codex": "a file"}


def test_what_is_in_the_way_stays_and_nothing_is_made(place: Place, base: Base) -> None:
    make(place.cwd / ".agent/skills", "x")
    make(place.cwd / ".agent/skills", "y")
    theirs = place.cwd / ".codex/skills/y"
    theirs.parent.mkdir(parents=True)
    puts: list[Callable[[], object]] = [
        lambda: theirs.write_text("a file"),
        theirs.mkdir,
        lambda: theirs.symlink_to("../.."),
        lambda: theirs.symlink_to("nowhere"),
        lambda: os.mkfifo(theirs),
    ]
    for put in puts:
        put()
        before = {path.relative_to(place.cwd) for path in place.cwd.rglob("*")}
        with pytest.raises(PackRefused, match=r"skills/y was not made by vade link: move it away first"):
            link(skills_of(place, "x", "y"), base, agents=["claude", "codex"])
        assert {path.relative_to(place.cwd) for path in place.cwd.rglob("*")} == before
        theirs.rmdir() if theirs.is_dir() and not theirs.is_symlink() else theirs.unlink()


def test_links_follow_a_skill_that_moved(place: Place, base: Base) -> None:
    write_skill(place.home, ".agent/skills/x")
    link(skills_of(place, "x"), base, agents=["claude", "codex"])
    write_skill(place.cwd, ".agent/skills/x")
    assert actions(link(skills_of(place, "x"), base, agents=["claude"])) == [("x", "claude", "refreshed")]
    assert os.readlink(place.cwd / ".claude/skills/x") == "../../.agent/skills/x"
    assert len(remembered(base)["links"]) == 2


def test_what_is_gone_or_replaced_is_forgotten(place: Place, base: Base) -> None:
    for name in ("gone", "replaced", "same"):
        make(place.cwd / ".agent/skills", name)
    link(skills_of(place, "gone", "replaced", "same"), base, agents=["claude"])
    skills = place.cwd / ".claude/skills"
    for name in ("gone", "replaced", "same"):
        (skills / name).unlink()
    (skills / "replaced").symlink_to("../../elsewhere")
    shutil.copytree(place.cwd / ".agent/skills/same", skills / "same")  # to the last byte
    assert actions(unlink(None, base)) == [
        ("gone", "claude", "gone"),
        ("replaced", "claude", "other"),
        ("same", "claude", "other"),
    ]
    assert sorted(path.name for path in skills.iterdir()) == ["replaced", "same"]
    assert not base.file.exists()


def test_a_link_to_a_skill_that_is_gone_can_be_taken_away(place: Place) -> None:
    make(place.cwd / ".agent/skills", "x")
    place.vade("link", "x", "--to", "claude")
    shutil.rmtree(place.cwd / ".agent/skills/x")
    assert place.vade("doctor").code == 1
    assert place.vade("unlink", "x").out == "Removed: .claude/skills/x\n"
    assert place.vade("doctor").code == 0


def entry(**changed: object) -> str:
    one = {"name": "x", "agent": "claude", "place": ".claude/skills/x", "source": "s"}
    return json.dumps({"version": 1, "links": [one | changed], "directories": []})


@pytest.mark.parametrize(
    "text",
    [
        entry(place="../../precious"),
        entry(name="../../../precious", place=".claude/skills/../../../precious"),
        entry(name="..", place=".claude/skills/.."),
        entry(name="x/y", place=".claude/skills/x/y"),
        entry(name=".", place=".claude/skills/."),
        entry(name="", place=".claude/skills/"),
        entry(name="x\0", place=".claude/skills/x\0"),
        entry(name="x" * 300, place=f".claude/skills/{'x' * 300}"),
        entry(place="/precious"),
        entry(place=".codex/skills/x"),
        entry(agent="../.."),
        entry(source=""),
        json.dumps({"version": 1, "directories": ["src"]}),
        json.dumps({"version": 1, "directories": ["../precious"]}),
        json.dumps({"version": 2}),
        "[" * 100_000,
        "null",
        "\udcff",
    ],
)
def test_a_memory_from_outside_is_not_believed(place: Place, base: Base, text: str) -> None:
    precious = write_skill(place.cwd.parent, "precious")
    make(place.cwd / ".agent/skills", "x")
    base.file.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = tree(place.cwd)
    with pytest.raises(IntegrityFailed, match=r"links\.json"):
        unlink(None, base)
    with pytest.raises(IntegrityFailed, match=r"links\.json"):
        link(skills_of(place, "x"), base, agents=["claude"])
    assert (precious / "SKILL.md").is_file()
    assert tree(place.cwd) == before | {".agent/.lock": ""}


@pytest.mark.parametrize("kind", ["fifo", "directory", "huge", "link out"])
def test_a_memory_that_is_no_file(place: Place, base: Base, kind: str, tmp_path: Path) -> None:
    base.file.parent.mkdir()
    match kind:
        case "fifo":
            os.mkfifo(base.file)
        case "directory":
            base.file.mkdir()
        case "huge":
            base.file.touch()
            os.truncate(base.file, MAX_BYTES + 1)
        case "link out":
            (tmp_path / "theirs.json").write_text(entry())
            base.file.symlink_to(tmp_path / "theirs.json")
    for words in (["unlink", "--all"], ["link", "file-diff", "--to", "claude"]):
        done = place.vade(*words)
        assert (done.code, done.err.count("\n")) == (1 if kind == "link out" else 5, 1), done.err
    assert not (place.cwd / ".claude").exists()


def test_a_memory_cannot_claim_what_others_made(place: Place, base: Base) -> None:
    theirs = make(place.cwd / ".claude/skills", "x")
    (place.cwd / ".codex/skills").mkdir(parents=True)
    (place.cwd / ".codex/skills/y").symlink_to("../../src")
    claims = [entry(), entry(source="x"), entry(name="y", agent="codex", place=".codex/skills/y")]
    links = [json.loads(claim)["links"][0] for claim in claims]
    directories = [".claude", ".codex", ".codex/skills"]
    base.file.parent.mkdir()
    base.file.write_text(json.dumps({"version": 1, "links": links, "directories": directories}))
    assert actions(unlink(None, base)) == [("x", "claude", "other"), ("y", "codex", "other")]
    assert (theirs / "SKILL.md").is_file()
    assert os.readlink(place.cwd / ".codex/skills/y") == "../../src"


@pytest.mark.parametrize("led", [".claude", ".claude/skills", ".agent"])
def test_nothing_goes_through_a_link_that_leads_out(
    place: Place, base: Base, led: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    write_skill(outside, "skills/mine")
    (place.cwd / led).parent.mkdir(exist_ok=True)
    (place.cwd / led).symlink_to(outside)
    before = tree(place.cwd), tree(outside)
    with pytest.raises(PackRefused, match=r"leads out of .* through a link"):
        link(skills_of(place, "file-diff"), base, agents=["claude"])
    assert (tree(place.cwd), tree(outside)) == before


def test_a_directory_that_leads_out_later_is_left_alone(place: Place, base: Base, tmp_path: Path) -> None:
    make(place.cwd / ".agent/skills", "x")
    link(skills_of(place, "x"), base, agents=["claude"])
    (place.cwd / ".claude").rename(tmp_path / "outside")
    (place.cwd / ".claude").symlink_to(tmp_path / "outside")
    before = tree(tmp_path / "outside")
    assert actions(unlink(None, base)) == [("x", "claude", "other")]
    assert tree(tmp_path / "outside") == before
    assert (place.cwd / ".claude").is_symlink()


def test_staging_and_trash_that_lead_out(place: Place, base: Base, tmp_path: Path) -> None:
    make(place.cwd / ".agent/skills", "x")
    outside = tmp_path / "outside"
    (outside / "keep").mkdir(parents=True)
    (place.cwd / ".agent/.staging").symlink_to(outside)
    with pytest.raises(ConfigError, match=r"staging is a link, which could lead anywhere"):
        link(skills_of(place, "x"), base, agents=["claude"])
    (place.cwd / ".agent/.staging").unlink()
    link(skills_of(place, "x"), base, agents=["codex"])
    (place.cwd / ".agent/.trash").symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link, which could lead anywhere"):
        unlink(None, base)
    assert (place.cwd / ".codex/skills/x/SKILL.md").is_file()
    assert [path.name for path in outside.rglob("*")] == ["keep"]


def test_a_file_where_a_directory_belongs(place: Place, base: Base) -> None:
    os.mkfifo(place.cwd / ".claude")
    (place.cwd / ".codex").write_text("a file")
    for agent in ("claude", "codex"):
        with pytest.raises(PackRefused, match="is not a directory: move it away first"):
            link(skills_of(place, "file-diff"), base, agents=["gemini", agent])
    assert not (place.cwd / ".gemini").exists()


def test_a_skill_is_not_put_into_itself(place: Place) -> None:
    write_skill(place.cwd, ".", name="whole")
    done = place.vade("link", "whole", "--to", "claude", "--root", ".")
    assert (done.code, "is inside the skill 'whole' itself" in done.err) == (1, True)
    assert not (place.cwd / ".claude").exists()


@pytest.mark.parametrize("way", ["link", "refresh", "unlink"])
@pytest.mark.parametrize("name", ["rename", "mkdir", "replace"])
def test_what_fails_half_way_is_undone(
    place: Place, base: Base, monkeypatch: pytest.MonkeyPatch, way: str, name: str
) -> None:
    if way in {"refresh", "unlink"}:
        for skill in ("x", "文件"):
            make(place.home / ".agent/skills", skill)
        link(skills_of(place, "x", "文件"), base, agents=["claude", "codex"])
    for skill in ("x", "文件"):
        make(place.cwd / ".agent/skills", skill)
    skills = skills_of(place, "x", "文件")
    before = tree(place.cwd)
    really = getattr(os, name)
    for point in range(100):
        left = point

        def failing(*words: Any, **more: Any) -> object:
            nonlocal left
            left -= 1
            if left == -1:  # once: what is undone can be undone
                raise OSError(errno.ENOSPC, "No space left on device")
            return really(*words, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, failing)
            try:
                if way == "unlink":
                    unlink(None, base)
                else:
                    link(skills, base, agents=["claude", "codex"])
            except PackRefused as error:
                assert "No space left on device" in str(error)  # noqa: PT017 - only where it fails
            else:
                assert left >= 0
                return
        assert tree(place.cwd) == before, point
    raise AssertionError("it never came to its end")


def test_a_record_that_cannot_be_written_undoes_the_change(
    place: Place, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    link(skills_of(place, "file-diff"), base, agents=["claude", "codex"])
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(PackRefused, match=r"No space left on device\): nothing was changed"):
            unlink(None, base, agents=["claude"])
    assert actions(unlink(None, base)) == [
        ("file-diff", "claude", "removed"),
        ("file-diff", "codex", "removed"),
    ]
    assert tree(place.cwd) == {".git": "/"}


READ_ONLY = """
import os, sys
from pathlib import Path
from vademecum import build_index
from vademecum.errors import PackRefused
from vademecum.packs.links import Base, link, unlink
base = Base(Path(sys.argv[1]))
skills = build_index([base.path / ".agent/skills"]).skills
os.geteuid() or os.setuid(65534)
for change in (lambda: link(skills, base, agents=["gemini", "codex"]), lambda: unlink(None, base)):
    try:
        change()
    except PackRefused as error:
        print(error)
"""


def test_a_directory_that_may_only_be_read(open_root: Path) -> None:
    make(open_root / ".agent/skills", "x")
    base = Base(open_root)
    (open_root / ".codex/skills").mkdir(parents=True)
    (open_root / ".claude/skills").mkdir(parents=True)
    base.file.write_text(
        json.dumps({"version": 1, "links": json.loads(entry(source=".agent/skills/x"))["links"]})
    )
    (open_root / ".claude/skills/x").symlink_to("../../.agent/skills/x")
    for place in (open_root, open_root / ".agent"):
        place.chmod(0o777)
    for place in (open_root / ".codex/skills", open_root / ".claude/skills"):
        place.chmod(0o555)
    before = tree(open_root)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(open_root)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.rpartition(" could ")[2] for line in lines] == [
        "not be changed (Permission denied): nothing was changed."
    ] * 2, (done.stdout, done.stderr)
    after = tree(open_root)
    after.pop(".agent/.lock")
    assert after.keys() == before.keys()
    assert json.loads(after[".agent/links.json"])["links"] == json.loads(before[".agent/links.json"])["links"]


@pytest.mark.extras  # eight seconds
def test_killed_at_every_point_nothing_is_lost_or_left(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.packs.killing_links", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(kills > 10 for kills in json.loads(done.stdout).values()), done.stdout


AT_ONCE = """
import sys
from pathlib import Path
from vademecum import build_index
from vademecum.packs.links import Base, link, unlink
base, name = Base(Path(sys.argv[1])), sys.argv[2]
skills = [build_index([base.path / "skills"]).get(name)]
for _ in range(40):
    (done,) = link(skills, base, agents=["claude"])
    assert done.action == "linked", done
    assert (base.path / ".claude/skills" / name / "SKILL.md").is_file()
    (done,) = unlink([name], base)
    assert done.action == "removed", done
"""


def test_many_at_once(place: Place) -> None:
    # Between two of them nothing may be left, so the lock and its directory come and go, too.
    for name in ("a", "b", "c", "文件"):
        make(place.cwd / "skills", name)
    before = tree(place.cwd)
    words = [sys.executable, "-c", AT_ONCE, str(place.cwd)]
    ways = [["a"], ["b"], ["c"], ["文件"]]
    started = [subprocess.Popen([*words, *way], stderr=subprocess.PIPE, text=True) for way in ways]
    assert [(one.communicate(timeout=120)[1], one.returncode) for one in started] == [("", 0)] * len(ways)
    assert tree(place.cwd) == before


def test_no_link_is_made_that_would_not_be_followed(place: Place) -> None:
    make(place.cwd / ".agent/skills", "a")
    (place.cwd / ".agent/config.json").write_text('{"scan": {"follow_links": false}}')
    done = place.vade("link", "a", "--to", "claude")
    assert (done.code, "scan.follow_links is off" in done.err) == (2, True), done.err
    assert not (place.cwd / ".claude").exists()
