"""A place that skills come from → their files, fetched within limits, and what the place resolved to."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import read_capped, sha256_of
from vademecum.packs.signing.envelopes import MAX_SIGNATURE_BYTES
from vademecum.packs.sources.archive import (
    Opened,
    Progress,
    open_archive,
    open_directory,
    open_path,
    silently,
)
from vademecum.packs.sources.git import Repository
from vademecum.packs.sources.references import (
    GITHUB,
    ArchiveSource,
    GitSource,
    KindSource,
    LocalSource,
    MarketplaceSource,
    Reference,
    SiteSource,
    checked,
)
from vademecum.packs.sources.skill_places import (
    MARKETPLACE,
    MAX_MARKETPLACE_BYTES,
    Elsewhere,
    Plugin,
    marketplace_of,
    place_of,
    read_marketplace,
    skill_places,
)
from vademecum.packs.sources.web import (
    MAX_SECONDS,
    Web,
    fetch_artifact,
    find_site,
    hop_of,
    joined,
    open_site,
)

MAX_PLUGINS = 100
SIGNATURE_SUFFIX = ".sig"

# A kind of source that another package provides: it writes the files of skills below a directory, and returns
# what the name resolved to, or "" if the digest of the files is all that can be said.
SourceKind = Callable[[str, Path], str]


class Origin(Struct, frozen=True):
    """Where one skill came from: what its source resolved to, and the address of the very bytes, if any."""

    resolved: str = ""
    url: str = ""


_NO_ORIGIN = Origin()


class Source(Struct, frozen=True):
    """A fetched source: its name for the lock, where its skills came from, and its files.

    ``each`` has the origin of single skills if it differs; ``signature`` is the one beside an archive, and
    ``pack`` the archive itself.
    """

    name: str
    origin: Origin
    open: Callable[[], Opened]
    each: dict[str, Origin] = {}
    signature: bytes | None = None
    pack: Path | None = None
    remarks: tuple[str, ...] = ()


class Fetching(Struct, frozen=True):
    """How sources are fetched: where to, how progress is shown, how long it may take, and further kinds."""

    aside: Path | None = None
    progress: Progress = silently
    seconds: float = MAX_SECONDS
    kinds: Mapping[str, SourceKind] = {}

    @contextlib.contextmanager
    def fetched(
        self, reference: Reference, name: str, *, only: Collection[str] = (), at: Origin = _NO_ORIGIN
    ) -> Iterator[Source]:
        """Fetch a source; ``at`` is what it once resolved to, and a repository must have that commit."""
        with self._errand(name) as errand:
            yield errand.run(reference, only=only, at=at)

    @contextlib.contextmanager
    def fetched_bytes(self, name: str, skill: str, origin: Origin) -> Iterator[Source]:
        """Fetch one skill of a site from the address that it had, by its digest."""
        with self._errand(name) as errand:
            digest, is_document = origin.resolved.removeprefix("sha256:"), origin.url.endswith(".md")
            part = fetch_artifact(
                origin.url, digest, errand.web, errand.aside / "one", is_document=is_document
            )
            opened = joined([(skill, part)], errand.stack)
            yield Source(name, origin, lambda: opened)

    @contextlib.contextmanager
    def _errand(self, name: str) -> Iterator[_Errand]:
        try:
            if self.aside is not None:
                self.aside.mkdir(parents=True, exist_ok=True)
            place = tempfile.TemporaryDirectory(prefix="fetch-", dir=self.aside)
        except OSError as error:
            raise PackRefused(
                f"{self.aside} cannot be written ({error.strerror}): set HOME or XDG_CACHE_HOME."
            ) from error
        with place as aside, ExitStack() as stack:
            yield _Errand(name, Web(self.progress, self.seconds), Path(aside), stack, self.kinds)

    def newest(self, reference: Reference) -> str | None:
        """Return what a source resolves to now, if that can be told without fetching it."""
        if not isinstance(reference, GitSource):
            return None
        with tempfile.TemporaryDirectory(prefix="fetch-") as place:
            return Repository(Path(place), seconds=self.seconds).newest(reference)


class _Errand(Struct, frozen=True):
    """One source being fetched into a directory of its own."""

    name: str
    web: Web
    aside: Path
    stack: ExitStack
    kinds: Mapping[str, SourceKind]

    def run(self, reference: Reference, *, only: Collection[str], at: Origin) -> Source:
        match reference:
            case LocalSource(path, sha256):
                return self._local(path, sha256)
            case ArchiveSource(url, sha256):
                return self._archive(url, sha256)
            case GitSource():
                commit = at.resolved if not at.resolved.startswith("sha256:") else ""
                found, opened = self._git(reference, self.aside / "git", at=commit or None)
                return self._tree(opened, Origin(found))
            case SiteSource(url):
                return self._site(url, only)
            case MarketplaceSource(url):
                data = self.web.read(url)
                if data is None:
                    raise PackRefused(f"{url} does not exist.", code="missing")
                return self._plugins(data, url)
            case KindSource(kind, rest):
                resolved = self.kinds[kind](rest, self.aside / kind)
                return self._tree(open_directory(self.aside / kind), Origin(resolved))
        assert_never(reference)

    def _tree(self, opened: Opened, origin: Origin) -> Source:
        marketplace = marketplace_of(opened)
        remarks = tuple(
            f"the plugin {plugin.name!r} of {MARKETPLACE} is in another repository: install it from there"
            for plugin in (marketplace.plugins if marketplace else ())
            if isinstance(plugin.source, Elsewhere)
        )
        return Source(self.name, origin, lambda: opened, remarks=remarks)

    def _site(self, url: str, only: Collection[str]) -> Source:
        site = find_site(url, self.web)
        opened = open_site(site, only, self.web, self.aside, self.stack)
        each = {
            offer.name: Origin(offer.digest, site.address(offer))
            for offer in site.wanted(only)
            if site.has_digests
        }
        return Source(self.name, Origin(), lambda: opened, each=each)

    def _local(self, path: Path, sha256: str | None) -> Source:
        if path.name == "marketplace.json":
            if path.parent.name != ".claude-plugin":
                return self._plugins(read_capped(path, cap=MAX_MARKETPLACE_BYTES), str(path))
            path = path.parent.parent
        if path.is_dir():
            return self._tree(open_directory(path), Origin())
        return self._pack(path, sha256, _beside(path))

    def _archive(self, url: str, sha256: str | None) -> Source:
        parts = urlsplit(url)
        beside = urlunsplit(parts._replace(path=parts.path + SIGNATURE_SUFFIX))
        self.web.download(url, self.aside / "archive", sha256=sha256)
        try:
            signature = self.web.read(beside, cap=MAX_SIGNATURE_BYTES)
        except PackRefused as error:
            if error.code != "forbidden":  # as some servers say of what does not exist
                raise
            signature = None
        return self._pack(self.aside / "archive", sha256, signature)

    def _pack(self, path: Path, wanted: str | None, signature: bytes | None) -> Source:
        if not path.is_file():
            raise PackRefused(f"{path} is neither a file nor a directory: name an archive or a directory.")
        digest = sha256_of(path)
        if wanted is not None and wanted != digest:
            raise IntegrityFailed(f"{path} has sha256 {digest}, not {wanted}: nothing was installed.")
        origin = Origin(f"sha256:{digest}")
        return Source(self.name, origin, lambda: open_archive(path), signature=signature, pack=path)

    def _git(self, source: GitSource, place: Path, *, at: str | None = None) -> tuple[str, Opened]:
        if source.url.startswith(("http://", "https://")):
            hop_of(source.url)
        repository = Repository(place, seconds=self.web.seconds)
        self.stack.callback(repository.close)
        commit = repository.fetch(source, commit=at)
        if at is not None and commit != at:
            raise IntegrityFailed(f"{source.url} no longer has the commit {at}: nothing was installed.")
        return commit, repository.open(commit, source.directory)

    def _plugins(self, data: bytes, place: str) -> Source:
        """Fetch the plugins of a list that stands alone, each from its own repository."""
        parts: list[tuple[str, Opened]] = []
        remarks: list[str] = []
        commits: list[str] = []
        for number, plugin in enumerate(read_marketplace(data, place).plugins[:MAX_PLUGINS]):
            source = _repository_of(plugin, local="://" not in place)
            if source is None:
                remarks.append(f"the plugin {plugin.name!r} is beside the list: install its repository")
                continue
            commit, opened = self._git(source, self.aside / f"git-{number}")
            commits.append(commit)
            parts.append((f"{number}", _offered(opened, plugin)))
        if not parts:
            raise PackRefused(f"{place} names no repository with skills: install the one that contains it.")
        whole = joined(parts, self.stack)
        resolved = hashlib.sha256(" ".join(commits).encode()).hexdigest()
        return Source(self.name, Origin(f"sha256:{resolved}"), lambda: whole, remarks=tuple(remarks))


def local_source(path: Path, name: str = "") -> Source:
    """Return a directory or an archive on this machine as a source, with the signature beside it."""
    pack = None if path.is_dir() else path
    signature = _beside(path) if pack else None
    return Source(name or str(path), Origin(), lambda: open_path(path), signature=signature, pack=pack)


def _beside(path: Path) -> bytes | None:
    try:
        return read_capped(f"{path}{SIGNATURE_SUFFIX}", cap=MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        return None


def _repository_of(plugin: Plugin, *, local: bool) -> GitSource | None:
    """Return where a plugin is; only a list on this machine may name places on this machine."""
    source = plugin.source
    if isinstance(source, str):
        return None
    url = f"{GITHUB}/{source.repo}" if source.repo else source.url
    allowed = ("https://", "ssh://", "file://") if local else ("https://",)
    if not url or not url.startswith(allowed):
        return None
    return checked(GitSource(url, source.ref, (source.path or "").strip("/")))


def _offered(opened: Opened, plugin: Plugin) -> Opened:
    """Keep only the files of the skills that a plugin offers."""
    whole = structs.replace(plugin, source="./")
    places = set(skill_places((file.name for file in opened.files), [whole]))
    kept = tuple(file for file in opened.files if place_of(file.name, places) is not None)
    return Opened(kept, opened.close)
