"""What a run left, and a command that checks it in the sandbox."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import VademecumError
from vademecum.evals.cases import CommandCheck
from vademecum.evals.isolation import beside
from vademecum.evals.results import CheckResult
from vademecum.runs.record import Event
from vademecum.sandbox.available import choose_sandbox
from vademecum.sandbox.base import Jail, Limits
from vademecum.sandbox.interpreters import SYSTEM_PATH, Interpreter, own_python
from vademecum.sandbox.process import Streams, run_command

SECONDS = 60.0
MAX_CHECK_BYTES = 1024 * 1024
MAX_SAID_BYTES = 2000


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The results of a run: its answer, its events, its copy of the project, a directory for checks.

    ``place`` is the directory of the case.
    """

    answer: str
    events: tuple[Event, ...]
    project: Path
    scratch: Path
    place: str

    @property
    def made(self) -> list[Path]:
        """Return the directories that contain the outputs of scripts."""
        called = (event.data.get("result", {}) for event in self.events if event.type == "tool_called")
        made = (output for result in called for output in result.get("outputs", ()))
        places = (str(output["file"]).removesuffix(str(output["path"])) for output in made)
        return [Path(place) for place in dict.fromkeys(places)]


def check_command(wanted: CommandCheck, left: RunArtifacts) -> CheckResult:
    """Run a command in the project as the run left it; the files it brings lie beside the case."""
    name, place = f"command {' '.join(wanted.argv)}", left.scratch
    for directory in ("files", "home", "shared"):
        (place / directory).mkdir(parents=True, exist_ok=True)
    copies = {file: place / "files" / Path(file).name for file in wanted.files}
    for file, copy in copies.items():
        copy.write_bytes(beside(file, left.place, cap=MAX_CHECK_BYTES, what="The check"))
    program = _program(wanted.argv[0])
    streams = Streams(place / "stdout", place / "stderr")
    jail = Jail(
        directory=left.project,
        environment={"HOME": str(place / "home"), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        readable=(place, *left.made, *program.readable),
        writable=(left.project, place / "home"),
        shared=place / "shared",
        limits=Limits(seconds=SECONDS),
    )
    argv = [*program.words, *(str(copies.get(word, word)) for word in wanted.argv[1:])]
    ended = run_command(choose_sandbox(), argv, jail, streams=streams)
    if ended.reason != "exited":
        return CheckResult(name, "fail", f"it was stopped ({ended.reason})")
    if ended.exit_code == wanted.exit_code:
        return CheckResult(name, "pass")
    said = (streams.err.read_bytes() or streams.out.read_bytes())[-MAX_SAID_BYTES:]
    shown = " ".join(said.decode("utf-8", "replace").split())[-300:] or "it said nothing"
    return CheckResult(name, "fail", f"exit code {ended.exit_code}: {shown}")


def _program(name: str) -> Interpreter:
    """Python is the one that runs us; anything else is the system's, by its name."""
    if name in {"python", "python3"}:
        return own_python()
    found = shutil.which(Path(name).name, path=SYSTEM_PATH)
    if found is None:
        raise VademecumError(f"The command {name!r} is not installed here.", code="interpreter")
    return Interpreter((found,))
