"""Modules of ours → the words that run them in a fresh interpreter, which needs none of our files."""

from __future__ import annotations

import marshal
import sys
from functools import cache
from importlib.abc import InspectLoader
from types import CodeType, ModuleType

from vademecum.errors import SandboxFailed
from vademecum.sandbox.base import nameless

# The start of the interpreter is most of the cost: no `site`, and compiled modules are looked for first.
_PROGRAM = """
import marshal, sys
sys.path.reverse()
with open(int(sys.argv[1]), "rb") as told:
    parts, job = marshal.load(told)
for name, code in parts:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(job)
"""
# The interpreter behind a virtual environment starts a little faster, and runs none of its packages here.
_PYTHON: str = getattr(sys, "_base_executable", "") or sys.executable


def program_words(modules: tuple[ModuleType, ...], job: dict[str, object]) -> tuple[int, list[str]]:
    """Return a descriptor to pass on, and words that run ``main(job)`` of the last module.

    The modules stand in the order in which they need each other.
    """
    told = nameless(marshal.dumps((_compiled(modules), job)))
    return told, [_PYTHON, "-I", "-S", "-c", _PROGRAM, str(told)]


@cache
def _compiled(modules: tuple[ModuleType, ...]) -> list[tuple[str, CodeType]]:
    return [(module.__name__, _code(module)) for module in modules]


def _code(module: ModuleType) -> CodeType:
    loader = module.__spec__.loader if module.__spec__ else None
    found = loader.get_code(module.__name__) if isinstance(loader, InspectLoader) else None
    if found is None:
        raise SandboxFailed(f"The code of {module.__name__} was not found: install vademecum as files.")
    return found
