"""Implement ``vade install``, uninstall, restore, verify, diff, lock, sync and update."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from vademecum.cli.indexing import IndexWords, completer, repeatable, scope_option, scope_root
from vademecum.cli.main import BROKEN, FOUND_PROBLEMS
from vademecum.cli.output.printing import CommandResult, ProgressBar, command, paint
from vademecum.config import Config, load_config
from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.content import diff_of
from vademecum.packs.install import Options, SkillChange, install, kept_names, restore, uninstall
from vademecum.packs.install_root import InstallRoot, install_ground, verdict_of, verify
from vademecum.packs.lock import LockFile, lock_path, read_lock
from vademecum.packs.npm_lock import not_for_npm, npm_lock_path
from vademecum.packs.signatures import TRUSTED_DIRECTORY, trusted_keys
from vademecum.packs.sources.fetching import Fetching
from vademecum.packs.syncing import Failure, Sources, SyncStep, check_frozen, lock_here, sync, update
from vademecum.packs.transaction import tidied
from vademecum.skill.text import counted, escaped, visible


@completer
def complete_installed(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a skill in the root that ``--scope`` names."""
    return InstallRoot(scope_root(context.params["scope"], Context.current())).names()


@completer
def complete_kept(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a skill in the trash of the root that ``--scope`` names."""
    return kept_names(scope_root(context.params["scope"], Context.current()))


_ROOTS = "The .agent/skills of the project or of your home directory."
_scope = scope_option(_ROOTS)
_unsafe = click.option("--allow-unsafe", is_flag=True, help="Accept skills that ask for high-risk tools.")
_signature = click.option(
    "--require-signature", is_flag=True, help="Refuse skills without a trusted signature."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
_force = click.option("--force", is_flag=True, help="Replace edited skills; the old ones are kept in .trash.")
_names = click.argument("names", nargs=-1, shell_complete=complete_installed)


class InstallContext:
    """The root, the sources and the settings for a command about installed skills."""

    def __init__(self, scope: str, *, incoming: bool = False) -> None:
        """Load the settings; with ``incoming``, also the trusted keys and the known skills."""
        self.context = Context.current()
        self.settings: Config = load_config(self.context).settings
        self.scope = scope
        self.bar = ProgressBar("fetching", bytes_=True)
        self.where = InstallRoot(
            scope_root(scope, self.context),
            trusted_keys(self.context.home / ".agent" / TRUSTED_DIRECTORY) if incoming else (),
            _known_skills() if incoming else (),
            scan=self.settings.scan,
        )
        self.sources = Sources(self.where, Fetching(self.context, self.bar))
        done = tidied(install_ground(self.where.root))
        if done is not None:
            click.echo(f"vade: {visible(done)}", err=True)

    def options(self, *, require_signature: bool = False, **allowed: Any) -> Options:
        """Return the options of the command line, and those that the configuration requires."""
        required = self.scope in self.settings.security.require_signatures
        return Options(require_signature=require_signature or required, **allowed)


def _known_skills() -> tuple[tuple[str, str], ...]:
    """Return the name and the source of every skill here, also of overridden ones."""
    try:
        index = IndexWords().build()
    except VademecumError:
        return ()
    return tuple((skill.name, skill.source) for skill in (*index.skills, *index.shadowed))


@command("install")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_scope
@repeatable("--only", "NAME", "Only this skill")
@click.option("--skill", "only", multiple=True, hidden=True)
@_force
@_signature
@_dry_run
@_unsafe
def install_command(
    *, sources: tuple[str, ...], scope: str, only: tuple[str, ...], **allowed: bool
) -> CommandResult:
    """Install all skills of a source, or none of them.

    SOURCE is a zip, a tar or a directory; https://…/x.zip (#sha256=… checks it); git+https://…@ref#dir
    or owner/repo; https://site/ that lists its skills; run:ID/NAME, a skill that an agent wrote in a run; or
    mcp:SERVER/NAME, a skill of a server that you added with vade source add.
    """
    here = InstallContext(scope, incoming=True)
    options = here.options(only=only, **allowed)
    with ExitStack() as stack:
        asked = [here.sources.fetched(typed, only) for typed in sources]
        fetched = [stack.enter_context(each) for each in asked]
        here.bar.done()
        with ProgressBar("unpacking") as unpacking:
            done = install(fetched, here.where, options, progress=unpacking)
    lines = [line for change in done.changes for line in _shown(change, dry_run=options.dry_run)]
    lines += [visible(f"Left out: {remark}") for remark in done.left_out]
    document = {"dry_run": options.dry_run, "changes": done.changes, "remarks": done.left_out}
    return CommandResult(document, lines)


def _shown(change: SkillChange, *, dry_run: bool) -> Iterator[str]:
    verb = {"new": "Installed", "replace": "Replaced", "same": "Unchanged"}[change.action]
    yield f"{f'Would be {verb.lower()}' if dry_run else verb}: {visible(change.name)}"
    if change.action == "replace":
        for kind in ("added", "removed", "changed"):
            yield from (f"  {kind} {visible(file)}" for file in getattr(change, kind))
    if change.scripts and change.action != "same":
        yield f"  it contains scripts: {visible(', '.join(change.scripts))}"
    if change.signer:
        yield f"  signed by {visible(change.signer)}"
    yield from (f"  {visible(remark)}" for remark in change.remarks)


@command("uninstall")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_installed)
@_scope
@click.option("--source", "scope", type=click.Choice(["project", "user"]), default="project", hidden=True)
@click.option("--purge", is_flag=True, help="Delete the skills instead of keeping them in .trash.")
@click.option("--force", is_flag=True, help="Also remove edited skills and those not installed by vade.")
def uninstall_command(*, names: tuple[str, ...], scope: str, purge: bool, force: bool) -> CommandResult:
    """Remove installed skills; vade restore brings them back."""
    uninstall(names, InstallContext(scope).where, purge=purge, force=force)
    lines = [f"Uninstalled: {n}" + ("" if purge else f" (vade restore {n} brings it back)") for n in names]
    return CommandResult({"uninstalled": names, "kept": not purge}, map(visible, lines))


@command("restore")
@click.argument("name", shell_complete=complete_kept)
@_scope
def restore_command(*, name: str, scope: str) -> CommandResult:
    """Bring back the version of a skill that was last uninstalled or replaced."""
    kept = restore(name, InstallContext(scope).where)
    return CommandResult({"restored": name, "from": kept}, [f"Restored: {visible(name)}"])


@command("verify")
@_names
@_scope
def verify_command(*, names: tuple[str, ...], scope: str) -> CommandResult:
    """Compare every file in the root with the lock, and print each skill's hash.

    Exit code 5: something differs, is not in the lock, or the lock is missing.
    """
    where = InstallContext(scope).where
    verdicts, problem = verify(where, names)
    wrong = [verdict for verdict in verdicts if verdict.status != "ok"]
    code = BROKEN if wrong or problem else 0
    lines = []
    for verdict in verdicts:
        status = f": {verdict.status}" if verdict in wrong else ""
        lines.append(f"{visible(verdict.name)} {verdict.digest}{status}".replace(" :", ":"))
        lines += [f"  {visible(difference)}" for difference in verdict.differences]
    outcome = f"{len(wrong)} not as locked" if wrong else "all as locked"
    if problem:
        lines.append(visible(f"{problem}."))
    elif not verdicts:
        lines.append("No skill is installed here, and none is locked")
    else:
        lines.append(f"{counted(len(verdicts), 'skill')} compared: {outcome}")
    if any(verdict.status == "not-locked" for verdict in wrong):
        lines.append("A skill that is not locked was not installed by vade: vade lock NAME adopts your own.")
    document = {"verified": not code, "problem": problem or None, "skills": verdicts}
    return CommandResult(document, lines, code)


@command("diff")
@click.argument("name", shell_complete=complete_installed)
@_scope
def diff_command(*, name: str, scope: str) -> CommandResult:
    """Show the edits to a skill since it was installed. Exit code 1: there are edits."""
    here = InstallContext(scope)
    skills = read_lock(lock_path(here.where.root)).skills
    if name not in skills:
        hint = meant(nearest(name, skills), otherwise="vade verify lists the installed skills.")
        raise PackRefused(f"{name!r} was not installed here: {hint}", code="not-installed")
    place = here.where.place(name)
    lines: list[str] = []
    if verdict_of(name, here.where.root, LockFile(skills)).status != "ok":
        with tempfile.TemporaryDirectory(prefix="vade-") as aside:
            lax = Options(allow_unsafe=True)  # only to compare
            unsigned = LockFile({name: structs.replace(skills[name], signer=None)})
            original = here.sources.stage_again(name, unsigned, lax, Path(aside, "then"))
            here.bar.done()
            lines = diff_of(original, place)
    shown = _coloured(lines) if lines else [f"{visible(name)} has no edits"]
    return CommandResult({"name": name, "diff": lines}, shown, FOUND_PROBLEMS if lines else 0)


def _coloured(lines: Iterable[str], indent: str = "") -> Iterator[str]:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        style = "bold" if line.startswith(("+++", "---")) else styles.get(line[:1], "")
        text = f"{indent}{escaped(line.expandtabs(4))}"
        yield paint(text, style)


@command("lock")
@_names
@_scope
@click.option("--npm", is_flag=True, help="Also write skills-lock.json, for users of the npm tool skills.")
def lock_command(*, names: tuple[str, ...], scope: str, npm: bool) -> CommandResult:
    """Lock the root in its present state; edited skills and your own get the source "local"."""
    here = InstallContext(scope)
    changed = lock_here(here.where, names, npm=npm)
    file, locked = lock_path(here.where.root), read_lock(lock_path(here.where.root)).skills
    if npm_lock_path(here.where.root).is_file():
        for name, why in not_for_npm(locked).items():
            click.echo(f"vade: {visible(f'{name} {why}')}: vade sync can.", err=True)
    lines = [
        f"Adopted: {name} (source: local)" if name in locked else f"No longer locked: {name} (it is gone)"
        for name in changed
    ]
    lines.append(f"{counted(len(locked), 'skill')} in {file}")
    document = {"file": file, "changed": changed, "skills": sorted(locked)}
    return CommandResult(document, map(visible, lines))


@command("sync")
@_scope
@click.option(
    "--frozen", is_flag=True, help="Change nothing: exit code 5 if anything differs or is not in the lock."
)
@_unsafe
@_signature
@_force
def sync_command(*, scope: str, frozen: bool, **allowed: bool) -> CommandResult:
    """Make the root match the lock: install its skills, remove others that vade installed.

    If there is no lock, vade uses the lock file of the npm tool skills.
    """
    here = InstallContext(scope, incoming=not frozen)
    if frozen:
        check_frozen(here.where)
        steps, failures = list[SyncStep](), list[Failure]()
    else:
        steps, failures = sync(here.sources, here.options(**allowed))
    here.bar.done()
    words = {"restored": "Restored", "removed": "Removed (it is in .trash)", "not-locked": "Not in the lock"}
    lines = [f"{words[step.action]}: {visible(step.name)}" for step in steps]
    if any(step.action == "not-locked" for step in steps):
        lines.append("vade lock NAME adopts a skill of your own.")
    if not failures and all(step.action == "not-locked" for step in steps):
        lines.append(f"Everything {'else ' if steps else ''}matches the lock")
    return _finished({"frozen": frozen, "steps": steps}, lines, failures, named=True)


def _finished(
    document: dict[str, Any], lines: Iterable[str], failures: list[Failure], *, named: bool = False
) -> CommandResult:
    problems = [{"source": one.name, "code": one.error.code, "message": str(one.error)} for one in failures]
    broken = any(isinstance(failure.error, IntegrityFailed) for failure in failures)
    code = BROKEN if broken else FOUND_PROBLEMS if failures else 0
    told = [f"vade: {visible(one.named if named else str(one.error))}" for one in failures]
    return CommandResult(document | {"problems": problems}, lines, code, told)


@command("update")
@_names
@_scope
@_force
@_signature
@_dry_run
@_unsafe
def update_command(*, names: tuple[str, ...], scope: str, **allowed: bool) -> CommandResult:
    """Install the current versions from the sources, and show the differences."""
    here = InstallContext(scope, incoming=True)
    options = here.options(**allowed)
    updates, failures = update(here.sources, options, names)
    here.bar.done()
    lines = [line for change in updates for line in _updated(change, dry_run=options.dry_run)]
    return _finished({"dry_run": options.dry_run, "updates": updates}, lines, failures)


def _updated(change: SkillChange, *, dry_run: bool) -> Iterator[str]:
    if change.action == "same":
        yield f"Up to date: {visible(change.name)}"
        return
    yield f"{'Would be updated' if dry_run else 'Updated'}: {visible(change.name)}"
    yield from _coloured(change.diff, "  ")
    yield from (f"  {visible(remark)}" for remark in change.remarks)
