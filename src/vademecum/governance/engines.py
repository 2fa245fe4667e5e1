"""Carry out approved intents: by functions of a simulation, or by scripts of skills."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, partialmethod
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from vademecum.errors import CharterRefused, Denied, FileRefused, ToolRefused
from vademecum.files import read_capped
from vademecum.governance.definitions import EMPTY, GovernedAgent
from vademecum.governance.lint import FUNCTION, SCRIPT
from vademecum.tools.calls import RunScript

if TYPE_CHECKING:
    from vademecum.session.base import Result
    from vademecum.session.session import Session

MAX_PRINTED_BYTES = 1024 * 1024

Function = Callable[..., Any]
_METHODS = (FunctionType, BuiltinFunctionType, MethodType, staticmethod, classmethod, partial, partialmethod)


class _WithParameters:
    """Be an engine whose actions take parameters."""

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Carry out what has no parameters."""
        return self.execute(func_name, agent, EMPTY)

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Carry out ``func_name`` with parameters."""
        raise NotImplementedError


class Functions(_WithParameters):
    """Call Python functions by name; each gets the agent, and the parameters as keyword arguments.

    >>> engine = Functions({"rest": lambda agent: agent.id, "pay": lambda agent, amount: amount})
    >>> from vademecum.governance import Actor
    >>> agent = Actor("a1", "resident")
    >>> engine.call("rest", agent), engine.execute("pay", agent, {"amount": 3})
    ('a1', 3)
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = dict(functions)

    @classmethod
    def of(cls, model: object) -> Functions:
        """Return an engine of the public methods of an object, such as a simulation's model."""
        # Looked up without running any code of the object, such as a property.
        names = [name for name in dir(model) if FUNCTION.fullmatch(name)]
        methods = [name for name in names if isinstance(getattr_static(model, name, None), _METHODS)]
        return cls({name: getattr(model, name) for name in methods})

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Call the function of that name."""
        function = self._functions.get(func_name)
        if function is None:
            known = ", ".join(sorted(self._functions)[:20]) or "none"
            raise CharterRefused(f"The engine has no function {func_name!r}: there are {known}.")
        return function(agent, **parameters)


class Scripts(_WithParameters):
    """Run scripts of skills through a session, in the sandbox: ``skill:NAME/scripts/x.py``.

    The parameter ``arguments`` is the script's command line, and ``files`` are the files that it may read;
    every other parameter becomes ``--name value``. If the last line of output is a JSON object with
    ``state_changes``, the agent's state is changed, and the charter checks these changes as any others.

    >>> import vademecum as vm
    >>> from vademecum.governance import Actor
    >>> from vademecum.session.session import Session
    >>> index = vm.build_index(vm.BUILTIN_ROOT, vm.IndexOptions())
    >>> scripts = Scripts(Session(index))  # without an approver, nothing is approved
    >>> scripts.call("skill:file-diff/scripts/compare.py", Actor("a1", "clerk"))
    Traceback (most recent call last):
    ...
    vademecum.errors.Denied: ask script 'file-diff/scripts/compare.py' (nobody is there to ask).
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Run the script, or raise what went wrong."""
        found = SCRIPT.fullmatch(func_name)
        if found is None:
            raise CharterRefused(f"{func_name!r} is not a script: write skill:NAME/scripts/FILE.")
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


class Engines(_WithParameters):
    """Join two engines: a mapping that begins with ``skill:`` is a script, any other a function.

    >>> from vademecum.governance import Actor
    >>> tidy = "skill:tidy/scripts/a.py"
    >>> printed = Functions({tidy: lambda agent: "ran it"})  # in place of `Scripts`
    >>> engines = Engines(Functions({"rest": lambda agent: "rested"}), printed)
    >>> [engines.call(mapping, Actor("a1", "clerk")) for mapping in ("rest", tidy)]
    ['rested', 'ran it']
    """

    def __init__(self, functions: _WithParameters, scripts: _WithParameters) -> None:
        self._functions = functions
        self._scripts = scripts

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Pass it on to the engine that the mapping is for."""
        engine = self._scripts if func_name.startswith("skill:") else self._functions
        return engine.execute(func_name, agent, parameters)


def arguments_of(parameters: Mapping[str, Any]) -> list[str]:
    """Return the command line for parameters.

    >>> arguments_of({"arguments": ["a.csv"], "limit": 5, "title": "--force", "files": []})
    ['a.csv', '--limit', '5', '--title=--force']
    """
    words = [str(word) for word in parameters.get("arguments", ())]
    for name, value in parameters.items():
        if name not in {"arguments", "files"}:
            text = str(value)
            # A value that begins with a dash would be taken for an option.
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def _printed(seen: Result) -> str:
    """Return what the script printed, or nothing if that is too much."""
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
