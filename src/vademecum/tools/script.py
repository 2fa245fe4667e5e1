"""``run_script``: a script of a skill, as it was approved, in a sandbox, with nothing it was not given."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from vademecum.config import ExecutionSettings
from vademecum.errors import ToolRefused
from vademecum.files import read_up_to
from vademecum.paths import open_contained
from vademecum.policy.grants import Approved
from vademecum.sandbox.base import Jail, Limits, Sandbox
from vademecum.sandbox.interpreters import SYSTEM_PATH, Interpreter, interpreter_of
from vademecum.sandbox.process import Ended, Streams, run_command
from vademecum.skill.assets import Sees, everything, script_path
from vademecum.skill.digest import file_digests
from vademecum.skill.skill import Skill
from vademecum.skill.text import escaped, visible, without_hidden
from vademecum.tools.calls import Observation, RunScript
from vademecum.tools.snapshot import Snapshot
from vademecum.tools.workspace import Located, open_file
from vademecum.tools.writing import difference

MAX_SCRIPT_BYTES = 1024 * 1024
MAX_INPUT_BYTES = 1024 * 1024 * 1024
MAX_SHOWN_WORDS, MAX_WORD_CHARS, MAX_SHOWN_CHARS = 50, 200, 1500
MAX_SHOWN_LINES = 20
MAX_HEAD_CHARS, MAX_TAIL_CHARS = 12_000, 4_000
MAX_LISTED_FILES = 50

_MB = 1024 * 1024
_OPENS, _CLOSES = "# /// script", "# ///"
_STOPPED = {
    "cancelled": "whoever wanted it does not any more",
    "time": "it ran out of its time (execution.seconds)",
    "memory": "it used too much memory",
    "processes": "it started too many processes",
    "disk": "it wrote too much",
}


class Needs(Struct, frozen=True):
    """What a script declares, what of it is not installed, and what is wrong with the declaration."""

    requirements: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""


def needs_of(text: str) -> Needs:
    r"""Read the declaration.

    >>> needs_of('# /// script\n# dependencies = ["no-such-thing>=2"]\n# ///\n').missing
    ('no-such-thing>=2',)
    """
    blocks = _blocks(text)
    if not blocks:
        return Needs()
    if len(blocks) > 1:
        return Needs(problem="it has more than one '# /// script' block")
    try:
        found = tomllib.loads(blocks[0]).get("dependencies", [])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return Needs(problem=f"its '# /// script' block is not valid TOML ({error})")
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        return Needs(problem="its 'dependencies' are not a list of texts")
    return Needs(tuple(found), tuple(item for item in found if not _is_met(item)))


def _blocks(text: str) -> list[str]:
    """The blocks as TOML: comment lines from an opening line to the last closing line that follows on."""
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line != _OPENS:
            continue
        block: list[str] = []
        closed = 0
        for inner in lines:
            if inner == _CLOSES:
                closed = len(block)
            elif inner != "#" and not inner.startswith("# "):
                break
            block.append(inner[2:])
        if _CLOSES[2:] in block:
            found.append("\n".join(block[:closed]))
    return found


def _is_met(requirement: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - for these alone

    try:
        wanted = Requirement(requirement)
    except InvalidRequirement:
        return False
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.url is None and wanted.specifier.contains(installed, prereleases=True)


@dataclass(frozen=True, slots=True)
class Input:
    """A file that a script may read: what it was called, and the copy that the script gets."""

    name: str
    typed: str
    copy: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """What would run: the script as it lies in the snapshot, how it is started, and with what."""

    call: RunScript
    skill: Skill
    relative: str
    snapshot: Snapshot
    interpreter: Interpreter
    inputs: tuple[Input, ...]
    text: str
    needs: Needs

    @property
    def resource(self) -> str:
        """What the rules are asked about."""
        return f"{self.skill.name}/{self.relative}"

    @property
    def file(self) -> Path:
        """The script in the snapshot."""
        return self.snapshot.path / self.relative

    def exact(self) -> str:
        """Return everything besides the skill that decides what it does: its words and its inputs."""
        inputs = [(given.typed, _hash(given.copy)) for given in self.inputs]
        return repr((self.call.args, self.call.network, inputs))

    @property
    def files(self) -> dict[str, str]:
        """The digests of all files that the script comes with."""
        return file_digests(str(self.snapshot.path))


def copy_inputs(inputs: Sequence[tuple[str, Located]], place: Path) -> tuple[Input, ...]:
    """Copies of the files a script may read, taken from what was opened: no link can lead elsewhere later."""
    found, left = [], MAX_INPUT_BYTES
    for number, (typed, located) in enumerate(inputs):
        copy = place / f"{number}" / Path(located.relative).name
        copy.parent.mkdir(parents=True)
        with os.fdopen(open_file(located), "rb") as given:
            left -= os.fstat(given.fileno()).st_size
            if left < 0:
                most = f"{MAX_INPUT_BYTES:,} bytes"
                raise ToolRefused(f"The files to read are larger than {most} together.", code="too-large")
            with open(copy, "wb") as out:
                shutil.copyfileobj(given, out)
        found.append(Input(located.name, typed, copy))
    return tuple(found)


@contextlib.contextmanager
def inputs_kept(place: Path) -> Iterator[None]:
    """Keep the copies of inputs no longer than they are needed, whether the script ran or not."""
    try:
        yield
    finally:
        _remove(place)


def plan_script(  # noqa: PLR0913 - what a script depends on
    call: RunScript,
    skill: Skill,
    snapshot: Snapshot,
    inputs: tuple[Input, ...],
    *,
    path: str,
    sees: Sees = everything,
) -> Plan:
    """Find out how a script would be run; nothing runs yet."""
    relative = os.path.relpath(script_path(skill, call.relative_path, sees=sees), skill.location)
    descriptor = open_contained(snapshot.path, relative)
    try:
        head = read_up_to(descriptor, MAX_SCRIPT_BYTES)
    finally:
        os.close(descriptor)
    interpreter = interpreter_of(snapshot.path / relative, path=path)
    text = head.decode("utf-8", "replace") if b"\0" not in head else _binary(head)
    needs = needs_of(text) if relative.endswith(".py") else Needs()
    interpreter = _with_needs(interpreter, needs, call, path)
    return Plan(call, skill, relative, snapshot, interpreter, inputs, text, needs)


def about_script(plan: Plan, *, approved: Approved | None, sandbox: str, limits: Limits) -> str:
    """What a person should see before a yes: the command, what it may do, the script or its changes."""
    call = plan.call
    network = "with the network, whatever this machine reaches" if call.network else "no network"
    facts = f"risk: medium · sandbox: {sandbox} · {network} · at most {limits.seconds:.0f} s"
    lines = [f"run {_shown_words([plan.resource, *call.args])}", facts]
    if plan.inputs:
        lines.append(f"reads: {_shown_words([given.name for given in plan.inputs], ', ')}")
    if plan.needs.requirements:
        missing = f" (not installed: {', '.join(plan.needs.missing)})" if plan.needs.missing else ""
        lines.append(f"needs: {', '.join(plan.needs.requirements)}{missing}")
    if approved is None:
        return "\n".join([*lines, "the script begins:", *_first_lines(plan.text)])
    files = plan.files
    changed = sorted(
        name for name in {*files, *approved.files} if files.get(name) != approved.files.get(name)
    )
    if not changed:
        return "\n".join([*lines, "nothing of the skill has changed since it was last approved"])
    lines.append(f"changed since it was last approved: {', '.join(changed[:MAX_LISTED_FILES])}")
    return "\n".join([*lines, difference(approved.text, plan.text, plan.relative)])


def _shown_words(words: Sequence[str], between: str = " ") -> str:
    """Words on one line of bounded length, in which none can pass for another line of ours."""
    shown, left = [], MAX_SHOWN_CHARS
    for word in words[:MAX_SHOWN_WORDS]:
        plain = escaped(word)
        plain = shlex.quote(plain if len(plain) <= MAX_WORD_CHARS else f"{plain[:MAX_WORD_CHARS]}…")
        left -= len(plain)
        if left < 0:
            break
        shown.append(plain)
    more = len(words) - len(shown)
    return between.join(shown) + (f" … and {more:,} more" if more else "")


def limits_of(settings: ExecutionSettings) -> Limits:
    """The limits that the configuration sets."""
    return Limits(
        seconds=settings.seconds,
        memory_bytes=settings.memory_mb * _MB,
        processes=settings.processes,
        disk_bytes=settings.disk_mb * _MB,
        file_bytes=max(1, settings.disk_mb // 2) * _MB,
    )


def run_script(  # noqa: PLR0913 - what a script depends on
    plan: Plan,
    sandbox: Sandbox,
    place: Path,
    *,
    limits: Limits,
    environment: Mapping[str, str],
    cancelled: Callable[[], bool] = bool,
    mask: Callable[[Path], None] = lambda _: None,
) -> Observation:
    """Run it in a directory of its own below ``place``, and report what came of it."""
    work, home, temporary, shared = (place / name for name in ("work", "home", "tmp", "shared"))
    for directory in (work, home, temporary, shared):
        directory.mkdir(parents=True)
    for given in plan.inputs:
        _link(work, given)
    readable = [plan.snapshot.path, *plan.interpreter.readable]
    readable += [place / "inputs"] if plan.inputs else []
    streams = Streams(place / "stdout", place / "stderr")
    for stream in (streams.out, streams.err):
        stream.touch()
    own = {"HOME": str(home), "TMPDIR": str(temporary), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    jail = Jail(
        directory=work,
        environment={**environment, **own},
        readable=tuple(dict.fromkeys(readable)),
        writable=(work, home, temporary, streams.out, streams.err),
        shared=shared,
        network=plan.call.network,
        limits=limits,
    )
    # A file that is named by its absolute path is not there in the sandbox: the script gets the copy's.
    copies = {given.typed: str(given.copy) for given in plan.inputs if given.typed.startswith("/")}
    arguments = [copies.get(word, word) for word in plan.call.args]
    argv = [*plan.interpreter.words, str(plan.file), *arguments]
    try:
        ended = run_command(sandbox, argv, jail, streams=streams, cancelled=cancelled)
    finally:
        for directory in (home, temporary, shared):
            _remove(directory)
    for stream in (streams.out, streams.err):
        mask(stream)
    return _observed(plan, ended, streams, work, sandbox)


def _with_needs(interpreter: Interpreter, needs: Needs, call: RunScript, path: str) -> Interpreter:
    """The interpreter, or uv where a Python script declares packages that are not here and the network is."""
    if needs.problem:
        raise ToolRefused(
            f"The script {call.relative_path!r} cannot be run: {needs.problem}.", code="dependencies"
        )
    if not needs.missing:
        return interpreter
    uv = shutil.which("uv", path=path)
    if uv is None or not call.network:
        way = "ask for the network as well" if uv else "install them, or uv and ask for the network"
        raise ToolRefused(
            f"The script {call.relative_path!r} needs {', '.join(needs.missing)}, not installed here: {way}.",
            code="dependencies",
        )
    words = (
        uv,
        "run",
        "--no-project",
        "--no-config",
        "--quiet",
        "--python",
        interpreter.words[0],
        "--script",
    )
    return Interpreter(words, (*interpreter.readable, Path(uv), Path(os.path.realpath(uv))))


def _link(work: Path, given: Input) -> None:
    """Make an input reachable under the name it was given by; all directories on the way are new."""
    name = work / given.name
    if not given.name.startswith("/") and not os.path.lexists(name):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(given.copy)


def _remove(directory: Path) -> None:
    """Remove what a script left, however it tried to keep it."""

    def opened(function: Callable[[str], None], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            function(path)

    with contextlib.suppress(RecursionError, OSError):
        shutil.rmtree(directory, onerror=opened)
    if directory.exists():
        subprocess.run(["rm", "-rf", "--", str(directory)], check=False, stderr=subprocess.DEVNULL)  # noqa: S603, S607


def _binary(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"[not text: {len(data):,} bytes, sha256 {digest}]"


def _first_lines(text: str) -> list[str]:
    lines = text.splitlines()
    more = len(lines) - MAX_SHOWN_LINES
    return [*lines[:MAX_SHOWN_LINES], *([f"… and {more:,} more lines"] if more > 0 else [])]


def _observed(plan: Plan, ended: Ended, streams: Streams, work: Path, sandbox: Sandbox) -> Observation:
    if ended.reason == "exited":
        lines = [f"{plan.resource} ended with exit code {ended.exit_code} after {ended.seconds:.2f} s."]
    else:
        lines = [f"{plan.resource} was stopped after {ended.seconds:.2f} s: {_STOPPED[ended.reason]}."]
    for name, file in (("printed", streams.out), ("complained", streams.err)):
        if file.stat().st_size:
            lines += [f"It {name}:", _shown(file)]
    if not streams.out.stat().st_size and not streams.err.stat().st_size:
        lines.append("It printed nothing.")
    made = [visible(name) for name in _made(work)]
    if made:
        lines.append(f"It made: {', '.join(made)} in {work}")
    facts = {
        "exit_code": ended.exit_code,
        "reason": ended.reason,
        "sandbox": sandbox.name,
        "digest": plan.snapshot.digest,
        "script_sha256": hashlib.sha256(plan.file.read_bytes()).hexdigest(),
        "stdout_bytes": streams.out.stat().st_size,
        "stdout_sha256": _hash(streams.out),
        "stderr_bytes": streams.err.stat().st_size,
        "stderr_sha256": _hash(streams.err),
        "made": made,
        "work": str(work),
    }
    files = (str(streams.out), str(streams.err))
    code = "" if ended.reason == "exited" else f"stopped-{ended.reason}"
    return Observation("run_script", "\n".join(lines), code, facts, files)


def _shown(file: Path) -> str:
    """The beginning and the end of what was printed."""
    size = file.stat().st_size
    with open(file, "rb") as data:
        head = data.read(MAX_HEAD_CHARS + MAX_TAIL_CHARS)
        if size <= MAX_HEAD_CHARS + MAX_TAIL_CHARS:
            return _clean(head)
        data.seek(size - MAX_TAIL_CHARS)
        tail = data.read(MAX_TAIL_CHARS)
    left_out = size - MAX_HEAD_CHARS - MAX_TAIL_CHARS
    middle = f"\n[… {left_out:,} bytes left out, kept in {file} …]\n"
    return _clean(head[:MAX_HEAD_CHARS]) + middle + _clean(tail)


def _clean(data: bytes) -> str:
    return without_hidden(data.decode("utf-8", "replace"))[0].rstrip("\n")


def _made(work: Path) -> list[str]:
    """The files that the script left in its directory, links to its inputs aside."""
    found: list[str] = []
    for directory, names, files in os.walk(work):
        names.sort()
        for name in sorted(files):
            path = f"{directory}/{name}"
            if not os.path.islink(path):
                found.append(os.path.relpath(path, work))
            if len(found) == MAX_LISTED_FILES:
                return found
    return found


def _hash(file: Path) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
