"""Define a case: a request, the files and skills it starts with, the expectations and the limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PlainValidator,
    PositiveInt,
)

from vademecum.evals.checks.steps import regular
from vademecum.evals.checks.trajectory import Constraint, parse_constraint
from vademecum.nearest import there_is_no
from vademecum.policy.base import RISKS

MAX_REPEAT = 1000
MAX_SECONDS = 86_400.0
# In skills_none_of: the run must not take any skill.
ANY_SKILL = "*"

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
RunStatus = Literal["done", "degraded", "refused", "declined", "failed", "interrupted"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _regular(text: str) -> str:
    regular(text)
    return text


# A single text or object is a list of one.
_LISTED = BeforeValidator(lambda value: [value] if isinstance(value, str | dict) else value)
Texts = Annotated[tuple[Text, ...], _LISTED]
Names = Annotated[tuple[Name, ...], _LISTED]
Regulars = Annotated[tuple[Annotated[str, AfterValidator(_regular)], ...], _LISTED]
Written = Annotated[Constraint, PlainValidator(parse_constraint), PlainSerializer(repr)]


class JsonCheck(_Strict):
    """The JSON in the answer has a value at this path: any value, one of this type, or exactly this one."""

    path: str = ""
    type: Literal["object", "array", "string", "number", "boolean", "null"] | None = None
    equals: Any = None


class FileCheck(_Strict):
    """A file that the run leaves in the project, or that a script makes."""

    path: Name
    contains: Texts = ()
    equals: str | None = None
    regex: Regulars = ()


class OutputChecks(_Strict):
    """Conditions on the answer and on the files that the run left."""

    contains: Texts = ()
    contains_any: Texts = ()
    contains_none: Texts = ()
    regex: Regulars = ()
    json_: Annotated[tuple[JsonCheck, ...], Field(alias="json"), _LISTED] = ()
    files: tuple[FileCheck, ...] = ()
    judge: Texts = ()


# A text or a list of texts means that the answer must contain them.
_CONTAINED = BeforeValidator(lambda value: {"contains": value} if isinstance(value, str | list) else value)


class Expected(_Strict):
    """The expected skills, steps, output and status."""

    skills_any_of: Names = ()
    skills_all_of: Names = ()
    skills_none_of: Names = ()
    trajectory: Annotated[tuple[Written, ...], _LISTED] = ()
    output: Annotated[OutputChecks, _CONTAINED] = OutputChecks()
    status: Annotated[tuple[RunStatus, ...], _LISTED] = ()


def _tool(name: str) -> str:
    if name not in RISKS:
        raise ValueError(there_is_no("tool", name, sorted(RISKS)))
    return name


class RunLimits(_Strict):
    """Limits of a run; a run that exceeds one is stopped and fails."""

    max_turns: PositiveInt | None = None
    max_tool_calls: NonNegativeInt | None = None
    max_script_runs: NonNegativeInt | None = None
    max_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = None
    deny_tools: Annotated[tuple[Annotated[str, AfterValidator(_tool)], ...], _LISTED] = ()


class Setup(_Strict):
    """The state before the request: the project's directory, and skills that are already loaded.

    ``answer`` answers every question. A case can refuse; only the user who runs it can approve.
    """

    project: str = ""
    skills: Names = ()
    before: Text = ""
    answer: Literal["no", "nobody"] | None = None


def _turn(value: Any) -> Any:
    is_object = isinstance(value, dict) and value.keys() & {"action", "reply", "error", "seconds"}
    if isinstance(value, str) or (is_object and isinstance(value.get("seconds", 0), int | float)):
        return value
    raise ValueError('a turn is {"action": {…}}, a text, {"error": "…"}, or {"seconds": …, "reply": …}')


class Mock(_Strict):
    """The replies of the mock model, turn by turn."""

    turns: Annotated[tuple[Annotated[Any, AfterValidator(_turn)], ...], Field(min_length=1, max_length=1000)]
    piece: Annotated[int, Field(ge=0, le=100_000)] = 0


class CaseFile(_Strict):
    """A file of the project before the run: its text, or the file it is copied from."""

    name: Name
    text: str | None = None
    source: str | None = None


def _files(value: Any) -> Any:
    """Return case files from names with texts, or from paths of files to copy."""
    if isinstance(value, dict):
        return [{"name": name, "text": text} for name, text in value.items()]
    if isinstance(value, list):
        return [{"name": path, "source": path} if isinstance(path, str) else path for path in value]
    return value


class Case(_Strict):
    """One request, and the expectations of its run.

    >>> Case(id="greeting", input="你好", expected={"output": "您好"}).expected.output.contains
    ('您好',)
    """

    id: Annotated[str, Field(min_length=1, max_length=200, coerce_numbers_to_str=True)]
    input: Annotated[str, Field(min_length=1, max_length=100_000)]
    description: Text = ""
    files: Annotated[tuple[CaseFile, ...], BeforeValidator(_files)] = ()
    setup: Setup = Setup()
    expected: Expected = Expected()
    constraints: RunLimits = RunLimits()
    mock: Mock | None = None
    tags: Names = ()
    repeat: Annotated[int, Field(ge=1, le=MAX_REPEAT)] = 1
    until: Literal["answer", "loaded"] = "answer"
    place: Annotated[str, Field(exclude=True)] = ""

    @property
    def contradictions(self) -> list[str]:
        """Return the expectations that contradict each other."""
        expected, output = self.expected, self.expected.output
        wanted, unwanted = set(self.expects_skills), set(expected.skills_none_of)
        both = sorted(wanted) if ANY_SKILL in unwanted else sorted(wanted & unwanted)
        found = [f"{name} is both expected and excluded" for name in both]
        words = sorted(set(output.contains) & set(output.contains_none))
        return [*found, *(f"the answer must and must not contain {text!r}" for text in words)]

    @property
    def expects_skills(self) -> tuple[str, ...]:
        """Return the skills that are right for the request; empty if the case names none."""
        return tuple(dict.fromkeys((*self.expected.skills_any_of, *self.expected.skills_all_of)))


# The fields of a case and of its parts, to suggest one.
FIELDS = sorted({name.rstrip("_") for kind in _Strict.__subclasses__() for name in kind.model_fields})
