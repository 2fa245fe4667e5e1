"""B10, C7, E1: what a model is told of skills, within a budget."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import index_of, write_skill
from vademecum import IndexOptions, Reading, Skill
from vademecum.loader.catalogue import Form, render_catalogue


def library(root: Path) -> tuple[Skill, ...]:
    write_skill(root, "short", "---\nname: short\ndescription: Brief & <new>.\n---\n")
    write_skill(root, "long", f"---\nname: long\ndescription: {'many words ' * 60}\n---\n")
    write_skill(root, "longer", f"---\nname: longer\ndescription: {'长描述，' * 150}\n---\n")
    return index_of(root, IndexOptions(reading=Reading(block_angle_brackets=False))).skills


def test_list(root: Path) -> None:
    text = render_catalogue(library(root)).text.splitlines()
    assert text[0] == "Available Skills:"
    assert text[3] == "- name=short | source=extra | description=Brief & <new>."


def test_xml_is_escaped(root: Path) -> None:
    text = render_catalogue(library(root), form="xml").text
    assert (
        "<name>\nshort\n</name>\n<description>\nBrief &amp; &lt;new&gt;.\n</description>\n<source>\nextra\n</source>"
        in text
    )
    assert text.startswith("<available_skills>\n<skill>\n")
    assert text.endswith("</skill>\n</available_skills>")


@pytest.mark.parametrize("form", ["list", "xml"])
@pytest.mark.parametrize("budget", [0, 150, 250, 400, 500, 700, 1000, 100_000])
def test_budget(root: Path, form: Form, budget: int) -> None:
    skills = library(root)
    full = render_catalogue(skills, form=form, budget=10**9)
    found = render_catalogue(skills, form=form, budget=budget)
    least = len(render_catalogue(skills, form=form, budget=0).text)  # the note alone
    assert len(found.text) <= max(budget, least)
    if budget == 100_000:
        assert found == full
    else:
        assert "search_skills looks through all" in found.text
        assert found.shortened
        unlisted = re.search(r"(\d) of 3 skills are not listed", found.text)
        named = [skill for skill in skills if re.search(rf"name[=>]\s*{skill.name}\b", found.text)]
        assert len(named) == len(skills) - int(unlisted[1] if unlisted else 0)


def many(count: int) -> list[Skill]:
    return [
        Skill(f"skill-{n:05d}", f"What number {n} does, at some length. " * 5, source="user", root="/r")
        for n in reversed(range(count))
    ]


@pytest.mark.parametrize("form", ["list", "xml"])
@pytest.mark.parametrize("budget", [32_000, 80_000])
def test_ten_thousand_skills_stay_within_the_budget(form: Form, budget: int) -> None:
    found = render_catalogue(many(10_000), form=form, budget=budget)
    assert budget * 0.9 < len(found.text) <= budget
    listed = re.findall(r"skill-\d{5}", found.text)
    assert listed == sorted(set(listed))
    assert f"{10_000 - len(listed):,} of 10,000 skills are not listed; search_skills" in found.text


def test_sorted_by_name_whatever_the_order() -> None:
    skills = many(50)
    assert render_catalogue(skills) == render_catalogue(skills[::-1])


def test_short_descriptions_stay_whole_and_long_ones_share_the_rest(root: Path) -> None:
    text = render_catalogue(library(root), budget=500).text
    assert "description=Brief & <new>." in text
    lengths = [len(line.partition("description=")[2]) for line in text.splitlines() if "name=long" in line]
    assert abs(lengths[0] - lengths[1]) <= 2
    assert text.count("…") == 2


def test_no_skills_no_catalogue() -> None:
    assert render_catalogue([], form="xml").text == render_catalogue([], form="list").text == ""
