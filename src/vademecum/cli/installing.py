"""``vade install`` and what follows: uninstall, restore, verify, diff, lock, sync, outdated, update."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from vademecum.cli.completing import complete_installed, complete_kept
from vademecum.cli.indexing import Command, IndexWords
from vademecum.cli.output import Bar, counted, json_option, print_json
from vademecum.config import Config, load_config
from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.arrivals import Change, Options
from vademecum.packs.comparing import diff_of
from vademecum.packs.fetching import Fetching
from vademecum.packs.install import install, restore, uninstall
from vademecum.packs.keys import TRUSTED_DIRECTORY, Trusted, trusted_keys
from vademecum.packs.lock import LockFile, lock_path, read_lock
from vademecum.packs.shelf import Shelf
from vademecum.packs.sources import reference_to, remembered
from vademecum.packs.store import Store
from vademecum.packs.syncing import Sources, check_frozen, lock_here, sync
from vademecum.packs.transaction import tidied
from vademecum.packs.updating import Update, outdated, update
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


def _arriving(command: Command) -> Command:
    """Give a command the options of one that lets skills in."""
    for name, words in (
        ("--allow-unsafe", "Take skills that want tools of high risk."),
        ("--backup", "Keep what is replaced in .trash, edited or not."),
        ("--dry-run", "Show what would change, and change nothing."),
        ("--require-signature", "Refuse what no trusted key signed."),
    ):
        command = click.option(name, is_flag=True, help=words)(command)
    return _force(command)


def root_of(scope: str, context: Context) -> Path:
    """The root that a scope means."""
    if scope == "user":
        return context.home / ".agent" / "skills"
    places = context.project_directories() or [context.cwd]
    nearest = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return nearest / ".agent" / "skills"


class Desk:
    """Everything that a command about installed skills needs of this place."""

    def __init__(self, scope: str, *, arriving: bool = False) -> None:
        """Look around; where skills are to arrive, also for trusted keys and for names that are taken."""
        self.context = Context.current()
        self.settings: Config = load_config(self.context).settings
        self.scope = scope
        cache = self.context.cache_directory()
        self.bar = Bar("fetching", bytes_=True)
        fetching = Fetching(None if cache is None else cache / "fetch", self.bar)
        self.sources = Sources(self.context, fetching)
        self.shelf = Shelf(
            root_of(scope, self.context),
            trusted_keys(self.context.home / ".agent" / TRUSTED_DIRECTORY) if arriving else Trusted(),
            Store(None if cache is None else cache / "packs"),
            _known_names() if arriving else (),
        )
        done = tidied(self.shelf.root)
        if done is not None:
            click.echo(f"vade: {visible(done)}", err=True)

    def options(self, *, require_signature: bool = False, **allowed: Any) -> Options:
        """What was asked for, and what the configuration asks for beyond it."""
        required = self.scope in self.settings.security.require_signatures
        return Options(require_signature=require_signature or required, **allowed)


def _known_names() -> tuple[str, ...]:
    try:
        index = IndexWords((), no_default_roots=False, lenient=False).build()
    except VademecumError:
        return ()
    return tuple(skill.name for skill in index.skills)


@click.command("install")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@scope_option
@click.option("--skill", "only", multiple=True, metavar="NAME", help="Only this one out of many; repeatable.")
@_arriving
@json_option
def install_command(
    *, sources: tuple[str, ...], scope: str, only: tuple[str, ...], as_json: bool, **allowed: bool
) -> None:
    """Install the skills of a source: all of them, or nothing.

    SOURCE is a zip, a tar or a directory; https://…/x.zip (#sha256=… demands a digest); git+https://…@ref#dir
    or owner/repo; https://site/ that lists its skills; or a marketplace.json.
    """
    desk = Desk(scope, arriving=True)
    options = desk.options(only=only, **allowed)
    with ExitStack() as stack:
        fetched = []
        for reference in [reference_to(typed, context=desk.context) for typed in sources]:
            name = remembered(reference, base=desk.shelf.base)
            fetched.append(stack.enter_context(desk.sources.fetching.fetched(reference, name, only=only)))
        desk.bar.done()
        unpacking = Bar("unpacking")
        changes = install(fetched, desk.shelf, options, progress=unpacking)
        unpacking.done()
        remarks = [remark for source in fetched for remark in source.remarks]
    if as_json:
        shown = [change.to_json() for change in changes]
        print_json({"dry_run": options.dry_run, "changes": shown, "remarks": remarks})
        return
    for change in changes:
        _show(change, dry_run=options.dry_run)
    for remark in remarks:
        click.echo(visible(f"Left out: {remark}"))


def _show(change: Change, *, dry_run: bool) -> None:
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
@scope_option
@click.option("--purge", is_flag=True, help="Delete it instead of keeping it in .trash.")
@click.option("--force", is_flag=True, help="Also what was edited by hand, or not installed by vade.")
@json_option
def uninstall_command(*, names: tuple[str, ...], scope: str, purge: bool, force: bool, as_json: bool) -> None:
    """Take skills out; vade restore brings them back."""
    done = uninstall(names, Desk(scope).shelf, purge=purge, force=force)
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
    kept = restore(name, Desk(scope).shelf)
    if as_json:
        print_json({"restored": name, "from": str(kept)})
    else:
        click.echo(f"Restored: {visible(name)}")


@click.command("verify")
@_names
@scope_option
@json_option
def verify_command(*, names: tuple[str, ...], scope: str, as_json: bool) -> int:
    """Compare every installed file with the lock. Exit code 5: something differs."""
    verdicts = verify(Desk(scope).shelf.root, names)
    wrong = [verdict for verdict in verdicts if verdict.status != "ok"]
    if as_json:
        print_json({"verified": not wrong, "skills": [verdict.to_json() for verdict in verdicts]})
        return BROKEN if wrong else 0
    for verdict in wrong:
        click.echo(f"{visible(verdict.name)}: {verdict.status}")
        for difference in verdict.differences:
            click.echo(f"  {visible(difference)}")
    outcome = f"{len(wrong)} not as locked" if wrong else "all as locked"
    click.echo(f"{counted(len(verdicts), 'skill')} compared: {outcome}")
    return BROKEN if wrong else 0


@click.command("diff")
@click.argument("name", shell_complete=complete_installed)
@scope_option
@json_option
def diff_command(*, name: str, scope: str, as_json: bool) -> int:
    """Show what was edited in a skill since it was installed. Exit code 1: something was."""
    desk = Desk(scope)
    locked = read_lock(desk.shelf.root).skills.get(name)
    if locked is None:
        near = nearest(name, read_lock(desk.shelf.root).skills)
        hint = meant(near, otherwise="vade list shows what is.")
        raise PackRefused(f"{name!r} was not installed here: {hint}", code="not-installed")
    place = desk.shelf.place(name)
    with tempfile.TemporaryDirectory(prefix="vade-") as aside:
        lax = Options(allow_unsafe=True)  # to be looked at only
        unsigned = LockFile({name: structs.replace(locked, signer=None)})
        original = desk.sources.stage_again(name, unsigned, desk.shelf, lax, Path(aside, "then"))
        desk.bar.done()
        lines = diff_of(original, place)
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
    """Lock what is in the root as it is now, edits and skills of your own included."""
    desk = Desk(scope)
    changed = lock_here(desk.shelf, names, npm=npm)
    file = lock_path(desk.shelf.root)
    if as_json:
        print_json(
            {"file": str(file), "changed": changed, "skills": sorted(read_lock(desk.shelf.root).skills)}
        )
        return
    for name in changed:
        click.echo(f"Locked as it is: {visible(name)}")
    click.echo(f"{counted(len(read_lock(desk.shelf.root).skills), 'skill')} in {visible(str(file))}")


@click.command("sync")
@scope_option
@click.option("--frozen", is_flag=True, help="Change nothing: exit code 5 where anything would.")
@click.option("--allow-unsafe", is_flag=True, help="Take skills that want tools of high risk.")
@click.option("--require-signature", is_flag=True, help="Refuse what no trusted key signed.")
@_force
@json_option
def sync_command(*, scope: str, frozen: bool, as_json: bool, **allowed: bool) -> None:
    """Make the root equal to the lock: fetch what is missing, take away what vade put there before."""
    desk = Desk(scope, arriving=not frozen)
    steps = check_frozen(desk.shelf) if frozen else sync(desk.shelf, desk.sources, desk.options(**allowed))
    desk.bar.done()
    if as_json:
        print_json({"frozen": frozen, "steps": [step.to_json() for step in steps]})
        return
    words = {"restored": "Restored", "removed": "Removed (it is in .trash)", "not-locked": "Not in the lock"}
    for step in steps:
        click.echo(f"{words[step.action]}: {visible(step.name)}")
    if all(step.action == "not-locked" for step in steps):
        click.echo("Everything is as the lock says")


@click.command("outdated")
@_names
@scope_option
@json_option
def outdated_command(*, names: tuple[str, ...], scope: str, as_json: bool) -> int:
    """Ask the sources what is newer. Exit code 1: a source is gone or cannot be reached."""
    desk = Desk(scope)
    ages = outdated(desk.shelf, desk.sources, names)
    desk.bar.done()
    problems = any(age.status in {"gone", "unreachable"} for age in ages)
    if as_json:
        print_json({"skills": [age.to_json() for age in ages]})
        return FOUND_PROBLEMS if problems else 0
    for age in ages:
        if age.status not in {"current", "here"}:
            new = f" ({age.locked[:19]} → {age.newest[:19]})" if age.status == "outdated" else ""
            click.echo(visible(f"{age.name}: {age.status}{new}{f' ({age.problem})' if age.problem else ''}"))
    fresh = sum(age.status in {"current", "here"} for age in ages)
    click.echo(f"{counted(len(ages), 'skill')} asked for, {fresh} up to date")
    return FOUND_PROBLEMS if problems else 0


@click.command("update")
@_names
@scope_option
@_arriving
@json_option
def update_command(*, names: tuple[str, ...], scope: str, as_json: bool, **allowed: bool) -> int:
    """Install what the sources have now, and show what differs."""
    desk = Desk(scope, arriving=True)
    options = desk.options(**allowed)
    updates, failures = update(desk.shelf, desk.sources, options, names)
    desk.bar.done()
    broken = any(isinstance(failure.error, IntegrityFailed) for failure in failures)
    code = BROKEN if broken else FOUND_PROBLEMS if failures else 0
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
