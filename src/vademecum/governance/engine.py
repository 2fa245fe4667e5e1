"""Engines: functions of a simulation, scripts of skill directories, and both behind one charter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, partialmethod
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from vademecum.errors import CharterRefused, Denied, FileRefused, ToolRefused
from vademecum.files import read_capped
from vademecum.governance.base import Engine
from vademecum.governance.lint import FUNCTION, SCRIPT
from vademecum.governance.model import Agent
from vademecum.tools.calls import RunScript

if TYPE_CHECKING:
    from vademecum.session.base import Result
    from vademecum.session.session import Session

MAX_PRINTED_BYTES = 1024 * 1024

Function = Callable[..., Any]
_METHODS = (FunctionType, BuiltinFunctionType, MethodType, staticmethod, classmethod, partial, partialmethod)


class Functions:
    """An engine of Python functions by their names; each gets the agent, and the parameters by name.

    >>> engine = Functions({"rest": lambda agent: agent.id})
    >>> from vademecum.governance.model import Actor
    >>> engine.call("rest", Actor("a1", "resident"), {})
    'a1'
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = dict(functions)

    @classmethod
    def of(cls, model: object) -> Functions:
        """The public methods of an object, such as a simulation's model."""
        # Looked up without calling anything: a property is no function, and asking for it may do things.
        names = [name for name in dir(model) if FUNCTION.fullmatch(name)]
        methods = [name for name in names if isinstance(getattr_static(model, name, None), _METHODS)]
        return cls({name: getattr(model, name) for name in methods})

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> Any:
        """Call the function of that name."""
        function = self._functions.get(mapping)
        if function is None:
            known = ", ".join(sorted(self._functions)[:20]) or "none"
            raise CharterRefused(f"The engine has no function {mapping!r}: there are {known}.")
        return function(agent, **parameters)


class Scripts:
    """An engine of skills' scripts: ``skill:NAME/scripts/x.py`` runs through a session, in the sandbox.

    The parameter ``arguments`` is the script's command line and ``files`` are what it may read; every other
    parameter becomes ``--name value``. A last line of output that is a JSON object with ``state_changes``
    changes the agent's state; the charter checks these changes as any others.

    >>> import vademecum as vm
    >>> from vademecum.governance import Actor
    >>> from vademecum.session.session import Session
    >>> index = vm.build_index(vm.BUILTIN_ROOT, vm.IndexOptions())
    >>> scripts = Scripts(Session(index))  # without an approver, so that nobody says yes
    >>> scripts.call("skill:file-diff/scripts/compare.py", Actor("a1", "clerk"), {})
    Traceback (most recent call last):
    ...
    vademecum.errors.Denied: ask script 'file-diff/scripts/compare.py' (nobody is there to ask).
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> Any:
        """Run the script, or raise with what went wrong."""
        found = SCRIPT.fullmatch(mapping)
        if found is None:
            raise CharterRefused(f"{mapping!r} names no script: write skill:NAME/scripts/FILE.")
        skill = self._session.activate(found["skill"])
        files = [str(path) for path in parameters.get("files", ())]
        call = RunScript(skill.skill_id, found["script"], arguments_of(parameters), files)
        seen = self._session.call(call)
        if seen.code == "denied":
            raise Denied(seen.text, advice=seen.advice)
        if seen.code or seen.facts.get("exit_code") != 0:
            raise ToolRefused(seen.text, code=seen.code or "script-failed")
        agent.state.update(_changes_in(_printed(seen)))
        return seen.text


class Engines:
    """Two engines as one: mappings that begin with ``skill:`` are scripts, all others functions.

    >>> from vademecum.governance import Actor
    >>> class Printed:  # in place of `Scripts`, which runs them
    ...     def call(self, mapping, agent, parameters):
    ...         return f"ran {mapping}"
    >>> engines = Engines(Functions({"rest": lambda agent: "rested"}), Printed())
    >>> [engines.call(mapping, Actor("a1", "clerk"), {}) for mapping in ("rest", "skill:tidy/scripts/a.py")]
    ['rested', 'ran skill:tidy/scripts/a.py']
    """

    def __init__(self, functions: Engine, scripts: Engine) -> None:
        self._functions = functions
        self._scripts = scripts

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> Any:
        """Call the one that the mapping is for."""
        engine = self._scripts if mapping.startswith("skill:") else self._functions
        return engine.call(mapping, agent, parameters)


def arguments_of(parameters: Mapping[str, Any]) -> list[str]:
    """The command line that parameters become.

    >>> arguments_of({"arguments": ["a.csv"], "limit": 5, "title": "--force", "files": []})
    ['a.csv', '--limit', '5', '--title=--force']
    """
    words = [str(word) for word in parameters.get("arguments", ())]
    for name, value in parameters.items():
        if name not in {"arguments", "files"}:
            text = str(value)
            # What begins like an option is tied to its own, or it would be one.
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def _printed(seen: Result) -> str:
    """What the script printed, where it is not too much to be a few changes."""
    try:
        return read_capped(seen.files[0], cap=MAX_PRINTED_BYTES).decode("utf-8", "replace")
    except (IndexError, OSError, FileRefused):
        return ""


def _changes_in(text: str) -> dict[str, Any]:
    last = text.rstrip().rpartition("\n")[2]
    if not last.startswith("{"):
        return {}
    try:
        found = json.loads(last)
    except ValueError:
        return {}
    changes = found.get("state_changes", {})
    return changes if isinstance(changes, dict) else {}
