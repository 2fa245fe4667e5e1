"""Read and merge ``config.json`` or ``config.toml``: the user's first, then the project's.

Reading is strict: an unknown key or a wrong type is an error that names the file, the key and what is
accepted. A project's file may tighten what the user set under ``security``, never loosen it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused
from vademecum.files import read_capped
from vademecum.nearest import meant, nearest
from vademecum.wildcards import matches

MAX_CONFIG_BYTES = 1024 * 1024
_BRANCH = re.compile(r"\[|^(?:bool|str|int)$")

# The maximum of each limit; the minimum is one.
_MOST = {
    "scan": {"max_depth": 64, "max_directories": 10**7},
    "budget": {"turns": 1000, "tool_calls": 100_000, "script_runs": 100_000, "context_tokens": 10_000_000},
    "execution": {"seconds": 86_400, "memory_mb": 1_000_000, "disk_mb": 1_000_000, "processes": 100_000},
    "security": {"max_skill_body_lines": 10**6},
}


class _Section:
    """A section of a file. pydantic reads it, and is imported only when there is a file to check."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    def __post_init__(self) -> None:
        """Refuse limits below one or above their maximum, all of them in one sentence."""
        section = type(self).__name__.removesuffix("Settings").lower()
        limits = [(key, getattr(self, key), most) for key, most in _MOST.get(section, {}).items()]
        wrong = [
            f"'{section}.{key}' is {value}: it should be from 1 to {most:,}"
            for key, value, most in limits
            if not 1 <= value <= most
        ]
        if wrong:
            raise ValueError("; ".join(wrong))


# Every permission that a rule can name, and every tool.
PERMISSIONS = (
    "skill", "resource", "script", "tool", "read", "write", "delete",
    "network", "private-network", "script-network", "command", "packages", "secret",
)  # fmt: skip
# Each tool with its risk and the permission that its use needs.
TOOLS: dict[str, tuple[Literal["low", "medium", "high"], str]] = {
    "read_file": ("low", "read"),
    "list_dir": ("low", "read"),
    "grep": ("low", "read"),
    "run_script": ("medium", "script"),
    "run_command": ("medium", "command"),
    "write_file": ("high", "write"),
    "edit_file": ("high", "write"),
    "save_output": ("high", "write"),
    "delete_file": ("high", "delete"),
    "network_request": ("high", "network"),
}
# Names that other documents use for the same tools.
_OTHER_TOOLS = {
    "network": "network_request",
    "write": "write_file",
    "delete": "delete_file",
    "script": "run_script",
    "command": "run_command",
    "edit": "edit_file",
}


def _known(word: str, known: Collection[str], what: str) -> None:
    """Refuse a word or pattern that matches none of the known words."""
    if not any(matches(word, each) for each in known):
        hint = meant(nearest(word, known), otherwise=f"there are {', '.join(known)}")
        raise ValueError(f"there is no {what} {word!r}: {hint}")


Compatible = Literal["agents", "claude", "opencode", "github", "gemini", "codex"]
COMPATIBLE: tuple[Compatible, ...] = ("agents", "claude", "opencode", "github", "gemini", "codex")

Level = Literal["project", "user", "package", "builtin"]
LEVELS: tuple[Level, ...] = ("project", "user", "package", "builtin")


@dataclass(frozen=True, slots=True)
class ScanSettings(_Section):
    """Limit how far discovery goes in one root."""

    follow_links: bool = True
    max_depth: int = 6
    max_directories: int = 200_000


@dataclass(frozen=True, slots=True)
class SearchSettings(_Section):
    """Choose the text that is searched."""

    index_bodies: bool = True


@dataclass(frozen=True, slots=True)
class ServiceSettings(_Section):
    """A service that speaks the OpenAI protocol: its address, and the variable that contains its key."""

    base_url: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class PriceSettings(_Section):
    """Give the price of a million tokens: input, input that came from a cache, and output."""

    input: float
    output: float
    cached: float | None = None
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class ModelSettings(_Section):
    """Choose the model and its parameters; add services by name, and prices by KIND:NAME."""

    provider: str = "offline"
    params: dict[str, Any] = field(default_factory=dict)
    services: dict[str, ServiceSettings] = field(default_factory=dict)
    prices: dict[str, PriceSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BudgetSettings(_Section):
    """Limit what a run may use; a project may only lower the limits."""

    turns: int = 12
    tool_calls: int = 30
    script_runs: int = 10
    context_tokens: int = 100_000


SandboxName = Literal["auto", "bubblewrap", "landlock", "none"]


@dataclass(frozen=True, slots=True)
class ExecutionSettings(_Section):
    """Choose what needs approval, and the sandbox and limits of scripts.

    A project may add approvals and lower the limits. Only the user can set the rest.
    """

    require_approval_for: tuple[str, ...] = ()
    sandbox: SandboxName = "auto"
    environment: tuple[str, ...] = ()
    # Packages of scripts without a wheel are built from source, in the sandbox and with the network.
    build_packages: bool = False
    seconds: int = 60
    memory_mb: int = 1024
    disk_mb: int = 512
    processes: int = 64

    def __post_init__(self) -> None:
        """Refuse unknown tools, and limits below one or above the maximum."""
        careful = tuple(_OTHER_TOOLS.get(tool, tool) for tool in self.require_approval_for)
        object.__setattr__(self, "require_approval_for", careful)
        for tool in careful:
            _known(tool, TOOLS, "tool")
        _Section.__post_init__(self)


@dataclass(frozen=True, slots=True)
class RunsSettings(_Section):
    """Choose what the record of a run contains. If the model's text is left out, its hash is recorded."""

    keep_model_text: bool = True


@dataclass(frozen=True, slots=True)
class SecuritySettings(_Section):
    """Set limits that a project may tighten and only the user may loosen."""

    max_skill_body_lines: int = 500
    block_angle_brackets_in_frontmatter: bool = True
    require_signatures: tuple[Literal["project", "user"], ...] = ()


@dataclass(frozen=True, slots=True)
class PermissionRule(_Section):
    """Allow, ask about or deny what matches a pattern; the last rule that matches wins."""

    permission: str
    pattern: str
    effect: Literal["allow", "ask", "deny"]
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown words, and a rule whose examples contradict its pattern."""
        _known(self.permission, PERMISSIONS, "permission")
        if self.permission == "tool":
            _known(self.pattern, TOOLS, "tool")
        wrong = [text for text in self.match if not matches(self.pattern, text)]
        if wrong:
            raise ValueError(f"the pattern {self.pattern!r} does not match its example {wrong[0]!r}")
        wrong = [text for text in self.not_match if matches(self.pattern, text)]
        if wrong:
            raise ValueError(f"the pattern {self.pattern!r} matches {wrong[0]!r}, which it should not")


@dataclass(frozen=True, slots=True)
class AgentSettings(_Section):
    """Give the settings of one agent; the section is named after the agent."""

    permissions: tuple[PermissionRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Config(_Section):
    """The settings of all configuration files together, with defaults for the rest.

    >>> Config().security.max_skill_body_lines
    500
    """

    skill_roots: tuple[str, ...] = ()
    # The order of the levels, highest first; a level that is not named follows in the usual order.
    precedence: tuple[Level, ...] = LEVELS
    compatibility_roots: tuple[Compatible, ...] = COMPATIBLE
    package_skills: bool | tuple[str, ...] = False
    lenient: bool = False
    scan: ScanSettings = ScanSettings()
    search: SearchSettings = SearchSettings()
    model: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    execution: ExecutionSettings = ExecutionSettings()
    runs: RunsSettings = RunsSettings()
    security: SecuritySettings = SecuritySettings()
    permissions: tuple[PermissionRule, ...] = ()
    agents: dict[str, AgentSettings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a root that cannot be a path, and a level that is named twice."""
        if len(set(self.precedence)) < len(self.precedence):
            raise ValueError("'precedence' names a level twice: name each level once")
        if any("\0" in root or not root for root in self.skill_roots):
            raise ValueError("'skill_roots' contains a text that cannot be a path: name a directory")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The merged settings, the rules a project adds once it is trusted, and the files they come from."""

    settings: Config
    user: Config = Config()
    # Messages number the rules as the file does, so an `allow` that has no effect keeps its place.
    project: Config = Config()
    project_file: Path | None = None
    files: tuple[Path, ...] = ()
    user_roots: tuple[Path, ...] = ()
    project_roots: tuple[Path, ...] = ()
    # Keys of the project's file that only the user's file can set or raise.
    without_effect: tuple[str, ...] = ()

    @property
    def loosening(self) -> tuple[PermissionRule, ...]:
        """Return the project's rules that apply only if its folder is trusted."""
        agents = [rule for agent in self.project.agents.values() for rule in agent.permissions]
        return tuple(rule for rule in (*self.project.permissions, *agents) if rule.effect == "allow")


def load_config(context: Context) -> LoadedConfig:
    """Read the user's configuration, then the nearest project's, and merge them.

    >>> nowhere = Context(cwd=Path("/nonexistent/app"), home=Path("/nonexistent/me"), env={})
    >>> loaded = load_config(nowhere)
    >>> loaded.settings == Config(), loaded.files
    (True, ())
    """
    user_file = _config_file(context.home)
    project_file = next(filter(None, map(_config_file, context.project_directories())), None)
    if user_file is None and project_file is None:
        return LoadedConfig(Config())
    user = _read(user_file) if user_file else {}
    project = _read(project_file) if project_file else {}
    # Each file is checked separately, so that a message names the right one.
    users, projects = _check(user, user_file), _check(project, project_file)
    merged = _merge(user, project)
    return LoadedConfig(
        _check(merged, None),
        users,
        projects,
        project_file=project_file,
        files=tuple(file for file in (user_file, project_file) if file),
        user_roots=_roots_of(user, user_file, context),
        project_roots=_roots_of(project, project_file, context),
        without_effect=tuple(_without_effect(project, merged)),
    )


def _config_file(place: Path) -> Path | None:
    names = ("config.json", "config.toml", "config.yaml", "config.yml")
    present = []
    for file in (place / ".agent" / name for name in names):
        try:
            os.lstat(file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            words = f"{file} cannot be looked for ({error.strerror})"
            raise ConfigError(f"{words}: check the permissions.") from error
        if file.suffix in {".yaml", ".yml"}:
            raise ConfigError(f"{file} is not read: write config.json or config.toml.")
        present.append(file)
    if len(present) > 1:
        raise ConfigError(f"Both {present[0]} and {present[1]} exist: keep one of them.")
    return present[0] if present else None


def _read(file: Path) -> dict[str, Any]:
    try:
        text = read_capped(file, cap=MAX_CONFIG_BYTES).decode("utf-8-sig")
        if file.suffix == ".json":
            data = _json(text)
        else:
            import tomllib  # noqa: PLC0415 - only for the few who write TOML

            # Through JSON, so that both formats are checked by one set of rules (dates become text).
            data = json.loads(json.dumps(tomllib.loads(text), default=str))
    except (OSError, FileRefused) as error:
        raise ConfigError(f"{file} cannot be read ({error}): repair or remove it.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid {file.suffix[1:].upper()} ({error}): correct it.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must contain an object: write {{}} for no settings.")
    return data


def once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return an object; refuse a repeated key, because one of its values would be lost."""
    keys: set[Any] = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {str(key)[:80]!r} appears twice")
        keys.add(key)
    return dict(pairs)


def _json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def _check(data: dict[str, Any], file: Path | None) -> Config:
    """Validate one file's settings and report all of its problems at once."""
    if not data:
        return Config()
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - 40 ms, only with a file to check

    try:
        return TypeAdapter(Config).validate_json(json.dumps(data))
    except ValidationError as error:
        raise ConfigError(f"{file}: {'; '.join(_explain(error.errors()))}.") from error


def _merge(user: dict[str, Any], project: dict[str, Any]) -> dict[str, Any]:
    """Let the project's settings win, key by key, unless that would loosen the user's security."""
    merged = {**user, **project}
    # Only the user chooses which model, at which address, gets the user's words and keys.
    merged["model"] = user.get("model", {})
    # A project must not move its skills above those that the user put first.
    if "precedence" in user:
        merged["precedence"] = user["precedence"]
    for section in ("scan", "search", "runs"):
        if section in merged:
            merged[section] = {**user.get(section, {}), **project.get(section, {})}
    # Here a project may only tighten.
    for section in ("budget", "execution", "security"):
        users = {**dataclasses.asdict(getattr(Config(), section)), **user.get(section, {})}
        alone = ("sandbox", "environment", "build_packages")  # are the user's to set
        written = {key: value for key, value in project.get(section, {}).items() if key not in alone}
        stricter = {key: _stricter(value, users[key]) for key, value in written.items()}
        merged[section] = {**user.get(section, {}), **stricter}
    # A project may add `ask` and `deny`. Its `allow` rules wait until the user trusts the folder.
    careful = [rule for rule in project.get("permissions", ()) if rule["effect"] != "allow"]
    merged["permissions"] = [*user.get("permissions", ()), *careful]
    return merged


def _without_effect(project: dict[str, Any], merged: dict[str, Any]) -> Iterator[str]:
    """Yield the settings of a project that the merged configuration does not contain."""
    yield from (key for key in ("model", "precedence") if key in project and project[key] != merged.get(key))
    for section in ("scan", "search", "budget", "execution", "runs", "security"):
        for key, value in project.get(section, {}).items():
            found = merged[section].get(key)
            if found != value and not (isinstance(value, list) and found and set(value) <= set(found)):
                yield f"{section}.{key}"


def _stricter(value: Any, limit: Any) -> Any:
    """Return the stricter of two settings: true over false, both lists together, the lower number."""
    if isinstance(value, bool):
        return value or limit
    return list(dict.fromkeys([*limit, *value])) if isinstance(value, list) else min(value, limit)


def _roots_of(data: dict[str, Any], file: Path | None, context: Context) -> tuple[Path, ...]:
    if file is None:
        return ()
    # Relative roots are below the directory that contains `.agent`.
    return tuple(context.expand(root, base=file.parent.parent) for root in data.get("skill_roots", ()))


def _explain(details: Sequence[Any]) -> list[str]:
    """Return a sentence for each problem: the key, the value found, and what is accepted."""
    sentences: dict[str, str] = {}
    for detail in details:
        unknown = detail["type"] == "unexpected_keyword_argument"
        # A step such as `tuple[str, ...]` or `bool` is the branch of a union and not a key.
        place = [part for part in map(str, detail["loc"]) if unknown or not _BRANCH.search(part)]
        key = ".".join(place)
        accepted = detail["msg"].removeprefix("Input should be ")
        if unknown:
            sentences[key] = f"unknown key {key!r}{_suggestion(place)}"
        elif detail["type"] == "json_invalid":
            sentences[key] = "it is nested too deeply or contains half a character: correct it"
        elif detail["type"] == "missing":
            sentences[key] = f"{key!r} is missing: add it"
        elif detail["type"] == "value_error":
            sentences[key] = accepted.removeprefix("Value error, ")
        elif key in sentences:  # another branch of a union
            sentences[key] += f" or {accepted}"
        else:
            found = json.dumps(detail["input"], ensure_ascii=False)[:60]
            sentences[key] = f"{key!r} is {found}: it should be {accepted}"
    return list(sentences.values())


def _suggestion(place: list[str]) -> str:
    owner: Any = Config
    if "permissions" in place[:-1]:
        owner = PermissionRule
    elif place[0] == "agents" and len(place) > 2:
        owner = AgentSettings
    elif len(place) > 1:
        owner = type(getattr(Config(), place[0]))
    known = [f.name for f in dataclasses.fields(owner)]
    near = nearest(place[-1], known)
    hint = f", {meant(near, otherwise='')}" if near else ""
    return f"{hint} (accepted: {', '.join(known)})"
