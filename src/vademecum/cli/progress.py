"""What a run is doing, live: one line on standard error, and the answer as it comes."""

from __future__ import annotations

import sys

import click

from vademecum.runs.record import Event
from vademecum.skill.text import escaped, visible

MAX_LINE_CHARS = 100


class Progress:
    """Listens to a run. On a terminal the line is replaced by the next; elsewhere lines follow each other."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._shown = False
        self.printed = ""

    def __call__(self, event: Event) -> None:
        """Show what matters of an event."""
        if self._quiet:
            return
        if event.type == "answer_piece" and sys.stdout.isatty():
            self.done()
            text = event.data["text"]
            self.printed += text
            click.echo("\n".join(escaped(line.expandtabs(4)) for line in text.split("\n")), nl=False)
        elif event.type == "answer_withdrawn":
            if self.printed:
                click.echo("\n(that was not the answer; once more)", err=True)
            self.printed = ""
        elif event.type == "run_finished" and self.printed:
            click.echo()
        elif line := _line(event):
            self._say(line)

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
        case "model_failed" | "reply_wrong":
            return str(data["problem"])
    return ""
