"""A script → the words that start it: by its kind, or by what its first line says."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import ToolRefused

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_SHEBANG_BYTES = 512

_BY_SUFFIX = {".sh": ["sh"], ".bash": ["bash"], ".js": ["node"], ".mjs": ["node"], ".cjs": ["node"]}
_PYTHON = frozenset({"python", "python2", "python3"})


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The words that stand before a script's path, and the directories they need to see."""

    words: tuple[str, ...]
    readable: tuple[Path, ...] = ()


def interpreter_of(script: Path, *, path: str) -> Interpreter:
    """Return how to start a script; ``path`` is where programs are looked for."""
    with open(script, "rb") as file:
        head = file.read(MAX_SHEBANG_BYTES)
    if script.suffix == ".py":
        return own_python()
    if head.startswith(b"#!"):
        words = _shebang(head)
        if not words:
            raise ToolRefused(f"The first line of {script.name!r} names no interpreter.", code="interpreter")
        if Path(words[0]).name in _PYTHON:
            return own_python(*words[1:])
        return _found(words, script, path)
    if script.suffix in _BY_SUFFIX:
        return _found(_BY_SUFFIX[script.suffix], script, path)
    if head.startswith(b"\x7fELF"):
        if not script.stat().st_mode & stat.S_IXUSR:
            raise ToolRefused(f"{script.name!r} is a program without its execute bit.", code="interpreter")
        return Interpreter(())
    known = ", ".join((".py", *_BY_SUFFIX))
    raise ToolRefused(
        f"It cannot be told how to run {script.name!r}: give it a first line with '#!', or one of {known}.",
        code="interpreter",
    )


def own_python(*words: str) -> Interpreter:
    """Return the interpreter that runs us; nothing is written beside the script, and no user site is read."""
    places = []
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        if not prefix.startswith("/usr"):
            places += [Path(prefix, part) for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    return Interpreter(
        (sys.executable, "-B", "-s", *words), tuple(place for place in places if place.exists())
    )


def _shebang(head: bytes) -> list[str]:
    """Return the words of the first line, whose end may be a Windows one; none if it cannot be read."""
    line = head[2:].partition(b"\n")[0].decode("utf-8", "replace").strip()
    try:
        words = [] if "\0" in line else shlex.split(line)
    except ValueError:
        return []
    if words and Path(words[0]).name == "env":
        return words[2:] if words[1:2] == ["-S"] else words[1:]
    return words


def _found(words: list[str], script: Path, path: str) -> Interpreter:
    name = words[0]
    # Only by its name, and only where programs are: a skill must not bring its own interpreter.
    program = shutil.which(Path(name).name, path=path)
    if program is None:
        raise ToolRefused(
            f"{script.name!r} needs {Path(name).name!r}, which is not installed here.", code="interpreter"
        )
    return Interpreter((program, *words[1:]), home_of(program))


def home_of(program: str) -> tuple[Path, ...]:
    """Return what a program that is not the system's own needs to see: itself, and what lies beside it."""
    real = Path(os.path.realpath(program))
    if str(real).startswith(("/usr/", "/bin/", "/sbin/")):
        return ()
    prefix = real.parent.parent
    lib = Path(os.path.realpath(prefix / "lib"))
    places = [Path(program), real]
    if lib.is_relative_to(prefix) and len(prefix.parts) > 2:
        places.append(lib)
    return tuple(place for place in dict.fromkeys(places) if place.exists())


def search_path(env_path: str) -> str:
    """Return where programs are looked for: the system's places, then the user's own, relative ones aside."""
    own = [place for place in env_path.split(":") if place.startswith("/")]
    return ":".join([SYSTEM_PATH, *own])
