"""Checks that are programs: a command, or a function of a file beside the case. They run in the sandbox."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import CaseRefused, FileRefused, VademecumError
from vademecum.evals.cases import CommandCheck
from vademecum.evals.isolation import beside
from vademecum.evals.results import CheckResult
from vademecum.files import read_capped
from vademecum.runs.record import Event
from vademecum.sandbox.base import Jail, Limits, Sandbox
from vademecum.sandbox.interpreters import SYSTEM_PATH, Interpreter, own_python
from vademecum.sandbox.process import Ended, Streams, run_command

SECONDS = 60.0
MAX_CHECK_BYTES = 1024 * 1024
MAX_SAID_BYTES = 2000

# What calls the function: it reads what the run left, and writes down what the function says.
_DRIVER = """
import importlib.util, json, sys
file, function, left, said = sys.argv[1:]
spec = importlib.util.spec_from_file_location("check", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with open(left, encoding="utf-8") as read:
    found = getattr(module, function)(json.load(read))
with open(said, "w", encoding="utf-8") as out:
    json.dump(found if isinstance(found, str) else bool(found), out)
"""


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The results of a run: its answer, its events, its copy of the project, a directory for checks."""

    answer: str
    status: str
    skills: tuple[str, ...]
    events: tuple[Event, ...]
    project: Path
    scratch: Path
    place: Path

    @property
    def made(self) -> list[Path]:
        """Return the directories that contain the outputs of scripts."""
        called = (event.data.get("result", {}) for event in self.events if event.type == "tool_called")
        made = (output for result in called for output in result.get("outputs", ()))
        places = (str(output["file"]).removesuffix(str(output["path"])) for output in made)
        return [Path(place) for place in dict.fromkeys(places)]


def check_command(wanted: CommandCheck, left: RunArtifacts, *, sandbox: Sandbox) -> CheckResult:
    """Run a command in the project as the run left it; the files it brings lie beside the case."""
    name = f"command {' '.join(wanted.argv)}"
    place = _place(left, "command")
    for file in wanted.files:
        copy = place / "files" / Path(file).name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(_beside(left, file))
    program = _program(wanted.argv[0])
    copies = {file: str(place / "files" / Path(file).name) for file in wanted.files}
    argv = [*program.words, *(copies.get(word, word) for word in wanted.argv[1:])]
    ended, said = _run(argv, left, place, program, sandbox)
    if ended.reason != "exited":
        return CheckResult(name, "fail", f"it was stopped ({ended.reason})")
    fits = ended.exit_code == wanted.exit_code
    return (
        CheckResult(name, "pass")
        if fits
        else CheckResult(name, "fail", f"exit code {ended.exit_code}: {said}")
    )


def check_function(wanted: str, left: RunArtifacts, *, sandbox: Sandbox) -> CheckResult:
    """Call a function of a Python file beside the case with what the run left; it returns a bool.

    A text that it returns says what is wrong. One that fails itself says nothing about the run: an error.
    """
    file, _, function = wanted.rpartition(":")
    place = _place(left, "function")
    (place / "check.py").write_bytes(_beside(left, file))
    (place / "driver.py").write_text(_DRIVER)
    given = {
        "answer": left.answer,
        "status": left.status,
        "skills": list(left.skills),
        "project": str(left.project),
        "made": [str(path) for path in left.made],
    }
    (place / "left.json").write_text(json.dumps(given, ensure_ascii=False), "utf-8")
    python = own_python()
    said_file = place / "work" / "said.json"
    words = [str(place / "check.py"), function, str(place / "left.json"), str(said_file)]
    ended, said = _run([*python.words, str(place / "driver.py"), *words], left, place, python, sandbox)
    name = f"function {wanted}"
    if ended.reason != "exited" or ended.exit_code:
        how = f"exit code {ended.exit_code}" if ended.reason == "exited" else f"stopped, {ended.reason}"
        raise CaseRefused(f"The check {wanted!r} itself failed ({how}: {said}): correct it.")
    try:
        found = json.loads(read_capped(said_file, cap=MAX_CHECK_BYTES))
    except (OSError, FileRefused, ValueError) as error:
        raise CaseRefused(f"The check {wanted!r} ended without an answer: return one.") from error
    if isinstance(found, str):
        return CheckResult(name, "fail" if found else "pass", found)
    return CheckResult(name, "pass") if found else CheckResult(name, "fail", "it says no")


def _beside(left: RunArtifacts, file: str) -> bytes:
    return beside(file, str(left.place), cap=MAX_CHECK_BYTES, what="The check")


def _place(left: RunArtifacts, name: str) -> Path:
    place = left.scratch / name
    for directory in (place, place / "work", place / "home", place / "shared"):
        directory.mkdir(parents=True, exist_ok=True)
    return place


def _program(name: str) -> Interpreter:
    """Python is the one that runs us; anything else is the system's, by its name."""
    if name in {"python", "python3"}:
        return own_python()
    found = shutil.which(Path(name).name, path=SYSTEM_PATH)
    if found is None:
        raise VademecumError(f"The command {name!r} is not installed here.", code="interpreter")
    return Interpreter((found,))


def _run(
    argv: list[str], left: RunArtifacts, place: Path, program: Interpreter, sandbox: Sandbox
) -> tuple[Ended, str]:
    streams = Streams(place / "stdout", place / "stderr")
    own = {"HOME": str(place / "home"), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    jail = Jail(
        directory=left.project,
        environment=own,
        readable=(place, *left.made, *program.readable),
        writable=(left.project, place / "work", place / "home"),
        shared=place / "shared",
        limits=Limits(seconds=SECONDS),
    )
    ended = run_command(sandbox, argv, jail, streams=streams)
    said = (streams.err.read_bytes() or streams.out.read_bytes())[-MAX_SAID_BYTES:]
    return ended, " ".join(said.decode("utf-8", "replace").split())[-300:] or "it said nothing"
