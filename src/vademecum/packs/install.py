"""Check skills and install all or none of them; uninstall and restore them."""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from vademecum.allowed_tools import Bounds
from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import read_capped
from vademecum.nearest import meant, nearest
from vademecum.packs.content import (
    MAX_SIGNATURE_BYTES,
    diff_of,
    differences_of,
    digest_of,
    files_of,
    is_junk,
)
from vademecum.packs.install_root import InstallRoot, note_of, verdict_of
from vademecum.packs.lock import LOCAL, Locked, LockFile, is_skill_path, lock_path, read_lock
from vademecum.packs.packing import Staged, unpack
from vademecum.packs.signatures import READERS, Signer, Trusted, signed_words, signer_of
from vademecum.packs.sources.archive import Progress, silently
from vademecum.packs.sources.fetching import Source
from vademecum.packs.transaction import MOMENT, TRASH
from vademecum.policy.base import risk_of

Action = Literal["new", "replace", "same"]

# Letters and digits that look alike in many fonts; each group starts with the letter that they resemble.
_DRAWN_LIKE = "aаαɑ bв cс dԁđ eе3 gɡ hһ iіι1ıl jј kкκ mм nп oоο0 pрρ qԛ rг sѕ5 tтτ uυ vν wԝ xхχ yу"
_ALIKE = str.maketrans({odd: group[0] for group in _DRAWN_LIKE.split() for odd in group[1:]})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


class Options(Struct, frozen=True):
    """Options of an installation from the user."""

    force: bool = False
    allow_unsafe: bool = False
    dry_run: bool = False
    require_signature: bool = False
    only: tuple[str, ...] = ()


class SkillChange(Struct, frozen=True):
    """The change that an installation makes to one skill."""

    name: str
    action: Action
    digest: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    signer: str | None = None
    diff: tuple[str, ...] = ()


class IncomingSkill(Struct, frozen=True):
    """An unpacked skill that can be installed: its changes, its entry in the lock, and its directory."""

    change: SkillChange
    locked: Locked
    place: Path


class Installed(Struct, frozen=True):
    """The result of an installation or a dry run: changed skills, and directories that were left out."""

    changes: list[SkillChange]
    left_out: list[str]


def install(
    sources: Source | Sequence[Source], where: InstallRoot, options: Options, *, progress: Progress = silently
) -> Installed:
    """Install the skills of all sources, or none of them."""
    listed = [sources] if isinstance(sources, Source) else list(sources)
    if options.dry_run:
        with tempfile.TemporaryDirectory(prefix="vade-") as aside:
            inspection = Inspection(where, options, read_lock(lock_path(where.root)), Path(aside, "aside"))
            found, left_out = inspection.inspect(listed, progress)
    else:
        with where.changing() as change:
            inspection = Inspection(where, options, change.lock, change.staging)
            found, left_out = inspection.inspect(listed, progress)
            for name, skill in found.items():
                if skill.change.action == "same":
                    change.remember(name, skill.locked)
                else:
                    change.put(name, skill.locked, skill.place, keep_old=options.force)
            change.commit()
    return Installed([skill.change for skill in found.values()], left_out)


class Inspection(Struct, frozen=True):
    """Inspect incoming skills for a root in the directory ``staging``."""

    where: InstallRoot
    options: Options
    lock: LockFile
    staging: Path

    def inspect(
        self, sources: Iterable[Source], progress: Progress = silently
    ) -> tuple[dict[str, IncomingSkill], list[str]]:
        """Unpack and check sources; return the requested skills, and the directories that were left out."""
        only = self.options.only
        found: dict[str, IncomingSkill] = {}
        left_out: list[str] = []
        for number, source in enumerate(sources):
            staging = self.staging / f".{number}"
            skills, without = unpack(source, staging, only=only, progress=progress)
            known = sorted(skill.name for skill in skills)
            missing = sorted(set(only) - set(known))
            if missing:
                raise PackRefused(
                    f"{source.name} has no skill {missing[0]!r}: it has {', '.join(known)}.", code="missing"
                )
            left_out += [f"{directory} (it contains no skill)" for directory in without]
            signers = signers_of(skills, source.signature, staging, self.where.trusted, only=only)
            for skill in skills:
                if skill.name in found:
                    raise PackRefused(
                        f"Two of these sources have a skill {skill.name!r}: nothing was installed."
                    )
                if skill.name in signers:
                    found[skill.name] = self._incoming(skill, signers[skill.name], source, staging)
        return found, left_out

    def _incoming(self, skill: Staged, signer: Signer | None, source: Source, staging: Path) -> IncomingSkill:
        place = source.place and (source.place / skill.inside).resolve()
        if place and place.is_relative_to(self.where.root.resolve()):
            raise PackRefused(
                f"{place} is in {self.where.root}, where skills are installed: name the source that it came "
                "from; vade lock adopts a skill of your own."
            )
        before = self.lock.skills.get(skill.name)
        pinned = before.signer if before else None
        _check_signer(skill.name, signer, pinned=pinned, required=self.options.require_signature)
        if not self.options.allow_unsafe:
            _refuse_risk(skill)
        digest = digest_of(skill.files)
        change = SkillChange(
            skill.name,
            "new",
            digest,
            added=tuple(file.path for file in skill.files),
            scripts=tuple(file.path for file in skill.files if file.path.startswith("scripts/")),
            remarks=tuple(self._remarks(skill)),
            signer=signer.words if signer else None,
        )
        if (self.where.root / skill.name).exists():
            change = self._compared(change, skill, staging)
        origin = source.each.get(skill.name, source.origin)
        version, who = skill.document.meta.version, signer.identity if signer else ""
        resolved = origin.resolved or digest
        locked = Locked(source.name, resolved, digest, skill.files, version, who or None, origin.url or None)
        packed = tuple(file for file in before.files if not is_junk(file.path)) if before else None
        if before and packed == skill.files and change.action == "same" and before.source != source.name:
            kept = f"its source stays {before.source}: uninstall it first to change that"
            locked = structs.replace(before, signer=before.signer or locked.signer)
            change = structs.replace(change, remarks=(*change.remarks, kept))
        return IncomingSkill(change, locked, staging / skill.name)

    def _compared(self, change: SkillChange, skill: Staged, staging: Path) -> SkillChange:
        """Compare a skill with the installed one; refuse to replace files that a person wrote or edited."""
        place = self.where.root / change.name
        try:
            differences = differences_of(files_of(place), skill.files)
            if not any(differences.values()):
                return structs.replace(change, action="same", added=())
            diff = diff_of(place, staging / change.name)
        except PackRefused:  # the installed files cannot be read
            differences, diff = differences_of((), skill.files), []
        if not self.options.force:
            refuse_edits(change.name, self.where.root, self.lock)
        return structs.replace(change, action="replace", diff=tuple(diff), **differences)

    def _remarks(self, skill: Staged) -> Iterable[str]:
        """Yield the problems of a skill, and names that it could be confused with."""
        for problem in skill.document.problems:
            if skill.inside or problem.code != "name-directory-mismatch":
                yield problem.message
        if (skill.name, "builtin") in self.where.known:
            yield f"it is used instead of the built-in skill {skill.name!r}"
        other = looks_like(skill.name, (name for name, _ in self.where.known))
        if other is not None:
            yield f"its name could be taken for {other!r}, which is another skill"


def signers_of(
    skills: Sequence[Staged],
    beside: bytes | None,
    place: Path,
    trusted: Trusted,
    *,
    only: Collection[str] = (),
) -> dict[str, Signer | None]:
    """Return the signer of each unpacked skill, from the signature next to the pack and those in the skill.

    Each signature must match; a trusted signer is preferred.
    """
    whole = []
    if beside is not None:
        files = [file for skill in skills for file in skill.files_in_source]
        whole = [signer_of(beside, files, trusted, place="beside the pack")]
    found: dict[str, Signer | None] = {}
    for skill in skills:
        if not only or skill.name in only:
            signed = [file for file in skill.files if file.path not in READERS]
            signers = list(whole)
            for name, read in READERS.items():
                if any(file.path == name for file in skill.files):
                    data = read_capped(place / skill.name / name, cap=MAX_SIGNATURE_BYTES)
                    signers.append(read(data, signed, trusted, place=f"{skill.name}/{name}"))
            found[skill.name] = min(signers, key=lambda signer: signer.trusted_as is None, default=None)
    return found


def _check_signer(name: str, signer: Signer | None, *, pinned: str | None, required: bool) -> None:
    """Refuse a skill without a required signature, or with another signer than before."""
    trusted = signer is not None and signer.trusted_as is not None
    if required and not trusted:
        raise IntegrityFailed(
            f"The skill {name!r} is {signed_words(signer)}, and a signature by a key in "
            "~/.agent/trusted-keys is required: nothing was installed.",
            code="signature",
        )
    if pinned is not None and not trusted and (signer is None or signer.identity != pinned):
        by = signer.words if signer else "no key"
        raise IntegrityFailed(
            f"The skill {name!r} was signed by {pinned[:24]}… when it was installed, and is now signed by "
            f"{by}: trust the new key, or uninstall the skill first.",
            code="signature",
        )


def refuse_edits(
    name: str, root: Path, lock: LockFile, *, force: str = "replaces it (it is kept in .trash)"
) -> None:
    """Refuse to replace or remove a skill that a person wrote or edited, and say what ``--force`` does."""
    verdict = verdict_of(name, root, lock)
    own = name in lock.skills and lock.skills[name].source == LOCAL
    if verdict.status == "not-locked" or (verdict.status == "ok" and own):
        raise PackRefused(f"{root / name} was not installed by vade: --force {force}.")
    if verdict.is_edited:
        raise PackRefused(
            f"{root / name} was changed since it was installed ({verdict.differences[0]}): vade diff {name} "
            f"shows it, --force {force}."
        )


def _refuse_risk(skill: Staged) -> None:
    allowed = Bounds.of(skill.document.controls.allowed_tools or ()).allowed
    risky = sorted({bound.tool for bound in allowed if risk_of(bound.tool) == "high"})
    if risky:
        raise PackRefused(
            f"The skill {skill.name!r} asks for high-risk tools ({', '.join(risky)}): inspect it, then "
            "use --allow-unsafe."
        )


def looks_like(name: str, others: Iterable[str]) -> str | None:
    """Return another name that this one could be mistaken for, or None.

    >>> looks_like("раypal-tools", ["paypal-tools"]), looks_like("file-dlff", ["file-diff"])
    ('paypal-tools', 'file-diff')
    >>> looks_like("pdf", ["pdf", "docx"]) is None
    True
    """
    own = _skeleton(name)
    return next((other for other in others if other != name and _skeleton(other) == own), None)


def _skeleton(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    for pair, one in _ALIKE_PAIRS:
        plain = plain.replace(pair, one)
    return plain.replace("-", "").replace("_", "")


def uninstall(names: Sequence[str], where: InstallRoot, *, purge: bool = False, force: bool = False) -> None:
    """Move skills from a root to the trash, or delete them."""
    forced = "deletes it" if purge else "removes it (it is kept in .trash)"
    with where.changing() as change:
        for name in names:
            where.place(name)
            if not force:
                refuse_edits(name, where.root, change.lock, force=forced)
            change.take_away(name, keep=not purge)
        change.commit()


def restore(name: str, where: InstallRoot) -> Path:
    """Bring back the latest version of a skill from the trash, with all its files and its lock entry."""
    kept = _kept_in(where.root / TRASH / name) if is_skill_path(name) else []
    if not kept:
        names = kept_names(where.root)
        hint = meant(nearest(name, names), otherwise="only uninstalled or replaced skills are.")
        raise PackRefused(f"Nothing called {name!r} is kept in {where.root / TRASH}: {hint}", code="missing")
    locked = read_lock(note_of(kept[-1])).skills.get(name)
    with where.changing() as change:
        copy = change.staging / ".back" / name
        shutil.copytree(kept[-1], copy, symlinks=True)
        change.put(name, locked, copy, keep_old=True)
        change.commit()
    shutil.rmtree(kept[-1], ignore_errors=True)
    note_of(kept[-1]).unlink(missing_ok=True)
    return kept[-1]


def kept_names(root: Path) -> list[str]:
    """Return the names of the skills in the trash."""
    try:
        names = sorted(os.listdir(root / TRASH))
    except OSError:
        return []
    return [name for name in names if is_skill_path(name) and _kept_in(root / TRASH / name)]


def _kept_in(trash: Path) -> list[Path]:
    """Return the versions of one skill in the trash, the oldest first."""
    there = trash.iterdir() if trash.is_dir() else ()
    kept = (place for place in there if MOMENT.match(place.name))
    return sorted(place for place in kept if place.is_dir() and not place.is_symlink())
