"""Implement ``vade pack``, export, publish, keygen, sign and verify-pack."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, index_options, name_argument
from vademecum.cli.output.printing import CommandResult, ProgressBar, command
from vademecum.context import Context
from vademecum.errors import PackRefused
from vademecum.files import writable, write_atomic
from vademecum.packs.content import OMS_SIGNATURE, SIGNATURE, SkillFile, digest_of
from vademecum.packs.install import signers_of
from vademecum.packs.packing import PackedSkill, pack_of, packed, publish, unpack
from vademecum.packs.signatures import (
    KEY_DIRECTORY,
    READERS,
    TRUSTED_DIRECTORY,
    new_key,
    oms_signed,
    private_key,
    signed,
    signed_words,
    trusted_keys,
)
from vademecum.packs.sources.fetching import SIGNATURE_SUFFIX, local_source
from vademecum.skill.document import parse_document
from vademecum.skill.frontmatter import read_opening
from vademecum.skill.skill import MANIFEST
from vademecum.skill.text import counted, visible
from vademecum.skill.validate import validate_skill

_FILE = click.Path(dir_okay=False)
_OUT = click.option("-o", "--output", "out", required=True, type=_FILE, metavar="FILE", help="Zip to write.")


class _Existing(click.Path):
    """Accept a path that exists; a missing one is not found, rather than a wrong command line."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not os.path.exists(value):
            raise PackRefused(f"There is no {value!r}: name a path that exists.", code="missing")
        return super().convert(value, param, ctx)


_FOLDER, _DIRECTORY = click.Path(file_okay=False), _Existing(file_okay=False)


@command("pack")
@click.argument("directories", nargs=-1, required=True, type=_DIRECTORY)
@_OUT
def pack_command(*, directories: tuple[str, ...], out: str) -> CommandResult:
    """Zip valid skill directories into one file. The same files give the same bytes."""
    return _written([_valid(Path(directory)) for directory in directories], Path(out))


@command("export")
@name_argument("names", nargs=-1, required=True)
@_OUT
@index_options
def export_command(*, names: tuple[str, ...], out: str, **words: Any) -> CommandResult:
    """Zip skills by name, wherever they are found."""
    index = IndexWords(**words).build()
    skills = [index.get(name) for name in names]
    return _written([packed(skill.path, skill) for skill in skills], Path(out))


@command("publish")
@click.argument("directories", nargs=-1, required=True, type=_DIRECTORY)
@click.option("--to", "folder", required=True, type=_FOLDER, metavar="FOLDER", help="Folder to write.")
def publish_command(*, directories: tuple[str, ...], folder: str) -> CommandResult:
    """Write a folder for a web server: others install from its address.

    Each DIRECTORY is a skill, or contains skills.
    """
    skills = [_valid(place) for directory in directories for place in _skills_in(Path(directory))]
    _check_once(skills)
    with writable(Path(folder)):
        found = publish(skills, Path(folder))
    lines = [f"Published: {skill.name} ({skill.type}, {skill.digest[:19]}…)" for skill in found]
    lines.append(f"Serve {folder} on the web, then: vade install https://your.site/")
    return CommandResult({"folder": folder, "skills": found}, map(visible, lines))


def _skills_in(directory: Path) -> list[Path]:
    if (directory / MANIFEST).is_file():
        return [directory]
    found = sorted(place for place in directory.iterdir() if (place / MANIFEST).is_file())
    if not found:
        raise PackRefused(f"{directory} contains no {MANIFEST}, and neither does a directory directly in it.")
    return found


def _valid(directory: Path) -> PackedSkill:
    verdict = validate_skill(str(directory))
    if not verdict.valid or verdict.name is None:
        problem = next(problem for problem in verdict.problems if problem.severity == "error")
        raise PackRefused(f"{directory} is not valid ({problem.message}): vade validate {directory}")
    return packed(directory, parse_document(read_opening(directory / MANIFEST), directory=verdict.name))


def _check_once(skills: list[PackedSkill]) -> None:
    names = [skill.name for skill in skills]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PackRefused(f"Two of these skills are called {twice!r}: choose one of them.")


def _written(skills: list[PackedSkill], out: Path) -> CommandResult:
    _check_once(skills)
    if not out.parent.is_dir():
        raise PackRefused(f"{out} cannot be written ({out.parent} is not a directory): name another file.")
    with writable(out), ProgressBar("packing", bytes_=True) as bar:
        data = pack_of(skills, bar)
        write_atomic(out, data)
    digest = hashlib.sha256(data).hexdigest()
    rows = [{"name": skill.name, "digest": digest_of(skill.files)} for skill in skills]
    line = f"Wrote {out} ({counted(len(skills), 'skill')}, sha256 {digest})"
    return CommandResult({"file": out, "sha256": digest, "skills": rows}, [line])


@command("keygen")
@click.argument("name", default="default")
@click.option(
    "--ecdsa", is_flag=True, help="Create an ECDSA key, which tools for OpenSSF Model Signing accept."
)
@click.option("--trust", is_flag=True, help="Also trust it here: copy the .pub file to your trusted keys.")
def keygen_command(*, name: str, ecdsa: bool, trust: bool) -> CommandResult:
    """Create a key pair: ~/.agent/keys/NAME.pem to sign with, and NAME.pub to give to others.

    Others trust it by copying NAME.pub into ~/.agent/trusted-keys/.
    """
    home = Context.current().home / ".agent"
    private, public, key_id = new_key(home / KEY_DIRECTORY, name, ecdsa=ecdsa)
    trusted = home / TRUSTED_DIRECTORY / public.name if trust else None
    if trusted is not None:
        write_atomic(trusted, public.read_bytes())
    lines = [f"Wrote {private} (keep it to yourself) and {public} (give it to others)", f"Its id is {key_id}"]
    if trusted is not None:
        lines.append(f"It is trusted here: {trusted}")
    document = {"private": private, "public": public, "id": key_id, "trusted": trust}
    return CommandResult(document, lines)


@command("sign")
@click.argument("target", type=_Existing(), metavar="PACK|DIR")
@click.option("--key", default="default", show_default=True, help="Name of a key, or path of a .pem file.")
@click.option("--oms", is_flag=True, help="Sign a skill as OpenSSF Model Signing does (skill.oms.sig).")
def sign_command(*, target: str, key: str, oms: bool) -> CommandResult:
    """Sign a skill (skill.sig in its directory), or a pack (PACK.sig next to it)."""
    home = Context.current().home
    named = home / ".agent" / KEY_DIRECTORY / f"{key}.pem"
    secret = private_key(Path(key) if "/" in key or key.endswith(".pem") else named)
    path = Path(target)
    if path.is_dir():
        skill = _valid(path)
        out = path / (OMS_SIGNATURE if oms else SIGNATURE)
        files: tuple[SkillFile, ...] = tuple(file for file in skill.files if file.path not in READERS)
        data = oms_signed(files, secret, skill.name) if oms else signed(files, secret)
    elif oms:
        raise click.UsageError("--oms signs a skill's directory, not a pack.")
    else:
        out = path.with_name(path.name + SIGNATURE_SUFFIX)
        with tempfile.TemporaryDirectory(prefix="vade-") as aside:
            skills, _ = unpack(local_source(path), Path(aside, "pack"))
        files = tuple(file for each in skills for file in each.files_in_source)
        data = signed(files, secret)
    with writable(out):
        write_atomic(out, data)
    line = f"Signed {counted(len(files), 'file')}: {visible(str(out))}"
    return CommandResult({"signature": out, "files": len(files)}, [line])


@command("verify-pack")
@click.argument("pack", type=_Existing(dir_okay=False))
def verify_pack_command(*, pack: str) -> CommandResult:
    """Check a pack without installing it: every entry, the manifest, every signature."""
    trusted = trusted_keys(Context.current().home / ".agent" / TRUSTED_DIRECTORY)
    source = local_source(Path(pack))
    with tempfile.TemporaryDirectory(prefix="vade-") as aside:
        staged, _ = unpack(source, Path(aside, "pack"))
        signers = signers_of(staged, source.signature, Path(aside, "pack"), trusted)
    skills, lines = [], []
    for skill in staged:
        signer, digest, count = signers[skill.name], digest_of(skill.files), len(skill.files)
        identity = (signer.identity or "unknown") if signer else None
        row = {"name": skill.name, "digest": digest, "files": count, "signer": identity}
        skills.append(row | {"trusted_as": signer.trusted_as if signer else None})
        lines.append(f"{skill.name}: {counted(count, 'file')}, {digest[:19]}…, {signed_words(signer)}")
    document = {"pack": pack, "sha256": source.origin.resolved.removeprefix("sha256:"), "skills": skills}
    return CommandResult(document, map(visible, lines))
