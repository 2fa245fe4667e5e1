"""``vade install`` and what follows: uninstall, restore, verify, diff, lock, sync, outdated, update."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from vademecum.cli.indexing import Command, IndexWords
from vademecum.cli.output.completion import complete_installed, complete_kept
from vademecum.cli.output.printing import counted, json_option, print_json
from vademecum.cli.output.progress import ProgressBar
from vademecum.config import Config, load_config
from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.content import diff_of
from vademecum.packs.incoming import Options, SkillChange
from vademecum.packs.install import install, restore, uninstall
from vademecum.packs.install_root import InstallRoot, install_ground
from vademecum.packs.lock import LockFile, lock_path, read_lock
from vademecum.packs.npm_lock import not_for_npm, npm_lock_path
from vademecum.packs.pack_cache import PackCache
from vademecum.packs.signing.envelopes import SIGNATURES
from vademecum.packs.signing.signing_keys import TRUSTED_DIRECTORY, Trusted, trusted_keys
from vademecum.packs.sources.fetching import Fetching
from vademecum.packs.sources.references import Reference, reference_to, remembered
from vademecum.packs.sources.run_outputs import fetch_from_run
from vademecum.packs.syncing import (
    Failure,
    Sources,
    SyncStep,
    Update,
    check_frozen,
    lock_here,
    outdated,
    sync,
    update,
)
from vademecum.packs.transaction import tidied
from vademecum.packs.verifying import verify
from vademecum.skill.text import escaped, visible

BROKEN, FOUND_PROBLEMS = 5, 1

scope_option = click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    default="project",
    show_default=True,
    help="The .agent/skills of the project, or of the home directory.",
)
_force = click.option("--force", is_flag=True, help="Replace what was edited by hand; it is kept in .trash.")
_names = click.argument("names", nargs=-1, shell_complete=complete_installed)


def _incoming(command: Command) -> Command:
    """Give a command the options of one that installs skills."""
    for name, words in (
        ("--allow-unsafe", "Take skills that want tools of high risk."),
        ("--backup", "Keep what is replaced in .trash, edited or not."),
        ("--dry-run", "Show what would change, and change nothing."),
        ("--require-signature", "Refuse what no trusted key signed."),
    ):
        command = click.option(name, is_flag=True, help=words)(command)
    return _force(command)


def root_of(scope: str, context: Context) -> Path:
    """Return the root that a scope means."""
    if scope == "user":
        return context.home / ".agent" / "skills"
    places = context.project_directories() or [context.cwd]
    nearest = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return nearest / ".agent" / "skills"


class InstallContext:
    """Everything that a command about installed skills needs of this place."""

    def __init__(self, scope: str, *, incoming: bool = False) -> None:
        """Look around; if skills are to be installed, also for trusted keys and for names that are taken."""
        self.context = Context.current()
        self.settings: Config = load_config(self.context).settings
        self.scope = scope
        cache = self.context.cache_directory()
        self.bar = ProgressBar("fetching", bytes_=True)
        kinds = {"run": partial(fetch_from_run, self.context), "mcp": partial(_from_server, self.context)}
        aside = None if cache is None else cache / "fetch"
        self.sources = Sources(self.context, Fetching(aside, self.bar, kinds=kinds))
        known, builtin = _known_names() if incoming else ((), frozenset())
        self.where = InstallRoot(
            root_of(scope, self.context),
            trusted_keys(self.context.home / ".agent" / TRUSTED_DIRECTORY) if incoming else Trusted(),
            PackCache(None if cache is None else cache / "packs"),
            known,
            builtin,
            scan=self.settings.scan,
        )
        done = tidied(install_ground(self.where.root))
        if done is not None:
            click.echo(f"vade: {visible(done)}", err=True)

    def reference(self, typed: str) -> Reference:
        """Return the source that a person typed."""
        return reference_to(typed, context=self.context, kinds=self.sources.fetching.kinds)

    def options(self, *, require_signature: bool = False, **allowed: Any) -> Options:
        """Return what was asked for, and what the configuration asks for beyond it."""
        required = self.scope in self.settings.security.require_signatures
        return Options(require_signature=require_signature or required, **allowed)


def _from_server(context: Context, name: str, aside: Path) -> str:
    from vademecum.integrations.mcp.source import fetch_from_source

    return fetch_from_source(context, name, aside)


def _known_names() -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of all skills here, and of the built-in ones."""
    try:
        index = IndexWords((), no_default_roots=False, lenient=False).build()
    except VademecumError:
        return (), frozenset()
    everyone = (*index.skills, *index.shadowed)
    builtin = frozenset(skill.name for skill in everyone if skill.source == "builtin")
    return tuple(skill.name for skill in index.skills), builtin


@click.command("install")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@scope_option
@click.option("--only", "--skill", "only", multiple=True, metavar="NAME", help="Only this skill; repeatable.")
@_incoming
@json_option
def install_command(
    *, sources: tuple[str, ...], scope: str, only: tuple[str, ...], as_json: bool, **allowed: bool
) -> None:
    """Install the skills of a source: all of them, or nothing.

    SOURCE is a zip, a tar or a directory; https://…/x.zip (#sha256=… demands a digest); git+https://…@ref#dir
    or owner/repo; https://site/ that lists its skills; a marketplace.json; run:ID/NAME, a skill that an
    agent wrote in a run; or mcp:SERVER/NAME, a skill of a server that vade source add named.
    """
    here = InstallContext(scope, incoming=True)
    options = here.options(only=only, **allowed)
    with ExitStack() as stack:
        fetched = []
        for reference in [here.reference(typed) for typed in sources]:
            name = remembered(reference, base=here.where.base)
            fetched.append(stack.enter_context(here.sources.fetching.fetched(reference, name, only=only)))
        here.bar.done()
        unpacking = ProgressBar("unpacking")
        done = install(fetched, here.where, options, progress=unpacking)
        unpacking.done()
    if as_json:
        shown = [change.to_json() for change in done.changes]
        print_json({"dry_run": options.dry_run, "changes": shown, "remarks": done.left_out})
        return
    for change in done.changes:
        _show(change, dry_run=options.dry_run)
    for remark in done.left_out:
        click.echo(visible(f"Left out: {remark}"))


def _show(change: SkillChange, *, dry_run: bool) -> None:
    verb = {"new": "Installed", "replace": "Replaced", "same": "Unchanged"}[change.action]
    click.echo(f"{f'Would be {verb.lower()}' if dry_run else verb}: {visible(change.name)}")
    if change.action == "replace":
        for kind in ("added", "removed", "changed"):
            for file in getattr(change, kind):
                click.echo(f"  {kind} {visible(file)}")
    if change.scripts and change.action != "same":
        click.echo(f"  it brings scripts: {visible(', '.join(change.scripts))}")
    if change.signer:
        click.echo(f"  signed by {visible(change.signer)}")
    for remark in change.remarks:
        click.echo(f"  {visible(remark)}")


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_installed)
@click.option(
    "--scope",
    "--source",
    "scope",
    type=click.Choice(["project", "user"]),
    default="project",
    show_default=True,
    help="The .agent/skills of the project, or of the home directory.",
)
@click.option("--purge", is_flag=True, help="Delete it instead of keeping it in .trash.")
@click.option("--force", is_flag=True, help="Also what was edited by hand, or not installed by vade.")
@json_option
def uninstall_command(*, names: tuple[str, ...], scope: str, purge: bool, force: bool, as_json: bool) -> None:
    """Take skills out; vade restore brings them back."""
    done = uninstall(names, InstallContext(scope).where, purge=purge, force=force)
    if as_json:
        print_json({"uninstalled": done, "kept": not purge})
        return
    for name in done:
        back = "" if purge else f" (vade restore {name} brings it back)"
        click.echo(visible(f"Uninstalled: {name}{back}"))


@click.command("restore")
@click.argument("name", shell_complete=complete_kept)
@scope_option
@json_option
def restore_command(*, name: str, scope: str, as_json: bool) -> None:
    """Bring back the version of a skill that was uninstalled or replaced last."""
    kept = restore(name, InstallContext(scope).where)
    if as_json:
        print_json({"restored": name, "from": str(kept)})
    else:
        click.echo(f"Restored: {visible(name)}")


@click.command("verify")
@_names
@scope_option
@json_option
def verify_command(*, names: tuple[str, ...], scope: str, as_json: bool) -> int:
    """Compare every file in the root with the lock, and print each skill's hash.

    Exit code 5: something differs, is not in the lock, or the lock is missing.
    """
    where = InstallContext(scope).where
    verdicts, problem = verify(where, names)
    wrong = [verdict for verdict in verdicts if verdict.status != "ok"]
    code = BROKEN if wrong or problem else 0
    if as_json:
        skills = [verdict.to_json() for verdict in verdicts]
        print_json({"verified": not code, "problem": problem or None, "skills": skills})
        return code
    for verdict in verdicts:
        status = f": {verdict.status}" if verdict in wrong else ""
        click.echo(f"{visible(verdict.name)} {verdict.digest}{status}".replace(" :", ":"))
        for difference in verdict.differences:
            click.echo(f"  {visible(difference)}")
    outcome = f"{len(wrong)} not as locked" if wrong else "all as locked"
    if problem:
        click.echo(visible(f"{problem}."))
    elif not verdicts:
        click.echo("No skill is installed here, and none is locked")
    else:
        click.echo(f"{counted(len(verdicts), 'skill')} compared: {outcome}")
    if any(verdict.status == "not-locked" for verdict in wrong):
        click.echo("A skill that is not locked was not installed by vade: vade lock NAME adopts your own.")
    return code


@click.command("diff")
@click.argument("name", shell_complete=complete_installed)
@scope_option
@json_option
def diff_command(*, name: str, scope: str, as_json: bool) -> int:
    """Show what was edited in a skill since it was installed. Exit code 1: something was."""
    here = InstallContext(scope)
    locked = read_lock(here.where.root).skills.get(name)
    if locked is None:
        near = nearest(name, read_lock(here.where.root).skills)
        hint = meant(near, otherwise="vade list shows what is.")
        raise PackRefused(f"{name!r} was not installed here: {hint}", code="not-installed")
    place = here.where.place(name)
    with tempfile.TemporaryDirectory(prefix="vade-") as aside:
        lax = Options(allow_unsafe=True)  # to be looked at only
        unsigned = LockFile({name: structs.replace(locked, signer=None)})
        original = here.sources.stage_again(name, unsigned, here.where, lax, Path(aside, "then"))
        here.bar.done()
        lines = diff_of(original, place, signatures=SIGNATURES)
    if as_json:
        print_json({"name": name, "diff": lines})
    else:
        _print_diff(lines)
        if not lines:
            click.echo(f"{visible(name)} is as it was installed")
    return FOUND_PROBLEMS if lines else 0


def _print_diff(lines: list[str], indent: str = "") -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        heading = line.startswith(("+++", "---"))
        text = f"{indent}{escaped(line.expandtabs(4))}"
        click.echo(click.style(text, fg=None if heading else colours.get(line[:1]), bold=heading))


@click.command("lock")
@_names
@scope_option
@click.option("--npm", is_flag=True, help="Also write skills-lock.json, for users of the npm tool skills.")
@json_option
def lock_command(*, names: tuple[str, ...], scope: str, npm: bool, as_json: bool) -> None:
    """Adopt what is in the root as it is now, edits and skills of your own, with the source "local"."""
    here = InstallContext(scope)
    changed = lock_here(here.where, names, npm=npm)
    file, locked = lock_path(here.where.root), read_lock(here.where.root).skills
    has_npm = npm_lock_path(here.where.root).is_file()
    for name in not_for_npm(locked) if has_npm else ():
        source = visible(f"{name} comes from {locked[name].source}")
        click.echo(f"vade: {source}, which npm's skills cannot restore: vade sync can.", err=True)
    if as_json:
        print_json({"file": str(file), "changed": changed, "skills": sorted(locked)})
        return
    for name in changed:
        is_there = name in locked
        text = f"Adopted: {name} (source: local)" if is_there else f"No longer locked: {name} (it is gone)"
        click.echo(visible(text))
    click.echo(f"{counted(len(locked), 'skill')} in {visible(str(file))}")


@click.command("sync")
@scope_option
@click.option(
    "--frozen", is_flag=True, help="Change nothing: exit code 5 if anything differs or is not in the lock."
)
@click.option("--allow-unsafe", is_flag=True, help="Take skills that want tools of high risk.")
@click.option("--require-signature", is_flag=True, help="Refuse what no trusted key signed.")
@_force
@json_option
def sync_command(*, scope: str, frozen: bool, as_json: bool, **allowed: bool) -> int:
    """Make the root equal to the lock: fetch what is missing, take away what vade put there before.

    Without a lock, that of the npm tool skills is followed.
    """
    here = InstallContext(scope, incoming=not frozen)
    if frozen:
        check_frozen(here.where)
        steps, failures = list[SyncStep](), list[Failure]()
    else:
        steps, failures = sync(here.where, here.sources, here.options(**allowed))
    here.bar.done()
    code = _code_of(failures)
    if as_json:
        problems = [failure.to_json() for failure in failures]
        print_json({"frozen": frozen, "steps": [step.to_json() for step in steps], "problems": problems})
        return code
    words = {"restored": "Restored", "removed": "Removed (it is in .trash)", "not-locked": "Not in the lock"}
    for step in steps:
        click.echo(f"{words[step.action]}: {visible(step.name)}")
    for failure in failures:
        click.echo(f"vade: {visible(str(failure.error))}", err=True)
    if any(step.action == "not-locked" for step in steps):
        click.echo("vade lock NAME adopts a skill of your own.")
    if not failures and all(step.action == "not-locked" for step in steps):
        click.echo(f"Everything {'else ' if steps else ''}is as the lock says")
    return code


def _code_of(failures: list[Failure]) -> int:
    if any(isinstance(failure.error, IntegrityFailed) for failure in failures):
        return BROKEN
    return FOUND_PROBLEMS if failures else 0


@click.command("outdated")
@_names
@scope_option
@json_option
def outdated_command(*, names: tuple[str, ...], scope: str, as_json: bool) -> int:
    """Ask the sources what is newer. Exit code 1: a source is gone or cannot be reached."""
    here = InstallContext(scope)
    ages = outdated(here.where, here.sources, names)
    here.bar.done()
    problems = any(age.status in {"gone", "unreachable"} for age in ages)
    if as_json:
        print_json({"skills": [age.to_json() for age in ages]})
        return FOUND_PROBLEMS if problems else 0
    for age in ages:
        if age.status not in {"current", "local"}:
            new = f" ({age.locked[:19]} → {age.newest[:19]})" if age.status == "outdated" else ""
            click.echo(visible(f"{age.name}: {age.status}{new}{f' ({age.problem})' if age.problem else ''}"))
    fresh = sum(age.status in {"current", "local"} for age in ages)
    click.echo(f"{counted(len(ages), 'skill')} asked for, {fresh} up to date")
    return FOUND_PROBLEMS if problems else 0


@click.command("update")
@_names
@scope_option
@_incoming
@json_option
def update_command(*, names: tuple[str, ...], scope: str, as_json: bool, **allowed: bool) -> int:
    """Install what the sources have now, and show what differs."""
    here = InstallContext(scope, incoming=True)
    options = here.options(**allowed)
    updates, failures = update(here.where, here.sources, options, names)
    here.bar.done()
    code = _code_of(failures)
    if as_json:
        shown = [one.to_json() for one in updates]
        problems = [failure.to_json() for failure in failures]
        print_json({"dry_run": options.dry_run, "updates": shown, "problems": problems})
        return code
    for one in updates:
        _show_update(one, dry_run=options.dry_run)
    for failure in failures:
        click.echo(f"vade: {visible(str(failure.error))}", err=True)
    return code


def _show_update(one: Update, *, dry_run: bool) -> None:
    if one.change.action == "same":
        click.echo(f"Up to date: {visible(one.change.name)}")
        return
    click.echo(f"{'Would be updated' if dry_run else 'Updated'}: {visible(one.change.name)}")
    _print_diff(list(one.diff), "  ")
    for remark in one.change.remarks:
        click.echo(f"  {visible(remark)}")
