"""N1: configuration files, merged and checked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import Place
from vademecum import Config, ConfigError, load_config
from vademecum.config import (
    BudgetSettings,
    ExecutionSettings,
    ModelSettings,
    PermissionRule,
    ScanSettings,
    SecuritySettings,
)


def write(directory: Path, settings: object, name: str = "config.json") -> Path:
    (directory / ".agent").mkdir(exist_ok=True)
    file = directory / ".agent" / name
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return file


def error(place: Place, settings: object, name: str = "config.json") -> str:
    write(place.cwd, settings, name)
    with pytest.raises(ConfigError) as caught:
        load_config(place.context)
    return str(caught.value)


def test_no_file_means_defaults(place: Place) -> None:
    assert load_config(place.context).settings == Config()


def test_every_key(place: Place) -> None:
    write(
        place.home,
        {
            "skill_roots": ["a"],
            "compatibility_roots": ["claude"],
            "package_skills": ["acme"],
            "lenient": True,
            "scan": {"follow_links": False, "max_depth": 3, "max_directories": 10},
            "model": {"provider": "mock", "params": {"x": 1}},
            "execution": {"require_approval_for": ["write_file"]},
            "security": {"max_skill_body_lines": 900, "block_angle_brackets_in_frontmatter": False},
            "permissions": [{"permission": "skill", "pattern": "*", "effect": "ask"}],
        },
    )
    loaded = load_config(place.context)
    assert loaded.settings == Config(
        skill_roots=("a",),
        compatibility_roots=("claude",),
        package_skills=("acme",),
        lenient=True,
        scan=ScanSettings(follow_links=False, max_depth=3, max_directories=10),
        model=ModelSettings("mock", {"x": 1}),
        execution=ExecutionSettings(("write_file",)),
        security=SecuritySettings(900, block_angle_brackets_in_frontmatter=False),
        permissions=(PermissionRule("skill", "*", "ask"),),
    )
    assert loaded.user_roots == (place.home / "a",)


def test_toml_is_the_same(place: Place) -> None:
    text = 'lenient = true\nskill_roots = ["x"]\n[scan]\nmax_depth = 2\n[[permissions]]\npermission = "tool"\npattern = "*"\neffect = "deny"\n'
    write(place.cwd, text, "config.toml")
    settings = load_config(place.context).settings
    assert (settings.lenient, settings.scan.max_depth) == (True, 2)
    assert settings.permissions == (PermissionRule("tool", "*", "deny"),)


def test_project_wins_key_by_key_and_permissions_add_up(place: Place) -> None:
    rule = {"permission": "skill", "pattern": "*", "effect": "ask"}
    write(
        place.home, {"lenient": True, "scan": {"max_depth": 3, "follow_links": False}, "permissions": [rule]}
    )
    write(
        place.cwd, {"lenient": False, "scan": {"max_depth": 4}, "permissions": [{**rule, "effect": "deny"}]}
    )
    settings = load_config(place.context).settings
    assert settings.lenient is False
    assert settings.scan == ScanSettings(follow_links=False, max_depth=4)
    assert [rule.effect for rule in settings.permissions] == ["ask", "deny"]


@pytest.mark.parametrize(
    ("user", "project", "lines", "blocked"),
    [
        ({}, {"max_skill_body_lines": 9000, "block_angle_brackets_in_frontmatter": False}, 500, True),
        ({}, {"max_skill_body_lines": 100}, 100, True),
        ({"block_angle_brackets_in_frontmatter": False}, {"max_skill_body_lines": 100}, 100, False),
        (
            {"block_angle_brackets_in_frontmatter": False},
            {"block_angle_brackets_in_frontmatter": True},
            500,
            True,
        ),
        ({"max_skill_body_lines": 900}, {"max_skill_body_lines": 800}, 800, True),
        ({"max_skill_body_lines": 900}, {"max_skill_body_lines": 1000}, 900, True),
    ],
)
def test_project_tightens_security_and_never_loosens_it(
    place: Place, user: dict[str, object], project: dict[str, object], lines: int, blocked: bool
) -> None:
    write(place.home, {"security": user})
    write(place.cwd, {"security": project})
    security = load_config(place.context).settings.security
    assert security == SecuritySettings(lines, blocked)


def test_nearest_project_file_is_read(place: Place) -> None:
    below = place.cwd / "a" / "b"
    below.mkdir(parents=True)
    write(place.cwd, {"lenient": True})
    assert load_config(Place(below, place.home).context).settings.lenient


def test_unknown_key_suggests(place: Place) -> None:
    text = error(place, {"skil_roots": []})
    assert text.startswith(
        f"{place.cwd}/.agent/config.json: unknown key 'skil_roots', did you mean 'skill_roots'?"
    )
    assert "unknown key 'scan.max_dept', did you mean 'max_depth'?" in error(place, {"scan": {"max_dept": 1}})
    assert "unknown key 'permissions.0.patern'" in error(
        place, {"permissions": [{"permission": "a", "pattern": "b", "effect": "ask", "patern": "c"}]}
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lenient": 1}, "'lenient' is 1: it should be a valid boolean"),
        ({"lenient": "yes"}, "'lenient' is \"yes\": it should be a valid boolean"),
        ({"skill_roots": "a"}, "'skill_roots' is \"a\": it should be a valid array"),
        ({"skill_roots": [1]}, "'skill_roots.0' is 1: it should be a valid string"),
        ({"scan": {"max_depth": 0}}, "'scan.max_depth' is 0: it should be from 1 to 64"),
        ({"scan": {"max_depth": 2.5}}, "'scan.max_depth' is 2.5: it should be a valid integer"),
        ({"scan": []}, "'scan' is []"),
        ({"package_skills": 3}, "a valid boolean or a valid array"),
        (
            {"compatibility_roots": ["cloude"]},
            "'agents', 'claude', 'opencode', 'github', 'gemini' or 'codex'",
        ),
        (
            {"permissions": [{"permission": "x", "pattern": "y", "effect": "alow"}]},
            "'allow', 'ask' or 'deny'",
        ),
        ({"permissions": [{"permission": "x"}]}, "'permissions.0.pattern' is missing: add it"),
        ({"security": {"max_skill_body_lines": None}}, "it should be a valid integer"),
        ("{", "is not valid JSON"),
        ("[1]", "must contain an object"),
        ("[" * 100_000, "is not valid JSON"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is not valid JSON"),
    ],
)
def test_wrong_values_are_named(place: Place, settings: object, words: str) -> None:
    text = error(place, settings)
    assert f"{place.cwd}/.agent/config.json" in text
    assert words in text


def test_all_problems_at_once(place: Place) -> None:
    text = error(place, {"lenient": 1, "nope": 2, "scan": {"max_depth": "x"}})
    assert all(word in text for word in ("'lenient'", "'nope'", "'scan.max_depth'"))


def test_wrong_toml(place: Place) -> None:
    assert "is not valid TOML" in error(place, "a = ", "config.toml")


def test_two_files_are_one_too_many(place: Place) -> None:
    write(place.cwd, {})
    write(place.cwd, "", "config.toml")
    with pytest.raises(ConfigError, match=r"Both .*config\.json and .*config\.toml exist: keep one"):
        load_config(place.context)


@pytest.mark.parametrize("kind", ["directory", "fifo", "huge", "latin-1"])
def test_file_that_is_no_configuration(place: Place, kind: str) -> None:
    (place.cwd / ".agent").mkdir()
    file = place.cwd / ".agent" / "config.json"
    match kind:
        case "directory":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "huge":
            file.write_text(" " * 2_000_000)
        case "latin-1":
            file.write_bytes(b'{"skill_roots": ["\xff"]}')
    with pytest.raises(ConfigError, match=r"config\.json (cannot be read|is not valid JSON)"):
        load_config(place.context)


def test_project_cannot_loosen_approvals_or_rules(place: Place) -> None:
    allow = {"permission": "tool", "pattern": "*", "effect": "allow"}
    deny = {"permission": "tool", "pattern": "delete_file", "effect": "deny"}
    write(place.home, {"execution": {"require_approval_for": ["run_script"]}, "permissions": [allow]})
    write(place.cwd, {"execution": {"require_approval_for": ["write_file"]}, "permissions": [allow, deny]})
    loaded = load_config(place.context)
    assert loaded.settings.execution.require_approval_for == ("run_script", "write_file")
    # The project's `deny` counts at once, its `allow` only once somebody trusts the folder.
    assert [rule.effect for rule in loaded.settings.permissions] == ["allow", "deny"]
    assert loaded.loosening == (PermissionRule("tool", "*", "allow"),)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bool": 1}, "unknown key 'bool'"),
        ({"a[b": 1}, "unknown key 'a[b'"),
        ({"scan": {"int": 3}}, "unknown key 'scan.int' (accepted: follow_links, max_depth, max_directories)"),
        ({"skill_roots": ["a\0b"]}, "'skill_roots' contains a text that cannot be a path"),
        ('{"model": {"provider": "\\ud800"}}', "half a character"),
        ({"model": {"params": {"x": json.loads("[" * 300 + "]" * 300)}}}, "nested too deeply"),
        ('{"lenient": true, "lenient": false}', "the key 'lenient' appears twice"),
        ('{"model": {"params": {"x": NaN}}}', "NaN is not a JSON number"),
        ({"scan": {"max_depth": 0, "max_directories": 0}}, "'scan.max_directories' is 0"),
    ],
)
def test_odd_settings_are_named(place: Place, settings: object, words: str) -> None:
    assert words in error(place, settings)


def test_link_to_nowhere_and_closed_directory(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.json").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        load_config(place.context)


def test_a_project_does_not_choose_where_keys_go(place: Place) -> None:
    write(place.cwd, {"model": {"provider": "openai:x", "params": {"base_url": "http://evil.example"}}})
    assert load_config(place.context).settings.model == ModelSettings()
    write(place.home, {"model": {"provider": "anthropic:y"}})
    assert load_config(place.context).settings.model == ModelSettings("anthropic:y")


def test_a_project_only_lowers_the_budget(place: Place) -> None:
    write(place.home, {"budget": {"turns": 20}})
    write(place.cwd, {"budget": {"turns": 30, "tool_calls": 5}})
    loaded = load_config(place.context)
    assert loaded.settings.budget == BudgetSettings(turns=20, tool_calls=5)
    assert loaded.without_effect == ("budget.turns",)
    assert "'budget.turns' is 0: it should be from 1 to 1,000" in error(place, {"budget": {"turns": 0}})
