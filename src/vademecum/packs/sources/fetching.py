"""Fetch the files of a source within limits, and record what the source resolved to."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, ValidationError, convert, structs

from vademecum.context import Context
from vademecum.errors import FileRefused, IntegrityFailed, PackRefused
from vademecum.files import read_capped, sha256_of
from vademecum.packs.content import MAX_SIGNATURE_BYTES, files_of, is_cache
from vademecum.packs.sources.archive import Opened, Progress, open_directory, open_path, silently
from vademecum.packs.sources.entry_names import NameCheck, skill_places
from vademecum.packs.sources.git import Repository
from vademecum.packs.sources.references import (
    ArchiveSource,
    GitSource,
    KindSource,
    LocalSource,
    Reference,
    SiteSource,
)
from vademecum.packs.sources.web import ARCHIVE, Web, fetch_files, fetch_site, find_site, open_fetched
from vademecum.runs.record import Event, runs_directory
from vademecum.runs.stored import RunOutput, outputs_of, read_run
from vademecum.skill.skill import MANIFEST as SKILL_FILE

SIGNATURE_SUFFIX = ".sig"


class Origin(Struct, frozen=True):
    """The origin of one skill: what its source resolved to, and the address of exactly its bytes."""

    resolved: str = ""
    url: str = ""


class Source(Struct, frozen=True):
    """A fetched source: the origin of its skills, its files, and its name for the lock.

    ``each`` has the origin of single skills if it differs; ``signature`` is the one next to an archive, and
    ``place`` a directory on this machine.
    """

    origin: Origin
    open: Callable[[], contextlib.AbstractContextManager[Opened]]
    name: str = ""
    each: dict[str, Origin] = {}
    signature: bytes | None = None
    place: Path | None = None


class Fetching(Struct, frozen=True):
    """Fetch sources, and show the progress."""

    context: Context
    progress: Progress = silently

    @contextlib.contextmanager
    def fetched(
        self, reference: Reference, name: str, *, only: Collection[str] = (), at: Origin | None = None
    ) -> Iterator[Source]:
        """Fetch a source; if ``at`` is given, fetch exactly what one of its skills resolved to before."""
        at = at or Origin()
        with tempfile.TemporaryDirectory(prefix="vade-") as directory:
            aside, web = Path(directory, "fetched"), Web(self.progress)
            match reference:
                case LocalSource(path, sha256):
                    source = local_source(path, sha256=sha256)
                case ArchiveSource():
                    source = _archive(reference, web, aside)
                case GitSource():
                    source = _git(reference, aside, at)
                case SiteSource(url):
                    source = _site(url, only, web, aside, at)
                case KindSource("run", rest):
                    fetch_from_run(self.context, rest, aside)
                    source = Source(Origin(), partial(open_directory, aside))
                case KindSource(_, rest):
                    from vademecum.registry.mcp_source import fetch_from_source  # noqa: PLC0415 - 80 ms

                    digest = fetch_from_source(self.context, rest, aside)
                    source = Source(Origin(digest), partial(open_directory, aside))
                case _:
                    assert_never(reference)
            yield structs.replace(source, name=name)


def _archive(source: ArchiveSource, web: Web, file: Path) -> Source:
    parts = urlsplit(source.url)
    beside = urlunsplit(parts._replace(path=parts.path + SIGNATURE_SUFFIX))
    digest = web.download(source.url, file, sha256=source.sha256)
    # Some servers answer "forbidden" for a file that does not exist.
    signature = web.read(beside, cap=MAX_SIGNATURE_BYTES, absent={"missing", "forbidden"})
    return Source(Origin(f"sha256:{digest}"), partial(open_path, file), signature=signature)


def _git(source: GitSource, aside: Path, at: Origin) -> Source:
    repository = Repository(aside)
    wanted = "" if at.resolved.startswith("sha256:") else at.resolved
    commit = repository.fetch(source, commit=wanted or None)
    if wanted and commit != wanted:
        raise IntegrityFailed(f"{source.url} no longer has the commit {wanted}: nothing was installed.")
    return Source(Origin(commit), partial(repository.open, commit, source.directory))


def _site(url: str, only: Collection[str], web: Web, aside: Path, at: Origin) -> Source:
    if at.url:
        # If these bytes are gone, the list has the current ones.
        with contextlib.suppress(PackRefused, IntegrityFailed):
            (skill,) = only
            file = SKILL_FILE if at.url.endswith(".md") else ARCHIVE
            place = fetch_files({file: at.url}, at.resolved, web, aside / "at")
            return Source(at, partial(open_fetched, {skill: place}))
    site = find_site(url, web)
    offers = site.wanted(only)
    places = fetch_site(site, offers, web, aside)
    each = {offer.name: Origin(offer.digest, site.address(offer)) for offer in offers if site.has_digests}
    return Source(Origin(), partial(open_fetched, places), each=each)


def local_source(path: Path, name: str = "", *, sha256: str | None = None) -> Source:
    """Return a directory or an archive on this machine as a source, with the signature next to it."""
    if path.is_dir():
        return Source(Origin(), partial(open_directory, path), name or str(path), place=path)
    if not path.is_file():
        raise PackRefused(f"{path} is neither a plain file nor a directory: name an archive.")
    digest = sha256_of(path)
    if sha256 is not None and sha256 != digest:
        raise IntegrityFailed(f"{path} has sha256 {digest}, not {sha256}: nothing was installed.")
    try:
        signature = read_capped(f"{path}{SIGNATURE_SUFFIX}", cap=MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        signature = None
    origin = Origin(f"sha256:{digest}")
    return Source(origin, partial(open_path, path), name or str(path), signature=signature)


class _Asked(Struct):
    permission: str
    resources: tuple[str, ...]


class _Change(Struct):
    """The fields of a recorded call that say which file was written or deleted, and its digest."""

    ok: bool = False
    asked: tuple[_Asked, ...] = ()
    hashes: dict[str, str] = {}


def fetch_from_run(context: Context, name: str, aside: Path) -> None:
    """Copy the skill ``RUN_ID/NAME`` below ``aside``: the files of a directory of that name.

    Search the outputs of the run first, then the files that the run wrote in the project.
    """
    run_id, _, wanted = name.partition("/")
    run = read_run(runs_directory(context), run_id)
    project = context.project
    # If several calls changed a file, the last one counts.
    outputs = {each.path: each for event in run.events for each in outputs_of(event, run.place)}
    listed = []
    for files, base in ((outputs, None), (_written(run.events, project), project)):
        places = skill_places(files)
        found = [place for place in places if wanted and wanted in {place, place.rpartition("/")[2]}]
        if len(found) == 1:
            names = NameCheck()
            inside = {path: each for path, each in files.items() if path.startswith(f"{found[0]}/")}
            for path, output in inside.items():
                _copy(output, aside / wanted / names.file(path)[len(found[0]) + 1 :])
            if base is not None:
                _refuse_others(base / found[0], aside / wanted, context)
            return
        listed += [f"run:{run_id}/{place}" for place in places]
    made = ", ".join(listed) or "it made none"
    raise PackRefused(f"The run {run_id} made no skill {wanted!r}: {made}.", code="missing")


def _written(events: Iterable[Event], project: Path) -> dict[str, RunOutput]:
    """Return the files that a run wrote in the project, by their names in the rules."""
    found: dict[str, RunOutput] = {}
    for event in events:
        with contextlib.suppress(ValidationError):
            call = convert(event.data, type=_Change)
            digest = call.hashes.get("sha256")
            changed = [each for each in call.asked if call.ok and each.permission in {"write", "delete"}]
            for path in (path for each in changed for path in each.resources[:1]):
                found.pop(path, None)
                if digest and not path.startswith("/"):
                    found[path] = RunOutput(path, str(project / path), 0, digest)
    return found


def _refuse_others(place: Path, copied: Path, context: Context) -> None:
    """Raise if the directory in the project contains a file that the run did not write."""
    there, known = ({file.path for file in files_of(each, every=True)} for each in (place, copied))
    other = sorted(path for path in there - known if not is_cache(path))
    if other:
        raise PackRefused(
            f"{other[0]!r} in {place} was not written by the run: nothing was installed. "
            f"To take the whole directory: vade install {os.path.relpath(place, context.cwd)}"
        )


def _copy(output: RunOutput, target: Path) -> None:
    if output.secret:
        raise PackRefused(f"{output.path!r} contains the value of a secret: nothing was installed.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(output.file, target, follow_symlinks=False)
        same = sha256_of(target) == output.sha256
    except (OSError, FileRefused) as error:
        raise PackRefused(f"{output.path!r} cannot be read ({error}): nothing was installed.") from error
    if not same:
        raise IntegrityFailed(f"{output.path!r} was changed since the run: nothing was installed.")
