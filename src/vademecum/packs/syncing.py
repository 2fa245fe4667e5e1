"""Make the root match the lock, lock the root, and update skills from their sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.install import Inspection, Options, SkillChange, install, refuse_edits
from vademecum.packs.install_root import InstallRoot, RootChange, Verdict, missing_lock, verdict_of, verify
from vademecum.packs.lock import LOCAL, LockFile, lock_path, locked_here, read_installed, read_lock
from vademecum.packs.npm_lock import hash_of_contents, read_npm_lock
from vademecum.packs.sources.archive import pieces_of
from vademecum.packs.sources.entry_names import skill_places
from vademecum.packs.sources.fetching import Fetching, Origin, Source
from vademecum.packs.sources.references import reference_to, remembered


class Sources(Struct, frozen=True):
    """Fetch the sources that a user types, and those that the lock of a root names."""

    where: InstallRoot
    fetching: Fetching

    def fetched(
        self, typed: str, only: Collection[str], at: Origin | None = None, *, base: Path | None = None
    ) -> AbstractContextManager[Source]:
        """Fetch a source, or one of its skills as it was at ``at``; paths are relative to ``base``."""
        reference = reference_to(typed, context=self.fetching.context, base=base)
        name = remembered(reference, base=self.where.base)
        return self.fetching.fetched(reference, name, only=only, at=at)

    def stage_again(self, name: str, lock: LockFile, options: Options, aside: Path) -> Path:
        """Unpack exactly the locked skill, from its locked address or from its source."""
        locked = lock.skills[name]
        if locked.source == LOCAL:
            raise IntegrityFailed(
                f"{name!r} has the source local, so vade cannot fetch it: restore it from version control."
            )
        asked = structs.replace(options, only=(name,), force=True)
        origin = Origin(locked.resolved, locked.url or "")
        with self.fetched(locked.source, (name,), origin, base=self.where.base) as source:
            incoming, _ = Inspection(self.where, asked, LockFile({name: locked}), aside).inspect([source])
        found = incoming[name]
        if found.locked.files != locked.files:
            raise IntegrityFailed(
                f"{locked.source} no longer has the {name!r} that is locked ({locked.digest[:19]}…): "
                f"vade update {name} installs the current one."
            )
        return found.place


class SyncStep(Struct, frozen=True):
    """One change that ``sync`` makes to a skill, or a skill that the lock does not name."""

    name: str
    action: Literal["restored", "removed", "not-locked"]


class Failure(Struct, frozen=True):
    """A skill or a source that could not be fetched, and why; none of its files were changed."""

    name: str
    error: VademecumError

    @property
    def named(self) -> str:
        """Return the error, with the name in front if the error does not contain it."""
        text = str(self.error)
        return text if repr(self.name) in text else f"{self.name}: {text}"


def check_frozen(where: InstallRoot) -> None:
    """Raise ``IntegrityFailed`` unless the root matches the lock; change nothing."""
    verdicts, problem = verify(where)
    listed = [text] if (text := problem or missing_lock(where)) else []
    words = {"not-locked": "not in the lock"}
    wrong = [verdict for verdict in verdicts if verdict.status != "ok"]
    listed += [f"{verdict.name} is {words.get(verdict.status, verdict.status)}" for verdict in wrong]
    if listed:
        advice = "vade sync restores skills, vade lock NAME accepts them as they are"
        raise IntegrityFailed(f"{where.root} does not match its lock: {'; '.join(listed)}. {advice}.")


def sync(sources: Sources, options: Options) -> tuple[list[SyncStep], list[Failure]]:
    """Make a root match its lock; a skill that cannot be fetched does not stop the others.

    Skills that vade installed and the lock no longer names go to the trash; those that a person wrote stay.
    Restored skills are checked like an installation, because a lock can come with a cloned project.
    """
    where = sources.where
    if not where.has_lock:
        npm = read_npm_lock(where.root)
        if not npm:
            raise IntegrityFailed(f"{missing_lock(where)}: nothing was changed.")
        return _sync_npm(npm, sources, options)
    steps: list[SyncStep] = []
    failures: list[Failure] = []
    with where.changing() as change:
        verdicts = [verdict_of(name, where.root, change.lock) for name in sorted(change.lock.skills)]
        for number, verdict in enumerate(verdicts):
            if verdict.status != "ok":
                try:
                    _restore(verdict, change, sources, options, change.staging / f".{number}")
                    steps.append(SyncStep(verdict.name, "restored"))
                except VademecumError as error:
                    failures.append(Failure(verdict.name, error))
        beyond = [name for name in where.names() if name not in change.lock.skills]
        removed = [name for name in beyond if _is_untouched(name, where.root)]
        for name in removed:
            change.take_away(name, keep=True)
        steps += [SyncStep(name, "removed") for name in removed]
        if steps:
            change.commit()
    return [*steps, *(SyncStep(name, "not-locked") for name in beyond if name not in removed)], failures


def _restore(verdict: Verdict, change: RootChange, sources: Sources, options: Options, aside: Path) -> None:
    name, root = verdict.name, sources.where.root
    if not options.force and not _is_untouched(name, root):
        refuse_edits(name, root, change.lock)
    locked = change.lock.skills[name]
    known = read_installed(root).get(name) == locked.digest
    asked = structs.replace(options, allow_unsafe=options.allow_unsafe or known)
    staged = sources.stage_again(name, change.lock, asked, aside)
    change.put(name, locked, staged)


def _sync_npm(
    npm: dict[str, tuple[str, str]], sources: Sources, options: Options
) -> tuple[list[SyncStep], list[Failure]]:
    """Install the skills of the npm tool's lock, checked by the digest of their folder; write our lock."""
    steps: list[SyncStep] = []
    failures: list[Failure] = []
    for name, (typed, digest) in npm.items():
        try:
            with sources.fetched(typed, (name,), base=sources.where.base) as source:
                _check_folder(source, name, digest)
                install(source, sources.where, structs.replace(options, only=(name,)))
            steps.append(SyncStep(name, "restored"))
        except VademecumError as error:
            failures.append(Failure(name, error))
    return steps, failures


def _check_folder(source: Source, name: str, digest: str) -> None:
    """Compare the digest of a skill's folder in its source with that of the npm tool's lock."""
    with source.open() as opened:
        for place in skill_places(file.name for file in opened.files):
            below = f"{place}/" if place else ""
            inside = [file for file in opened.files if file.name.startswith(below) and not file.objection]
            contents = [(file.name[len(below) :], b"".join(pieces_of(file))) for file in inside]
            if hash_of_contents(contents) == digest:
                return
    raise IntegrityFailed(f"{source.name} no longer has the {name!r} of skills-lock.json ({digest[:12]}…).")


def _is_untouched(name: str, root: Path) -> bool:
    """Return whether a skill is unchanged since we installed it, independent of the lock."""
    try:
        return digest_of(files_of(root / name)) == read_installed(root).get(name)
    except (PackRefused, OSError):
        return False


def lock_here(where: InstallRoot, names: tuple[str, ...] = (), *, npm: bool = False) -> list[str]:
    """Lock the root in its current state; edited and own skills become local. Return the changed names."""
    with where.changing() as change:
        there, changed = where.names(), []
        for name in names or sorted({*there, *change.lock.skills}):
            before = change.lock.skills.get(name)
            if not names and name not in there:
                change.forget(name)
            else:
                where.place(name)
                if before and verdict_of(name, where.root, change.lock).status == "ok":
                    change.remember(name, before)
                    continue
                change.remember(name, locked_here(files_of(where.root / name, every=True), before))
            changed.append(name)
        change.commit(npm=npm)
    return changed


def update(
    sources: Sources, options: Options, names: Iterable[str] = ()
) -> tuple[list[SkillChange], list[Failure]]:
    """Install the current versions from the sources; each source succeeds or fails on its own."""
    lock = read_lock(lock_path(sources.where.root))
    done: list[SkillChange] = []
    failures: list[Failure] = []
    by_source: dict[str, list[str]] = {}
    for name in list(names) or sorted(lock.skills):
        if name not in lock.skills:
            hint = meant(nearest(name, lock.skills), otherwise="vade install it first.")
            raise PackRefused(f"{name!r} is not in the lock: {hint}", code="not-installed")
        by_source.setdefault(lock.skills[name].source, []).append(name)
    for source, members in by_source.items():
        if source == LOCAL:
            if names:
                raise PackRefused(f"{members[0]!r} has no source to update from: it was written here.")
            continue
        try:
            with sources.fetched(source, members, base=sources.where.base) as fetched:
                asked = structs.replace(options, only=tuple(members))
                done += install(fetched, sources.where, asked).changes
        except VademecumError as error:
            failures.append(Failure(source, error))
    return sorted(done, key=lambda change: change.name), failures
