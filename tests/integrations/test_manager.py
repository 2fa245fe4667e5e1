"""The six functions of SkillsManager, and what they say when they fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import Place, index_of, write_skill
from vademecum import SkillsManager

pytestmark = pytest.mark.usefixtures("own_place")


@pytest.fixture
def manager(root: Path) -> SkillsManager:
    place = write_skill(
        root, "data-analysis", "---\nname: data-analysis\ndescription: Analyse data. 数据分析\n---\n# Steps\n"
    )
    for name in ("references/SPEC.md", "scripts/compare.py", "assets/t.txt"):
        (place / name).parent.mkdir()
        (place / name).write_text(name)
    write_skill(root, "broken", "x")
    return SkillsManager(root)


def test_list_and_content(manager: SkillsManager, root: Path) -> None:
    assert manager.list_skills() == ["data-analysis"]
    assert manager.get_skill_content("Data-Analysis").startswith("---\nname: data-analysis\n")
    assert manager.get_skill_content("data").startswith("Skill not found: data ")
    write_skill(root, "dropped-in")
    assert "dropped-in" in manager.list_skills()


def test_search(manager: SkillsManager) -> None:
    expected = [{"name": "data-analysis", "description": "Analyse data. 数据分析"}]
    assert manager.search_skills("analyse some data") == expected
    assert manager.search_skills("分析", n=1) == expected
    assert manager.search_skills("") == manager.search_skills("x", n=-3) == []


def test_assets_and_scripts(manager: SkillsManager, root: Path) -> None:
    assert manager.list_skill_assets("data-analysis") == [
        "assets/t.txt",
        "references/SPEC.md",
        "scripts/compare.py",
    ]
    assert manager.get_skill_asset("data-analysis", "references/SPEC.md") == "references/SPEC.md"
    assert (
        manager.get_skill_script_path("data-analysis", "compare.py")
        == f"{root}/data-analysis/scripts/compare.py"
    )
    assert "goes up with '..'" in manager.get_skill_asset("data-analysis", "references/../../x")
    assert "is not below references/" in manager.get_skill_asset("data-analysis", "SKILL.txt")
    assert "has no script 'gone.py'" in manager.get_skill_script_path("data-analysis", "gone.py")
    assert "Skill not found: nobody" in manager.get_skill_asset("nobody", "references/SPEC.md")
    assert manager.list_skill_assets("nobody") == []


def test_root_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "skills"
    manager = SkillsManager(missing)
    assert (manager.list_skills(), manager.search_skills("x")) == ([], [])
    assert manager.get_skill_content("x").startswith("Skill not found: x")
    assert not missing.exists()
    assert SkillsManager(missing, create=True).list_skills() == []
    assert "SKILL.md" in (missing / "README.md").read_text()


def test_index_that_exists_already(root: Path) -> None:
    write_skill(root, "a")
    assert SkillsManager(index_of(root)).list_skills() == ["a"]


def test_without_arguments_the_skills_of_this_place(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    manager = SkillsManager(context=place.context)
    assert manager.list_skills() == ["csv-summary", "file-diff", "mine", "skill-author"]
    write_skill(place.home, ".agent/skills/dropped-in")
    assert "dropped-in" in manager.list_skills()


def test_document_root_names_the_directory(place: Place, tmp_path: Path) -> None:
    context = replace(place.context, env={**place.context.env, "DOCUMENT_ROOT": str(tmp_path / "docs")})
    assert SkillsManager(context=context).list_skills() == []
    assert SkillsManager(context=context, create=True).list_skills() == []
    assert (tmp_path / "docs" / "skills" / "README.md").is_file()
    write_skill(tmp_path / "docs" / "skills", "only")
    assert SkillsManager(context=context).list_skills() == ["only"]


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "未找到技能: x ("),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_TW.UTF-8"}, "未找到技能: x ("),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C"}, "Skill not found: x ("),
        ({}, "Skill not found: x ("),
    ],
)
def test_messages_are_in_the_language_of_the_user(place: Place, locale: dict[str, str], words: str) -> None:
    kept = {key: value for key, value in place.context.env.items() if key not in {"LANG", "LC_ALL"}}
    manager = SkillsManager(context=replace(place.context, env=kept | locale))
    assert manager.get_skill_content("x").startswith(words)
    assert manager.get_skill_asset("x", "references/a.md").startswith(words)
