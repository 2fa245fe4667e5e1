"""All tools except scripts: read, list, search, change and delete files, save outputs, send requests.

``explain`` returns the decision about a request, without doing anything.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import structs

from vademecum.errors import ToolRefused
from vademecum.files import read_capped
from vademecum.policy.base import Decision, Effect, needs_approval
from vademecum.session.act import Act
from vademecum.session.base import Deferred
from vademecum.skill.text import counted
from vademecum.tools import calls, file_reading, writing
from vademecum.tools.calls import Observation
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.session.session import Session
    from vademecum.tools.hosts import Hop

MAX_SAVED_BYTES = 256 * 1024 * 1024

# For each permission, a call that needs it.
_CALLS: dict[str, Callable[[str], calls.RunScript | calls.DirectCall]] = {
    "write": lambda path: calls.WriteFile(path, ""),
    "delete": calls.DeleteFile,
    "network": calls.NetworkRequest,
    "script": lambda resource: calls.RunScript("", resource),
    "command": lambda line: calls.RunCommand([line]),
}


def perform(act: Act, call: calls.DirectCall) -> Observation:
    """Ask for a tool's needs, and carry out the call."""
    match call:
        case calls.ReadFile() | calls.ListDir() | calls.Grep():
            located = act.locate(call.path)
            act.require(partial(act.reads, located))
            if isinstance(call, calls.ReadFile):
                return file_reading.read_file(call, located)
            if isinstance(call, calls.ListDir):
                return file_reading.list_dir(located, act.may_list)
            return file_reading.grep(call, located, act.may_read)
        case calls.WriteFile(path=path, content=content):
            located = act.locate(path)
            act.decide(partial(act.writes, located))
            return _replace(act, located, content.encode())
        case calls.EditFile(path=path):
            return _edit(act, call, act.locate(path))
        case calls.SaveOutput():
            return _save(act, call)
        case calls.DeleteFile(path=path):
            located = act.locate(path)
            about = partial("delete {}".format, path)
            act.require(partial(act.writes, located, "delete"), about=about, exact=_content(located))
            return writing.delete_file(located, act.trash)
        case calls.NetworkRequest():
            return _request(act, call)
        case calls.RunCommand():
            from vademecum.session.launch import run_command  # noqa: PLC0415 - for commands alone

            return run_command(act, call)
        case _:
            assert_never(call)


def _replace(act: Act, located: Located, data: bytes) -> Observation:
    """Write a file after asking about exactly this content; its requests are decided already."""
    act.refuse_denied((located.rule,))
    writing.refuse_link(located)
    about = partial(writing.planned, located, data)
    exact = _content(located, data)
    act.settle((located.rule,), about=about, exact=exact)
    real = Path(os.path.realpath(located.path))
    seen = writing.replace_file(act.tool, located, data, act.trash)
    if act.may_read(real):
        return seen
    return structs.replace(seen, facts={k: v for k, v in seen.facts.items() if k != "diff"})


def _edit(act: Act, call: calls.EditFile, located: Located) -> Observation:
    """Replace a text in a file; if reading needs approval, reveal nothing about the file before that."""
    act.decide(lambda: [*act.reads(located), *act.writes(located)])
    act.refuse_denied((located.rule,))
    writing.refuse_link(located)
    readable = all(d.effect is Effect.ALLOW for r, d in act.asked if r.permission not in {"tool", "write"})
    if readable:
        return _replace(act, located, writing.edited(call, located))
    about = partial(writing.difference, call.old, call.new, located.name)
    exact = _content(located, f"{call.old}\0{call.new}".encode())
    act.settle((located.rule,), about=about, exact=exact)
    return writing.replace_file(act.tool, located, writing.edited(call, located), act.trash)


def _save(act: Act, call: calls.SaveOutput) -> Observation:
    """Copy an output into the project, but not over a file that changed since its run began."""
    output = act.session.outputs.find(call.output)
    if output.secret:
        raise ToolRefused(f"{call.output!r} contains a secret, so it is not copied.", code="secret")
    located = act.session.place.workspace.locate(call.path or output.name)
    act.decide(partial(act.writes, located))
    act.refuse_denied((located.rule,))
    writing.refuse_link(located)
    data, there = read_capped(output.file, cap=MAX_SAVED_BYTES), writing.content_digest(located)
    text = f"Saved {call.output} as {located.name} ({counted(len(data), 'byte')})."
    if act.origin == "user" and there == output.sha256:  # it was saved before
        facts = {"bytes": len(data), "sha256": there, "path": located.name}
        return Observation(act.tool, text, facts=facts)
    if act.session.outputs.overwrites_newer(output, located.path, there):
        raise ToolRefused(
            f"{located.name!r} changed since the run began: save it under another name.", code="changed"
        )
    seen = _replace(act, located, data)
    act.session.outputs.saved(output)
    return structs.replace(seen, text=text, facts={**seen.facts, "path": located.name})


def _content(located: Located, new: bytes = b"") -> Callable[[], str]:
    """Return a function for the content that an answer depends on: the current and the new one."""
    return lambda: f"{writing.content_digest(located)} {hashlib.sha256(new).hexdigest()}"


def _request(act: Act, call: calls.NetworkRequest) -> Observation:
    from vademecum.tools.network import about_request, network_request  # noqa: PLC0415 - for this tool alone

    def exact() -> str:
        return repr(calls.said(call))

    def permit(permission: str, hop: Hop) -> None:
        about = partial(about_request, call, hop) if permission == "network" else str
        try:
            act.decide(lambda: [(permission, (hop.resource,), "")])
            act.settle((hop.host,), about=about, exact=exact)
        except Deferred as deferred:
            if hop.url == call.url:
                raise
            # A request was sent already, so the call cannot be deferred.
            text = f"It redirects to {hop.host!r}, which needs its own approval: request that address."
            raise ToolRefused(text, code="redirects") from deferred

    return network_request(call, permit=permit, keep=act.directory / "answer")


def explain(session: Session, permission: str, resources: Sequence[str]) -> Decision:
    """Return the decision about a request of the user, without doing or asking anything."""
    first = resources[0] if resources else ""
    call = _CALLS.get(permission, calls.ReadFile)(first)
    act = session.asking(origin="user", call=call)
    decisions = [act.decision(permission, tuple(resources))]
    match permission:
        case "read":
            decisions.append(act.foresee(act.reads(act.locate(first))))
        case "write" | "delete":
            decisions.append(act.foresee(act.writes(act.locate(first), permission)))
        case "network" | "script" | "command":
            decisions.append(act.foresee([(permission, tuple(resources), "")]))
        case "tool":
            careful = session.place.config.execution.require_approval_for
            decisions += filter(None, (needs_approval(tool, careful=careful) for tool in resources))
    return max(decisions, key=lambda decision: decision.effect)
