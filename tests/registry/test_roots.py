"""B1, B2: which directories are searched, in which order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import Place, write_skill
from vademecum import ConfigError, load_config
from vademecum.registry.roots import BUILTIN_ROOT, Root, default_roots


def roots(place: Place, **options: object) -> list[Root]:
    return default_roots(place.context, load_config(place.context), **options)  # type: ignore[arg-type]


def shown(place: Place, found: list[Root]) -> list[tuple[str, str]]:
    names = {str(place.cwd): "cwd", str(place.home): "~", str(BUILTIN_ROOT): "builtin"}
    texts: list[tuple[str, str]] = []
    for root in found:
        text = str(root.path)
        for path, name in names.items():
            text = text.replace(path, name)
        texts.append((root.source, text))
    return texts


def test_default_order(place: Place) -> None:
    found = roots(place)
    assert shown(place, found) == [
        ("project", "cwd/.agent/skills"),
        ("project", "cwd/.agent/skill"),
        ("project", "cwd/.agents/skills"),
        ("project", "cwd/.claude/skills"),
        ("project", "cwd/.opencode/skills"),
        ("project", "cwd/.opencode/skill"),
        ("project", "cwd/.github/skills"),
        ("project", "cwd/.gemini/skills"),
        ("project", "cwd/.codex/skills"),
        ("user", "~/.agent/skills"),
        ("user", "~/.agent/skill"),
        ("user", "~/.agents/skills"),
        ("user", "~/.claude/skills"),
        ("user", "~/.opencode/skills"),
        ("user", "~/.opencode/skill"),
        ("user", "~/.config/opencode/skills"),
        ("user", "~/.github/skills"),
        ("user", "~/.gemini/skills"),
        ("user", "~/.codex/skills"),
        ("builtin", "builtin"),
    ]
    priorities = [root.priority for root in found]
    assert priorities == sorted(priorities, reverse=True)
    assert len(set(priorities)) == len(priorities)


def test_walks_up_to_the_repository_root_and_the_nearest_wins(place: Place) -> None:
    # B2
    below = place.cwd / "packages" / "web"
    for directory, text in ((place.cwd.parent, "outside"), (place.cwd, "top"), (below, "near")):
        write_skill(directory, ".agent/skills/x", f"---\nname: x\ndescription: {text}\n---\n")
    write_skill(place.cwd, ".agent/skills/only-top")
    inner = Place(below, place.home)
    assert inner.build().get("x").description == "near"
    assert inner.build().get("only-top").source == "project"
    assert place.build().get("x").description == "top"


def test_without_a_repository_the_nearest_agent_directory_ends_the_search(tmp_path: Path) -> None:
    # B2
    write_skill(tmp_path, ".agent/skills/far")
    write_skill(tmp_path / "app", ".agent/skills/near")
    deep = tmp_path / "app" / "src" / "web"
    write_skill(deep.parent, ".claude/skills/between")
    deep.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    names = [skill.name for skill in Place(deep, tmp_path / "home").build()]
    assert ("near" in names, "between" in names, "far" in names) == (True, True, False)


def test_the_search_never_reaches_the_home_directory_or_above(tmp_path: Path) -> None:
    # B2
    home = tmp_path / "home"
    write_skill(tmp_path, ".agent/skills/above")
    write_skill(home, ".agent/skills/mine")
    (home / "work" / "app").mkdir(parents=True)
    index = Place(home / "work" / "app", home).build()
    assert "above" not in [skill.name for skill in index]
    assert index.get("mine").source == "user"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_an_agent_directory_of_another_user_does_not_count(tmp_path: Path) -> None:
    write_skill(tmp_path, ".agent/skills/planted")
    os.chown(tmp_path / ".agent", 12345, 12345)
    for name in ("here", "home"):
        (tmp_path / name).mkdir()
    assert "planted" not in [s.name for s in Place(tmp_path / "here", tmp_path / "home").build()]


def test_order_of_the_levels_can_be_set(place: Place) -> None:
    # B4
    write_skill(place.cwd, ".agent/skills/x", "---\nname: x\ndescription: project\n---\n")
    write_skill(place.cwd, ".agent/skills/file-diff", "---\nname: file-diff\ndescription: mine\n---\n")
    write_skill(place.home, ".agent/skills/x", "---\nname: x\ndescription: user\n---\n")
    assert place.build().get("x").description == "project"
    configure(place.home, precedence=["builtin", "user"])
    index = place.build()
    assert (index.get("x").source, index.get("file-diff").source) == ("user", "builtin")
    assert [o.reason for c in index.report.conflicts for o in c.overridden] == ["lower-root"] * 2
    assert [root.source for root in index.roots][:2] == ["builtin", "user"]
    # What the user put first stays first, whatever a project says.
    configure(place.cwd, precedence=["project"])
    assert place.build().get("x").source == "user"
    assert load_config(place.context).without_effect == ("precedence",)


def test_a_project_orders_the_levels_if_the_user_does_not(place: Place) -> None:
    # B4
    write_skill(place.cwd, ".agent/skills/x")
    write_skill(place.home, ".agent/skills/x")
    configure(place.cwd, precedence=["user"])
    assert place.build().get("x").source == "user"


def test_a_level_is_named_once(place: Place) -> None:
    # N1
    for levels, words in ((["user", "user"], "names a level twice"), (["users"], "'project', 'user'")):
        configure(place.cwd, precedence=levels)
        with pytest.raises(ConfigError, match=words):
            load_config(place.context)


def configure(where: Path, **settings: object) -> None:
    (where / ".agent").mkdir(exist_ok=True)
    (where / ".agent" / "config.json").write_text(json.dumps(settings))


def test_home_is_never_a_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write_skill(tmp_path, ".agent/skills/mine")
    assert Place(tmp_path, tmp_path).build().get("mine").source == "user"


def test_explicit_roots_by_flag_environment_and_config(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.home / ".agent").mkdir()
    (place.cwd / ".agent/config.json").write_text(json.dumps({"skill_roots": ["mine", "~/shared"]}))
    (place.home / ".agent/config.json").write_text(json.dumps({"skill_roots": ["lib"]}))
    context = place.context
    environment = {**context.env, "VADE_SKILL_ROOTS": f"{place.cwd}/env1:env2:"}
    context = type(context)(context.cwd, context.home, environment)
    found = default_roots(context, load_config(context), extra=["flag"])
    extra = [(source, path) for source, path in shown(place, found) if source == "extra"]
    assert extra == [
        ("extra", "cwd/flag"),
        ("extra", "cwd/env1"),
        ("extra", "cwd/env2"),
        ("extra", "cwd/mine"),
        ("extra", "~/shared"),
        ("extra", "~/lib"),
    ]
    order = [source for source, _ in shown(place, found)]
    assert order[3] == "project"  # flags and environment come before everything
    assert order.index("user") > order.index("project")


def test_named_default_root_keeps_its_source_and_stands_once(place: Place) -> None:
    found = roots(place, extra=[".agent/skills", "~/.agent/skills", "x", "./x"])
    assert shown(place, found)[:3] == [
        ("project", "cwd/.agent/skills"),
        ("user", "~/.agent/skills"),
        ("extra", "cwd/x"),
    ]
    assert len({str(root.path) for root in found}) == len(found)


def test_no_default_roots(place: Place) -> None:
    assert shown(place, roots(place, extra=["x"], defaults=False)) == [("extra", "cwd/x")]


def test_compatibility_roots_are_configurable(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.toml").write_text('compatibility_roots = ["claude"]\n')
    kinds = {root.kind for root in roots(place)}
    assert kinds == {"native", "claude"}


def test_native_beats_compatible_and_project_beats_user(place: Place) -> None:
    # B4
    for directory, where in (
        (place.cwd, ".agent"),
        (place.cwd, ".claude"),
        (place.home, ".agent"),
        (place.home, ".claude"),
    ):
        write_skill(directory, f"{where}/skills/x")
    index = place.build()
    (conflict,) = index.report.conflicts
    assert conflict.path == f"{place.cwd}/.agent/skills/x"
    assert [(other.source, other.reason) for other in conflict.overridden] == [
        ("project", "compatible-root"),
        ("user", "lower-root"),
        ("user", "lower-root"),
    ]


def test_home_behind_a_link_is_still_no_project(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / ".git").mkdir(parents=True)
    write_skill(real, ".agent/skills/mine")
    (tmp_path / "link").symlink_to("real")
    for cwd, home in ((real, tmp_path / "link"), (tmp_path / "link", real)):
        assert Place(cwd, home).build().get("mine").source == "user"
