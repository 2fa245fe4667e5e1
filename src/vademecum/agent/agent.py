"""The agent: a model and skills in a session. Each request is one run, on the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vademecum.agent.budget import Budget
from vademecum.agent.loop import Loop, Outcome, Settings
from vademecum.agent.mentions import Mentions, called_in, commanded, files_in
from vademecum.agent.prompt import State, request_section, untrusted
from vademecum.config import SandboxName
from vademecum.context import Context
from vademecum.errors import Declined, SkillNotFound, VademecumError
from vademecum.loader.catalogue import render_catalogue
from vademecum.models import sections
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.policy.approval import Approver
from vademecum.policy.base import Decider
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Listener
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.choose import choose_sandbox
from vademecum.session.base import Guard, Result
from vademecum.session.place import Place
from vademecum.session.session import Session
from vademecum.session.view import View
from vademecum.skill.skill import Skill

MAX_REQUEST_CHARS = 100_000
MAX_SUMMARY_CHARS = 4000
RANKED = 5
_ANY_TEXT = frozenset({"md", "txt"})  # they say nothing of what the file is about
CHARS_A_SKILL = 80  # at least: its name, its source and a few words
CATALOGUE_SHARE = 4  # of the prompt, at most a quarter


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent with skills. Each ``run`` is one request, from the first prompt to the answer, on the record.

    Without an approver nobody is asked, and what would need approval is refused. A ``guard`` is asked as
    well, for example a charter (``charter.guard("clerk", state)``). ``view`` saves work if many
    requests are run with the same index, rules and name.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index, models
    >>> index = build_index(BUILTIN_ROOT, IndexOptions())
    >>> told = models.scripted([{"action": {"type": "final_answer", "payload": {"text": "Three skills."}}}])
    >>> Agent(told, index).run("How many skills are there?").answer
    'Three skills.'
    >>> _ = Path("a.txt").write_text("one"), Path("b.txt").write_text("two")
    >>> Agent("offline", index).run("Compare a.txt with b.txt").status  # a script, and nobody to ask
    'refused'
    """

    model: Model | str
    index: SkillIndex
    policy: Decider | None = None
    approver: Approver | None = None
    name: str = "default"
    budget: Budget = Budget()
    settings: Settings | None = None
    context: Context | None = None
    listener: Listener | None = None
    runs: Path | None = None
    guard: Guard | None = None
    view: View | None = None
    sandbox: Callable[[SandboxName], Sandbox] = choose_sandbox

    def run(self, request: str, *, skills: Sequence[str] = (), before: str = "") -> Outcome:
        """Do what is asked, in a conversation of its own.

        ``skills`` are loaded first, as the person named them. ``before`` is what was said earlier: the model
        reads it, and nothing in it is a command.
        """
        return self.conversation().run(request, skills=skills, before=before)

    def conversation(self) -> Conversation:
        """Begin a conversation of several requests: skills stay active from one to the next."""
        session = Session(
            self.index,
            place=Place.at(self.context),
            policy=self.policy,
            view=self.view,
            agent=self.name,
            approver=self.approver,
            guard=self.guard,
            runs=self.runs,
            listener=self.listener,
            sandbox=self.sandbox,
        )
        return Conversation(self, session)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Several requests to one agent, in one session. Each is a run of its own."""

    agent: Agent
    session: Session

    def run(self, request: str, *, skills: Sequence[str] = (), before: str = "") -> Outcome:
        """Do what is asked, with the skills that are active."""
        text = request.encode("utf-8", "replace").decode()
        if not text.strip():
            raise VademecumError("The request is empty: say what is to be done.", code="request")
        if len(text) > MAX_REQUEST_CHARS:
            most = f"{MAX_REQUEST_CHARS:,} characters"
            raise VademecumError(
                f"The request is longer than {most}: put it into a file and name it.", code="request"
            )
        wanted = self.agent.model
        model = choose_model(wanted) if isinstance(wanted, str) else wanted
        active = [skill.skill_id for skill in self.session.active]
        named = list(dict.fromkeys([*skills, *self._called(text)]))
        return _Task(self.agent, model, self.session).start(text, active, named, before)

    def _called(self, request: str) -> list[str]:
        """Skills that the request calls by name; a first word ``/name`` that is none is said to be none."""
        first = commanded(request)
        if first is not None:
            self.agent.index.get(first)
        return [name for name in called_in(request) if self._is_known(name)]

    def _is_known(self, name: str) -> bool:
        try:
            return self.agent.index.get(name).controls.user_invocable
        except SkillNotFound:
            return False


class _Task:
    """One request in a session, and the children that it may have."""

    def __init__(self, agent: Agent, model: Model, session: Session) -> None:
        self._agent = agent
        self._model = model
        self._session = session
        self._state = State("", "", agent.budget)

    def start(self, request: str, active: Sequence[str], named: Sequence[str], before: str) -> Outcome:
        """Run the request from its first prompt on."""
        session = self._session
        mentions = files_in(request, session.place.workspace.is_file)
        ranked = self._ranked(mentions)
        record = session.begin(
            request,
            model=self._model.name,
            budget=_as_json(self._agent.budget),
            skills=len(session.view.offered),
            skills_named=list(named),
            ranked=ranked,
        )
        self._state = State(
            request_section(request, mentions.files, mentions.absent),
            self._catalogue(ranked),
            self._agent.budget,
            before=untrusted(before, kind="conversation") if before else "",
        )
        session.host = self
        try:
            loop = Loop(self._model, session, record, self._state, settings=self._settings())
            return loop.run(active, named)
        finally:
            session.host = None

    def has_room_for(self, text: str) -> bool:
        """Return whether a skill's instructions still fit into the prompt."""
        return self._state.has_room_for(text)

    def run_subagent(self, skill: Skill, task: str, effect: str) -> Result:
        """Run one skill by itself, with its own context, half of what is left, and the same rules."""
        state = self._state
        budget = state.budget.share(state.spent)
        if min(budget.turns, budget.tool_calls, budget.script_runs) < 1:
            return Result(f"Too little is left of the budget to run {skill.name}.", "budget")
        session = self._session.child()
        loaded = session.nested_body(skill)
        request = sections.safe(task) if task else state.request
        record = session.begin(
            request,
            model=self._model.name,
            budget=_as_json(budget),
            skills=1,
            parent=self._session.run_id,
        )
        self._session.write("child_started", run=record.run_id, skill=skill.skill_id, budget=_as_json(budget))
        inner = State(request, "This is a run of its own, for the loaded skill alone.", budget)
        session.load_nested(skill, loaded, effect)
        inner.keep(skill, loaded.text)
        outcome = Loop(self._model, session, record, inner, settings=self._settings()).run()
        state.spent.add(inner.spent)
        self._session.write("child_finished", run=record.run_id, status=outcome.status)
        if outcome.status == "declined":  # a no to the child is a no to its parent
            raise Declined(outcome.answer)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        code = "" if outcome.status == "done" else outcome.status
        return Result(f"{skill.name} ran by itself:\n{outcome.answer[:MAX_SUMMARY_CHARS]}", code, "tool")

    def _settings(self) -> Settings:
        return self._agent.settings or Settings(
            keep_model_text=self._session.place.config.runs.keep_model_text
        )

    def _ranked(self, mentions: Mentions) -> list[str]:
        """The skills that search puts first; what files are called says little, what they end in more."""
        found = {Path(file).suffix.lstrip(".").lower(): None for file in mentions.files}
        endings = " ".join(ending for ending in found if ending not in _ANY_TEXT)
        return [hit.name for hit in self._session.view.search(f"{mentions.rest} {endings}", RANKED)]

    def _catalogue(self, ranked: Sequence[str]) -> str:
        """The skills to choose from, and those that search puts first; of too many, the first ones."""
        offered = self._session.view.offered.skills
        if not offered:
            return ""
        room = self._agent.budget.context_chars // CATALOGUE_SHARE
        first = set(ranked)
        ordered = sorted(offered, key=lambda skill: skill.name not in first)
        listed = ordered[: max(RANKED, room // CHARS_A_SKILL)]
        text = sections.safe(_listing(listed, first, room))
        if len(listed) < len(ordered):
            text += (
                f"\n({len(ordered) - len(listed):,} more skills are not listed; name the task to find them)"
            )
        return text + (f"\nranked first by search: {', '.join(ranked)}" if ranked else "")


def _listing(skills: Sequence[Skill], first: set[str], room: int) -> str:
    """The catalogue by name; where descriptions have to be cut, those that search puts first stay whole."""
    by_name = sorted(skills, key=lambda skill: skill.name)
    whole = render_catalogue(by_name, budget=room)
    best = [skill for skill in by_name if skill.name in first]
    if not whole.shortened or not best:
        return whole.text
    head = render_catalogue(best, budget=room).text
    others = [skill for skill in by_name if skill.name not in first]
    return head + render_catalogue(others, budget=room - len(head)).text.removeprefix("Available Skills:")


def _as_json(budget: Budget) -> dict[str, int]:
    return asdict(budget)
