"""Answer questions about permissions: ask at the terminal, or approve all of them with ``--yes``."""

from __future__ import annotations

import shlex
import sys

import click

from vademecum.cli.indexing import repeatable
from vademecum.cli.output.skill_text import terminal_width
from vademecum.config import LoadedConfig
from vademecum.errors import ConfigError
from vademecum.nearest import meant, nearest
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.skill.text import escaped, visible

_ONCE, _RUN = Answer("once"), Answer("always", scope="run")
_PROJECT, _USER = Answer("always", scope="project"), Answer("always", scope="user")
# Whole words only: "reject" does not mean the first letter of "run".
_ANSWERS = {"o": _ONCE, "once": _ONCE, "y": _ONCE, "yes": _ONCE, "r": _RUN, "run": _RUN}
_ANSWERS |= {"a": _PROJECT, "always": _PROJECT, "u": _USER, "user": _USER}
_EXPLAINED = "  Type one of these letters, with n also a reason for the model. Nothing happens until you do."
_NO = frozenset({"n", "no", "nope", "reject", "deny", "refuse", "cancel", "abort", "never", "stop"})
_CHOICES = "  allow [o]nce, for this [r]un, [a]lways in this project, always for this [u]ser, or [n]o"

agent_option = click.option(
    "--agent", default="default", show_default=True, help="Agent whose permission rules apply."
)

allow_option = repeatable(
    "--allow",
    "TOOL[(PATTERN)]",
    "Approve this tool for this run, such as write_file or 'write_file(reports/*)'",
)


def approver_for(*, yes: bool, replay: str = "") -> Approver:
    """Return an approver for ``--yes`` or for the terminal, else one that refuses and names the command."""
    if yes:
        return Consent()
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalApprover()
    return Nobody(replay or shlex.join(["vade", *sys.argv[1:], "--yes"]))


class TerminalApprover:
    """Ask the user at the terminal; Enter alone approves nothing."""

    def ask(self, question: Question) -> Answer:
        """Show the request, the rule that asks and the details, and wait for a clear answer."""
        from rich.cells import chop_cells

        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)  # remove a progress line
        click.echo(visible(question.wanted), err=True)
        click.echo(f"  asked because of {visible(question.decision.reason)}", err=True)
        for line in question.about.splitlines():
            # A line that the terminal wraps would leave the gutter and look like one of ours.
            pieces = chop_cells(escaped(line.expandtabs(4)), max(terminal_width() - 4, 8)) or [""]
            click.echo("  | " + "\n  ↳ ".join(pieces), err=True)
        while True:
            try:
                typed = click.prompt(_CHOICES, default="", show_default=False, err=True).strip()
            except click.Abort:
                raise KeyboardInterrupt from None
            word, _, rest = typed.partition(" ")
            if typed.lower() in _ANSWERS:
                return _ANSWERS[typed.lower()]
            if word.lower().rstrip(".,!") in _NO:
                return Answer("reject", rest)
            click.echo(_EXPLAINED, err=True)


def known_agent(config: LoadedConfig, name: str) -> None:
    """Raise ``ConfigError`` for an agent that is not configured: no rule would apply to it."""
    known = [*config.user.agents, *config.project.agents]
    if name not in {"default", *known}:
        there = f"choose from {', '.join(dict.fromkeys(['default', *known]))}."
        other = there if known else "add it to `agents` in ~/.agent/config.json, or leave --agent out."
        hint = meant(nearest(name, ["default", *known]), otherwise=other)
        raise ConfigError(f"No agent {name!r} is configured: {hint}")
