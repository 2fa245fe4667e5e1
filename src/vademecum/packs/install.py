"""An archive or a directory → skills in a root: inspected, staged, checked, shown, then moved in together."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.archive import MANIFEST, Entry, Opened, open_archive, unpacked
from vademecum.packs.content import SkillFile, digest_of, files_of
from vademecum.packs.lock import Locked, LockFile, lock_path, read_lock
from vademecum.packs.names import refused
from vademecum.packs.transaction import changing
from vademecum.policy.bounds import Bounds
from vademecum.policy.risk import Risk, risk_of
from vademecum.skill.document import parse_document
from vademecum.skill.model import MANIFEST as SKILL_FILE
from vademecum.skill.model import Document, Reading

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 10 * 1024 * 1024

Progress = Callable[[int, int], None]


class Change(Struct, frozen=True):
    """What an installation does to one skill."""

    name: str
    action: str  # new, replace, same
    digest: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``vade install`` prints it."""
        return structs.asdict(self)


class Options(Struct, frozen=True):
    """What a person allowed: to overwrite local edits, tools of high risk, and which skills out of many."""

    force: bool = False
    allow_unsafe: bool = False
    dry_run: bool = False
    only: tuple[str, ...] = ()


class Source(Struct, frozen=True):
    """Where skills come from: what was typed, what it resolved to, and the archive or directory itself."""

    typed: str
    resolved: str
    path: Path


class _Staged(Struct, frozen=True):
    name: str
    document: Document
    files: tuple[SkillFile, ...]


def install(
    source: Source, root: Path, options: Options, *, progress: Progress | None = None
) -> list[Change]:
    """Install every skill of a source, all or none; returns what changes, or would."""
    with changing(root) as change:
        staged = _stage(source, change.staging, options, progress or _silently)
        lock = read_lock(root)
        changes = [_change(skill, root, lock, options) for skill in staged]
        if options.dry_run:
            return changes
        for skill, found in zip(staged, changes, strict=True):
            lock = lock.with_skill(
                skill.name,
                Locked(source.typed, source.resolved, found.digest, skill.files, skill.document.meta.version),
            )
            if found.action != "same":
                change.put(skill.name)
        change.commit(lock_file=lock_path(root), lock=lock.to_text())
    return changes


def uninstall(names: Sequence[str], root: Path, *, purge: bool = False, force: bool = False) -> list[str]:
    """Take skills out of a root: to the trash, or away."""
    with changing(root) as change:
        lock = read_lock(root)
        for name in names:
            if not (root / name / SKILL_FILE).is_file():
                raise PackRefused(f"There is no skill {name!r} in {root}.", code="not-installed")
            _refuse_edits(name, root, lock, force=force)
            change.take_away(name, keep=not purge)
            lock = lock.without(name)
        change.commit(lock_file=lock_path(root), lock=lock.to_text())
    return list(names)


class Verdict(Struct, frozen=True):
    """Whether an installed skill is what the lock says, and what differs."""

    name: str
    status: str  # ok, missing, changed, not-locked
    differences: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``vade verify`` prints it."""
        return structs.asdict(self)


def verify(root: Path, names: Iterable[str] = ()) -> list[Verdict]:
    """Compare every installed file with the lock."""
    lock = read_lock(root)
    wanted = list(names) or sorted(lock.skills)
    return [_verdict(name, root, lock) for name in wanted]


def _verdict(name: str, root: Path, lock: LockFile) -> Verdict:
    locked = lock.skills.get(name)
    if locked is None:
        return Verdict(name, "not-locked")
    if not (root / name).is_dir():
        return Verdict(name, "missing")
    try:
        found = files_of(root / name)
    except PackRefused as error:
        return Verdict(name, "changed", (str(error),))
    differences = _differences(locked.files, found)
    return Verdict(name, "changed" if differences else "ok", differences)


def _differences(then: Iterable[SkillFile], now: Iterable[SkillFile]) -> tuple[str, ...]:
    old, new = ({file.path: file for file in files} for files in (then, now))
    added = [f"added {path}" for path in new if path not in old]
    removed = [f"removed {path}" for path in old if path not in new]
    changed = [f"changed {path}" for path in new if path in old and new[path] != old[path]]
    return tuple(sorted([*added, *removed, *changed]))


def _stage(source: Source, staging: Path, options: Options, progress: Progress) -> list[_Staged]:
    staging.mkdir(parents=True)
    if source.path.is_dir():
        places = _stage_directory(source.path, staging)
    else:
        opened = open_archive(source.path)
        try:
            places = _stage_archive(opened, staging, source.path, progress)
        finally:
            opened.close()
    staged = [_checked(name, staging, options) for name in places]
    missing = sorted(set(options.only) - {skill.name for skill in staged})
    if missing:
        known = ", ".join(sorted(skill.name for skill in staged))
        raise PackRefused(f"{source.typed} has no skill {missing[0]!r}: it has {known}.")
    return [skill for skill in staged if not options.only or skill.name in options.only]


def _stage_archive(opened: Opened, staging: Path, path: Path, progress: Progress) -> list[str]:
    """Unpack every skill of an archive into a directory of its name; everything else is left where it is."""
    tops = sorted(
        entry.name.rpartition("/")[0]
        for entry in opened.entries
        if entry.name.rpartition("/")[2] == SKILL_FILE
    )
    if not tops:
        raise PackRefused(f"{path} has no {SKILL_FILE} in it, so it is no pack of skills.")
    skills = [top for top in tops if not any(_is_below(top, other) for other in tops if other != top)]
    names: dict[str, str] = {}
    described: dict[str, SkillFile] = {}
    for number, entry in enumerate(opened.entries):
        top = next((top for top in skills if _is_below(entry.name, top)), None)
        if top is None:
            continue
        relative = entry.name[len(top) + 1 :] if top else entry.name
        if top == "" and relative == MANIFEST:
            continue
        name = names.setdefault(top, f"{len(names)}.unpacked")
        described[entry.name] = _unpack(entry, staging / name / relative, relative)
        progress(number + 1, len(opened.entries))
    _check_manifest(opened, described)
    return [_named(staging, place) for place in names.values()]


def _is_below(name: str, top: str) -> bool:
    return top == "" or name.startswith(f"{top}/")


def _unpack(entry: Entry, target: Path, relative: str) -> SkillFile:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    mode = 0o755 if entry.executable else 0o644
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:

        def write(piece: bytes) -> None:
            digest.update(piece)
            out.write(piece)

        unpacked(entry, write)
    return SkillFile(relative, digest.hexdigest(), entry.size, entry.executable)


def _check_manifest(opened: Opened, described: dict[str, SkillFile]) -> None:
    """A manifest must say of every file what it is, and of no other."""
    entry = next((entry for entry in opened.entries if entry.name == MANIFEST), None)
    if entry is None:
        return
    pieces: list[bytes] = []
    if entry.size > MAX_MANIFEST_BYTES:
        raise refused(MANIFEST, "is too large")
    unpacked(entry, pieces.append)
    try:
        skills = json.loads(b"".join(pieces))["skills"]
        said = {
            f"{skill['directory']}/{file['path']}": (file["sha256"], file["size"], bool(file["executable"]))
            for skill in skills
            for file in skill["files"]
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refused(MANIFEST, f"cannot be understood ({error})") from error
    found = {name: (file.sha256, file.size, file.executable) for name, file in described.items()}
    wrong = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    if wrong:
        raise IntegrityFailed(
            f"The pack's manifest does not match what is in it ({wrong[0]!r}): nothing was installed."
        )


def _stage_directory(source: Path, staging: Path) -> list[str]:
    """Copy a skill's directory, or every skill right below a directory."""
    if (source / SKILL_FILE).is_file():
        places = [source]
    else:
        places = sorted(place for place in source.iterdir() if (place / SKILL_FILE).is_file())
    if not places:
        raise PackRefused(f"{source} has no {SKILL_FILE} in it, and nothing below it has.")
    found = []
    for number, place in enumerate(places):
        target = staging / f"{number}.unpacked"
        for file in files_of(place):
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            data = (place / file.path).read_bytes()
            mode = 0o755 if file.executable else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(target / file.path, flags, mode), "wb") as out:
                out.write(data)
        found.append(_named(staging, target.name))
    return found


def _named(staging: Path, place: str) -> str:
    """Give an unpacked skill the directory of its own name."""
    document = _document(staging / place)
    if not document.valid:
        problem = next(problem for problem in document.problems if problem.severity == "error")
        line = f"line {problem.line}: " if problem.line else ""
        raise PackRefused(
            f"{SKILL_FILE} of {document.name or 'a skill'!r} is not valid ({line}{problem.message})."
        )
    target = staging / document.name
    if target.exists():
        raise PackRefused(f"The source has two skills called {document.name!r}: nothing was installed.")
    os.rename(staging / place, target)
    return document.name


def _document(place: Path) -> Document:
    with open(place / SKILL_FILE, "rb") as file:
        data = file.read(MAX_DOCUMENT_BYTES)
    return parse_document(data, directory=place.name, reading=Reading())


def _checked(name: str, staging: Path, options: Options) -> _Staged:
    document = parse_document(
        (staging / name / SKILL_FILE).read_bytes()[:MAX_DOCUMENT_BYTES], directory=name, reading=Reading()
    )
    allowed = Bounds.of(document.controls.allowed_tools or ()).allowed
    risky = sorted({bound.tool for bound in allowed if risk_of(bound.tool) is Risk.HIGH})
    if risky and not options.allow_unsafe and (not options.only or name in options.only):
        raise PackRefused(
            f"The skill {name!r} wants tools of high risk ({', '.join(risky)}): look at it, then "
            "say --allow-unsafe."
        )
    return _Staged(name, document, files_of(staging / name))


def _change(skill: _Staged, root: Path, lock: LockFile, options: Options) -> Change:
    digest = digest_of(skill.files)
    scripts = tuple(file.path for file in skill.files if file.path.startswith("scripts/"))
    remarks = tuple(problem.message for problem in skill.document.problems)
    if not (root / skill.name).exists():
        added = tuple(file.path for file in skill.files)
        return Change(skill.name, "new", digest, added=added, scripts=scripts, remarks=remarks)
    _refuse_edits(skill.name, root, lock, force=options.force)
    try:
        there = files_of(root / skill.name)
    except PackRefused:
        there = ()
    differences = _differences(there, skill.files)
    by_kind = {
        kind: tuple(text.partition(" ")[2] for text in differences if text.startswith(f"{kind} "))
        for kind in ("added", "removed", "changed")
    }
    action = "replace" if differences else "same"
    return Change(skill.name, action, digest, scripts=scripts, remarks=remarks, **by_kind)


def _refuse_edits(name: str, root: Path, lock: LockFile, *, force: bool) -> None:
    """Never overwrite what somebody changed by hand, unless they say so; it is kept even then."""
    if force:
        return
    verdict = _verdict(name, root, lock)
    if verdict.status == "not-locked":
        raise PackRefused(f"{root / name} was not installed by vade: say --force to replace it (it is kept).")
    if verdict.status == "changed":
        raise PackRefused(
            f"{root / name} was changed since it was installed ({verdict.differences[0]}): say --force to "
            "replace it (it is kept in .trash)."
        )


def _silently(done: int, total: int) -> None:
    """Show no progress."""
