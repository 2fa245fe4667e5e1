"""The lock → the root, the root → the lock, and what the sources have now."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.content import diff_of, digest_of, files_of
from vademecum.packs.incoming import IncomingSkill, Inspection, Options, SkillChange
from vademecum.packs.install import install
from vademecum.packs.install_root import InstallRoot, RootChange
from vademecum.packs.lock import LOCAL, Locked, LockFile, lock_path, read_installed, read_lock
from vademecum.packs.npm_lock import NpmEntry, hash_of_contents, read_npm_lock
from vademecum.packs.signing.envelopes import SIGNATURES
from vademecum.packs.sources.archive import pieces_of
from vademecum.packs.sources.fetching import Fetching, Source, local_source
from vademecum.packs.sources.references import Reference, reference_to
from vademecum.packs.sources.skill_places import skill_places
from vademecum.packs.verifying import Verdict, missing_lock, verdict_of, verify
from vademecum.registry.scan import Walk
from vademecum.skill.frontmatter import read_opening

Freshness = Literal["current", "outdated", "gone", "unreachable", "local"]


class Sources(Struct, frozen=True):
    """How the sources that a lock names are reached again."""

    context: Context
    fetching: Fetching = Fetching()

    def reference(self, source: str, where: InstallRoot) -> Reference:
        """Return where locked skills come from."""
        return reference_to(source, context=self.context, base=where.base, kinds=self.fetching.kinds)

    def stage_again(
        self, name: str, lock: LockFile, where: InstallRoot, options: Options, aside: Path
    ) -> Path:
        """Unpack exactly what was locked: from the cache, from its address then, or from its source."""
        locked = lock.skills[name]
        asked = structs.replace(options, only=(name,), force=True)
        inspection = Inspection(where, asked, lock.only(name), aside / "again")
        kept = where.cache.find(locked.digest, locked.resolved)
        if kept is not None:
            try:
                cached = structs.replace(inspection, staging=aside / "kept")
                return _exactly(local_source(kept, locked.source), name, cached)
            except (PackRefused, IntegrityFailed):
                where.cache.forget(kept)  # the source shows whether the cache was to blame
        if locked.is_local:
            raise IntegrityFailed(
                f"{name!r} was written here, and is gone or changed: take it from version control."
            )
        if locked.url:
            try:
                with self.fetching.fetched_bytes(locked.source, name, locked.origin) as source:
                    return _exactly(source, name, structs.replace(inspection, staging=aside / "url"))
            except (PackRefused, IntegrityFailed) as error:
                if error.code == "signature":
                    raise
        reference = self.reference(locked.source, where)
        with self.fetching.fetched(reference, locked.source, only=(name,), at=locked.origin) as source:
            return _exactly(source, name, inspection)


def _exactly(source: Source, name: str, inspection: Inspection) -> Path:
    (found,), _ = inspection.inspect(source)
    locked = inspection.lock.skills[name]
    if found.staged.files != locked.files:
        raise IntegrityFailed(
            f"{locked.source} no longer has the {name!r} that is locked ({locked.digest[:19]}…): "
            f"vade update {name} takes the one it has now."
        )
    return found.place


class SyncStep(Struct, frozen=True):
    """One change that ``sync`` makes to a skill, or a skill that the lock does not name."""

    name: str
    action: Literal["restored", "removed", "not-locked"]


class Failure(Struct, frozen=True):
    """A skill or a source that could not be had, and why; nothing of it was changed."""

    name: str
    error: VademecumError

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {"source": self.name, "code": self.error.code, "message": str(self.error)}


def check_frozen(where: InstallRoot) -> None:
    """Raise unless the root is exactly what the lock says; nothing is changed."""
    verdicts, problem = verify(where)
    wrong = [f"{verdict.name} is {_words(verdict)}" for verdict in verdicts if verdict.status != "ok"]
    if not where.has_lock and not problem and not read_npm_lock(where.root):
        problem = f"{lock_path(where.root)} is missing: run vade lock, and commit it"
    if problem or wrong:
        listed = "; ".join([*([problem] if problem else []), *wrong])
        advice = "vade sync restores skills, vade lock NAME accepts them as they are"
        raise IntegrityFailed(f"{where.root} is not as its lock says: {listed}. {advice}.")


def _words(verdict: Verdict) -> str:
    return "not in the lock" if verdict.status == "not-locked" else verdict.status


def sync(where: InstallRoot, sources: Sources, options: Options) -> tuple[list[SyncStep], list[Failure]]:
    """Make a root equal to its lock; a skill that cannot be had does not stop the others.

    Skills that vade installed and the lock no longer names go to the trash; those that a person wrote stay.
    What the lock brings is checked like an installation: a lock may come with a cloned project.
    """
    if not where.has_lock:
        npm = read_npm_lock(where.root)
        if not npm:
            problem = missing_lock(where) or f"{lock_path(where.root)} is missing"
            raise IntegrityFailed(f"{problem}: nothing was changed.")
        return _sync_npm(npm, where, sources, options)
    steps: list[SyncStep] = []
    failures: list[Failure] = []
    with where.changing() as change:
        verdicts = [verdict_of(name, where.root, change.lock) for name in sorted(change.lock.skills)]
        for number, verdict in enumerate(verdicts):
            if verdict.status != "ok":
                try:
                    _restore(verdict, change, where, sources, options, change.staging / f".{number}")
                    steps.append(SyncStep(verdict.name, "restored"))
                except VademecumError as error:
                    failures.append(Failure(verdict.name, error))
        removed, others = _beyond(where, change.lock)
        for name in removed:
            change.take_away(name, keep=True)
        steps += [SyncStep(name, "removed") for name in removed]
        if steps:
            change.commit()
    return [*steps, *(SyncStep(name, "not-locked") for name in others)], failures


def _restore(  # noqa: PLR0913, PLR0917 - a step of `sync`, with all it knows
    verdict: Verdict,
    change: RootChange,
    where: InstallRoot,
    sources: Sources,
    options: Options,
    aside: Path,
) -> None:
    name, locked = verdict.name, change.lock.skills[verdict.name]
    untouched = _is_untouched(name, where.root)
    if verdict.is_edited and not options.force and not untouched:
        raise PackRefused(
            f"{where.root / name} was changed since it was installed: vade diff {name} shows it, "
            "--force replaces it (it is kept in .trash)."
        )
    known = read_installed(where.root).get(name) == locked.digest
    asked = structs.replace(options, allow_unsafe=options.allow_unsafe or known)
    staged = sources.stage_again(name, change.lock, where, asked, aside)
    change.put(name, locked, staged, keep_old=verdict.is_edited)


def _sync_npm(
    npm: dict[str, NpmEntry], where: InstallRoot, sources: Sources, options: Options
) -> tuple[list[SyncStep], list[Failure]]:
    """Install what the npm tool's lock names, by the digest of the folder in the source; make our lock."""
    steps: list[SyncStep] = []
    failures: list[Failure] = []
    for name, entry in npm.items():
        try:
            reference = sources.reference(entry.source, where)
            with sources.fetching.fetched(reference, entry.source, only=(name,)) as source:
                _check_folder(source, name, entry)
                install(source, where, structs.replace(options, only=(name,)))
            steps.append(SyncStep(name, "restored"))
        except VademecumError as error:
            failures.append(Failure(name, error))
    return steps, failures


def _check_folder(source: Source, name: str, entry: NpmEntry) -> None:
    """Compare the digest of a skill's folder in its source with that of the npm tool's lock."""
    files = source.open().files
    for place in skill_places(file.name for file in files):
        below = f"{place}/" if place else ""
        inside = [file for file in files if file.name.startswith(below) and not file.objection]
        contents = [(file.name[len(below) :], b"".join(pieces_of(file))) for file in inside]
        if hash_of_contents(contents) == entry.folder_hash:
            return
    raise IntegrityFailed(
        f"{entry.source} no longer has the {name!r} of skills-lock.json ({entry.folder_hash[:12]}…)."
    )


def _beyond(where: InstallRoot, lock: LockFile) -> tuple[list[str], list[str]]:
    """Return skills that the lock does not name: those we installed, untouched since, and all others."""
    installed = read_installed(where.root)
    beyond = [name for name in where.names() if name not in lock.skills]
    ours = [name for name in beyond if name in installed and _is_untouched(name, where.root)]
    return ours, [name for name in beyond if name not in ours]


def _is_untouched(name: str, root: Path) -> bool:
    """Return whether a skill is as we installed it, whatever the lock wants by now."""
    try:
        return digest_of(files_of(root / name)) == read_installed(root).get(name)
    except (PackRefused, OSError):
        return False


def lock_here(where: InstallRoot, names: tuple[str, ...] = (), *, npm: bool = False) -> list[str]:
    """Lock what is in the root as it is now; what was edited or written there is local from then on."""
    with where.changing() as change:
        there = where.names()
        changed = []
        for name in list(names) or sorted({*there, *change.lock.skills}):
            if not names and name not in there:
                change.forget(name)
                changed.append(name)
                continue
            where.place(name)
            if verdict_of(name, where.root, change.lock).status == "ok":
                change.remember(name, change.lock.skills[name])
                continue
            change.remember(name, _as_it_is(where, name, change.lock.skills.get(name)))
            changed.append(name)
        change.commit(npm=npm)
    return changed


def _as_it_is(where: InstallRoot, name: str, before: Locked | None) -> Locked:
    """Describe what is there, to be locked; the signer from before must sign what comes next, too."""
    from vademecum.skill.document import parse_document  # noqa: PLC0415 - YAML, for this alone

    place = where.root / name
    files = files_of(place, every=True)
    digest = digest_of(files)
    file = next(file for _, file, _ in Walk(str(place), where.scan).documents)
    document = parse_document(read_opening(place / file), directory=place.name)
    return Locked(LOCAL, digest, digest, files, document.meta.version, before.signer if before else None)


class Age(Struct, frozen=True):
    """The locked and the newest version of one skill, and whether its source could be asked."""

    name: str
    source: str
    status: Freshness
    locked: str = ""
    newest: str = ""
    problem: str = ""


class Update(Struct, frozen=True):
    """One skill that was, or would be, updated, and what differs in it."""

    change: SkillChange
    diff: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as ``vade update`` prints it."""
        return structs.asdict(self.change) | {"diff": self.diff}


def outdated(where: InstallRoot, sources: Sources, names: Iterable[str] = ()) -> list[Age]:
    """Ask every source once what it has now."""
    lock = read_lock(where.root)
    found: list[Age] = []
    for source, members in _by_source(lock, names).items():
        found += _ages(source, members, lock, where, sources)
    return sorted(found, key=lambda age: age.name)


def update(
    where: InstallRoot, sources: Sources, options: Options, names: Iterable[str] = ()
) -> tuple[list[Update], list[Failure]]:
    """Install what the sources have now; each source all or nothing, whatever comes of others."""
    lock = read_lock(where.root)
    done: list[Update] = []
    failures: list[Failure] = []
    for source, members in _by_source(lock, names).items():
        if lock.skills[members[0]].is_local:
            if names:
                raise PackRefused(f"{members[0]!r} has no source to update from: it was written here.")
            continue
        asked = structs.replace(options, only=tuple(members))
        try:
            reference = sources.reference(source, where)
            with sources.fetching.fetched(reference, source, only=members) as fetched:
                done += _updated(fetched, where, asked, lock)
        except VademecumError as error:
            failures.append(Failure(source, error))
    return sorted(done, key=lambda one: one.change.name), failures


def _updated(source: Source, where: InstallRoot, options: Options, lock: LockFile) -> list[Update]:
    with tempfile.TemporaryDirectory(prefix="vade-") as aside:
        found, _ = Inspection(where, options, lock, Path(aside, "new")).inspect(source)
        updates = [Update(skill.change, tuple(_diff(skill, where))) for skill in found]
    if not options.dry_run:
        install(source, where, options)
    return updates


def _diff(skill: IncomingSkill, where: InstallRoot) -> list[str]:
    there = where.root / skill.name
    if skill.change.action != "replace" or not there.is_dir():
        return []
    return diff_of(there, skill.place, signatures=SIGNATURES)


def _ages(source: str, members: list[str], lock: LockFile, where: InstallRoot, sources: Sources) -> list[Age]:
    locked = {name: lock.skills[name] for name in members}
    ages = [Age(name, source, "current", one.resolved, one.resolved) for name, one in locked.items()]
    if locked[members[0]].is_local:
        return [structs.replace(age, status="local") for age in ages]
    try:
        reference = sources.reference(source, where)
        newest = sources.fetching.newest(reference)
        if newest is not None and all(one.resolved == newest for one in locked.values()):
            return ages
        with (
            sources.fetching.fetched(reference, source, only=members) as fetched,
            tempfile.TemporaryDirectory(prefix="vade-") as aside,
        ):
            options = Options(force=True, allow_unsafe=True)
            skills, _ = Inspection(where, options, LockFile(), Path(aside, "new")).inspect(fetched)
            found = {skill.name: skill.locked(fetched) for skill in skills}
            return [_age(age, found.get(age.name), lock) for age in ages]
    except VademecumError as error:
        if len(members) > 1:  # one of them may be the reason: ask for each
            return [age for name in members for age in _ages(source, [name], lock, where, sources)]
        status: Freshness = "gone" if error.code == "missing" else "unreachable"
        return [structs.replace(age, status=status, problem=str(error), newest="") for age in ages]


def _age(age: Age, now: Locked | None, lock: LockFile) -> Age:
    if now is None:
        return structs.replace(age, status="gone", newest="")
    same = now.digest == lock.skills[age.name].digest
    return structs.replace(age, status="current" if same else "outdated", newest=now.resolved)


def _by_source(lock: LockFile, names: Iterable[str]) -> dict[str, list[str]]:
    """Group the skills that are asked for by their source."""
    found: dict[str, list[str]] = {}
    for name in list(names) or sorted(lock.skills):
        if name not in lock.skills:
            hint = meant(nearest(name, lock.skills), otherwise="vade install it first.")
            raise PackRefused(f"{name!r} is not in the lock: {hint}", code="not-installed")
        found.setdefault(lock.skills[name].source, []).append(name)
    return found
