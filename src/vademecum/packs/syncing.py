"""The lock → the root: bring the root to what the lock says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.context import Context
from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.arrivals import Options, Reception
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.fetching import Fetching, Source, local_source
from vademecum.packs.installed import read_installed
from vademecum.packs.lock import HERE, Locked, LockFile, read_lock
from vademecum.packs.shelf import Shelf
from vademecum.packs.sources import Reference, reference_to
from vademecum.packs.verifying import Verdict, verdict_of
from vademecum.skill.frontmatter import read_opening
from vademecum.skill.skill import MANIFEST as SKILL_FILE


class Sources(Struct, frozen=True):
    """How the sources that a lock names are reached again."""

    context: Context
    fetching: Fetching = Fetching()

    def reference(self, source: str, shelf: Shelf) -> Reference:
        """Where locked skills come from."""
        return reference_to(source, context=self.context, base=shelf.base)

    @contextmanager
    def again(self, name: str, locked: Locked, shelf: Shelf) -> Iterator[Source]:
        """The very thing that was locked, from its source, at the same commit."""
        if locked.is_kept_here:
            raise IntegrityFailed(
                f"{name!r} is locked as it was here, and is gone or changed: take it from version control."
            )
        commit = None if locked.resolved.startswith("sha256:") else locked.resolved
        reference = self.reference(locked.source, shelf)
        with self.fetching.fetched(reference, locked.source, only=(name,), at=commit) as source:
            yield source

    def stage_again(self, name: str, lock: LockFile, shelf: Shelf, options: Options, aside: Path) -> Path:
        """Unpack what was locked, and nothing else, whatever the source has now; the cache saves the way."""
        locked = lock.skills[name]
        asked = structs.replace(options, only=(name,), force=True)
        reception = Reception(shelf, asked, lock.only(name), aside / "again")
        kept = shelf.store.find(locked.digest, locked.resolved)
        if kept is not None:
            try:
                cached = structs.replace(reception, staging=aside / "kept")
                return _staged(local_source(kept, locked.source), name, cached)
            except (PackRefused, IntegrityFailed):
                shelf.store.forget(kept)  # the source will tell whether it was the cache's fault
        with self.again(name, locked, shelf) as source:
            return _staged(source, name, reception)


def _staged(source: Source, name: str, reception: Reception) -> Path:
    (found,) = reception.arrivals(source)
    locked = reception.lock.skills[name]
    if found.staged.files != locked.files:
        raise IntegrityFailed(
            f"{locked.source} no longer has the {name!r} that is locked ({locked.digest[:19]}…): "
            "nothing was changed."
        )
    return reception.staging / name


class Step(Struct, frozen=True):
    """What making a root equal to its lock does to one skill."""

    name: str
    action: Literal["restored", "removed", "not-locked"]

    def to_json(self) -> dict[str, Any]:
        """As ``vade sync`` prints it."""
        return structs.asdict(self)


class Plan(Struct, frozen=True):
    """What there is to do until a root is as its lock says."""

    wrong: tuple[Verdict, ...]
    removed: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, root: Path, lock: LockFile) -> Plan:
        """Compare a root with its lock."""
        verdicts = [verdict_of(name, root, lock) for name in sorted(lock.skills)]
        removed, others = _beyond(root, lock)
        wrong = tuple(verdict for verdict in verdicts if verdict.status != "ok")
        return cls(wrong, tuple(removed), tuple(others))

    def steps(self) -> list[Step]:
        """The same in words."""
        return [
            *(Step(verdict.name, "restored") for verdict in self.wrong),
            *(Step(name, "removed") for name in self.removed),
            *(Step(name, "not-locked") for name in self.others),
        ]


def check_frozen(shelf: Shelf) -> list[Step]:
    """Refuse where anything would have to change; nothing is touched."""
    plan = Plan.of(shelf.root, read_lock(shelf.root))
    steps = plan.steps()
    if plan.wrong or plan.removed:
        raise IntegrityFailed(
            f"{shelf.root} is not as its lock says ({steps[0].name!r} would be {steps[0].action}): "
            "run vade sync."
        )
    return steps


def sync(shelf: Shelf, sources: Sources, options: Options) -> list[Step]:
    """Make a root equal to its lock, all or nothing.

    Skills that vade installed and the lock no longer names go to the trash; those that somebody wrote stay.
    What the lock brings must pass what an installation must: a lock comes with a project, too.
    """
    with shelf.changing() as change:
        lock = change.lock
        plan = Plan.of(shelf.root, lock)
        installed = read_installed(shelf.root)
        for number, verdict in enumerate(plan.wrong):
            name, locked = verdict.name, lock.skills[verdict.name]
            if not options.force:
                _refuse_edits(verdict, shelf.root)
            known = installed.get(name) == locked.digest
            asked = structs.replace(options, allow_unsafe=options.allow_unsafe or known)
            staged = sources.stage_again(name, lock, shelf, asked, change.staging / f".{number}")
            change.put(name, locked, staged, keep_old=verdict.status == "changed")
        for name in plan.removed:
            change.take_away(name, keep=True)
        if plan.wrong or plan.removed:
            change.commit()
    return plan.steps()


def lock_here(shelf: Shelf, names: tuple[str, ...] = (), *, npm: bool = False) -> list[str]:
    """Lock what is in the root as it is now; what was edited or written there has no other source then."""
    with shelf.changing() as change:
        wanted = list(names) or sorted({*_skills_in(shelf.root), *change.lock.skills})
        changed = []
        for name in wanted:
            if not names and not (shelf.root / name / SKILL_FILE).is_file():
                change.forget(name)
                changed.append(name)
                continue
            shelf.place(name)
            if verdict_of(name, shelf.root, change.lock).status == "ok":
                change.remember(name, change.lock.skills[name])
                continue
            change.remember(name, _as_it_is(shelf.root / name, change.lock.skills.get(name)))
            changed.append(name)
        change.commit(npm=npm)
    return changed


def _as_it_is(place: Path, before: Locked | None) -> Locked:
    """What is there, to be locked; whoever signed it before stays the one who must sign what comes next."""
    from vademecum.skill.document import parse_document  # noqa: PLC0415 - YAML, for this alone

    files = files_of(place)
    digest = digest_of(files)
    document = parse_document(read_opening(place / SKILL_FILE), directory=place.name)
    signer = before.signer if before else None
    return Locked(HERE, digest, digest, files, document.meta.version, signer)


def _skills_in(root: Path) -> list[str]:
    if not root.is_dir():
        return []
    places = sorted(place for place in root.iterdir() if not place.name.startswith("."))
    return [place.name for place in places if (place / SKILL_FILE).is_file()]


def _beyond(root: Path, lock: LockFile) -> tuple[list[str], list[str]]:
    """Skills that the lock does not name: those we put there, untouched since, and all others."""
    installed = read_installed(root)
    beyond = [name for name in _skills_in(root) if name not in lock.skills]
    ours = [name for name in beyond if name in installed and _is_untouched(name, root)]
    return ours, [name for name in beyond if name not in ours]


def _is_untouched(name: str, root: Path) -> bool:
    """Whether a skill is as we installed it, whatever the lock wants by now."""
    try:
        return digest_of(files_of(root / name)) == read_installed(root).get(name)
    except PackRefused:
        return False


def _refuse_edits(verdict: Verdict, root: Path) -> None:
    if verdict.status == "changed" and not _is_untouched(verdict.name, root):
        raise PackRefused(
            f"{root / verdict.name} was changed since it was installed: vade diff {verdict.name} shows it, "
            "--force replaces it (it is kept in .trash)."
        )
