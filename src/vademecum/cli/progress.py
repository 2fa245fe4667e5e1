"""Show the progress of a run: one line on standard error, and the answer while it is written."""

from __future__ import annotations

import sys

import click

from vademecum.runs.record import Event
from vademecum.skill.text import escaped, visible

MAX_LINE_CHARS = 100


class Progress:
    """A listener for the events of a run. On a terminal each line replaces the one before."""

    def __init__(self, *, quiet: bool, markdown: bool = False) -> None:
        self._quiet = quiet
        self._markdown = markdown  # the answer is shown when it is whole, with its structure
        self._live = sys.stderr.isatty()
        self._shown = False
        self._rest = ""
        self.printed = ""

    def __call__(self, event: Event) -> None:
        """Show an event, if it is one that people want to see."""
        if self._quiet:
            return
        if event.type == "answer_piece" and sys.stdout.isatty() and not self._markdown:
            self.done()
            text = event.data["text"]
            self.printed += text
            click.echo("\n".join(escaped(line.expandtabs(4)) for line in text.split("\n")), nl=False)
        elif event.type == "answer_withdrawn":
            if self.printed:
                click.echo("\n(the model withdrew this answer)", err=True)
            self.printed = ""
        elif event.type == "run_finished" and self.printed:
            click.echo()
        elif event.type == "output_piece":
            self._quote(event.data["data"])
        elif line := _line(event):
            self._say(line)

    def _quote(self, data: bytes) -> None:
        """Show the output of a script while it runs, on a terminal."""
        if not self._live:
            return
        *lines, self._rest = (self._rest + data.decode("utf-8", "replace")).split("\n")
        self.done()
        for line in lines:
            click.echo(f"  │ {escaped(line.expandtabs(8))}", err=True)

    def done(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False

    def _say(self, line: str) -> None:
        text = visible(line)[:MAX_LINE_CHARS]
        if self._live:
            click.echo(f"\r\x1b[K… {text}", nl=False, err=True)
            self._shown = True
        else:
            click.echo(f"… {text}", err=True)


def _line(event: Event) -> str:
    data = event.data
    match event.type:
        case "model_asked":
            return f"turn {data['turn']}: asking the model"
        case "skill_loaded":
            return f"loaded {data['skill']}"
        case "resource_loaded":
            return f"read {data['path']} of {data['skill']}"
        case "action" if data["action"] == "run_script":
            return f"wants to run {data['payload']['skill']['name']}/{data['payload']['relative_path']}"
        case "action" if data["action"] == "call_tool":
            return f"calling {data['payload']['tool']}"
        case "child_started":
            return f"a run of its own for {data['skill']}"
        case "progress":
            return str(data["text"])
        case "model_failed" | "reply_wrong":
            return str(data["problem"])
    return ""
