"""Download files within limits, and the skills that a web site lists in a well-known place.

A redirect to a private address is refused. Version 0.2.0 of a site's list has a digest for each skill;
version 0.1.0 has only names of files.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused, ToolRefused
from vademecum.packs.sources.archive import MAX_PACKED_BYTES, Opened, Progress, SourceFile, open_path
from vademecum.packs.sources.entry_names import NameCheck, document_in
from vademecum.packs.sources.references import hop_of, is_here
from vademecum.skill.names import check
from vademecum.skill.skill import MANIFEST as SKILL_FILE
from vademecum.tools.hosts import Hop, is_private, resolved

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
MAX_SECONDS = 600.0
MAX_SILENCE_SECONDS = 30.0
MAX_SMALL_BYTES = 5 * 1024 * 1024

_REDIRECTS = frozenset({301, 302, 303, 307, 308})

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
WELL_KNOWN = ".well-known/agent-skills/index.json"
WELL_KNOWN_BEFORE = ".well-known/skills/index.json"
MAX_LISTED = 5000
MAX_FILES_EACH = 1000
MAX_DOCUMENT_BYTES = 10 * 1024 * 1024
ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Web:
    """Download files within a limit of time, and report progress."""

    progress: Progress
    seconds: float = MAX_SECONDS
    clock: Callable[[], float] = time.monotonic

    def download(
        self, url: str, target: Path, *, cap: int = MAX_PACKED_BYTES, sha256: str | None = None
    ) -> str:
        """Fetch a file and return its sha256; if ``sha256`` differs, delete the file and refuse."""
        with open(target, "wb") as out:
            digest = self._fetched(url, out, cap)
        if sha256 is not None and digest != sha256:
            target.unlink()
            raise IntegrityFailed(f"{url} has sha256 {digest}, not {sha256}: nothing was installed.")
        return digest

    def read(
        self, url: str, *, cap: int = MAX_SMALL_BYTES, absent: Collection[str] = ("missing",)
    ) -> bytes | None:
        """Return the content of a small file, or None for an error with one of these codes."""
        out = io.BytesIO()
        try:
            self._fetched(url, out, cap)
        except PackRefused as error:
            if error.code in absent:
                return None
            raise
        return out.getvalue()

    def _fetched(self, url: str, out: IO[bytes], cap: int) -> str:
        import httpx  # noqa: PLC0415 - 80 ms, only for sources on the network

        deadline = self.clock() + self.seconds
        timeout = min(MAX_SILENCE_SECONDS, self.seconds)
        first = hop_of(url)
        with httpx.Client(follow_redirects=False, timeout=timeout) as client:
            for _ in range(MAX_REDIRECTS + 1):
                try:
                    with client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer:
                        target = answer.headers.get("location")
                        if answer.status_code not in _REDIRECTS or target is None:
                            return self._taken(answer, out, cap, deadline)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    reason = f"{type(error).__name__}: {error}".rstrip(": ")
                    raise PackRefused(f"{url} could not be fetched ({reason}): try again later.") from error
                url = led_to(urljoin(url, target), first)
        raise PackRefused(f"{url} redirects more than {MAX_REDIRECTS} times: nothing was installed.")

    def _taken(self, answer: httpx.Response, out: IO[bytes], cap: int, deadline: float) -> str:
        url = answer.url
        if answer.status_code in {401, 403}:
            raise PackRefused(f"{url} cannot be read (HTTP {answer.status_code}).", code="forbidden")
        if answer.status_code in {404, 410}:
            raise PackRefused(f"{url} does not exist (HTTP {answer.status_code}).", code="missing")
        if not answer.is_success:
            raise PackRefused(f"{url} answered with HTTP {answer.status_code}: try again later.")
        said = answer.headers.get("content-length", "")
        total = int(said) if said.isascii() and said.isdigit() else 0
        too_large = PackRefused(f"{url} is larger than {cap:,} bytes: nothing was installed.")
        if total > cap:
            raise too_large
        digest, size = hashlib.sha256(), 0
        for piece in answer.iter_raw():
            size += len(piece)
            if size > cap:
                raise too_large
            if self.clock() > deadline:
                raise PackRefused(
                    f"{url} took longer than {self.seconds:.0f} seconds: nothing was installed."
                )
            digest.update(piece)
            out.write(piece)
            self.progress(size, total)
        return digest.hexdigest()


def led_to(url: str, first: Hop) -> str:
    """Return the target of a redirect; raise ``PackRefused`` if a web host redirects to a private network."""
    hop = hop_of(url)
    if is_here(first.host) or hop.host == first.host:
        return url
    with suppress(ToolRefused):  # a proxy may know the name
        if any(map(is_private, resolved(hop.host, hop.port))):
            raise PackRefused(f"{first.host} leads to a private address ({hop.host}): nothing was installed.")
    return url


class Offer(Struct, frozen=True, omit_defaults=True):
    """One skill of a site's list, in either version."""

    name: str
    type: str = ""
    description: str = ""
    url: str = ""
    digest: str = ""
    files: tuple[str, ...] = ()


class Site(Struct, frozen=True, rename={"schema": "$schema"}):
    """A site's list of skills, and where it was found."""

    skills: tuple[Offer, ...]
    schema: str = ""
    url: str = ""

    @property
    def has_digests(self) -> bool:
        """Return whether the list has the digests of its skills."""
        return self.schema == SCHEMA

    def address(self, offer: Offer) -> str:
        """Return the address of an offer's archive or document."""
        return led_to(urljoin(self.url, offer.url), hop_of(self.url))

    def wanted(self, only: Collection[str]) -> list[Offer]:
        """Return the offers that can be installed; raise if one in ``only`` is missing."""
        offers = [offer for offer in self.skills if not only or offer.name in only]
        missing = sorted(set(only) - {offer.name for offer in offers})
        if missing:
            known = ", ".join(sorted(offer.name for offer in self.skills)[:20]) or "nothing"
            raise PackRefused(f"{self.url} has no skill {missing[0]!r}: it has {known}.", code="missing")
        return [offer for offer in offers if not self.has_digests or offer.type in {"skill-md", "archive"}]


def find_site(url: str, web: Web) -> Site:
    """Fetch the list of a site: the newer version first, below the address and then at the site's root."""
    paths = (WELL_KNOWN, WELL_KNOWN_BEFORE, f"/{WELL_KNOWN}", f"/{WELL_KNOWN_BEFORE}")
    is_list = urlsplit(url).path.endswith("/index.json")
    candidates = [url] if is_list else [urljoin(url, path) for path in paths]
    for candidate in dict.fromkeys(candidates):
        data = web.read(candidate)
        if data is not None:
            return _listing(data, candidate)
    raise PackRefused(f"{url} lists no skills: {candidates[0]} does not exist.", code="missing")


def fetch_site(site: Site, offers: Sequence[Offer], web: Web, aside: Path) -> dict[str, Path]:
    """Fetch skills of a site; every offer is checked before anything is fetched."""
    listed = {offer.name: _files_of(offer, site) for offer in offers}
    digests = {offer.name: offer.digest for offer in offers if site.has_digests}
    return {
        name: fetch_files(files, digests.get(name, ""), web, aside / str(number))
        for number, (name, files) in enumerate(listed.items())
    }


def fetch_files(files: dict[str, str], digest: str, web: Web, aside: Path) -> Path:
    """Fetch the files of one skill, or its archive; a single file is checked against the digest."""
    is_archive = [*files] == [ARCHIVE]
    cap = MAX_PACKED_BYTES if is_archive else MAX_DOCUMENT_BYTES
    sha256 = digest.removeprefix("sha256:").lower()
    for name, url in files.items():
        target = aside / name
        target.parent.mkdir(parents=True, exist_ok=True)
        web.download(url, target, cap=cap, sha256=sha256 or None)
    return aside / ARCHIVE if is_archive else aside


@contextmanager
def open_fetched(places: dict[str, Path]) -> Iterator[Opened]:
    """Open the fetched skills of a site, each below a directory of its own name."""
    files: list[SourceFile] = []
    with ExitStack() as stack:
        for name, place in places.items():
            opened = stack.enter_context(open_path(place))
            if document_in(file.name for file in opened.files) is None:
                raise PackRefused(f"{name!r} has no {SKILL_FILE} at its top: nothing was installed.")
            files += [structs.replace(file, name=f"{name}/{file.name}") for file in opened.files]
        yield Opened(tuple(files))


def _listing(data: bytes, url: str) -> Site:
    try:
        found = msgspec.json.decode(data, type=Site)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{url} is not a list of skills ({error}): nothing was installed.") from error
    if found.schema not in {"", SCHEMA}:
        raise PackRefused(f"{url} has an unknown format ({found.schema[:100]!r}): update vademecum.")
    names = [offer.name for offer in found.skills]
    if len(names) > MAX_LISTED or len(set(names)) < len(names):
        raise PackRefused(f"{url} lists too many skills, or one of them twice: nothing was installed.")
    wrong = next((name for name in names if not name or check(name)), None)
    if wrong is not None:
        raise PackRefused(f"{url} lists {wrong[:100]!r}, which is not a valid name: nothing was installed.")
    return structs.replace(found, url=url)


def _files_of(offer: Offer, site: Site) -> dict[str, str]:
    """Return the files to fetch for a skill with their addresses; refuse an invalid offer."""
    if site.has_digests:
        scheme, _, digest = offer.digest.partition(":")
        if scheme != "sha256" or len(digest) != 64:
            raise IntegrityFailed(f"{site.url} has no sha256 for {offer.name!r}: nothing was installed.")
        return {SKILL_FILE if offer.type == "skill-md" else ARCHIVE: site.address(offer)}
    if document_in(offer.files) is None or len(offer.files) > MAX_FILES_EACH:
        raise PackRefused(f"{site.url} lists no {SKILL_FILE} for {offer.name!r}, or too many files.")
    names = NameCheck()
    return {names.file(name): urljoin(site.url, quote(f"{offer.name}/{name}")) for name in offer.files}
