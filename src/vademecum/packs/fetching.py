"""A place that skills come from → their files, fetched aside within bounds, and what it resolved to."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import read_capped
from vademecum.packs.archive import Opened, open_archive
from vademecum.packs.download import MAX_SECONDS, Progress, Web, hop_of
from vademecum.packs.git import Repository
from vademecum.packs.places import (
    MARKETPLACE,
    MAX_MARKETPLACE_BYTES,
    Elsewhere,
    Marketplace,
    Plugin,
    place_of,
    read_marketplace,
    skill_places,
)
from vademecum.packs.signing import MAX_SIGNATURE_BYTES
from vademecum.packs.sites import find_site, joined, open_site
from vademecum.packs.sources import (
    GITHUB,
    ArchiveSource,
    GitSource,
    LocalSource,
    MarketplaceSource,
    Reference,
    SiteSource,
    checked,
)
from vademecum.packs.staging import marketplace_of
from vademecum.packs.trees import open_commit, open_source

MAX_PLUGINS = 100
SIGNATURE_SUFFIX = ".sig"


class Source(Struct, frozen=True):
    """A fetched source: its name for the lock, what it resolved to, and its files.

    ``each`` is what single skills resolved to, where that differs; ``signature`` is the one that lies beside
    an archive; ``pack`` is the archive itself, where there is one.
    """

    name: str
    resolved: str
    open: Callable[[], Opened]
    each: dict[str, str] = {}
    signature: bytes | None = None
    pack: Path | None = None
    remarks: tuple[str, ...] = ()

    def resolved_for(self, skill: str) -> str:
        """What the lock remembers of where a skill came from."""
        return self.each.get(skill, self.resolved)


class Fetching(Struct, frozen=True):
    """How sources are fetched: where to, who is told about it, and how long it may take."""

    aside: Path | None = None
    progress: Progress = lambda done, total: None  # noqa: ARG005 - nobody is told
    seconds: float = MAX_SECONDS

    @contextlib.contextmanager
    def fetched(
        self, reference: Reference, name: str, *, only: Collection[str] = (), at: str | None = None
    ) -> Iterator[Source]:
        """Fetch a source; ``at`` is a commit that it once resolved to and must again."""
        if self.aside is not None:
            self.aside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self.aside) as place, ExitStack() as stack:
            errand = _Errand(name, Web(self.progress, self.seconds), Path(place), stack)
            yield errand.run(reference, only=only, at=at)

    def newest(self, reference: Reference) -> str | None:
        """What a source resolves to now, where that can be told without fetching it."""
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

    def run(self, reference: Reference, *, only: Collection[str], at: str | None) -> Source:
        match reference:
            case LocalSource(path, sha256):
                return self._local(path, sha256)
            case ArchiveSource(url, sha256):
                return self._archive(url, sha256)
            case GitSource():
                commit, opened = self._git(reference, self.aside / "git", at=at)
                return Source(self.name, commit, lambda: opened, remarks=_elsewhere(marketplace_of(opened)))
            case SiteSource(url):
                site = find_site(url, self.web, self.aside)
                opened = open_site(site, only, self.web, self.aside, self.stack)
                each = {offer.name: offer.digest for offer in site.listing.skills if offer.digest}
                return Source(self.name, "", lambda: opened, each=each)
            case MarketplaceSource(url):
                data = self.web.read(url, self.aside)
                if data is None:
                    raise PackRefused(f"{url} does not exist.", code="missing")
                return self._plugins(data, url)
        assert_never(reference)

    def _local(self, path: Path, sha256: str | None) -> Source:
        if path.name == "marketplace.json":
            if path.parent.name != ".claude-plugin":
                return self._plugins(read_capped(path, cap=MAX_MARKETPLACE_BYTES), str(path))
            path = path.parent.parent
        if path.is_dir():
            opened = open_source(path)
            return Source(self.name, "", lambda: opened, remarks=_elsewhere(marketplace_of(opened)))
        return self._opened(path, sha256, _beside(path))

    def _archive(self, url: str, sha256: str | None) -> Source:
        parts = urlsplit(url)
        beside = urlunsplit(parts._replace(path=parts.path + SIGNATURE_SUFFIX))
        self.web.download(url, self.aside / "archive", sha256=sha256)
        try:
            signature = self.web.read(beside, self.aside, cap=MAX_SIGNATURE_BYTES)
        except PackRefused as error:
            if error.code != "forbidden":  # as some servers say of what does not exist
                raise
            signature = None
        return self._opened(self.aside / "archive", sha256, signature)

    def _opened(self, path: Path, wanted: str | None, signature: bytes | None) -> Source:
        if not path.is_file():
            raise PackRefused(f"{path} is no file and no directory: name an archive or a directory.")
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if wanted is not None and wanted != digest:
            raise IntegrityFailed(f"{path} has sha256 {digest}, not {wanted}: nothing was installed.")
        return Source(
            self.name, f"sha256:{digest}", lambda: open_archive(path), signature=signature, pack=path
        )

    def _git(self, source: GitSource, place: Path, *, at: str | None = None) -> tuple[str, Opened]:
        if source.url.startswith(("http://", "https://")):
            hop_of(source.url)
        repository = Repository(place, seconds=self.web.seconds)
        self.stack.callback(repository.close)
        commit = repository.fetch(source, commit=at)
        if at is not None and commit != at:
            raise IntegrityFailed(f"{source.url} no longer has the commit {at}: nothing was installed.")
        return commit, open_commit(repository, commit, source.directory)

    def _plugins(self, data: bytes, place: str) -> Source:
        """The plugins of a list that stands alone: each in its own repository."""
        parts: list[tuple[str, Opened]] = []
        remarks: list[str] = []
        commits: list[str] = []
        for number, plugin in enumerate(read_marketplace(data, place).plugins[:MAX_PLUGINS]):
            source = _repository_of(plugin, local="://" not in place)
            if source is None:
                remarks.append(f"the plugin {plugin.name!r} lies beside the list: install its repository")
                continue
            commit, opened = self._git(source, self.aside / f"git-{number}")
            commits.append(commit)
            parts.append((f"{number}", _offered(opened, plugin)))
        if not parts:
            raise PackRefused(f"{place} names no repository with skills: install the one that it lies in.")
        whole = joined(parts, self.stack)
        resolved = hashlib.sha256(" ".join(commits).encode()).hexdigest()
        return Source(self.name, f"sha256:{resolved}", lambda: whole, remarks=tuple(remarks))


def local_source(path: Path, name: str = "") -> Source:
    """A directory or an archive on this machine as a source, with the signature that lies beside it."""
    pack = None if path.is_dir() else path
    return Source(
        name or str(path), "", lambda: open_source(path), signature=_beside(path) if pack else None, pack=pack
    )


def _beside(path: Path) -> bytes | None:
    try:
        return read_capped(f"{path}{SIGNATURE_SUFFIX}", cap=MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        return None


def _elsewhere(marketplace: Marketplace | None) -> tuple[str, ...]:
    plugins = marketplace.plugins if marketplace else ()
    return tuple(
        f"the plugin {plugin.name!r} of {MARKETPLACE} lies in another repository: install it from there"
        for plugin in plugins
        if isinstance(plugin.source, Elsewhere)
    )


def _repository_of(plugin: Plugin, *, local: bool) -> GitSource | None:
    """Where a plugin lies; only a list of one's own may name places on this machine."""
    source = plugin.source
    if isinstance(source, str):
        return None
    url = f"{GITHUB}/{source.repo}" if source.repo else source.url
    allowed = ("https://", "ssh://", "file://") if local else ("https://",)
    if not url or not url.startswith(allowed):
        return None
    return checked(GitSource(url, source.ref, (source.path or "").strip("/")))


def _offered(opened: Opened, plugin: Plugin) -> Opened:
    """Only the files of the skills that a plugin offers."""
    listed = Marketplace("", (Plugin(plugin.name, "./", plugin.skills),))
    places = set(skill_places((entry.name for entry in opened.entries), listed))
    kept = tuple(entry for entry in opened.entries if place_of(entry.name, places) is not None)
    return Opened(kept, opened.close)
