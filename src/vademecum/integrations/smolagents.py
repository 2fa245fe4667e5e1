"""Offer skills to smolagents as tools."""

from __future__ import annotations

from typing import Any

from vademecum.integrations.toolkit import Toolkit, extra, told

with extra("smolagents"):
    from smolagents import Tool


def skill_tools(kit: Toolkit | None = None) -> list[Tool]:
    """Return tools for ``ToolCallingAgent(tools=skill_tools(), model=…)``.

    This framework cannot wait for an approval, so a toolkit without an approver refuses calls that need one.
    The model gets errors and the refusals of an approver as text: a tool cannot end a run.
    """
    kit = kit or Toolkit(client="smolagents")
    return [_SkillTool(kit, schema) for schema in kit.schemas("anthropic")]


class _SkillTool(Tool):
    skip_forward_signature_validation = True  # its parameters are those of the schema
    name = "skill"
    description = "A tool for skills."
    inputs: dict[str, Any] = {}  # noqa: RUF012 - required by the base class, and set for each tool
    output_type = "string"

    def __init__(self, kit: Toolkit, schema: dict[str, Any]) -> None:
        super().__init__()
        self._kit = kit
        self.name = schema["name"]
        self.description = schema["description"]
        accepted = schema["input_schema"]
        self.inputs = {}
        for name, about in accepted["properties"].items():
            self.inputs[name] = {"type": about["type"], "description": about.get("description", "")}
            if name not in accepted.get("required", ()):
                self.inputs[name]["nullable"] = True

    def forward(self, **arguments: Any) -> str:
        """Call the tool without the arguments that are None."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return told(self._kit.call(self.name, given))
