"""Implement ``vade secrets``: store, list and remove secrets for skills and models."""

from __future__ import annotations

import sys

import click

from vademecum.cli.indexing import IndexWords
from vademecum.cli.main import group
from vademecum.cli.output.printing import CommandResult, command
from vademecum.context import Context
from vademecum.errors import ConfigError, SkillNotFound
from vademecum.secret_store import MAX_VALUE_CHARS, SecretStore
from vademecum.skill.names import check
from vademecum.skill.text import counted, visible

secrets_command = group("secrets", "Store secrets for skills and models. vade never shows their values.")
skill_option = click.option("--skill", metavar="SKILL", help="For the scripts of this skill.")
models_option = click.option("--models", is_flag=True, help="For the models, such as OPENAI_API_KEY.")


@command("set", secrets_command, context_settings={"allow_extra_args": True})
@click.argument("name")
@skill_option
@models_option
@click.pass_context
def set_command(context: click.Context, *, name: str, skill: str | None, models: bool) -> CommandResult:
    """Store a value for a skill's scripts or for the models.

    Type the value at the prompt, or pipe it in. A script gets it as the
    environment variable NAME, if its skill asks for NAME and you allow it.
    """
    if context.args:  # not repeated here: it is probably the value
        raise click.UsageError("The value is not an argument: type it at the prompt, or pipe it in.")
    if (skill is None) is not models:
        raise click.UsageError("Say what it is for: --skill SKILL or --models.")
    if skill is not None and check(skill, line=None):
        raise ConfigError(f"{skill!r} is not the name of a skill: `vade list` shows the names.")
    stored = SecretStore(Context.current()).set(name, typed_secret(name), skill=skill)
    where = "the system's keyring" if stored.place == "keyring" else "~/.agent/secrets.json"
    told = []
    if skill is not None:
        try:
            IndexWords().build(quiet=True).get(skill)
        except SkillNotFound as error:
            told = [f"vade: {visible(str(error))} The secret is stored for later."]
    return CommandResult(stored, [f"Stored {name} for {stored.purpose} in {where}"], told=told)


def typed_secret(name: str) -> str:
    """Read a secret from the terminal without echo, or from standard input."""
    if sys.stdin.isatty():
        return str(click.prompt(f"Value of {name}", hide_input=True, err=True))
    try:
        text = sys.stdin.buffer.read(4 * MAX_VALUE_CHARS + 2).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"The value of {name} is not kept: it is not UTF-8 text.") from None
    return text.removesuffix("\n").removesuffix("\r")


@command("list", secrets_command)
def list_command() -> CommandResult:
    """List the names of the secrets and what they are for, without their values."""
    found = SecretStore(Context.current()).list()
    lines = [f"{one.name}  {visible(f'for {one.purpose}, in the {one.place}')}" for one in found]
    return CommandResult({"secrets": found}, [*lines, counted(len(found), "secret")])


@command("remove", secrets_command)
@click.argument("name")
@skill_option
@models_option
def remove_command(*, name: str, skill: str | None, models: bool) -> CommandResult:
    """Remove a secret: for one skill, for the models, or (default) for all of them."""
    if skill is not None and models:
        raise click.UsageError("Choose one of --skill and --models; with neither, all are removed.")
    store = SecretStore(Context.current())
    everyone = skill is None and not models
    wanted = [one for one in store.list() if one.name == name and (everyone or one.skill == skill)]
    removed = [one for one in wanted if store.remove(one)]
    if not removed:
        raise SkillNotFound(f"There is no such secret {name!r}: `vade secrets list` shows them.")
    lines = [visible(f"Removed {one.name} for {one.purpose}") for one in removed]
    return CommandResult({"removed": removed}, lines)
