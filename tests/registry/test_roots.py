"""B1, B2: which directories are searched, in which order."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import Place, write_skill
from vademecum import load_config
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


def test_without_a_repository_only_the_working_directory_counts(tmp_path: Path) -> None:
    write_skill(tmp_path, ".agent/skills/above")
    (tmp_path / "here").mkdir()
    (tmp_path / "home").mkdir()
    names = [skill.name for skill in Place(tmp_path / "here", tmp_path / "home").build()]
    assert "above" not in names


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
