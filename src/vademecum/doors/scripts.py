"""Running scripts of skills for an agent: behind the gate, in the sandbox, on the record."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path

from vademecum.assembly.workbench import OnRecord, tools_of
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.doors.journal import Journal
from vademecum.errors import SkillNotFound, VademecumError
from vademecum.policy.approval import Answer, Approver, Nobody, Question
from vademecum.policy.base import Decider
from vademecum.policy.engine import Policy, grants_file
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.registry.index import SkillIndex
from vademecum.skill.skill import Skill
from vademecum.tools.base import Observation
from vademecum.tools.calls import RunScript
from vademecum.tools.runtime import Tools
from vademecum.tools.workspace import Workspace

# Who is asked in the call that goes on: calls share their tools, and the number and the memory of them.
_IN_CHARGE: ContextVar[Approver] = ContextVar("_IN_CHARGE")


class _WhoeverIsInCharge:
    def ask(self, question: Question) -> Answer:
        """Ask the approver of this call."""
        return _IN_CHARGE.get().ask(question)


class Scripts:
    """Runs the scripts of skills as one agent may. Without an approver nobody is asked: that is a no.

    A person's no is raised as ``Declined``; everything else that goes wrong is an observation.
    """

    def __init__(  # noqa: PLR0913 - the parts
        self,
        index: SkillIndex,
        journal: Journal,
        *,
        policy: Decider | None = None,
        approver: Approver | None = None,
        agent: str = "default",
        context: Context | None = None,
    ) -> None:
        self._index = index
        self._journal = journal
        self._context = context or Context.current()
        self._policy = policy or Policy.load(self._context)
        self._approver = approver
        self._agent = agent
        self._known: dict[str, Skill] = {}
        self._lock = threading.Lock()

    def run(  # noqa: PLR0913 - what a call says, and who is asked
        self,
        skill: Skill,
        script: str,
        arguments: Sequence[str] = (),
        *,
        files: Sequence[str] = (),
        network: bool = False,
        approver: Approver | None = None,
        cancelled: Callable[[], bool] = bool,
    ) -> Observation:
        """Run one; it may read the files that are named here or among its arguments, and no others."""
        self._known[skill.location] = skill
        named = [word for word in arguments if self._is_file(word)]
        call = RunScript(
            skill.location, script, list(arguments), list(dict.fromkeys([*files, *named])), network=network
        )
        asked = approver or self._approver or Nobody(self._replay(skill, call))
        with self._lock:
            tools = self._tools
        token = _IN_CHARGE.set(asked)
        try:
            return tools.run(call, cancelled=cancelled)
        finally:
            _IN_CHARGE.reset(token)

    @cached_property
    def _tools(self) -> Tools:
        context = self._context
        project = (context.project_directories() or [context.cwd])[-1]
        record = self._journal.record
        approver = OnRecord(_WhoeverIsInCharge())
        approver.record = record
        grants = Grants(grants_file(context))
        return tools_of(
            Gate(self._policy, project=project, grants=grants, approver=approver),
            record,
            context=context,
            index=self._index,
            workspace=Workspace(context.cwd, project=project),
            execution=load_config(context).settings.execution,
            skill=self._skill,
            agent=self._agent,
        )

    def _skill(self, location: str) -> Skill:
        found = self._known.get(location)
        if found is None:
            raise SkillNotFound("No skill that was offered is meant: name it as the catalogue does.")
        return found

    def _is_file(self, word: str) -> bool:
        try:
            return not word.startswith("/") and Path(self._context.cwd, word).is_file()
        except (OSError, ValueError, VademecumError):
            return False

    def _replay(self, skill: Skill, call: RunScript) -> str:
        """The command by which a person can do it, where nobody can be asked."""
        words = ["vade", "exec", "--yes"]
        words += [word for file in call.files for word in ("--file", file) if file not in call.arguments]
        words += ["--network"] if call.network else []
        return shlex.join([*words, skill.name, call.script, *call.arguments])
