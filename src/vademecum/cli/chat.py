"""Implement ``vade chat``. Each message is a run that starts with the conversation so far."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vademecum.agent.agent import Conversation
from vademecum.cli.indexing import index_options
from vademecum.cli.output.printing import RunProgress
from vademecum.cli.running import Saved, agent_for, agent_options, model_for, save_outputs, told_of
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.nearest import nearest
from vademecum.runs.record import Event
from vademecum.session.base import Place
from vademecum.skill.text import escaped_lines, visible
from vademecum.tools.calls import UnloadSkill

if TYPE_CHECKING:
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

MAX_COMPLETIONS = 200
_SECONDS_BETWEEN = 0.05
_CHANGES = {"write_file": "wrote", "edit_file": "changed", "delete_file": "deleted", "save_output": "saved"}

COMMANDS = {
    "/help": "show the commands",
    "/skills": "list the skills; /NAME calls one",
    "/unload": "stop using a skill: /unload NAME",
    "/outputs": "list the files that scripts made; /outputs DIR saves them",
    "/model": "show the model; /model KIND:NAME changes it",
    "/clear": "forget the conversation",
    "/quit": "end",
}


@dataclass
class Chat:
    """One conversation at the terminal."""

    conversation: Conversation
    context: Context

    @property
    def names(self) -> list[str]:
        """Return the names of the skills that a user can call."""
        return [skill.name for skill in self.conversation.agent.index.for_people()]

    def turn(self, line: str) -> None:
        """Execute a command, or send a message."""
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        match word:
            case "/help" | "/skills" | "/clear" | "/quit" if rest:
                raise VademecumError(f"{word} takes no words: write {word} alone.", code="request")
            case "/help":
                for name, text in COMMANDS.items():
                    click.echo(f"{name:<10} {text}")
            case "/skills":
                self._skills()
            case "/unload" if rest:
                click.echo(self.conversation.session.call(UnloadSkill(rest), origin="user").text)
            case "/unload":
                raise VademecumError("Which skill? Write /unload NAME.", code="request")
            case "/outputs":
                self._outputs(rest)
            case "/model":
                if rest:
                    self.conversation.model = model_for(rest, load_config(self.context), self.context)
                click.echo(f"The model is {self.conversation.model.name}.")
            case "/clear":
                self.conversation.clear()
                click.echo("The conversation is forgotten; active skills and outputs stay.")
            case _ if self._is_misspelt(word):
                meant = nearest(word, [*COMMANDS, *(f"/{name}" for name in self.names)])
                hint = f"did you mean {meant}?" if meant else "/help lists the commands."
                click.echo(f"vade: there is no {visible(word)}: {hint}", err=True)
            case _:
                self._say(line)

    def _is_misspelt(self, word: str) -> bool:
        """Return whether a word looks like a command but is not a command, a skill or a path."""
        slash, name = word[:1], word[1:]
        is_name = slash == "/" and bool(name) and "/" not in name
        return is_name and name not in self.names and not Path(word).exists()

    def _skills(self) -> None:
        active = {skill.skill_id for skill in self.conversation.session.active}
        for skill in self.conversation.agent.index.for_people():
            mark = "*" if skill.skill_id in active else " "
            click.echo(f"{mark} /{skill.name}  {visible(skill.description)[:80]}")

    def _outputs(self, directory: str) -> None:
        if directory.startswith("-"):
            raise VademecumError("Write /outputs DIR to save the files.", code="request")
        session = self.conversation.session
        if not session.outputs.all:
            click.echo("There are no outputs yet.")
        _tell(save_outputs(session, session.outputs.all, directory or None))

    def _say(self, line: str) -> None:
        is_drawn = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        progress = _MarkdownProgress() if is_drawn else RunProgress()

        def listener(event: Event) -> None:
            progress(event)
            if event.type == "tool_called" and event.data.get("ok") and event.data.get("tool") in _CHANGES:
                progress.done()
                _tell_change(event.data)

        self.conversation.session.listener = listener
        try:
            outcome = self.conversation.run(line)
        finally:
            progress.end()
        if progress.printed != outcome.answer:
            progress.write(outcome.answer)
            progress.end()
        _tell(save_outputs(self.conversation.session, outcome.outputs, None))


def _tell_change(call: dict[str, Any]) -> None:
    path = (call.get("parameters") or {}).get("path") or call["result"].get("path", "")
    click.echo(f"✓ {_CHANGES[call['tool']]} {visible(str(path))}", err=True)


def _tell(saved: Sequence[Saved]) -> None:
    for line in told_of(saved):
        click.echo(line, err=True)


class _MarkdownProgress(RunProgress):
    """Print an answer as Markdown while it arrives: finished blocks stay, the last one is redrawn."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.markdown import Markdown

        super().__init__()
        self._console = Console()
        # A line of a script's output stays a line.
        self._markdown: Callable[[str], Any] = lambda text: Markdown(text.replace("\n", "  \n"))
        self._block = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._text = ""
        self._block_drawn = 0.0

    def write(self, text: str) -> None:
        """Add a piece of text and redraw, at most every twentieth of a second."""
        self.done()
        self._text += escaped_lines(text)
        if time.monotonic() - self._block_drawn < _SECONDS_BETWEEN:
            return
        if not self._block.is_started:
            click.echo("\r\x1b[K", nl=False)  # the ^C that a terminal shows would shift the text
            self._block.start()
        whole, self._text = whole_blocks(self._text)
        if whole:
            self._console.print(self._markdown(whole))
        last = "\n".join(self._text.split("\n")[2 - self._console.height :])
        self._block.update(self._markdown(last), refresh=True)
        self._block_drawn = time.monotonic()

    def end(self) -> None:
        """Print the last block."""
        self.done()
        self._block.stop()
        if self._text.strip():
            self._console.print(self._markdown(self._text))
        self._text, self._block_drawn = "", 0.0


def whole_blocks(text: str) -> tuple[str, str]:
    r"""Return the finished blocks of Markdown, and the rest.

    >>> whole_blocks("One.\n\n```\na\n\nb")
    ('One.\n\n', '```\na\n\nb')
    """
    place = end = 0
    is_code = was_blank = False
    for line in text.splitlines(keepends=True):
        if was_blank and not is_code and not line[0].isspace():
            end = place
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        was_blank = not line.strip()
        place += len(line)
    return text[:end], text[end:]


@click.command("chat")
@agent_options
@index_options
def chat_command(**words: Any) -> int:
    """Have a conversation. Ctrl-C stops a turn, Ctrl-D or /quit ends the chat, Alt-Enter adds a new line."""
    agent, config = agent_for(words)
    place = Place.at(agent.context, config=config)
    chat = Chat(agent.conversation(place), place.context)
    click.echo(
        f"{chat.conversation.model.name} · {len(agent.index):,} skills · /help lists the commands", err=True
    )
    read = _reader(chat)
    while True:
        try:
            line = read().strip()
            if line in {"/quit", "/exit", "/q"}:
                return 0
            if line:
                chat.turn(line)
        except EOFError:
            return 0
        except KeyboardInterrupt:
            click.echo("", err=True)
        except VademecumError as error:
            click.echo(f"vade: {visible(str(error))}", err=True)


def _reader(chat: Chat) -> Callable[[], str]:
    """Return the function that reads a message: an editor with history and completion, or ``input``."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return input
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.key_binding import KeyBindings

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: object) -> Iterator[Completion]:
            typed = document.get_word_before_cursor(WORD=True)
            is_first = document.text_before_cursor.lstrip() == typed
            for word in completions(chat, typed, is_first=is_first):
                yield Completion(word, start_position=-len(typed))

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _newline(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=_history(chat.context.home / ".agent/chat-history"),
        completer=Words(),
        complete_while_typing=False,
        key_bindings=keys,
    )
    return partial(session.prompt, "› ")


def _history(file: Path) -> History:
    """Return the messages of earlier sessions, in a file that only its user can read."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def completions(chat: Chat, typed: str, *, is_first: bool) -> list[str]:
    """Return the completions of a typed word: commands and skills, ``$skills``, files."""
    if is_first and typed.startswith("/"):
        words = [*COMMANDS, *(f"/{name}" for name in chat.names)]
        return [word for word in words if word.startswith(typed)]
    if typed.startswith("$"):
        return [f"${name}" for name in chat.names if f"${name}".startswith(typed)]
    here = chat.context.cwd
    paths = sorted(glob.glob(f"{glob.escape(typed)}*", root_dir=here))[:MAX_COMPLETIONS]
    return [f"{path}/" if (here / path).is_dir() else path for path in paths]
