"""All calls of a session, one type for each, which also defines its schema and parsing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from vademecum.config import TOOLS, once
from vademecum.errors import ToolRefused
from vademecum.nearest import meant, nearest, there_is_no

if TYPE_CHECKING:
    from vademecum.tools.exchange import Output

MAX_ARGUMENTS = 20_000
MAX_ARGUMENT_CHARS = 200_000
MAX_CONTENT_CHARS = 10 * 1024 * 1024
MAX_STDIN_CHARS = 1024 * 1024

_HALF = re.compile("[\ud800-\udfff]")

PathText = Annotated[str, Meta(description="A path relative to the project.", max_length=4096)]
Argument = Annotated[str, Meta(max_length=MAX_ARGUMENT_CHARS)]
SkillName = Annotated[
    str, Meta(description="The name of a skill, as the catalogue or a search gives it.", max_length=300)
]

ScriptPath = Annotated[str, Meta(description="Its path, such as scripts/compare.py.", max_length=4096)]
Hosts = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=300)]],
    Meta(description="Hosts it must reach, such as api.github.com or host:8080.", max_length=50),
]
Stdin = Annotated[str, Meta(description="Its standard input.", max_length=MAX_STDIN_CHARS)]
Source = Annotated[str, Meta(description="Its source, if several skills have the same name.", max_length=64)]


class Parameters(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of a call."""


class UseSkill(Parameters):
    """Load a skill: the instructions to follow for a kind of task. Do this before starting such a task."""

    name: SkillName
    source: Source = ""
    task: Annotated[
        str, Meta(description="What it should do, for a skill that runs by itself.", max_length=20_000)
    ] = ""


class LoadSkill(UseSkill):
    """Load a skill with its frontmatter: ``load_skill``, as other documents call it."""


class UnloadSkill(Parameters):
    """Stop using a loaded skill. Use this when its part of the task is done."""

    skill: SkillName
    source: Source = ""


class SearchSkills(Parameters):
    """Find the skills that fit a request, best first, with their descriptions.

    Use this when the catalogue shows no skill for the task.
    """

    query: Annotated[
        str, Meta(description="What is to be done, in a few words, in any language.", max_length=20_000)
    ]
    n: Annotated[int, Meta(description="How many skills to return.", ge=1, le=50)] = 5


class LoadSkillAsset(Parameters):
    """Load one file of a skill: a reference, an asset or the text of a script.

    Use this when the instructions of the skill name the file.
    """

    skill: SkillName
    relative_path: Annotated[
        str, Meta(description="Its path below the skill, such as references/forms.md.", max_length=4096)
    ]
    section_hint: Annotated[
        str, Meta(description="A heading, to load only that section.", max_length=1000)
    ] = ""
    source: Source = ""


class GetSkillScriptPath(Parameters):
    """Get the absolute path of a script of a skill. Use this only to run it with another program's tool."""

    skill: SkillName
    relative_path: ScriptPath
    source: Source = ""


class ListSkillAssets(Parameters):
    """List the files of a skill: references, assets and scripts.

    Use this when the instructions do not name the file that is needed.
    """

    skill: SkillName
    source: Source = ""


class RunScript(Parameters):
    """Run a script of a loaded skill in a sandbox and get its output.

    Use this when the instructions of the skill name the script. A person may have to approve it.
    """

    skill: SkillName
    relative_path: ScriptPath
    args: Annotated[
        list[Argument],
        Meta(
            description="Its arguments. Files they name are copied for it, directories are shown read-only.",
            max_length=MAX_ARGUMENTS,
        ),
    ] = []
    files: Annotated[
        list[PathText], Meta(description="More files, directories or globs it needs.", max_length=1000)
    ] = []
    copy: Annotated[
        list[PathText],
        Meta(description="Directories to copy for it, so that it can change them.", max_length=100),
    ] = []
    network: Hosts = []
    stdin: Stdin = ""
    source: Source = ""


class RunCommand(Parameters):
    """Run a program in a sandbox, in the project, and get its output.

    Use this when the instructions give a command, or when no other tool does the job. A person may have to
    approve it.
    """

    argv: Annotated[
        list[Argument],
        Meta(
            description='The program and its arguments, such as ["git", "log"].',
            min_length=1,
            max_length=1000,
        ),
    ]
    reads: Annotated[
        list[PathText],
        Meta(description="Files or directories it reads; without them the whole project.", max_length=100),
    ] = []
    writes: Annotated[
        list[PathText], Meta(description="Files or directories that it may change.", max_length=100)
    ] = []
    network: Hosts = []
    stdin: Stdin = ""


class ReadFile(Parameters):
    """Read a text file, or a part of it by lines. Use this before you change or describe a file."""

    path: PathText
    first_line: Annotated[int, Meta(ge=1)] = 1
    lines: Annotated[int, Meta(ge=1, le=10_000)] = 2000


class ListDir(Parameters):
    """List a directory: names, with a slash after directories, and sizes.

    Use this when it is not known which files there are.
    """

    path: PathText = "."


class Grep(Parameters):
    """Find the lines that match a regular expression (RE2 syntax) in the files below a path.

    Use this to find a place without reading whole files.
    """

    pattern: Annotated[str, Meta(min_length=1, max_length=1000)]
    path: PathText = "."
    ignore_case: bool = False


class WriteFile(Parameters):
    """Write a text file, whole. Use this for a new file, or when most of a file changes.

    What was there before is shown as a difference in the record.
    """

    path: PathText
    content: Annotated[str, Meta(max_length=MAX_CONTENT_CHARS)]


class EditFile(Parameters):
    """Replace a text in a file by another. Use this for a small change.

    The old text must be in the file exactly once.
    """

    path: PathText
    old: Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT_CHARS)]
    new: Annotated[str, Meta(max_length=MAX_CONTENT_CHARS)]


class SaveOutput(Parameters):
    """Copy a file that a script made into the project. Use this when the task asks for the file."""

    output: Annotated[str, Meta(description="Its name, such as output:1/chart.png.", max_length=4200)]
    path: Annotated[
        str, Meta(description="Where to put it; without it, under its own name.", max_length=4096)
    ] = ""


class DeleteFile(Parameters):
    """Delete a file. Use this only when the task asks for it. The file is kept in the trash of the run."""

    path: PathText


class NetworkRequest(Parameters):
    """Send one HTTP request and read the answer. Use this when the task needs a page or an API."""

    url: Annotated[str, Meta(max_length=8192)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(max_length=1024 * 1024)] = ""


P = TypeVar("P", bound=Parameters)
SkillCall = UseSkill | UnloadSkill | SearchSkills | LoadSkillAsset | GetSkillScriptPath | ListSkillAssets
DirectCall = (
    ReadFile | ListDir | Grep | RunCommand | WriteFile | EditFile | SaveOutput | DeleteFile | NetworkRequest
)
Call = SkillCall | RunScript | DirectCall

# Calls about skills, then the tools in the order of their risk.
CALLS: dict[str, type[Call]] = {
    "skill": UseSkill,
    "unload_skill": UnloadSkill,
    "search_skills": SearchSkills,
    "load_skill_asset": LoadSkillAsset,
    "get_skill_script_path": GetSkillScriptPath,
    "list_skill_assets": ListSkillAssets,
    "run_script": RunScript,
    "read_file": ReadFile,
    "list_dir": ListDir,
    "grep": Grep,
    "run_command": RunCommand,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "save_output": SaveOutput,
    "delete_file": DeleteFile,
    "network_request": NetworkRequest,
}
# Accepted but not offered: a model needs only one way to load a skill.
_UNOFFERED: dict[str, type[Call]] = {"load_skill": LoadSkill}
NAMES: dict[type[Call], str] = {parameters: name for name, parameters in (CALLS | _UNOFFERED).items()}
# Tools that act on the project or the network directly, without a skill.
DIRECT_TOOLS = tuple(tool for tool in TOOLS if tool != "run_script")
# Names that other documents and protocols use for the same call or parameter.
_OTHER_CALLS = {"load_skill": "skill", "load_resource": "load_skill_asset"}
_OTHER_WORDS = {
    "name": "skill",
    "skill_name": "skill",
    "script": "relative_path",
    "script_name": "relative_path",
    "arguments": "args",
}


class Observation(Struct, frozen=True):
    """The result of a call: text for the model, and facts for programs.

    ``code`` is the code of the refusal or fault, or ``""``. If ``text`` is only a part, ``files`` contain the
    whole content.
    """

    tool: str
    text: str
    code: str = ""
    facts: dict[str, Any] = {}
    files: tuple[str, ...] = ()
    advice: str = ""
    outputs: tuple[Output, ...] = ()


def parse_call(
    name: object, arguments: Mapping[str, Any] | str, *, offered: Sequence[str] = tuple(CALLS)
) -> Call:
    """Check the arguments of a call and return it as its own type; an error lists every problem.

    >>> parse_call("read_file", {"path": "a.txt"})
    ReadFile(path='a.txt', first_line=1, lines=2000)
    >>> parse_call("list_skill_assets", {"skill": {"name": "pdf", "source": "user"}})
    ListSkillAssets(skill='pdf', source='user')
    >>> parse_call("grep", {"path": 1})
    Traceback (most recent call last):
    ...
    vademecum.errors.ToolRefused: The arguments of grep are wrong (pattern: it is missing; ...): correct them.
    """
    known = _OTHER_CALLS.get(name, name) if isinstance(name, str) else None
    if known is None or known not in offered:
        raise ToolRefused(there_is_no("tool", str(name)[:80], offered), code="no-tool")
    parameters = _UNOFFERED.get(str(name), CALLS[known])
    problems: list[str] = []
    try:
        given = json.loads(arguments, object_pairs_hook=once) if isinstance(arguments, str) else arguments
        call = convert(given, parameters, problems)
    except (ValueError, RecursionError) as error:
        problems, call = [str(error) or "they are nested too deeply"], None
    if call is None:
        text = f"The arguments of {name} are wrong ({'; '.join(problems)}): correct them."
        raise ToolRefused(text, code="arguments")
    return call


def convert(given: object, parameters: type[P], problems: list[str]) -> P | None:
    """Convert a JSON object to a call; if it is wrong, return ``None`` and add to ``problems``."""
    if not isinstance(given, Mapping):
        problems.append("they are not an object")
        return None
    fields = {field.name: field for field in structs.fields(parameters)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        word = _spelled(key, fields)
        if word is None:
            hint = meant(nearest(str(key), fields), otherwise="it is not known")
            problems.append(f"{str(key)[:80]}: {hint}")
            continue
        for field, one in _unfolded(word, value).items():
            if one is None and field in fields and not fields[field].required:
                continue  # null means that it is missing
            if field not in fields:
                problems.append(f"{field}: it is not known")
            if field in values and values[field] != one:
                problems.append(f"{field}: it is given twice")
            values[field] = one
    for field, about in fields.items():
        if field not in values:
            problems += [f"{field}: it is missing"] if about.required else []
            continue
        try:
            values[field] = msgspec.convert(values[field], about.type)
            if parameters in NAMES:
                _check_text(values[field])
        except (msgspec.ValidationError, ValueError) as error:
            words = str(error).replace(" - at `$", " at `").replace("`.", "`").removesuffix(" at ``")
            problems.append(f"{field}: {words}")
    return None if problems else parameters(**values)


# Return the fields of a call that differ from its defaults, as plain values.
said: Callable[[Parameters], dict[str, Any]] = msgspec.to_builtins


def schema_of(type_: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of a call's arguments."""
    (shape,), components = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    own = components.pop(shape["$ref"].rpartition("/")[2])
    kept = {key: own[key] for key in ("type", "properties", "required", "additionalProperties")}
    return kept | ({"$defs": components} if components else {})


def _spelled(key: object, fields: Mapping[str, Any]) -> str | None:
    """Return the field that a word names, directly or by another known name."""
    if not isinstance(key, str):
        return None
    other = _OTHER_WORDS.get(key, key)
    return next((word for word in (key, other, "name" if other == "skill" else "") if word in fields), None)


def _unfolded(word: str, value: Any) -> Mapping[str, Any]:
    """Return the fields in a value: a skill can be an object, the network a boolean."""
    if (
        word in {"skill", "name"}
        and isinstance(value, Mapping)
        and {"name"} <= set(value) <= {"name", "source"}
    ):
        source = {} if value.get("source") is None else {"source": value["source"]}
        return {word: value["name"], **source}
    if word == "network" and isinstance(value, bool):
        return {word: ["*"] if value else []}
    return {word: value}


def _check_text(value: Any) -> None:
    """Refuse half characters everywhere, and NUL: no program, file or protocol takes them."""
    match value:
        case str():
            if "\0" in value or (not value.isascii() and _HALF.search(value)):
                raise ValueError("a text contains NUL or half a character")
        case dict():
            _check_text([*value, *value.values()])
        case list() | tuple():
            for item in value:
                _check_text(item)
