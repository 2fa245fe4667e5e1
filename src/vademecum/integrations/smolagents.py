"""smolagents: skills as tools."""

from __future__ import annotations

from typing import Any

from smolagents import Tool

from vademecum.integrations.toolkit import Toolkit


def skill_tools(kit: Toolkit | None = None) -> list[Tool]:
    """Tools for ``ToolCallingAgent(tools=skill_tools(kit), model=…, instructions=kit.system_prompt())``.

    What went wrong is told to the model, and so is a person's no: this framework has no way to end a run
    from inside a tool.
    """
    kit = kit or Toolkit(client="smolagents")
    return [_SkillTool(kit, schema) for schema in kit.schemas("anthropic")]


class _SkillTool(Tool):
    skip_forward_signature_validation = True  # its parameters are those of the schema
    name = "skill"
    description = "A tool for skills."
    inputs: dict[str, Any] = {}  # noqa: RUF012 - as the base class wants it, and set for each
    output_type = "string"

    def __init__(self, kit: Toolkit, schema: dict[str, Any]) -> None:
        super().__init__()
        self._kit = kit
        self.name = schema["name"]
        self.description = schema["description"]
        accepted = schema["input_schema"]
        self.inputs = {
            name: _input(about, required=name in accepted.get("required", ()))
            for name, about in accepted["properties"].items()
        }

    def forward(self, **arguments: Any) -> str:
        """Call it; what was left out comes as nothing."""
        given = {name: value for name, value in arguments.items() if value is not None}
        result = self._kit.call(self.name, given)
        return result.text if result.ok else f"Error: {result.text}"


def _input(about: dict[str, Any], *, required: bool) -> dict[str, Any]:
    found = {"type": about["type"], "description": about.get("description", "")}
    return found if required else {**found, "nullable": True}
