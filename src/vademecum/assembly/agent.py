"""The agent, put together: a model, skills, the rules of this place, tools and a record for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vademecum.agent.budget import Budget
from vademecum.agent.doing import Doer, Done, Parts
from vademecum.agent.loop import Loop, Outcome, Settings
from vademecum.agent.mentions import Mentions, called_in, commanded, files_in
from vademecum.agent.prompt import State, request_section, untrusted
from vademecum.assembly.workbench import OnRecord, tools_of
from vademecum.config import SandboxName, load_config
from vademecum.context import Context
from vademecum.errors import Declined, SkillNotFound, VademecumError
from vademecum.loader.body import BodyLimits, load_body
from vademecum.loader.catalogue import render_catalogue
from vademecum.masking import Secrets
from vademecum.models import sections
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.policy.approval import Approver, Nobody
from vademecum.policy.base import Decider, Effect, Request, Rule
from vademecum.policy.engine import RUN, Policy, grants_file
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.registry.index import SkillIndex
from vademecum.runs.place import new_run, runs_directory
from vademecum.runs.record import Listener, Record
from vademecum.search.finder import Finder
from vademecum.skill.skill import Skill
from vademecum.tools.runtime import Tools
from vademecum.tools.sandbox.base import Sandbox
from vademecum.tools.sandbox.choose import choose_sandbox
from vademecum.tools.workspace import Workspace

if TYPE_CHECKING:  # what only a run under a charter needs is imported by it
    from vademecum.assembly.charter import Chartered, Past
    from vademecum.governance.charter import Charter

MAX_REQUEST_CHARS = 100_000
MAX_SUMMARY_CHARS = 4000
RANKED = 5
_ANY_TEXT = frozenset({"md", "txt"})  # they say nothing of what the file is about
CHARS_A_SKILL = 80  # at least: its name, its source and a few words
CATALOGUE_SHARE = 4  # of the prompt, at most a quarter


def allowing(tools: Iterable[str]) -> list[Rule]:
    """The rules of a run that was started with ``--allow``, one tool after the other."""
    finer = {
        "run_script": "script",
        "write_file": "write",
        "delete_file": "delete",
        "network_request": "network",
    }
    wanted: list[tuple[str, str, Effect]] = []
    for tool in tools:
        wanted.append(("tool", tool, Effect.ALLOW))
        if tool in finer:
            wanted.append((finer[tool], "*", Effect.ALLOW))
    # What nobody may write stays so: a flag for writing means the project's own files.
    kept = (".git/*", "*/.git/*", ".agent/*", "*/.agent/*")
    wanted += [("write", pattern, Effect.DENY) for pattern in kept]
    return (
        [Rule(*rule, RUN, number) for number, rule in enumerate(wanted, 1)] if len(wanted) > len(kept) else []
    )


@dataclass(frozen=True, slots=True)
class Library:
    """The skills that a model may know of, and search over them: made once, used by any number of runs."""

    offered: SkillIndex
    finder: Finder
    snapshot: dict[str, Any]

    @classmethod
    def of(cls, index: SkillIndex, policy: Decider, *, agent: str = "default") -> Library:
        """What the rules let this agent know of: what is denied does not exist."""

        def is_offered(skill: Skill) -> bool:
            request = Request("skill", (skill.name,), "model", agent, skill.name)
            return policy.decide(request).effect is not Effect.DENY

        shadowed = [skill for skill in index.shadowed if not skill.controls.disable_model_invocation]
        offered = index.restricted(filter(is_offered, index.for_model()), filter(is_offered, shadowed))
        return cls(offered, Finder(index, skills=offered.skills), index.to_json())


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent with skills. Each ``run`` is one request, from the first prompt to the answer, on the record.

    Without an approver nobody is asked, and what would need approval is refused. A ``charter`` is asked as
    well, for an agent of this type and in this state; it charges its costs to the state. ``library`` is for
    those who run many requests with the same index, rules and name.

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
    charter: Charter | None = None
    agent_type: str = "agent"
    state: dict[str, Any] = field(default_factory=dict)
    library: Library | None = None
    sandbox: Callable[[SandboxName], Sandbox] = choose_sandbox

    def run(self, request: str, *, skills: Sequence[str] = (), before: str = "") -> Outcome:
        """Do what is asked.

        ``skills`` are loaded first, as the person named them. ``before`` is what was said earlier: the model
        reads it, and nothing in it is a command.
        """
        text = request.encode("utf-8", "replace").decode()
        if not text.strip():
            raise VademecumError("The request is empty: say what is to be done.", code="request")
        if len(text) > MAX_REQUEST_CHARS:
            most = f"{MAX_REQUEST_CHARS:,} characters"
            raise VademecumError(
                f"The request is longer than {most}: put it into a file and name it.", code="request"
            )
        context = self.context or Context.current()
        model = choose_model(self.model) if isinstance(self.model, str) else self.model
        named = list(dict.fromkeys([*skills, *self._called(text)]))
        return _Session(self, model, context).start(text, named, before)

    def _called(self, request: str) -> list[str]:
        """Skills that the request calls by name; a first word ``/name`` that is none is said to be none."""
        first = commanded(request)
        if first is not None:
            self.index.get(first)
        return [name for name in called_in(request) if self._is_known(name)]

    def _is_known(self, name: str) -> bool:
        try:
            return self.index.get(name).controls.user_invocable
        except SkillNotFound:
            return False


class _Session:
    """The parts of one run, and of the children it may have."""

    def __init__(self, agent: Agent, model: Model, context: Context) -> None:
        self._agent = agent
        self._model = model
        self._context = context
        self._config = load_config(context).settings
        project = (context.project_directories() or [context.cwd])[-1]
        self._workspace = Workspace(context.cwd, project=project)
        self._secrets = Secrets(context.env)
        self._past: Past | None = None
        policy = agent.policy or Policy.load(context)
        self._policy = policy
        self._approver = OnRecord(agent.approver or Nobody())
        grants = Grants(grants_file(context))
        self._gate = Gate(policy, project=project, grants=grants, approver=self._approver)

    @cached_property
    def _library(self) -> Library:
        """Found out once the record is there, which is to tell of everything."""
        agent = self._agent
        return agent.library or Library.of(agent.index, self._policy, agent=agent.name)

    def start(self, request: str, named: Sequence[str], before: str) -> Outcome:
        """Run the request from its first prompt on."""
        record = self._record()
        offered = self._library.offered
        mentions = files_in(request, self._is_file)
        ranked = self._ranked(mentions)
        self._begin(
            record,
            request,
            self._agent.budget,
            skills=len(offered),
            skills_named=list(named),
            ranked=ranked,
        )
        state = State(
            request_section(request, mentions.files, mentions.absent),
            self._catalogue(ranked),
            self._agent.budget,
            before=untrusted(before, kind="conversation") if before else "",
        )
        return self._loop_and_doer(record, state, offered)[0].run(named)

    def _begin(self, record: Record, request: str, budget: Budget, **more: Any) -> None:
        index = self._agent.index
        record.snapshot(index.hash, lambda: self._library.snapshot)
        record.add(
            "run_started",
            request=request,
            model=self._model.name,
            agent=self._agent.name,
            index_hash=index.hash,
            budget=_as_json(budget),
            **more,
        )

    def _child(self, parent: Record, skill: Skill, state: State) -> Done:
        """A run of its own for one skill, with its own context, half of what is left, and the same gate."""
        budget = state.budget.share(state.spent)
        if min(budget.turns, budget.tool_calls, budget.script_runs) < 1:
            return Done(f"Too little is left of the budget to run {skill.name}.", code="budget")
        loaded = load_body(skill, limits=self._limits())
        record = self._record()
        parent.add("child_started", run=record.run_id, skill=skill.skill_id, budget=_as_json(budget))
        self._begin(record, state.request, budget, skills=1, parent=parent.run_id)
        inner = State(state.request, "This is a run of its own, for the loaded skill alone.", budget)
        loop, doer = self._loop_and_doer(record, inner, self._agent.index.restricted([]))
        doer.keep(skill, loaded.text, inner)
        record.add(
            "skill_loaded",
            skill=skill.skill_id,
            origin="nested",
            effect="allow",
            report=loaded.report.to_json(),
        )
        outcome = loop.run()
        state.spent.add(inner.spent)
        parent.add("child_finished", run=record.run_id, status=outcome.status)
        self._approver.record = parent
        if outcome.status == "declined":  # a no to the child is a no to its parent
            raise Declined(outcome.answer)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        code = "" if outcome.status == "done" else outcome.status
        return Done(
            f"{skill.name} ran by itself:\n{outcome.answer[:MAX_SUMMARY_CHARS]}", code=code, kind="tool"
        )

    def _loop_and_doer(self, record: Record, state: State, offered: SkillIndex) -> tuple[Loop, Doer]:
        agent = self._agent
        self._approver.record = record
        known: dict[str, Skill] = {}
        parts = Parts(
            index=agent.index,
            offered=offered,
            gate=self._gate,
            tools=self._tools(record, known),
            known=known,
            record=record,
            workspace=self._workspace,
            child=partial(self._child, record),
            agent=agent.name,
            charter=self._chartered(record),
            limits=self._limits(),
        )
        doer = Doer(parts)
        return Loop(self._model, doer, record, state, settings=self._settings()), doer

    def _chartered(self, record: Record) -> Chartered | None:
        """The charter at work in one run; its children go on with the same state and past."""
        agent = self._agent
        if agent.charter is None:
            return None
        from vademecum.assembly.charter import Chartered, Past  # noqa: PLC0415

        if self._past is None:
            self._past = Past(agent.name, agent.agent_type, agent.state)
        return Chartered(agent.charter, self._past, record, secrets=self._secrets)

    def _tools(self, record: Record, known: dict[str, Skill]) -> Tools:
        """The tools of one run; of scripts they know only those of skills that were loaded."""
        return tools_of(
            self._gate,
            record,
            context=self._context,
            skill=partial(_known, known),
            skill_at=self._agent.index.at,
            workspace=self._workspace,
            execution=self._config.execution,
            sandbox=self._agent.sandbox,
            agent=self._agent.name,
        )

    def _record(self) -> Record:
        place = new_run(self._agent.runs or runs_directory(self._context))
        return Record(place, secrets=self._secrets, listener=self._agent.listener)

    def _settings(self) -> Settings:
        return self._agent.settings or Settings(keep_model_text=self._config.runs.keep_model_text)

    def _limits(self) -> BodyLimits:
        return BodyLimits(self._agent.index.options.body_lines)

    def _ranked(self, mentions: Mentions) -> list[str]:
        """The skills that search puts first; what files are called says little, what they end in more."""
        found = {Path(file).suffix.lstrip(".").lower(): None for file in mentions.files}
        endings = " ".join(ending for ending in found if ending not in _ANY_TEXT)
        return [hit.name for hit in self._library.finder.search(f"{mentions.rest} {endings}", RANKED)]

    def _catalogue(self, ranked: Sequence[str]) -> str:
        """The skills to choose from, and those that search puts first; of too many, the first ones."""
        offered = self._library.offered.skills
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

    def _is_file(self, word: str) -> bool:
        try:
            return self._workspace.locate(word).path.is_file()
        except (VademecumError, OSError, ValueError):
            return False


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


def _known(known: dict[str, Skill], location: str) -> Skill:
    skill = known.get(location)
    if skill is None:
        raise SkillNotFound("No skill that was loaded is meant: select it first.")
    return skill


def _as_json(budget: Budget) -> dict[str, int]:
    return {name: getattr(budget, name) for name in Budget.__slots__}
