"""A8: a skill is meant by group/name, by source:name and by its source, in every tool and every command."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support import Place, write_skill
from vademecum import SkillNotFound, Toolkit
from vademecum.policy.engine import AllowAll

SCRIPT = "print('{}')\n"


@pytest.fixture
def namesakes(place: Place) -> Place:
    """Three skills called pdf: of the project, and of two groups of the user."""
    for base, directory, text in (
        (place.cwd, "pdf", "of the project"),
        (place.home, "acme/pdf", "of acme"),
        (place.home, "beta/pdf", "of beta"),
    ):
        root = base / ".agent" / "skills"
        made = write_skill(
            root, directory, f"---\nname: pdf\ndescription: It is {text}.\n---\nI am {text}.\n"
        )
        for file, content in (("references/a.md", text), ("scripts/a.py", SCRIPT.format(text))):
            (made / file).parent.mkdir()
            (made / file).write_text(content)
    return place


REFERENCES = [
    ({"name": "acme/pdf"}, "of acme"),
    ({"name": "beta/pdf", "source": "user"}, "of beta"),
    ({"name": "@acme/pdf"}, "of acme"),
    ({"name": "user:beta/pdf"}, "of beta"),
    ({"name": "project:pdf"}, "of the project"),
    ({"name": "PDF", "source": "project"}, "of the project"),
]


@pytest.mark.parametrize(("meant", "text"), REFERENCES)
def test_in_every_tool(namesakes: Place, meant: dict[str, str], text: str) -> None:
    kit = Toolkit(namesakes.build(), policy=AllowAll(), context=namesakes.context)
    skill = {"skill": meant["name"], "source": meant.get("source", "")}
    assert f"I am {text}." in kit.call("skill", meant).text
    assert f"It is {text}." in kit.call("load_skill", meant).text
    assert kit.call("load_skill_asset", {**skill, "relative_path": "references/a.md"}).text == text
    path = kit.call("get_skill_script_path", {**skill, "relative_path": "a.py"}).text
    assert Path(path).read_text() == SCRIPT.format(text)
    assert json.loads(kit.call("list_skill_assets", skill).text) == ["references/a.md", "scripts/a.py"]
    assert text in kit.call("run_script", {**skill, "relative_path": "a.py"}).text
    assert kit.call("unload_skill", skill).ok
    assert kit.session.active == ()


@pytest.mark.parametrize(("meant", "text"), REFERENCES)
def test_in_every_command(namesakes: Place, meant: dict[str, str], text: str) -> None:
    name = meant["name"]
    source = ["--source", meant["source"]] if "source" in meant else []
    assert text in namesakes.vade("inspect", name, *source, "--json").json["description"]
    assert f"I am {text}." in namesakes.vade("show", name, *source).out
    assert namesakes.vade("show", name, *source, "--asset", "references/a.md").out.strip() == text
    assert namesakes.vade("exec", "--yes", *source, name, "a.py").out.strip() == text
    if not source:
        assert namesakes.vade("export", name, "--output", "x.zip").code == 0
        with zipfile.ZipFile(namesakes.cwd / "x.zip") as packed:
            assert text in packed.read("pdf/SKILL.md").decode()
        assert namesakes.vade("eval", "init", name).code == 0


def test_a_source_that_contradicts_the_name_finds_nothing(namesakes: Place) -> None:
    index = namesakes.build()
    for name, source in (("project:pdf", "user"), ("builtin:pdf", None), ("acme/pdf", "project")):
        with pytest.raises(SkillNotFound):
            index.get(name, source=source)
