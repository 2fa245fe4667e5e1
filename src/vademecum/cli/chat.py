"""``vade chat``: a conversation at the terminal; each message is a run, with what was said before."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from typing import Any

import click

from vademecum.agent.agent import Agent, Conversation
from vademecum.agent.loop import Outcome
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import print_text, yes_option
from vademecum.cli.permissions import approver_for
from vademecum.cli.progress import Progress
from vademecum.cli.running import again, allow_option, model_for, model_option
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.policy.engine import Policy, allowing
from vademecum.runs.reading import read_run, run_ids
from vademecum.runs.record import runs_directory
from vademecum.skill.text import visible

MAX_REMEMBERED = 10
MAX_QUOTED_CHARS = 1000

_HELP = "/skills lists the skills, /NAME calls one, /plan shows the last plan, /runs the runs, /quit ends."


@dataclass
class Chat:
    """One conversation, and what was said in it so far."""

    conversation: Conversation
    said: list[tuple[str, Outcome]] = field(default_factory=list)

    def say(self, text: str) -> Outcome:
        """One message; the model also reads the last ones."""
        before = "\n".join(f"asked: {_quoted(a)}\nanswered: {_quoted(b.answer)}" for a, b in self.said)
        outcome = self.conversation.run(text, before=before)
        self.said = [*self.said, (text, outcome)][-MAX_REMEMBERED:]
        return outcome


def _quoted(text: str) -> str:
    return " ".join(text.split())[:MAX_QUOTED_CHARS]


@click.command("chat")
@model_option
@allow_option
@yes_option
@index_options
def chat_command(*, model: str | None, allow: tuple[str, ...], yes: bool, **words: Any) -> int:
    """Have a conversation; Ctrl-C stops a turn, Ctrl-D or /quit ends it."""
    context = Context.current()
    chosen = model_for(context, model)
    name = chosen.name
    agent = Agent(
        model=chosen,
        index=IndexWords(**words).build(),
        policy=Policy.load(context, run=allowing(allow)),
        approver=approver_for(yes=yes, replay=again()),
        context=context,
    )
    chat = Chat(agent.conversation())
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - history and editing for input()
    click.echo(f"{name} · {len(agent.index):,} skills · {_HELP}", err=True)
    while True:
        try:
            line = input("› " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            click.echo("", err=True)
            continue
        if line in {"/quit", "/exit", "/q"}:
            return 0
        if line:
            try:
                _turn(chat, line, context)
            except KeyboardInterrupt:
                click.echo("", err=True)
            except VademecumError as error:
                click.echo(f"vade: {visible(str(error))}", err=True)


def _turn(chat: Chat, line: str, context: Context) -> None:
    match line.split(maxsplit=1)[0]:
        case "/help":
            click.echo(_HELP)
        case "/skills":
            for skill in chat.conversation.agent.index.for_people():
                click.echo(f"/{skill.name}  {visible(skill.description)[:80]}")
        case "/plan":
            _show_plan(context)
        case "/runs":
            for run_id in run_ids(runs_directory(context))[-10:]:
                click.echo(visible(run_id))
        case _:
            _answer(chat, line)


def _answer(chat: Chat, line: str) -> None:
    progress = Progress(quiet=False)
    chat.conversation.session.listener = progress
    try:
        outcome = chat.say(line)
    finally:
        progress.done()
    if progress.printed != outcome.answer:
        print_text(outcome.answer)


def _show_plan(context: Context) -> None:
    directory = runs_directory(context)
    known = run_ids(directory)
    events = read_run(directory, known[-1]).events if known else ()
    plans = [event.data["plan"] for event in events if event.type == "plan"]
    if not plans:
        click.echo("There is no plan yet.")
        return
    click.echo(visible(plans[-1]["goal"]))
    for step in plans[-1]["steps"]:
        click.echo(f"  [{visible(str(step['status']))}] {visible(step['title'])}")
