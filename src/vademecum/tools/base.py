"""What a tool call comes to: an observation for the model, and a record for those who check."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct, structs


class Observation(Struct, frozen=True):
    """What came of a call: text to go on with, and facts for programs.

    ``code`` is the code of the refusal or fault; ``""`` where there was none. ``files`` are where the whole
    of what ``text`` only shows a part of is kept.
    """

    tool: str
    text: str
    code: str = ""
    facts: dict[str, Any] = {}
    files: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the tool did what it does; a script that exits with 1 did."""
        return not self.code


class AuditRecord(Struct, frozen=True):
    """One call as it is written down: what was wanted, by whom, what the rules said, what came of it."""

    call: int
    tool: str
    risk: str
    agent: str
    skill: str | None
    parameters: dict[str, Any]
    started: float
    seconds: float
    decision: dict[str, Any] | None
    asked: list[dict[str, Any]]
    approved_by: str | None
    ok: bool
    code: str
    result: dict[str, Any]
    hashes: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The record as it is kept."""
        return structs.asdict(self)


class Observer(Protocol):
    """Is told of every call when it is over, whatever came of it."""

    def __call__(self, record: AuditRecord, /) -> None:
        """Take a record; secrets are masked in it already."""
        ...
