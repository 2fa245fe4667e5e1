"""Files and hosts that a person names for scripts, and the files that scripts made."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from vademecum.policy.approval import Consent
from vademecum.session.session import Session
from vademecum.skill.text import visible
from vademecum.tools.calls import SaveOutput
from vademecum.tools.exchange import Output

out_option = click.option(
    "--out", type=click.Path(file_okay=False), metavar="DIR", help="Directory to copy output files to."
)


@dataclass(frozen=True, slots=True)
class Saved:
    """One output: where it was copied to, or why not."""

    output: Output
    path: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        saved = {"saved": self.path} if self.path else {}
        return {**self.output.to_json(), **saved, **({"problem": self.problem} if self.problem else {})}


def reachable_for(words: Iterable[str], out: str | None) -> tuple[Path, ...]:
    """Return what a person names outside the working directory: exactly that can be read.

    The directory of ``--out`` is made if it is missing.
    """
    found = []
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            if word.startswith(("/", "../")) and Path(word).exists():
                found.append(Path(os.path.abspath(word)))
    if out is not None and not Path(os.path.abspath(out)).is_relative_to(Path.cwd()):
        Path(out).mkdir(parents=True, exist_ok=True)
        found.append(Path(os.path.abspath(out)))
    return tuple(found)


def save_outputs(session: Session, outputs: Sequence[Output], out: str | None) -> list[Saved]:
    """Copy outputs into a directory through the rules for writing; ``--out`` is the approval.

    Of two with one name, each goes to a directory with the number of its call.
    """
    if out is None:
        return [Saved(output) for output in outputs]
    names = Counter(output.name for output in outputs)
    saved = []
    for output in outputs:
        name = output.name if names[output.name] == 1 else f"{output.number}/{output.name}"
        call = SaveOutput(output.reference, os.path.join(out, name))
        result = session.call(call, approver=Consent(), origin="user")
        problem = "; ".join(filter(None, (result.text, result.advice))) if result.code else ""
        saved.append(Saved(output, "" if problem else str(result.facts["path"]), problem))
    return saved


def told_of(saved: Saved) -> str:
    """Return where an output is, as people read it on standard error."""
    name, size = saved.output.name, f"{saved.output.bytes:,} bytes"
    if saved.problem:
        said = f"{name} was not saved: {saved.problem}"
    elif saved.path:
        said = f"saved {saved.path} ({size})"
    else:
        said = f"made {name} ({size}): {saved.output.file}"
    return f"vade: {visible(said)}"


def tell(saved: Iterable[Saved]) -> None:
    """Say where each output is."""
    for each in saved:
        click.echo(told_of(each), err=True)
