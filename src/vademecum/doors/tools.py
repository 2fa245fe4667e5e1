"""The tools a model is offered: their names, descriptions and parameters, in three dialects.

The descriptions stay the same while skills come and go, so that prompt caches hold; which skills there are
is said by the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, json

Dialect = Literal["openai", "anthropic", "mcp"]

RUN_SCRIPT = "run_skill_script"

SkillName = Annotated[str, Meta(description="The name of a skill, as the catalogue or a search gives it.")]


class _Parameters(Struct, forbid_unknown_fields=True):
    """Arguments of a tool, checked as they come in."""


class UseSkill(_Parameters):
    """Load a skill: the instructions to follow for a kind of task. Do this before starting such a task."""

    name: SkillName


class LoadSkill(_Parameters):
    """Load the instructions of a skill by its name, with the list of its files."""

    skill_name: SkillName


class SearchSkills(_Parameters):
    """Find the skills that fit a request, best first. Returns names and descriptions."""

    query: Annotated[str, Meta(description="What is to be done, in a few words, in any language.")]
    n: Annotated[int, Meta(description="How many skills to return.", ge=1, le=50)] = 5


class LoadSkillAsset(_Parameters):
    """Load one file of a skill: a reference, an asset or the text of a script."""

    skill_name: SkillName
    relative_path: Annotated[str, Meta(description="Its path below the skill, such as references/forms.md.")]
    section_hint: Annotated[str, Meta(description="A heading, to load only that section.")] = ""


class GetSkillScriptPath(_Parameters):
    """Get the absolute path of a script of a skill, to run it with another tool."""

    skill_name: SkillName
    script_name: Annotated[str, Meta(description="Its name below scripts/, such as compare.py.")]


class ListSkillAssets(_Parameters):
    """List the references, assets and scripts of a skill."""

    skill_name: SkillName


class RunSkillScript(_Parameters):
    """Run a script of a skill in a sandbox and get what it printed. A person may have to approve it."""

    skill_name: SkillName
    script_name: Annotated[str, Meta(description="Its name below scripts/, such as compare.py.")]
    arguments: Annotated[
        list[str], Meta(description="Its arguments; it may read the files they name.", max_length=20_000)
    ] = []
    files: Annotated[list[str], Meta(description="More files it may read.", max_length=1000)] = []
    network: Annotated[bool, Meta(description="Whether it needs the network.")] = False


Call = (
    UseSkill
    | LoadSkill
    | SearchSkills
    | LoadSkillAsset
    | GetSkillScriptPath
    | ListSkillAssets
    | RunSkillScript
)

TOOLS: dict[str, type[Call]] = {
    "skill": UseSkill,
    "load_skill": LoadSkill,
    "search_skills": SearchSkills,
    "load_skill_asset": LoadSkillAsset,
    "get_skill_script_path": GetSkillScriptPath,
    "list_skill_assets": ListSkillAssets,
    RUN_SCRIPT: RunSkillScript,
}


def schemas(dialect: Dialect, *, names: Iterable[str] = TOOLS) -> list[dict[str, Any]]:
    """The tools as that API wants them.

    >>> [tool["name"] for tool in schemas("anthropic", names=["load_skill", "search_skills"])]
    ['load_skill', 'search_skills']
    """
    return [_schema(name, TOOLS[name], dialect) for name in names]


def _schema(name: str, parameters: type[_Parameters], dialect: Dialect) -> dict[str, Any]:
    description = " ".join((parameters.__doc__ or "").split())
    accepted = _json_schema(parameters)
    match dialect:
        case "openai":
            function = {"name": name, "description": description, "parameters": accepted}
            return {"type": "function", "function": function}
        case "anthropic":
            return {"name": name, "description": description, "input_schema": accepted}
        case "mcp":
            return {"name": name, "description": description, "inputSchema": accepted}


def _json_schema(parameters: type[_Parameters]) -> dict[str, Any]:
    (schema,), components = json.schema_components([parameters])
    found = dict(components[schema["$ref"].rpartition("/")[2]])
    return {key: found[key] for key in ("type", "properties", "required", "additionalProperties")}
