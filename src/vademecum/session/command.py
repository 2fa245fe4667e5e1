"""Commands: a program in the project, which it can read; it changes only what is named."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from vademecum.errors import Denied, ToolRefused
from vademecum.files import sha256_of
from vademecum.sandbox.base import Interpreter, Mount, home_of, search_path
from vademecum.session.act import Act, Finer
from vademecum.session.launch import (
    Start,
    check_unchanged,
    environment_of,
    facts_of,
    network_requests,
    run_started,
    shown_text,
    with_hidden,
)
from vademecum.session.recording import CHANGED
from vademecum.skill.text import visible
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import PREFIX, Furnished, Input, find_inputs, parts_of, renamed
from vademecum.tools.job import MAX_LISTED_OUTPUTS, MAX_WORD_CHARS, Job, Room, limits_of, shown_words
from vademecum.tools.workspace import Located
from vademecum.tools.writing import Changes


def run_command(act: Act, call: calls.RunCommand) -> Observation:
    """Run a program in the working directory. It reads the project and changes only what ``writes`` names."""
    lines = _lines(call.argv)
    workspace = act.session.place.workspace
    known = act.knows if act.origin != "user" else bool
    reads, _ = find_inputs((), call.reads, (), workspace=workspace, locate=act.locate, known=known)
    made = {  # outputs of this conversation that the words name
        part: Input(part, act.locate(part), "file")
        for word in call.argv[1:]
        for _, part in parts_of(word)
        if part.startswith(PREFIX)
    }
    whole = Input(".", Located(act.session.place.project, ".", ".", "."), "directory")
    reads = [*(reads or [whole]), *made.values()]
    writes = [workspace.locate(path) for path in call.writes]

    def wanted() -> list[Finer]:
        return [
            ("command", lines, ""),
            *(finer for each in reads for finer in act.reads(each.located)),
            *(finer for each in writes for finer in (*act.writes(each), *act.reads(each))),
            *network_requests(act, call.network, lines[0]),
        ]

    act.decide(wanted)
    act.refuse_denied()
    program = _program(act, call.argv[0])
    # What the rules hide in directories that may be changed stays hidden.
    shown = [*reads, *(Input(each.name, each, "directory") for each in writes if each.path.is_dir())]
    inputs = with_hidden(act, shown)
    changes = Changes(
        act.trash / f"{act.number:04}", tuple(Path(os.path.realpath(each.path)) for each in writes)
    )
    _refuse_closed(act, changes)
    sandbox = act.session.sandbox()

    def about() -> str:
        facts = facts_of(act, call.network, reads, sandbox)
        facts += [f"changes: {shown_words([each.name for each in writes], ', ')}"] if writes else []
        long = "\n".join(word for word in call.argv if len(word) > MAX_WORD_CHARS or "\n" in word)
        facts += [*shown_text("the whole of it", long), *shown_text("standard input", call.stdin)]
        return "\n".join([f"run {shown_words(call.argv)}", *facts])

    # An answer is for these words with this standard input, and for a program of the project as it is now.
    own = sha256_of(program.words[0]) if not program.readable and _is_own(call.argv[0]) else ""
    exact = repr((calls.said(call), own))
    digest = hashlib.sha256(f"{own} {call.stdin}".encode()).hexdigest() if own or call.stdin else ""
    act.settle(lines, about=about, exact=lambda: exact, digest=digest)
    if own and sha256_of(program.words[0]) != own:
        raise ToolRefused(CHANGED, code="changed")
    check_unchanged(act, shown, inputs)
    _refuse_closed(act, changes)
    bases = [Path(os.path.realpath(each.located.path)) for each in inputs]
    hidden = tuple(base / name for base, each in zip(bases, inputs, strict=True) for name in each.hidden)
    furnished = Furnished(
        (), mounted=tuple(Mount(base, base) for base in bases), hidden=hidden, left_out=len(hidden)
    )
    job = Job(
        title=shown_words(call.argv[:2]),
        argv=(*program.words, *renamed(call.argv[1:], {name: str(made[name].located.path) for name in made})),
        directory=act.session.place.context.cwd,
        readable=program.readable,
        environment=environment_of(act),
        furnished=furnished,
        writable=changes.paths,
        stdin=call.stdin.encode() or None,
        limits=limits_of(act.session.place.config.execution),
    )
    with Room(act.directory) as room:
        changes.keep()
        try:
            seen = run_started(Start(act, room, sandbox, inputs, furnished, call.network), job, {})
        finally:
            changed, refused = _sorted_changes(act, changes)
    return _with_changes(seen, changed, refused)


def _lines(argv: Sequence[str]) -> tuple[str, ...]:
    """Return what the rules are asked about: the words as a shell would write them, and without a path.

    >>> _lines(["/bin/echo", "a b"])
    ("/bin/echo 'a b'", "echo 'a b'")
    """
    words = [argv[0], os.path.basename(argv[0])] if argv[0].startswith("/") else [argv[0]]
    return tuple(shlex.join([word, *argv[1:]]) for word in words)


def _is_own(word: str) -> bool:
    """Return whether a word names a program by a path that is not the system's."""
    return "/" in word and not word.startswith(("/usr/", "/bin/", "/sbin/"))


def _program(act: Act, word: str) -> Interpreter:
    """Return how a program is started: one of the system by its name, or one of the project by its path."""
    if _is_own(word):
        located = act.locate(word)
        act.decide_also(act.reads(located))
        act.refuse_denied()
        if not os.access(located.path, os.X_OK) or not located.path.is_file():
            raise ToolRefused(f"{word[:200]!r} is not a program that can be run.", code="no-program")
        return Interpreter((str(located.path),))
    found = shutil.which(word, path=search_path(act.session.place.context.env.get("PATH", "")))
    if found is None:
        raise ToolRefused(
            f"The program {word[:200]!r} is not installed here: use another.", code="no-program"
        )
    return Interpreter((found,), home_of(found))


def _refuse_closed(act: Act, changes: Changes) -> None:
    """Raise if the command would be able to change something that is denied."""
    closed = next(filter(act.is_closed, changes.files()), None)
    if closed is not None:
        shown = os.path.relpath(closed, act.session.place.project)
        text = "What may be changed contains files that may not: name a smaller part of it."
        raise Denied(text, advice=f"one of them is {shown}")
    plain = (about for file in changes.files() if stat.S_ISREG((about := file.lstat()).st_mode))
    if any(about.st_nlink > 1 for about in plain):
        text = "What may be changed contains hard links, so that other files would change too"
        raise ToolRefused(f"{text}: name a smaller part of it.", code="linked")


def _sorted_changes(act: Act, changes: Changes) -> tuple[list[str], list[str]]:
    """Return what the command changed, and what it made that is denied, which is taken away."""
    changed, refused = [], []
    for file in changes.found():
        if act.is_closed(file):
            top = _closed_top(act, file, changes)
            if os.path.lexists(top):
                changes.take_away(top)
            refused.append(os.path.relpath(top, act.session.place.project))
        else:
            changed.append(os.path.relpath(file, act.session.place.project))
    return changed, list(dict.fromkeys(refused))


def _closed_top(act: Act, file: Path, changes: Changes) -> Path:
    """Return the whole of what is closed, such as a directory ``.git`` for a file in it."""
    top = file
    while top.parent not in changes.paths and len(top.parents) > 1 and act.is_closed(top.parent):
        top = top.parent
    return top


def _with_changes(seen: Observation, changed: list[str], refused: list[str]) -> Observation:
    if not changed and not refused:
        return seen
    lines = [seen.text, *(f"It changed {visible(name)}." for name in changed[:MAX_LISTED_OUTPUTS])]
    if len(changed) > MAX_LISTED_OUTPUTS:
        lines.append(f"It changed {len(changed) - MAX_LISTED_OUTPUTS:,} more files.")
    lines += [f"It made {visible(name)}, which is not allowed, so it was taken away." for name in refused]
    facts = {**seen.facts, "changed": changed, "taken_away": refused}
    code = seen.code or ("denied" if refused else "")
    return structs.replace(seen, text="\n".join(lines), code=code, facts=facts)
