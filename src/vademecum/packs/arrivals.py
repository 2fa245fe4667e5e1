"""Skills at the door: unpacked aside, checked in every way, and compared with what is there already."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.errors import PackRefused
from vademecum.packs.content import SkillFile, digest_of, files_of
from vademecum.packs.fetching import Source
from vademecum.packs.lock import Locked, LockFile
from vademecum.packs.lookalikes import hidden_in, looks_like, mixed_scripts
from vademecum.packs.shelf import Shelf
from vademecum.packs.signatures import best_of, check_signer, pack_signer, skill_signer
from vademecum.packs.signing import Signer
from vademecum.packs.staging import Progress, Staged, silently, stage
from vademecum.packs.verifying import differences_of, verdict_of
from vademecum.policy.bounds import Bounds, Risk, risk_of

Action = Literal["new", "replace", "same"]


class Options(Struct, frozen=True):
    """What a person asked for and allowed."""

    force: bool = False
    allow_unsafe: bool = False
    dry_run: bool = False
    backup: bool = False
    require_signature: bool = False
    only: tuple[str, ...] = ()


class Change(Struct, frozen=True):
    """What an installation does to one skill."""

    name: str
    action: Action
    digest: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    signer: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``vade install`` prints it."""
        return structs.asdict(self)


class Arrival(Struct, frozen=True):
    """A staged skill that may be installed: who signed it, and what would change."""

    staged: Staged
    signer: Signer | None
    change: Change

    def locked(self, source: Source) -> Locked:
        """What the lock will say of it."""
        return Locked(
            source.name,
            source.resolved_for(self.staged.name) or self.change.digest,
            self.change.digest,
            self.staged.files,
            self.staged.document.meta.version,
            self.signer.identity if self.signer else None,
        )


class Reception(Struct, frozen=True):
    """Where skills are looked at before they come in: the shelf they want to, and what was allowed."""

    shelf: Shelf
    options: Options
    lock: LockFile
    staging: Path

    def arrivals(self, source: Source, progress: Progress = silently) -> list[Arrival]:
        """Unpack a source aside and check all of it; what was not asked for is left out."""
        staged = stage(source.open(), self.staging, label=source.name, progress=progress)
        signed = pack_signer(source.signature, staged, self.shelf.trusted)
        only = self.options.only
        missing = sorted(set(only) - {skill.name for skill in staged})
        if missing:
            known = ", ".join(sorted(skill.name for skill in staged))
            raise PackRefused(f"{source.name} has no skill {missing[0]!r}: it has {known}.", code="missing")
        return [self._arrival(skill, signed) for skill in staged if not only or skill.name in only]

    def _arrival(self, skill: Staged, signed: Signer | None) -> Arrival:
        before = self.lock.skills.get(skill.name)
        inside = skill_signer(self.staging / skill.name, skill.files, self.shelf.trusted)
        signer = best_of((signed, inside))
        pinned = before.signer if before else None
        check_signer(skill.name, signer, pinned=pinned, required=self.options.require_signature)
        if not self.options.allow_unsafe:
            _refuse_risk(skill)
        return Arrival(skill, signer, self._change(skill, signer))

    def _change(self, skill: Staged, signer: Signer | None) -> Change:
        change = Change(
            skill.name,
            "new",
            digest_of(skill.files),
            added=tuple(file.path for file in skill.files),
            scripts=tuple(file.path for file in skill.files if file.path.startswith("scripts/")),
            remarks=tuple(self._remarks(skill)),
            signer=signer.words if signer else None,
        )
        place = self.shelf.root / skill.name
        if not place.exists():
            return change
        if not self.options.force:
            refuse_edits(skill.name, self.shelf.root, self.lock)
        differences = differences_of(_files_there(place), skill.files)
        by_kind = {
            kind: tuple(text.partition(" ")[2] for text in differences if text.startswith(f"{kind} "))
            for kind in ("added", "removed", "changed")
        }
        return structs.replace(change, action="replace" if differences else "same", **by_kind)

    def _remarks(self, skill: Staged) -> Iterable[str]:
        """What a person should know before a yes: what is wrong, what hides, what could be mistaken."""
        for problem in skill.document.problems:
            if skill.inside or problem.code != "name-directory-mismatch":
                yield problem.message
        yield from hidden_in(self.staging / skill.name, skill.beyond_ascii)
        other = looks_like(skill.name, self.shelf.known)
        if other is not None:
            yield f"its name could be taken for {other!r}, which is another skill"
        elif mixed_scripts(skill.name):
            yield "its name mixes letters of different alphabets that look alike"


def is_edited(name: str, root: Path, lock: LockFile) -> bool:
    """Whether somebody changed a skill since it was installed, or put it there themselves."""
    verdict = verdict_of(name, root, lock)
    own = name in lock.skills and lock.skills[name].is_kept_here
    return verdict.status in {"changed", "not-locked"} or (verdict.status == "ok" and own)


def refuse_edits(name: str, root: Path, lock: LockFile) -> None:
    """Never overwrite what somebody changed by hand, unless they say so; it is kept even then."""
    verdict = verdict_of(name, root, lock)
    own = name in lock.skills and lock.skills[name].is_kept_here
    if verdict.status == "not-locked" or (verdict.status == "ok" and own):
        raise PackRefused(f"{root / name} was not installed by vade: say --force to replace it (it is kept).")
    if verdict.status == "changed":
        raise PackRefused(
            f"{root / name} was changed since it was installed ({verdict.differences[0]}): vade diff {name} "
            "shows it, --force replaces it (it is kept in .trash)."
        )


def _refuse_risk(skill: Staged) -> None:
    allowed = Bounds.of(skill.document.controls.allowed_tools or ()).allowed
    risky = sorted({bound.tool for bound in allowed if risk_of(bound.tool) is Risk.HIGH})
    if risky:
        raise PackRefused(
            f"The skill {skill.name!r} wants tools of high risk ({', '.join(risky)}): look at it, then "
            "say --allow-unsafe."
        )


def _files_there(place: Path) -> Iterable[SkillFile]:
    try:
        return files_of(place)
    except PackRefused:
        return ()
