"""The calls as tools for a model: names, descriptions and parameters, in three dialects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from vademecum.errors import ConfigError
from vademecum.nearest import there_is_no
from vademecum.tools.calls import CALLS, DIRECT_TOOLS, schema_of

Dialect = Literal["openai", "anthropic", "mcp"]
# The key for the parameters of a tool in each dialect.
_PARAMETERS = {"openai": "parameters", "anthropic": "input_schema", "mcp": "inputSchema"}

# The calls for skills that a model is offered. `load_skill` is accepted too; a model needs only one of them.
SKILL_TOOLS = (
    "skill",
    "unload_skill",
    "search_skills",
    "load_skill_asset",
    "get_skill_script_path",
    "list_skill_assets",
    "run_script",
)
ALL_TOOLS = (*SKILL_TOOLS, *DIRECT_TOOLS)
# The most characters of the list of skills in a description: 2 % of a context window of 200,000 tokens.
LISTED_BUDGET = 16_000


def schemas(
    dialect: Dialect, *, names: Iterable[str] = SKILL_TOOLS, catalogue: str = ""
) -> list[dict[str, Any]]:
    """Return the tools in the form that an API expects.

    A ``catalogue`` is added to the description of the tool that loads a skill. The same skills give the same
    text, so prompt caches work.

    >>> [tool["name"] for tool in schemas("anthropic", names=["skill", "search_skills"])]
    ['skill', 'search_skills']
    """
    if dialect not in _PARAMETERS:
        raise ConfigError(there_is_no("dialect", dialect, _PARAMETERS))
    return [_schema(name, dialect, catalogue) for name in names]


def _schema(name: str, dialect: Dialect, catalogue: str) -> dict[str, Any]:
    parameters = CALLS[name]
    description = " ".join((parameters.__doc__ or "").split())
    if catalogue and name == "skill":
        description = f"{description}\n\n{catalogue}"
    found = {"name": name, "description": description, _PARAMETERS[dialect]: schema_of(parameters)}
    return {"type": "function", "function": found} if dialect == "openai" else found
