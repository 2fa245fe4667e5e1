"""Carry out approved intents: what an engine is, and one that calls Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vademecum.errors import CharterRefused
from vademecum.governance.definitions import EMPTY, GovernedAgent


class Engine(Protocol):
    """Carry out what was approved: change the agent's state and the shared state, and nothing else.

    Only these two are compared; the states of other agents are not. An engine does not propose while it acts.
    An engine that takes parameters also has ``execute(func_name, agent, parameters)``, as ``Functions`` has.

    >>> class Diary:
    ...     def call(self, func_name, agent):
    ...         agent.state["did"] = func_name
    >>> from vademecum.governance import Actor, Broker, SkillDefinition, SkillRegistry
    >>> rest = SkillDefinition("rest", allowed_state_changes=["did"], implementation_mapping="sleep")
    >>> agent = Actor("a1", "resident")
    >>> Broker(SkillRegistry([rest]), None, Diary()).propose(agent, "rest").executed, agent.state
    ('rest', {'did': 'sleep'})
    """

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Do what ``implementation_mapping`` names; an exception is a failure, and is undone."""
        ...


class Functions:
    """Call Python functions by name; each gets the agent, and the parameters as keyword arguments.

    >>> engine = Functions({"rest": lambda agent: agent.id, "pay": lambda agent, amount: amount})
    >>> from vademecum.governance import Actor
    >>> agent = Actor("a1", "resident")
    >>> engine.call("rest", agent), engine.execute("pay", agent, {"amount": 3})
    ('a1', 3)
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = dict(functions)

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Call the function of that name without parameters."""
        return self.execute(func_name, agent, EMPTY)

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Call the function of that name."""
        function = self._functions.get(func_name)
        if function is None:
            known = ", ".join(sorted(self._functions)[:20]) or "none"
            raise CharterRefused(f"The engine has no function {func_name!r}: there are {known}.")
        return function(agent, **parameters)
