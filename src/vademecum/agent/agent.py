"""The agent: a model and skills in a session. Each request is one recorded run."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from vademecum.agent.loop import Loop, Outcome
from vademecum.agent.plan import Budget
from vademecum.agent.transcript import Transcript, request_section, safe, untrusted
from vademecum.context import Context
from vademecum.errors import Declined, SkillNotFound, VademecumError
from vademecum.loader.catalogue import Catalogue, render_catalogue
from vademecum.models import choose_model
from vademecum.models.base import Model, wire_of
from vademecum.nearest import nearest
from vademecum.policy.approval import Approver
from vademecum.policy.base import Decider
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Listener
from vademecum.search.finder import Findings
from vademecum.search.query_terms import name_before
from vademecum.session.base import Guard, Place, Result
from vademecum.session.session import Session
from vademecum.session.view import View
from vademecum.skill.skill import Skill
from vademecum.tools.exchange import matching
from vademecum.tools.workspace import Workspace
from vademecum.tracing import PARENT, tracing

MAX_REQUEST_CHARS = 100_000
MAX_SUMMARY_CHARS = 4000
RANKED = 5
_ANY_TEXT = frozenset({"", ".md", ".txt"})  # they say nothing about the content
CATALOGUE_SHARE = 4  # at most a quarter of the context
CHARS_A_TOKEN = 2  # a catalogue may be Chinese
MAX_FILES = 50
MAX_COMPARED = 1000  # names, with one that is not there
MAX_NAME_CHARS = 255

# Text between quotation marks of any kind, or between whitespace and punctuation.
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|“([^”\n]+)”|「([^」\n]+)」|《([^》\n]+)》")
_WORD = re.compile(r"[^\s,;:'\"`()<>（）《》「」“”，。；：、！？]+")
_LIKE_A_FILE = re.compile(r"[\w./~-]*\w\.[A-Za-z][A-Za-z0-9]{1,4}")
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_IN = re.compile(
    r"\b(?:in|under|below|inside|within|from|of|over|directory|folder)\s+(?:the\s+|my\s+)?$", re.IGNORECASE
)
_FOLDER = re.compile(
    r"\s*(?:directory|directories|folder|dir\b|目录|文件夹|資料夾|目錄|里|下|中)", re.IGNORECASE
)
_LATIN = re.compile(r"[A-Za-z0-9_./-]+")
_CALLED = re.compile(r"(?:^[/／]|(?<![!-~])[$＄])([\w./-]+)")
_NAME = re.compile(r"[\w-]+(?:/[\w-]+)?")
_LANGUAGES = {  # not compiled here, because that takes 6 ms
    "Japanese": "[぀-ヿ]",
    "Korean": "[가-힯]",
    "Chinese": "[一-鿿]",
}


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent with skills. Each ``run`` is one recorded request, from the first prompt to the answer.

    Without an approver, calls that need approval are refused. A ``guard``, such as a charter
    (``charter.guard("clerk", state)``), can refuse calls too. ``view`` saves work if many requests have the
    same index, rules and name.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index, models
    >>> index = build_index(BUILTIN_ROOT, IndexOptions())
    >>> told = models.scripted([{"action": {"type": "final_answer", "payload": {"text": "Three skills."}}}])
    >>> Agent(told, index).run("How many skills are there?").answer
    'Three skills.'
    >>> _ = Path("a.txt").write_text("one"), Path("b.txt").write_text("two")
    >>> Agent("offline", index).run("Compare a.txt with b.txt").status  # a script, and no approver
    'refused'
    """

    model: Model | str
    index: SkillIndex
    policy: Decider | None = None
    approver: Approver | None = None
    name: str = "default"
    budget: Budget = Budget()
    context: Context | None = None
    listener: Listener | None = None
    runs: Path | None = None
    guard: Guard | None = None
    view: View | None = None

    def run(
        self, request: str, *, skills: Sequence[str] = (), files: Sequence[str] = (), before: str = ""
    ) -> Outcome:
        """Carry out a request in its own conversation.

        ``skills`` are loaded first. ``files`` are files, directories or globs that the request is about.
        ``before`` is earlier text, which the model reads but must not take as commands.
        """
        return self.conversation().run(request, skills=skills, files=files, before=before)

    def conversation(self, place: Place | None = None) -> Conversation:
        """Begin a conversation of several requests: each model call includes the earlier messages.

        The default ``place`` is that of the agent's context.
        """
        session = Session(
            self.index,
            place=place or Place.at(self.context),
            policy=self.policy,
            view=self.view,
            agent=self.name,
            approver=self.approver,
            guard=self.guard,
            runs=self.runs,
            listener=self.listener,
        )
        model = choose_model(self.model) if isinstance(self.model, str) else self.model
        return Conversation(self, session, model)


@dataclass(slots=True)
class Conversation:
    """Several requests to one agent, in one session. Each is a separate run.

    ``model`` can be changed between two requests; the next model gets a summary of the conversation.
    """

    agent: Agent
    session: Session
    model: Model
    _said: Transcript | None = field(default=None, init=False)
    _loop: Loop | None = field(default=None, init=False)

    def clear(self) -> None:
        """Forget the messages; skills and outputs stay."""
        self._said = None

    def run(
        self, request: str, *, skills: Sequence[str] = (), files: Sequence[str] = (), before: str = ""
    ) -> Outcome:
        """Carry out a request, with the active skills."""
        text = request.encode("utf-8", "replace").decode()
        if not text.strip():
            raise VademecumError("The request is empty: say what is to be done.", code="request")
        if len(text) > MAX_REQUEST_CHARS:
            words = f"is longer than {MAX_REQUEST_CHARS:,} characters: put it into a file and name it"
            raise VademecumError(f"The request {words}.", code="request")
        named = list(dict.fromkeys([*skills, *self._called(text)]))
        session, wire = self.session, wire_of(self.model)
        room = self.agent.budget.context_tokens * CHARS_A_TOKEN // CATALOGUE_SHARE
        offered = session.view.offered.skills
        catalogue = render_catalogue(offered, budget=room)
        shown = safe(catalogue.text)
        said = self._said = self._said or Transcript(wire, shown, self.agent.budget.context_tokens)
        if (said.catalogue, said.wire) != (shown, wire):
            said.speak(wire, shown)
        with self._hosting():
            given = [name for pattern in files for name in matching(pattern, session.place.workspace)]
            named_files, absent, rest = files_in(text, session.place.workspace, given=given)
            is_searched = catalogue.shortened or getattr(self.model, "needs_ranking", False)
            found = self._found(named_files, rest) if is_searched else None
            record = session.begin(
                text,
                model=self.model.name,
                budget=asdict(self.agent.budget),
                skills=len(offered),
                skills_named=named,
                ranked=[hit.name for hit in found.hits] if found else [],
                skills_active=[skill.skill_id for skill in session.active],
            )
            self._loop = Loop(self.model, session, record, said, self.agent.budget)
            about = self._about(rest, found, catalogue)
            if before:
                about += f"\n\n=== said before ===\n{untrusted(before, kind='conversation')}"
            similar = list(filter(None, map(self._similar_to, absent[:RANKED])))
            asked = request_section(text, named_files, absent, similar)
            return self._loop.run(asked, about=about, named=named)

    @contextmanager
    def _hosting(self) -> Iterator[None]:
        """Connect the session to this conversation, and to tracing if it is configured."""
        session = self.session
        listener, session.host = session.listener, self
        if traced := tracing(listener, session.place.context.env):
            session.listener = traced
            env = {**session.place.context.env, PARENT: traced.traceparent}
            session.place = replace(session.place, context=replace(session.place.context, env=env))
        try:
            yield
        finally:
            session.host, session.listener = None, listener

    def _called(self, request: str) -> list[str]:
        """Return the skills that the request calls by name; raise for an unknown first word ``/name``."""
        found = []
        for text in _CALLED.findall(request):
            name = text
            if not text.isascii():
                names = {skill.name.casefold() for skill in self.agent.index.skills}
                name = name_before(text.casefold(), names) or text
            try:
                if _NAME.fullmatch(name) and self.agent.index.get(name).controls.user_invocable:
                    found.append(name)
            except SkillNotFound:
                if "/" not in name and request.split(maxsplit=1)[0] in {f"/{name}", f"／{name}"}:
                    raise
        return found

    def _similar_to(self, absent: str) -> str:
        """Return the file that the model may know and that a missing name probably means."""
        directory, slash, name = absent.rpartition("/")
        act, near = self.session.asking(), None
        with contextlib.suppress(VademecumError, OSError, ValueError):
            located = act.locate(directory or ".")
            self.session.place.workspace.names(located)  # which refuses links that lead out
            near = nearest(name, sorted(os.listdir(located.path))[:MAX_COMPARED])
            near = near if near and act.may_list(located.path / near) else None
        return f"{directory}{slash}{near}" if near else ""

    def has_room_for(self, text: str) -> bool:
        """Return whether a skill's instructions still fit into the context."""
        return self._said is None or self._said.has_room_for(text)

    def run_subagent(self, skill: Skill, task: str, effect: str) -> Result:
        """Run one skill with its own context, half of the remaining budget, and the same rules."""
        assert self._loop is not None
        spent, parent = self._loop.spent, self._loop.said
        budget = self.agent.budget.share(spent)
        if min(budget.turns, budget.tool_calls, budget.script_runs) < 1:
            return Result(f"Too little is left of the budget to run {skill.name}.", "budget")
        session = self.session.child()
        loaded = session.nested_body(skill)
        request = safe(task) if task else parent.request
        limits = asdict(budget)
        record = session.begin(
            request, model=self.model.name, budget=limits, skills=1, parent=self.session.run_id
        )
        self.session.write("child_started", run=record.run_id, skill=skill.skill_id, budget=limits)
        said = Transcript(parent.wire, "This is a run of its own, for the loaded skill alone.", parent.limit)
        session.load_nested(skill, loaded, effect)
        loop = Loop(self.model, session, record, said, budget)
        loop.skills.add(skill.name)
        about = "\n".join([f"budget: {budget}", *_language_of(request)])
        outcome = loop.run(request, about=about, loaded=[said.keep(skill, loaded.text)])
        spent.add(loop.spent)
        self.session.write("child_finished", run=record.run_id, status=outcome.status)
        if outcome.status == "declined":  # a refusal to the child is a refusal to its parent
            raise Declined(outcome.answer)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        code = "" if outcome.status == "done" else outcome.status
        text = f"{skill.name} ran by itself:\n{outcome.answer[:MAX_SUMMARY_CHARS]}"
        return Result(text, code, "tool", outputs=outcome.outputs)

    def _found(self, files: Sequence[str], rest: str) -> Findings:
        """Search for the request, with the endings of its files in place of their names."""
        endings = sorted({Path(file).suffix.lower() for file in files} - _ANY_TEXT)
        return self.session.view.finder.find(f"{rest} {' '.join(f'_{ending}' for ending in endings)}", RANKED)

    def _about(self, request: str, found: Findings | None, catalogue: Catalogue) -> str:
        """Return the facts for the model beside the request: the day, the language, the search results."""
        lines = [f"date: {time.strftime('%Y-%m-%d')}", f"budget: {self.agent.budget}", *_language_of(request)]
        if found is not None and found.hits:
            lines.append(f"ranked first by search: {', '.join(hit.name for hit in found.hits)}")
            lines.append(f"the first one fits: {'yes' if found.fits else 'no'} ({found.confidence:.0%} sure)")
            if catalogue.shortened:
                names = {hit.name for hit in found.hits}
                hits = [each for each in self.session.view.offered.skills if each.name in names]
                lines.append(safe(render_catalogue(hits).text))
        return "\n".join(lines)


def _language_of(request: str) -> list[str]:
    """Return the line that names the language of a request, if it is not written in ASCII."""
    signs = {} if request.isascii() else _LANGUAGES
    return [f"answer in: {name}" for name, sign in signs.items() if re.search(sign, request)][:1]


def files_in(request: str, paths: Workspace, *, given: Sequence[str]) -> tuple[list[str], list[str], str]:
    """Return the given files, and those that a request names, in its order.

    Also return the names that look like files but do not exist, and the request without its paths.
    """
    places: list[tuple[int, str]] = []
    absent: list[tuple[int, str]] = []
    rest = request
    for pattern in (_QUOTED, _WORD):
        for found in pattern.finditer(rest):
            word = next(part for part in (*found.groups(), found[0]) if part)
            start, end = found.span()
            is_marked = bool(_IN.search(rest, max(0, start - 40), start) or _FOLDER.match(rest, end))
            names = _named_by(word, paths, is_marked=is_marked or pattern is _QUOTED)
            if not names:
                # It stays in the request: Node.js and Next.js look like files too.
                is_address = word.startswith("//")  # what follows "https:"
                like = _LIKE_A_FILE.fullmatch(word.rstrip(".?!"))
                if pattern is _WORD and like and not is_address:
                    absent.append((start, like[0]))
                continue
            places += enumerate(names, start)
            left = found[0]
            for name in names if names[0] in word else (word,):  # a glob does not contain its matches
                left = left.replace(name, " " * len(name), 1)
            rest = rest[:start] + left + rest[end:]
    files = list(dict.fromkeys([*given, *(name for _, name in sorted(places))]))[:MAX_FILES]
    missing = list(dict.fromkeys(name for _, name in sorted(absent)))[:MAX_FILES]
    return files, missing, re.sub(r" {3,}", "  ", rest)


def _named_by(word: str, paths: Workspace, *, is_marked: bool) -> list[str]:
    """Return what a word names: a file, a directory, the files of a glob, or names inside the word.

    Languages without spaces have names inside words. A plain word such as ``docs`` names a directory only if
    quotation marks or the words around it mark it as one.
    """
    if len(word) > MAX_NAME_CHARS:
        return []
    for name in dict.fromkeys((word, word.rstrip(".?!"))):
        kind = paths.kind(name)
        if kind == "file":
            return [name]
        if kind and (is_marked or "/" in name or name == "."):
            return [name.rstrip("/") or name]
    if glob.has_magic(word):
        with contextlib.suppress(VademecumError):
            return paths.matches(word.rstrip(".!"))
    return [] if word.isascii() else _inside(word, paths)


def _inside(word: str, paths: Workspace) -> list[str]:
    """Return the names of files and directories inside a word of a language without spaces."""
    found, start = [], 0
    for ending in _ENDING.finditer(word):
        whole = word[start : ending.end()]
        inside = next((whole[n:] for n in range(len(whole)) if paths.kind(whole[n:]) == "file"), None)
        if inside is not None:
            found.append(inside)
            start = ending.end()
    for piece in _LATIN.finditer(word):
        name = piece[0].rstrip("/")
        called = "/" in piece[0] or _FOLDER.match(word[piece.end() :]) or word[: piece.start()].endswith("在")
        if name and called and paths.kind(name) == "directory":
            found.append(name)
    return found
