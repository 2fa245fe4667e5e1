"""A place that skills come from → their files, fetched within limits, and what the place resolved to."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import read_capped, sha256_of
from vademecum.packs.content import MAX_SIGNATURE_BYTES
from vademecum.packs.sources.archive import Opened, Progress, open_directory, open_path, silently
from vademecum.packs.sources.git import Repository
from vademecum.packs.sources.references import (
    ArchiveSource,
    GitSource,
    KindSource,
    LocalSource,
    Reference,
    SiteSource,
)
from vademecum.packs.sources.web import Web, fetch_artifact, fetch_site, find_site, hop_of, open_fetched

SIGNATURE_SUFFIX = ".sig"

# A kind of source that another package provides: it writes the files of skills below a directory, and returns
# what the name resolved to, or "" if the digest of the files is all that can be said.
SourceKind = Callable[[str, Path], str]


class Origin(Struct, frozen=True):
    """Where one skill came from: what its source resolved to, and the address of the very bytes, if any."""

    resolved: str = ""
    url: str = ""


class Source(Struct, frozen=True):
    """A fetched source: its name for the lock, where its skills came from, and its files.

    ``each`` has the origin of single skills if it differs; ``signature`` is the one beside an archive.
    """

    name: str
    origin: Origin
    open: Callable[[], Opened]
    each: dict[str, Origin] = {}
    signature: bytes | None = None


class Fetching(Struct, frozen=True):
    """How sources are fetched: how progress is shown, and which further kinds there are."""

    progress: Progress = silently
    kinds: Mapping[str, SourceKind] = {}

    @contextlib.contextmanager
    def fetched(
        self, reference: Reference, name: str, *, only: Collection[str] = (), at: Origin | None = None
    ) -> Iterator[Source]:
        """Fetch a source; ``at`` is what one skill of it once resolved to, and it must be had like that."""
        with tempfile.TemporaryDirectory(prefix="vade-") as aside:
            errand = _Errand(name, Web(self.progress), Path(aside))
            match reference:
                case LocalSource(path, sha256):
                    yield local_source(path, name, sha256=sha256)
                case ArchiveSource(url, sha256):
                    yield errand.archive(url, sha256)
                case GitSource():
                    yield errand.git(reference, at or Origin())
                case SiteSource(url):
                    yield errand.site(url, only, at or Origin())
                case KindSource(kind, rest):
                    files = Path(aside, kind)
                    origin = Origin(self.kinds[kind](rest, files))
                    yield Source(name, origin, partial(open_directory, files))
                case _:
                    assert_never(reference)


class _Errand(Struct, frozen=True):
    """One source being fetched over the network, into a directory of its own."""

    name: str
    web: Web
    aside: Path

    def archive(self, url: str, sha256: str | None) -> Source:
        parts = urlsplit(url)
        beside = urlunsplit(parts._replace(path=parts.path + SIGNATURE_SUFFIX))
        file = self.aside / "archive"
        digest = self.web.download(url, file, sha256=sha256)
        try:
            signature = self.web.read(beside, cap=MAX_SIGNATURE_BYTES)
        except PackRefused as error:
            if error.code != "forbidden":  # as some servers say of what does not exist
                raise
            signature = None
        origin = Origin(f"sha256:{digest}")
        return Source(self.name, origin, partial(open_path, file), signature=signature)

    def git(self, source: GitSource, at: Origin) -> Source:
        if source.url.startswith(("http://", "https://")):
            hop_of(source.url)
        repository = Repository(self.aside / "git")
        wanted = "" if at.resolved.startswith("sha256:") else at.resolved
        commit = repository.fetch(source, commit=wanted or None)
        if wanted and commit != wanted:
            raise IntegrityFailed(f"{source.url} no longer has the commit {wanted}: nothing was installed.")
        return Source(self.name, Origin(commit), partial(repository.open, commit, source.directory))

    def site(self, url: str, only: Collection[str], at: Origin) -> Source:
        if at.url:
            # If the very bytes are gone, the list shows what there is now.
            with contextlib.suppress(PackRefused, IntegrityFailed):
                (skill,) = only
                place, is_document = self.aside / "at", at.url.endswith(".md")
                place = fetch_artifact(at.url, at.resolved, self.web, place, is_document=is_document)
                return Source(self.name, at, partial(open_fetched, {skill: place}))
        site = find_site(url, self.web)
        offers = site.wanted(only)
        places = fetch_site(site, offers, self.web, self.aside)
        each = {offer.name: Origin(offer.digest, site.address(offer)) for offer in offers if site.has_digests}
        return Source(self.name, Origin(), partial(open_fetched, places), each=each)


def local_source(path: Path, name: str = "", *, sha256: str | None = None) -> Source:
    """Return a directory or an archive on this machine as a source, with the signature beside it."""
    if path.is_dir():
        return Source(name or str(path), Origin(), partial(open_directory, path))
    if not path.is_file():
        raise PackRefused(f"{path} is neither a file nor a directory: name an archive or a directory.")
    digest = sha256_of(path)
    if sha256 is not None and sha256 != digest:
        raise IntegrityFailed(f"{path} has sha256 {digest}, not {sha256}: nothing was installed.")
    try:
        signature = read_capped(f"{path}{SIGNATURE_SUFFIX}", cap=MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        signature = None
    origin = Origin(f"sha256:{digest}")
    return Source(name or str(path), origin, partial(open_path, path), signature=signature)
