"""``vade pack``, ``export``, ``install``, ``uninstall``, ``restore``, ``verify``: skills that travel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, as_reference, complete_names, index_options
from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.archive import PackedSkill, pack_bytes
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.install import Change, Options, Source, install, uninstall, verify
from vademecum.packs.transaction import TRASH, changing
from vademecum.skill.text import visible
from vademecum.skill.validate import validate_skill

scope_option = click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    default="project",
    show_default=True,
    help="Into .agent/skills of the project, or of the home directory.",
)
_OUT = click.option("-o", "--output", "out", required=True, type=click.Path(dir_okay=False), metavar="FILE")


def root_of(scope: str) -> Path:
    """The root that a scope means."""
    context = Context.current()
    if scope == "user":
        return context.home / ".agent" / "skills"
    places = context.project_directories() or [context.cwd]
    nearest = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return nearest / ".agent" / "skills"


@click.command("pack")
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@_OUT
@json_option
def pack_command(*, directories: tuple[str, ...], out: str, as_json: bool) -> None:
    """Put skills into one zip, byte for byte the same for the same files. Each must be valid."""
    skills = []
    for directory in directories:
        verdict = validate_skill(directory)
        if not verdict.valid or verdict.name is None:
            problem = next(problem for problem in verdict.problems if problem.severity == "error")
            raise PackRefused(f"{directory} is not valid ({problem.message}): vade validate {directory}")
        skills.append(_packed(Path(directory), verdict.name))
    _write(skills, Path(out), as_json=as_json)


@click.command("export")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_names)
@_OUT
@index_options
@json_option
def export_command(*, names: tuple[str, ...], out: str, as_json: bool, **words: Any) -> None:
    """Put skills that are in use here into one zip."""
    index = IndexWords(**words).build()
    skills = [index.get(as_reference(name)) for name in names]
    packed = [PackedSkill(s.name, s.meta.version, s.path, files_of(s.path)) for s in skills]
    _write(packed, Path(out), as_json=as_json)


def _packed(directory: Path, name: str) -> PackedSkill:
    from vademecum.skill.document import parse_document
    from vademecum.skill.model import MANIFEST, Reading

    document = parse_document((directory / MANIFEST).read_bytes(), directory=name, reading=Reading())
    return PackedSkill(name, document.meta.version, directory, files_of(directory))


def _write(skills: list[PackedSkill], out: Path, *, as_json: bool) -> None:
    twice = [skill.name for skill in skills if sum(other.name == skill.name for other in skills) > 1]
    if twice:
        raise PackRefused(f"Two of these skills are called {twice[0]!r}: a pack holds one of a name.")
    temporary = out.with_name(f".{out.name}.{os.urandom(4).hex()}")
    digest = hashlib.sha256()
    try:
        with open(temporary, "xb") as file:
            for piece in pack_bytes(skills):
                digest.update(piece)
                file.write(piece)
        os.replace(temporary, out)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if as_json:
        rows = [{"name": skill.name, "digest": digest_of(skill.files)} for skill in skills]
        print_json({"file": str(out), "sha256": digest.hexdigest(), "skills": rows})
    else:
        click.echo(f"Wrote {out} ({counted(len(skills), 'skill')}, sha256 {digest.hexdigest()})")


@click.command("install")
@click.argument("sources", nargs=-1, required=True)
@scope_option
@click.option("--skill", "only", multiple=True, metavar="NAME", help="Only this one out of many; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--force", is_flag=True, help="Replace what was edited by hand; it is kept in .trash.")
@click.option("--allow-unsafe", is_flag=True, help="Take skills that want tools of high risk.")
@json_option
def install_command(
    *, sources: tuple[str, ...], scope: str, only: tuple[str, ...], as_json: bool, **allowed: bool
) -> None:
    """Install the skills of a zip, a tar or a directory: all of them, or nothing.

    SOURCE may end in #sha256=… for an archive that must have this digest.
    """
    options = Options(only=only, **allowed)
    changes: list[Change] = []
    for typed in sources:
        changes += install(source_of(typed), root_of(scope), options)
    if as_json:
        print_json({"dry_run": options.dry_run, "changes": [change.to_json() for change in changes]})
        return
    for change in changes:
        _show(change, dry_run=options.dry_run)


def source_of(typed: str) -> Source:
    """What a person typed as the place that skills come from."""
    name, _, wanted = typed.partition("#sha256=")
    path = Context.current().expand(name)
    if path.is_dir():
        return Source(typed, digest_of(files_of(path)), path)
    if not path.is_file():
        raise PackRefused(
            f"There is no {name!r} to install from: name a zip, a tar or a directory.", code="missing"
        )
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if wanted and wanted.lower() != digest:
        raise IntegrityFailed(f"{name} has sha256 {digest}, not {wanted}: nothing was installed.")
    return Source(typed, f"sha256:{digest}", path)


def _show(change: Change, *, dry_run: bool) -> None:
    verb = {"new": "Installed", "replace": "Replaced", "same": "Unchanged"}[change.action]
    words = f"Would be {verb.lower()}" if dry_run else verb
    click.echo(f"{words}: {visible(change.name)}")
    for kind in ("added", "removed", "changed"):
        files: Iterable[str] = getattr(change, kind)
        if change.action == "replace":
            for file in files:
                click.echo(f"  {kind} {visible(file)}")
    if change.scripts and change.action != "same":
        click.echo(f"  it brings scripts: {visible(', '.join(change.scripts))}")
    for remark in change.remarks:
        click.echo(f"  {visible(remark)}")


@click.command("uninstall")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_names)
@scope_option
@click.option("--purge", is_flag=True, help="Delete it instead of keeping it in .trash.")
@click.option("--force", is_flag=True, help="Also what was edited by hand, or not installed by vade.")
@json_option
def uninstall_command(*, names: tuple[str, ...], scope: str, purge: bool, force: bool, as_json: bool) -> None:
    """Take skills out; vade restore brings them back."""
    done = uninstall(names, root_of(scope), purge=purge, force=force)
    if as_json:
        print_json({"uninstalled": done, "kept": not purge})
    else:
        click.echo(
            f"Uninstalled: {visible(', '.join(done))}{'' if purge else ' (vade restore brings it back)'}"
        )


@click.command("restore")
@click.argument("name")
@scope_option
@json_option
def restore_command(*, name: str, scope: str, as_json: bool) -> None:
    """Bring back the version of a skill that was uninstalled or replaced last."""
    root = root_of(scope)
    kept = sorted((root / TRASH / name).iterdir()) if (root / TRASH / name).is_dir() else []
    if not kept:
        raise PackRefused(f"Nothing called {name!r} is kept in {root / TRASH}.", code="missing")
    install(Source(f"{TRASH}/{name}", kept[-1].name, kept[-1]), root, Options(force=True, allow_unsafe=True))
    with changing(root):
        import shutil

        shutil.rmtree(kept[-1])
    if as_json:
        print_json({"restored": name, "from": str(kept[-1])})
    else:
        click.echo(f"Restored: {visible(name)}")


@click.command("verify")
@click.argument("names", nargs=-1)
@scope_option
@json_option
def verify_command(*, names: tuple[str, ...], scope: str, as_json: bool) -> int:
    """Compare every installed file with the lock. Exit code 5: something differs."""
    verdicts = verify(root_of(scope), names)
    wrong = [verdict for verdict in verdicts if verdict.status != "ok"]
    if as_json:
        print_json({"verified": not wrong, "skills": [verdict.to_json() for verdict in verdicts]})
        return 5 if wrong else 0
    for verdict in wrong:
        click.echo(f"{visible(verdict.name)}: {verdict.status}")
        for difference in verdict.differences:
            click.echo(f"  {visible(difference)}")
    click.echo(f"{counted(len(verdicts), 'skill')} compared, {len(wrong) or 'none'} not as locked")
    return 5 if wrong else 0
