"""Types of a session: its place, results of calls with their images, the guard, deferred approvals."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from vademecum.config import Config, LoadedConfig, load_config
from vademecum.context import Context
from vademecum.files import read_capped
from vademecum.loader.loading import BodyLimits as BodyLimits  # noqa: PLC0414 - part of what a session takes
from vademecum.loader.loading import LoadReport
from vademecum.masking import Secrets
from vademecum.policy.approval import Question
from vademecum.runs.record import Record
from vademecum.skill.skill import Skill
from vademecum.tools.exchange import Output
from vademecum.tools.workspace import Workspace

# The limits of providers for one result.
MAX_CONTENT_BYTES = 5 * 1024 * 1024
MAX_CONTENTS = 8

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}

Kind = Literal["skill", "script", "tool"]
TextKind = Literal["", "skill", "resource", "tool", "error"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """One working directory: the project around it, its configuration, and the secrets to mask."""

    context: Context
    config: Config
    project: Path
    workspace: Workspace
    secrets: Secrets

    @classmethod
    def at(
        cls,
        context: Context | None = None,
        *,
        config: LoadedConfig | None = None,
        reachable: tuple[Path, ...] = (),
    ) -> Place:
        """Return the place for a context; ``reachable`` are directories outside it that a person named."""
        context = context or Context.current()
        project = context.project
        workspace = Workspace(context.cwd, *reachable, project=project)
        settings = (config or load_config(context)).settings
        secrets = Secrets(context.env, given=settings.execution.environment)
        return cls(context, settings, project, workspace, secrets)


@dataclass(frozen=True, slots=True)
class Content:
    """An image or a PDF: its name, its media type and its bytes."""

    name: str
    media_type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Return whether it is an image."""
        return self.media_type.startswith("image/")

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The content as a ``data:`` address."""
        return f"data:{self.media_type};base64,{self.base64}"


def media_type(data: bytes) -> str:
    r"""Return the type of an image or PDF by its first bytes, or an empty text.

    >>> media_type(b"%PDF-1.7 ..."), media_type(b"text")
    ('application/pdf', '')
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), "")


def contents_of(outputs: Iterable[Output]) -> tuple[Content, ...]:
    """Return the images and PDFs among outputs, except large ones and those that contain a secret."""
    found: list[Content] = []
    for output in outputs:
        if output.secret or output.bytes > MAX_CONTENT_BYTES or len(found) == MAX_CONTENTS:
            continue
        data = read_capped(output.file, cap=MAX_CONTENT_BYTES)
        if kind := media_type(data):
            found.append(Content(output.reference, kind, data))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a call: text for the model, and the code of an error or ``""``.

    ``kind`` is the kind of text: instructions of a skill, a file of one, the output of a tool, or an error.
    Our own text has none. ``report`` says how much was read; ``facts`` and ``files`` are for programs.
    ``advice`` is for people only: why a call was refused, and what would allow it. ``outputs`` are the files
    that a script or command left, ``content`` the images and documents that a model can view.
    """

    text: str
    code: str = ""
    kind: TextKind = ""
    skill: Skill | None = None
    report: LoadReport | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    advice: str = ""
    outputs: tuple[Output, ...] = ()
    content: tuple[Content, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether the call was carried out, whatever the exit code of a script."""
        return not self.code


class Deferred(Exception):
    """Raised by an approver to defer its answer. Nothing was done; ``resume`` carries out the call later.

    If ``kept`` is false, the caller itself repeats the call once there is an answer.
    """

    kept = True

    def __init__(self, question: Question) -> None:
        super().__init__(question.wanted)
        self.question = question


class Guard(Protocol):
    """Decides about acts in addition to the rules, and surrounds them. A charter is one."""

    def act(
        self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T], *, record: Record
    ) -> T:
        """Call ``do`` and return its result, or raise ``Denied`` with every reason.

        ``name`` is a skill, a skill and its script (``csv/scripts/a.py``), or a tool.
        """
        ...


class Host(Protocol):
    """The agent loop that a session serves, if it is ours."""

    def has_room_for(self, text: str) -> bool:
        """Return whether a skill's instructions still fit into the prompt."""
        ...

    def run_subagent(self, skill: Skill, task: str, effect: str) -> Result:
        """Run a skill whose ``run-mode`` is ``subagent`` in a child agent; ``effect`` is how it was allowed.

        ``task`` is its task; without one, it gets the request.
        """
        ...
