"""Skills that are about to be installed: unpacked, checked in every way, compared with what is there."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import read_capped
from vademecum.packs.content import MAX_SIGNATURE_BYTES, diff_of, differences_of, digest_of, files_of
from vademecum.packs.install_root import InstallRoot, verdict_of
from vademecum.packs.lock import Locked, LockFile
from vademecum.packs.signatures import READERS, Signer, signed_words, signer_of
from vademecum.packs.signing_keys import Trusted
from vademecum.packs.sources.archive import Progress, silently
from vademecum.packs.sources.fetching import Source
from vademecum.packs.unpacking import Staged, unpack
from vademecum.policy.base import Bounds, risk_of

Action = Literal["new", "replace", "same"]

# Letters and digits that many fonts draw alike, each group behind the letter it is taken for.
_DRAWN_LIKE = "aаαɑ bв cс dԁđ eе3 gɡ hһ iіι1ıl jј kкκ mм nп oоο0 pрρ qԛ rг sѕ5 tтτ uυ vν wԝ xхχ yу"
_ALIKE = str.maketrans({odd: group[0] for group in _DRAWN_LIKE.split() for odd in group[1:]})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


class Options(Struct, frozen=True):
    """Options of an installation, as the user gave them."""

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
    """An unpacked skill that may be installed: what would change, what the lock will say, and where it is."""

    change: SkillChange
    locked: Locked
    place: Path


class Inspection(Struct, frozen=True):
    """How incoming skills are inspected: for which root, with what allowed, against which lock, and where."""

    where: InstallRoot
    options: Options
    lock: LockFile
    staging: Path

    def inspect(self, source: Source, progress: Progress = silently) -> tuple[list[IncomingSkill], list[str]]:
        """Unpack a source and check all of it; return what was asked for, and what was left out."""
        only = self.options.only
        skills, left_out = unpack(
            source.open(), self.staging, label=source.name, only=only, progress=progress
        )
        known = sorted(skill.name for skill in skills)
        missing = sorted(set(only) - set(known))
        if missing:
            raise PackRefused(
                f"{source.name} has no skill {missing[0]!r}: it has {', '.join(known)}.", code="missing"
            )
        signers = signers_of(skills, source.signature, self.staging, self.where.trusted, only=only)
        wanted = [skill for skill in skills if skill.name in signers]
        incoming = [self._incoming(skill, signers[skill.name], source) for skill in wanted]
        return incoming, [f"{directory} (it contains no skill)" for directory in left_out]

    def _incoming(self, skill: Staged, signer: Signer | None, source: Source) -> IncomingSkill:
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
            change = self._compared(change, skill)
        origin = source.each.get(skill.name, source.origin)
        version, who = skill.document.meta.version, signer.identity if signer else ""
        resolved = origin.resolved or digest
        locked = Locked(source.name, resolved, digest, skill.files, version, who or None, origin.url or None)
        return IncomingSkill(change, locked, self.staging / skill.name)

    def _compared(self, change: SkillChange, skill: Staged) -> SkillChange:
        """Compare a skill with what is in its place; refuse to replace what a person wrote or changed."""
        place = self.where.root / change.name
        try:
            differences = differences_of(files_of(place), skill.files)
            diff = diff_of(place, self.staging / change.name) if differences else []
        except PackRefused:  # what is there cannot be read as a skill
            differences, diff = differences_of((), skill.files), []
        if not differences:
            return structs.replace(change, action="same", added=())
        if not self.options.force:
            refuse_edits(change.name, self.where.root, self.lock)
        by_kind = {
            kind: tuple(text.partition(" ")[2] for text in differences if text.startswith(f"{kind} "))
            for kind in ("added", "removed", "changed")
        }
        return structs.replace(change, action="replace", diff=tuple(diff), **by_kind)

    def _remarks(self, skill: Staged) -> Iterable[str]:
        """Yield what a person should know: what is wrong, and what could be mistaken."""
        for problem in skill.document.problems:
            if skill.inside or problem.code != "name-directory-mismatch":
                yield problem.message
        if skill.name in self.where.builtin:
            yield f"it is used instead of the built-in skill {skill.name!r}"
        other = looks_like(skill.name, self.where.known)
        if other is not None:
            yield f"its name could be taken for {other!r}, which is another skill"


def signers_of(
    skills: Sequence[Staged],
    beside: bytes | None,
    place: Path,
    trusted: Trusted | None,
    *,
    only: Collection[str] = (),
) -> dict[str, Signer | None]:
    """Return who signed each unpacked skill, by the signature beside the pack and those in the skill.

    Each signature must match; a trusted signer counts before any other.
    """
    trusted = trusted or Trusted()
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
            best = next((signer for signer in signers if signer.trusted_as), None)
            found[skill.name] = best or next(iter(signers), None)
    return found


def _check_signer(name: str, signer: Signer | None, *, pinned: str | None, required: bool) -> None:
    """Refuse a skill without the signature it must have, or by another signer than the one before."""
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


def refuse_edits(name: str, root: Path, lock: LockFile) -> None:
    """Refuse to replace what a person wrote or changed."""
    verdict = verdict_of(name, root, lock)
    own = name in lock.skills and lock.skills[name].is_local
    if verdict.status == "not-locked" or (verdict.status == "ok" and own):
        raise PackRefused(f"{root / name} was not installed by vade: say --force to replace it (it is kept).")
    if verdict.is_edited:
        raise PackRefused(
            f"{root / name} was changed since it was installed ({verdict.differences[0]}): vade diff {name} "
            "shows it, --force replaces it (it is kept in .trash)."
        )


def _refuse_risk(skill: Staged) -> None:
    allowed = Bounds.of(skill.document.controls.allowed_tools or ()).allowed
    risky = sorted({bound.tool for bound in allowed if risk_of(bound.tool) == "high"})
    if risky:
        raise PackRefused(
            f"The skill {skill.name!r} wants tools of high risk ({', '.join(risky)}): inspect it, then "
            "say --allow-unsafe."
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
