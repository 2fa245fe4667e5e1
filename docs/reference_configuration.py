"""The types of the configuration → a page: every key, its type, its default, its meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from docs.reference_words import Say, table
from vademecum.config import Config, PermissionRule

_ADDS, _USERS, _TIGHTENS, _WINS, _UNSET = "adds", "user only", "tightens", "wins", "if unset"

# Key → what it means, and what a project's file does to it.
_MEANINGS = {
    "skill_roots": (
        "more directories of skills; relative ones belong to the directory that holds `.agent`, `~` is the home",
        _WINS,
    ),
    "precedence": (
        "the order of the levels, highest first; levels that are not named follow in the usual order",
        _UNSET,
    ),
    "compatibility_roots": ("which other tools' directories are searched", _WINS),
    "package_skills": (
        "skills that installed Python packages bring: `true` for all, or a list of distribution names",
        _WINS,
    ),
    "lenient": (
        "repair what can be repaired instead of leaving it out ([how](../documents.md#strict-and-lenient))",
        _WINS,
    ),
    "scan.follow_links": ("follow linked directories and linked documents; loops end by themselves", _WINS),
    "scan.max_depth": ("how many groups deep a skill may lie, 1 to 64", _WINS),
    "scan.max_directories": ("how many directories of one root are looked at", _WINS),
    "search.index_bodies": (
        "let search look through the bodies of skills, not only names and descriptions",
        _WINS,
    ),
    "model.provider": (
        "the [model](../agent.md#models) when no `--model` is given, such as `openai:NAME`",
        _USERS,
    ),
    "model.params": (
        "what the model is given: `base_url`, `timeout`, `temperature`, `protocol` (`tools` or `json`), …",
        _USERS,
    ),
    "model.services": (
        'more services by name: `{"mine": {"base_url": "https://…/v1", "key": "MINE_API_KEY"}}`',
        _USERS,
    ),
    "model.prices": (
        'prices of a million tokens by model: `{"mine:big": {"input": 1.0, "output": 4.0, "cached": 0.1, "currency": "USD"}}`',
        _USERS,
    ),
    "budget.turns": ("most calls of the model in a run", _TIGHTENS),
    "budget.tool_calls": ("most calls of tools in a run", _TIGHTENS),
    "budget.script_runs": ("most scripts in a run", _TIGHTENS),
    "budget.context_tokens": ("most tokens of one request to the model", _TIGHTENS),
    "execution.require_approval_for": (
        "tools that need approval whatever the rules allow, besides those of high risk",
        _ADDS,
    ),
    "execution.sandbox": ("what confines scripts ([sandboxes](../tools.md#sandboxes))", _USERS),
    "execution.environment": (
        "variables that scripts get besides `HOME`, `TMPDIR`, `PATH` and `LANG`",
        _USERS,
    ),
    "execution.build_packages": (
        "whether packages of scripts that have no wheel are built from source, in the sandbox",
        _USERS,
    ),
    "execution.seconds": ("how long a script may take", _TIGHTENS),
    "execution.memory_mb": ("how much memory it may use", _TIGHTENS),
    "execution.disk_mb": ("how much it may write", _TIGHTENS),
    "execution.processes": ("how many processes it may have", _TIGHTENS),
    "runs.keep_model_text": (
        "keep what the model wrote in the [record](../agent.md#the-record); else its hash",
        _WINS,
    ),
    "security.max_skill_body_lines": (
        "a longer body is not handed over, and gets a remark from `vade validate`",
        _TIGHTENS,
    ),
    "security.block_angle_brackets_in_frontmatter": ("refuse `<` and `>` in what a model sees", _TIGHTENS),
    "security.require_signatures": (
        "where only skills that a trusted key signed may be installed",
        _ADDS,
    ),
    "permissions": ("rules; the last one that matches wins ([permissions](../permissions.md))", _ADDS),
    "agents": ("rules for one agent by its name: `{NAME: {permissions: […]}}`", _ADDS),
}

_PROJECT = [
    (_WINS, "what the project writes holds"),
    (_ADDS, "what the project writes is added; its `allow` rules count once the folder is trusted"),
    (_TIGHTENS, "the stricter of both holds"),
    (_USERS, "what a project writes is not used"),
    (_UNSET, "what the project writes holds if the user did not set the key"),
]

_IN_A_PROJECT = "In a project's file"

_RULE = {
    "permission": "what is asked for, such as `skill` or `script`; wildcards are possible",
    "pattern": "which names it is about: `*` is any run of characters, `?` is one",
    "effect": "what then happens",
    "match": "examples that the pattern must match; checked when the file is read",
    "not_match": "examples that it must not match; checked when the file is read",
}


def configuration_page(say: Say) -> str:
    """The whole page: one table for what stands at the top of a file, one for each section in it."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    known = set()
    for key, type_, default in _keys():
        meaning, project = _MEANINGS[key]
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append((f"`{name}`", type_, f"`{default}`", project, meaning))
        known.add(key)
    assert known == set(_MEANINGS), known ^ set(_MEANINGS)
    intro = (
        "Every key of `config.json` and `config.toml`, from the types that check them. What the files are and how they "
        "are merged is in [configuration](../configuration.md)."
    )
    about_rules = "An entry of `permissions`. [Permissions](../permissions.md) says how rules are matched."
    about_projects = "What a project may do with a key that its user has set, or left at its default:"
    parts = [f"# {say('Settings')}\n", say(intro) + "\n"]
    for section, rows in sections.items():
        parts += [
            f"## {section or say('At the top')}\n",
            table("key | type | default | project | meaning", rows),
        ]
    parts += [
        f"## {say(_IN_A_PROJECT)}\n",
        say(about_projects) + "\n",
        table("project | what it means", _PROJECT),
        f"## {say('A rule')}\n",
        say(about_rules) + "\n",
        table(
            "key | type | default | meaning",
            [
                (f"`{field.name}`", _type(field), _rule_default(field), _RULE[field.name])
                for field in dataclasses.fields(PermissionRule)
            ],
        ),
    ]
    return "\n".join(parts)


def _keys() -> Iterator[tuple[str, str, str]]:
    defaults = Config()
    for field in dataclasses.fields(Config):
        value = getattr(defaults, field.name)
        if not dataclasses.is_dataclass(value):
            yield field.name, _type(field), _written(value)
            continue
        for inner in dataclasses.fields(value):
            yield f"{field.name}.{inner.name}", _type(inner), _written(getattr(value, inner.name))


def _type(field: dataclasses.Field[Any]) -> str:
    """The type as it is written in the file; names of choices stand for what they are."""
    names = {
        "tuple[str, ...]": "list of texts",
        "bool | tuple[str, ...]": "true, false or a list of texts",
        "tuple[Level, ...]": "list of project, user, package, builtin",
        "tuple[Compatible, ...]": "list of agents, claude, opencode, github, gemini, codex",
        "tuple[Literal['project', 'user'], ...]": "list of project, user",
        "Literal['allow', 'ask', 'deny']": "allow, ask or deny",
        "SandboxName": "auto, bubblewrap, landlock or none",
        "dict[str, Any]": "object",
        "dict[str, AgentSettings]": "object",
        "dict[str, ServiceSettings]": "object",
        "dict[str, PriceSettings]": "object",
        "tuple[PermissionRule, ...]": "list of rules",
        "bool": "true or false",
        "int": "whole number",
        "str": "text",
    }
    return names[str(field.type).replace('"', "'")]


def _rule_default(field: dataclasses.Field[Any]) -> str:
    return "required" if field.default is dataclasses.MISSING else f"`{_written(field.default)}`"


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
