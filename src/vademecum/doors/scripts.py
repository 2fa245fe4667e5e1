"""Running scripts of skills for an agent: behind the gate, in the sandbox, on the record."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from vademecum.assembly.workbench import OnRecord, Shared, tools_of
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.doors.journal import Journal
from vademecum.errors import SkillNotFound
from vademecum.policy.approval import Answer, Approver, Nobody, Question
from vademecum.policy.base import Decider, Decision, Request
from vademecum.policy.engine import Policy, grants_file
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Record
from vademecum.skill.skill import Skill
from vademecum.tools.base import Observation
from vademecum.tools.calls import RunScript
from vademecum.tools.runtime import Tools
from vademecum.tools.workspace import Workspace

# Who is asked in the call that goes on: calls share a gate, which remembers what was answered.
_IN_CHARGE: ContextVar[Approver] = ContextVar("_IN_CHARGE")


class _WhoeverIsInCharge:
    def ask(self, question: Question) -> Answer:
        """Ask the approver of this call."""
        return _IN_CHARGE.get().ask(question)


@dataclass(slots=True)
class Rules:
    """Rules and skills as they are now: whoever keeps them up to date replaces them here."""

    policy: Decider
    index: SkillIndex

    def decide(self, request: Request) -> Decision:
        """What the rules of this moment say."""
        return self.policy.decide(request)


class Scripts:
    """Runs the scripts of skills as one agent may. Without an approver nobody is asked: that is a no.

    A person's no is raised as ``Declined``; everything else that goes wrong is an observation. What was
    answered "in this session" and what was declined holds for these scripts, unless they are ``forgetful``.
    """

    def __init__(  # noqa: PLR0913 - the parts
        self,
        rules: Rules | SkillIndex,
        journal: Journal,
        *,
        approver: Approver | None = None,
        agent: str = "default",
        context: Context | None = None,
        forgetful: bool = False,
    ) -> None:
        self._journal = journal
        self._context = context or Context.current()
        self._rules = Rules(Policy.load(self._context), rules) if isinstance(rules, SkillIndex) else rules
        self._approver = approver
        self._agent = agent
        self._forgetful = forgetful
        self._lock = threading.Lock()
        self._known: dict[str, Skill] = {}
        self._gate: Gate | None = None
        self._shared: tuple[Record, Shared] | None = None

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
        named = [word for word in arguments if self._is_file(word)]
        call = RunScript(
            skill.location, script, list(arguments), list(dict.fromkeys([*files, *named])), network=network
        )
        with self._journal.held() as record:
            with self._lock:
                self._known[skill.location] = skill
                tools = self._tools(record)
            token = _IN_CHARGE.set(approver or self._approver or Nobody(self._replay(skill, call)))
            try:
                return tools.run(call, cancelled=cancelled)
            finally:
                _IN_CHARGE.reset(token)

    def _tools(self, record: Record) -> Tools:
        context = self._context
        project = (context.project_directories() or [context.cwd])[-1]
        if self._shared is None or self._shared[0] is not record:
            self._shared = record, Shared.of(record)
            self._gate = None
        if self._gate is None or self._forgetful:
            approver = OnRecord(_WhoeverIsInCharge())
            approver.record = record
            grants = Grants(grants_file(context))
            self._gate = Gate(self._rules, project=project, grants=grants, approver=approver)
        return tools_of(
            self._gate,
            record,
            context=context,
            skill=self._skill,
            skill_at=self._rules.index.at,
            workspace=Workspace(context.cwd, project=project),
            execution=load_config(context).settings.execution,
            agent=self._agent,
            shared=self._shared[1],
        )

    def _skill(self, location: str) -> Skill:
        found = self._known.get(location)
        if found is None:
            raise SkillNotFound("No skill that was offered is meant: name it as the catalogue does.")
        return found

    def _is_file(self, word: str) -> bool:
        try:
            return not word.startswith("/") and Path(self._context.cwd, word).is_file()
        except (OSError, ValueError):
            return False

    def _replay(self, skill: Skill, call: RunScript) -> str:
        """The command by which a person can do it, where nobody can be asked."""
        words = ["vade", "exec", "--yes"]
        words += [word for file in call.files for word in ("--file", file) if file not in call.arguments]
        words += ["--network"] if call.network else []
        return shlex.join([*words, skill.name, call.script, *call.arguments])
