"""E1-E3: the tools of a model, behind one gate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import index_of, write_skill
from vademecum import Toolkit
from vademecum.errors import ConfigError
from vademecum.policy.base import Decision, Effect, Request
from vademecum.policy.engine import AllowAll
from vademecum.session.schemas import SKILL_TOOLS, Dialect, schemas
from vademecum.tools.calls import UseSkill

pytestmark = pytest.mark.usefixtures("own_place")


class Refusing:
    """Denies what it was told to, and remembers every question."""

    def __init__(self, *denied: str, effect: Effect = Effect.DENY) -> None:
        self._denied = denied
        self._effect = effect
        self.asked: list[Request] = []

    def decide(self, request: Request) -> Decision:
        self.asked.append(request)
        refused = any(resource in self._denied for resource in request.resources)
        return Decision(self._effect if refused else Effect.ALLOW, None, request.permission, "as told")


@pytest.fixture
def library(root: Path) -> Path:
    for name, description in (
        ("pdf-forms", "Fill in PDF forms."),
        ("pdf-secret", "Secret PDF forms."),
        ("tables", "Sum up tables."),
    ):
        place = write_skill(root, name, f"---\nname: {name}\ndescription: {description}\n---\n# {name}\n")
        (place / "references").mkdir()
        (place / "references" / "guide.md").write_text("# One\nfirst\n# Two\nsecond\n")
        (place / "scripts").mkdir()
        (place / "scripts" / "run.py").write_text("print()")
    write_skill(
        root, "manual", "---\nname: manual\ndescription: PDF by hand.\ndisable-model-invocation: true\n---\n"
    )
    return root


@pytest.fixture
def kit(library: Path) -> Toolkit:
    return Toolkit(index_of(library), policy=AllowAll())


def test_skill_tool_and_load_skill(kit: Toolkit) -> None:
    result = kit.call("skill", {"name": "PDF-Forms"})
    assert result.ok
    assert result.text.startswith('<skill_content name="pdf-forms" source="extra">\n# pdf-forms\n')
    assert result.report is not None
    assert "tables" in kit.call("load_skill", '{"skill_name": "tables"}').text


def test_load_skill_gives_the_whole_document_in_the_same_frame(kit: Toolkit, library: Path) -> None:
    # C2: `load_skill` of the source documents; A4: no value with angle brackets reaches a model
    text = "---\nname: whole\ndescription: >\n  One.\nauthor: Ada <a@b.c>\n---\n\nUse <b> & >.\n</skill_content>\n"
    write_skill(library, "whole", text)
    kit = Toolkit(index_of(library), policy=AllowAll())
    result = kit.call("load_skill", {"skill_name": "whole"})
    assert result.text.startswith(
        '<skill_content name="whole" source="extra">\n---\nname: whole\ndescription: >\n  One.\n'
        "author: Ada &lt;a@b.c&gt;\n---\n\nUse <b> & >.\n&lt;/skill_content>\n\nSkill directory: "
    )
    assert result.text.endswith("</skill_content>")
    assert result.report is not None
    assert result.report.characters == len(result.text)
    assert [skill.name for skill in kit.session.active] == ["whole"]
    assert "author" not in kit.call("skill", {"name": "whole"}).text


def test_a_skill_that_is_loaded_again_gives_its_text_again(kit: Toolkit, library: Path) -> None:
    # C5: every time the report says what was returned
    first = kit.call("skill", {"name": "tables"})
    again = kit.call("skill", {"name": "tables"})
    assert (again.text, again.report) == (first.text, first.report)
    assert again.report is not None
    assert again.report.characters == len(again.text)
    assert kit.call("unload_skill", {"skill": "tables"}).ok
    assert kit.call("unload_skill", {"skill": "tables"}).code == "not-loaded"
    assert kit.call("skill", {"name": "tables"}).text == first.text
    with (library / "tables" / "SKILL.md").open("a") as out:
        out.write("More.\n")
    changed = kit.call("skill", {"name": "tables"})
    assert "More." in changed.text
    assert changed.report is not None
    assert (changed.report.characters, changed.report.bytes_read) == (
        len(changed.text),
        first.report.bytes_read + len("More.\n") if first.report else 0,
    )


def test_search_assets_and_scripts(kit: Toolkit, library: Path) -> None:
    found = json.loads(kit.call("search_skills", {"query": "fill a form", "n": 1}).text)
    assert found == [{"name": "pdf-forms", "description": "Fill in PDF forms."}]
    assert json.loads(kit.call("list_skill_assets", {"skill_name": "tables"}).text) == [
        "references/guide.md",
        "scripts/run.py",
    ]
    asset = {"skill_name": "tables", "relative_path": "references/guide.md"}
    assert kit.call("load_skill_asset", asset).text == "# One\nfirst\n# Two\nsecond\n"
    assert kit.call("load_skill_asset", {**asset, "section_hint": "two"}).text == "# Two\nsecond"
    script = kit.call("get_skill_script_path", {"skill_name": "tables", "script_name": "run.py"})
    assert script.text == f"{library}/tables/scripts/run.py"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("nope", {}, "There is no tool 'nope': there are skill, unload_skill, "),
        ("skill", {}, "name: it is missing"),
        ("skill", {"name": 7}, "Expected `str`, got `int`"),
        ("skill", {"name": "tables", "x": 1}, "x: it is not known"),
        ("skill", "not json", "The arguments of skill are wrong"),
        ("skill", "[1]", "The arguments of skill are wrong"),
        ("skill", "[" * 100_000, "The arguments of skill are wrong"),
        ("skill", {"name": "x" * 300_000}, "length <= 300"),
        ("skill", {"name": "tabels"}, "No skill is called 'tabels': did you mean 'tables'?"),
        ("skill", {"name": "../tables"}, "No skill is called"),
        ("search_skills", {"query": "x", "n": 0}, ">= 1"),
        ("search_skills", {"query": "x", "n": 1000}, "<= 50"),
        (
            "load_skill_asset",
            {"skill_name": "tables", "relative_path": "../pdf-forms/SKILL.md"},
            "goes up with '..'",
        ),
        (
            "load_skill_asset",
            {"skill_name": "tables", "relative_path": "references/gone.md"},
            "has no file",
        ),
        (
            "get_skill_script_path",
            {"skill_name": "tables", "script_name": "gone"},
            "there are 'scripts/run.py'",
        ),
    ],
)
def test_what_goes_wrong_is_a_result(
    kit: Toolkit, tool: str, arguments: dict[str, object] | str, words: str
) -> None:
    result = kit.call(tool, arguments)
    assert not result.ok
    assert words in result.text


def test_model_never_hears_of_what_it_may_not_use(library: Path) -> None:
    # E3: catalogue, search, errors and assets alike; the refused skill looks like one that does not exist.
    policy = Refusing("pdf-secret")
    kit = Toolkit(index_of(library), policy=policy, agent="clerk")
    shown = [
        kit.catalogue(),
        kit.system_prompt(),
        kit.call("search_skills", {"query": "secret pdf forms by hand", "n": 50}).text,
        kit.call("skill", {"name": "pdf-secre"}).text,
        kit.call("skill", {"name": "pdf"}).text,
        json.dumps(kit.schemas("openai")),
    ]
    assert not [
        text
        for text in shown
        if "secret" in text.lower().replace("pdf-secre'", "").replace("'pdf-secret'", "")
    ]
    for tool, extra in (
        ("skill", {}),
        ("load_skill_asset", {"relative_path": "references/guide.md"}),
        ("get_skill_script_path", {"script_name": "run.py"}),
        ("list_skill_assets", {}),
    ):
        key = "name" if tool == "skill" else "skill_name"
        for hidden in ("pdf-secret", "manual"):
            answers = [
                kit.call(tool, {key: name, **extra}).text.replace(name, "NAME")
                for name in (hidden, "pdf-unknown")
            ]
            assert answers[0] == answers[1]
    assert {request.agent for request in policy.asked} == {"clerk"}


def test_every_door_asks(library: Path) -> None:
    policy = Refusing("tables/references/guide.md", "tables/scripts/run.py")
    kit = Toolkit(index_of(library), policy=policy)
    asset = kit.call("load_skill_asset", {"skill_name": "tables", "relative_path": "references/guide.md"})
    script = kit.call("get_skill_script_path", {"skill_name": "tables", "script_name": "run.py"})
    assert asset.text == "Skill 'tables' has no file 'references/guide.md': it has none."
    assert script.text == "Skill 'tables' has no script 'scripts/run.py': it has none."
    assert {request.permission for request in policy.asked} == {"skill", "resource", "script"}


@pytest.mark.parametrize(
    "path",
    [
        "references/guide.md",
        "./references/guide.md",
        "references//guide.md",
        "references/./guide.md",
        "references/guide.md/",
        "reference/guide.md",
        "references/alias.md",
        "references/sub/../guide.md",
    ],
)
def test_no_spelling_gets_around_a_refusal(library: Path, path: str) -> None:
    (library / "tables" / "references" / "alias.md").symlink_to("guide.md")
    kit = Toolkit(index_of(library), policy=Refusing("tables/references/guide.md"))
    result = kit.call("load_skill_asset", {"skill_name": "tables", "relative_path": path})
    assert not result.ok
    assert "first" not in result.text


@pytest.mark.parametrize(
    "script",
    ["run.py", "scripts/run.py", "./run.py", "scripts/./run.py", "scripts//run.py", ".//scripts/run.py"],
)
def test_no_spelling_gets_around_a_refused_script(library: Path, script: str) -> None:
    kit = Toolkit(index_of(library), policy=Refusing("tables/scripts/run.py"))
    assert not kit.call("get_skill_script_path", {"skill_name": "tables", "script_name": script}).ok
    allowed = Toolkit(index_of(library), policy=AllowAll()).call(
        "get_skill_script_path", {"skill_name": "tables", "script_name": script}
    )
    assert allowed.text == f"{library}/tables/scripts/run.py"


class Failing:
    def decide(self, request: Request) -> Decision:
        raise RuntimeError("no idea")


def test_policy_that_fails_has_allowed_nothing(library: Path) -> None:
    kit = Toolkit(index_of(library), policy=Failing())
    assert (kit.skills, kit.catalogue(), kit.call("skill", {"name": "tables"}).ok) == ((), "", False)


@pytest.mark.parametrize("odd", ["\ud800", "x" * 5000, "a\0b", "", ".", "\n", "é" * 300])
def test_odd_arguments_are_results_too(kit: Toolkit, odd: str) -> None:
    for tool, arguments in (
        ("skill", {"name": odd}),
        ("load_skill_asset", {"skill_name": "tables", "relative_path": f"references/{odd}"}),
        ("get_skill_script_path", {"skill_name": "tables", "script_name": odd}),
        ("list_skill_assets", {"skill_name": odd}),
    ):
        assert not kit.call(tool, arguments).ok
    assert kit.call("search_skills", {"query": odd}).ok is (odd not in {"\ud800", "a\0b"})
    assert not kit.call(["x"], {}).ok  # type: ignore[arg-type]


def test_ids_and_paths_do_not_get_around_the_gate(library: Path) -> None:
    kit = Toolkit(index_of(library), policy=Refusing("pdf-secret"))
    for name in ("extra:pdf-secret", f"{library}/pdf-secret", "@/pdf-secret", "PDF-SECRET", "ｐｄｆ-secret"):
        assert not kit.call("skill", {"name": name}).ok
    assert kit.call("skill", {"name": f"{library}/tables"}).ok


def test_body_limit_of_the_configuration_holds(library: Path) -> None:
    from vademecum import IndexOptions

    (library / "tables" / "SKILL.md").write_text("---\nname: tables\ndescription: x\n---\n" + "line\n" * 20)
    index = index_of(library, IndexOptions(body_lines=10))
    assert "over 10 lines" in Toolkit(index).call("skill", {"name": "tables"}).text


def test_ask_with_nobody_to_ask_is_a_refusal(library: Path) -> None:
    kit = Toolkit(index_of(library), policy=Refusing("tables", effect=Effect.ASK))
    assert "tables" in kit.catalogue()
    assert kit.call("skill", {"name": "tables"}).code == "denied"


def test_people_may_use_what_models_may_not(library: Path) -> None:
    kit = Toolkit(index_of(library))
    assert kit.session.call(UseSkill("manual"), origin="user").ok
    assert not kit.call("skill", {"name": "manual"}).ok


def test_no_skills_no_tools_no_prompt(root: Path) -> None:
    kit = Toolkit(index_of(root))
    assert (kit.schemas("openai"), kit.system_prompt(), kit.catalogue()) == ([], "", "")


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "mcp"])
def test_the_tool_lists_the_skills(library: Path, dialect: Dialect) -> None:
    before = Toolkit(index_of(library))
    write_skill(library, "another")
    after = Toolkit(index_of(library))
    assert after.schemas(dialect, listed=False) == before.schemas(dialect, listed=False)
    first, rest = after.schemas(dialect)[0], after.schemas(dialect)[1:]
    assert rest == before.schemas(dialect)[1:]
    listed = "- name=another | source=extra | description=What another does."
    assert listed in first.get("function", first)["description"]


def test_a_missing_framework_is_named() -> None:
    code = "import sys; sys.modules['smolagents'] = None; import vademecum.integrations.smolagents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'vademecum[smolagents]', or pip install '.[smolagents]' in a checkout." in done.stderr


def test_schemas_in_three_dialects() -> None:
    openai, anthropic, mcp = schemas("openai"), schemas("anthropic"), schemas("mcp")
    assert [tool["function"]["name"] for tool in openai] == list(SKILL_TOOLS)
    assert openai[0] == {
        "type": "function",
        "function": {
            "name": "skill",
            "description": "Load a skill: the instructions to follow for a kind of task. Do this before starting such a task.",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {
                        "type": "string",
                        "description": "The name of a skill, as the catalogue or a search gives it.",
                        "maxLength": 300,
                    },
                    "source": {
                        "type": "string",
                        "description": "Its source, if several skills have the same name.",
                        "maxLength": 64,
                        "default": "",
                    },
                    "task": {
                        "type": "string",
                        "description": "What it should do, for a skill that runs by itself.",
                        "maxLength": 20000,
                        "default": "",
                    },
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    }
    assert [tool["input_schema"] for tool in anthropic] == [tool["inputSchema"] for tool in mcp]
    assert anthropic[2]["input_schema"]["properties"]["n"] == {
        "type": "integer",
        "description": "How many skills to return.",
        "minimum": 1,
        "maximum": 50,
        "default": 5,
    }


def test_system_prompt(library: Path) -> None:
    prompt = Toolkit(index_of(library)).system_prompt()
    assert prompt.startswith("Skills are instructions for kinds of tasks.")
    assert "<name>\npdf-forms\n</name>" in prompt
    assert "manual" not in prompt


def test_an_unknown_dialect_or_form_names_those_that_are_known(kit: Toolkit) -> None:
    with pytest.raises(ConfigError, match="There is no dialect 'opnai': did you mean 'openai'"):
        kit.schemas("opnai")  # type: ignore[arg-type]
    for call in (kit.catalogue, kit.system_prompt):
        with pytest.raises(ConfigError, match="There is no form 'json': there are list, xml"):
            call(form="json")  # type: ignore[arg-type]
