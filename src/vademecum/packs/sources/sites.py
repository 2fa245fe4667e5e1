"""A web site that lists its skills in a well-known place → their files, each checked against the list.

Version 0.2.0 of the list has a digest for each skill; 0.1.0 has only names of files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.sources.archive import Opened, SourceFile, open_archive, open_directory
from vademecum.packs.sources.download import Web, hop_of, led_to
from vademecum.packs.sources.entry_names import NameCheck
from vademecum.packs.sources.skill_places import document_in
from vademecum.skill.names import check
from vademecum.skill.skill import MANIFEST as SKILL_FILE

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
WELL_KNOWN = ".well-known/agent-skills/index.json"
WELL_KNOWN_BEFORE = ".well-known/skills/index.json"
MAX_LISTED = 5000
MAX_FILES_EACH = 1000
MAX_DOCUMENT_BYTES = 10 * 1024 * 1024


class Offer(Struct, frozen=True):
    """One skill of a list, in either version."""

    name: str
    description: str = ""
    type: str = ""
    url: str = ""
    digest: str = ""
    files: tuple[str, ...] = ()


class Listing(Struct, frozen=True, rename={"schema": "$schema"}):
    """A site's list of skills."""

    skills: tuple[Offer, ...]
    schema: str = ""


class Site(Struct, frozen=True):
    """A list of skills, and where it was found."""

    url: str
    listing: Listing

    @property
    def has_digests(self) -> bool:
        """Return whether the list has the digests of its skills."""
        return self.listing.schema == SCHEMA

    def address(self, offer: Offer) -> str:
        """Return where an offer's archive or document is."""
        return led_to(urljoin(self.url, offer.url), hop_of(self.url))

    def wanted(self, only: Collection[str]) -> list[Offer]:
        """Return the offers that can be installed; raise if one in ``only`` is missing."""
        offers = [offer for offer in self.listing.skills if not only or offer.name in only]
        missing = sorted(set(only) - {offer.name for offer in offers})
        if missing:
            known = ", ".join(sorted(offer.name for offer in self.listing.skills)[:20]) or "nothing"
            raise PackRefused(f"{self.url} has no skill {missing[0]!r}: it has {known}.", code="missing")
        return [offer for offer in offers if not self.has_digests or offer.type in {"skill-md", "archive"}]


def find_site(url: str, web: Web, aside: Path) -> Site:
    """Fetch the list of a site: the newer form first, below the address and then at the site's top."""
    if urlsplit(url).path.endswith("/index.json"):
        candidates = [url]
    else:
        places = [urljoin(url, path) for path in (WELL_KNOWN, WELL_KNOWN_BEFORE)]
        candidates = [*places, *(urljoin(url, f"/{path}") for path in (WELL_KNOWN, WELL_KNOWN_BEFORE))]
    for candidate in dict.fromkeys(candidates):
        data = web.read(candidate, aside)
        if data is not None:
            return Site(candidate, _listing(data, candidate))
    raise PackRefused(f"{url} lists no skills: {candidates[0]} does not exist.", code="missing")


def open_site(site: Site, only: Collection[str], web: Web, aside: Path, stack: ExitStack) -> Opened:
    """Fetch skills of a site; every name is checked before anything is fetched."""
    offers = site.wanted(only)
    for offer in offers:
        _check(offer, site)
    parts = [(offer.name, _fetched(offer, site, web, aside / str(n))) for n, offer in enumerate(offers)]
    return joined(parts, stack)


def joined(parts: Sequence[tuple[str, Opened]], stack: ExitStack) -> Opened:
    """Combine several sources, each below a directory of its own name."""
    files: list[SourceFile] = []
    for prefix, opened in parts:
        stack.callback(opened.close)
        files += [structs.replace(file, name=f"{prefix}/{file.name}") for file in opened.files]
    return Opened(tuple(files), close=lambda: None)


def fetch_artifact(url: str, sha256: str, web: Web, aside: Path, *, is_document: bool) -> Opened:
    """Fetch an archive with the skill at its top, or a document alone, by its digest."""
    aside.mkdir(parents=True, exist_ok=True)
    if is_document:
        web.download(url, aside / SKILL_FILE, cap=MAX_DOCUMENT_BYTES, sha256=sha256)
        return open_directory(aside)
    web.download(url, aside / "archive", sha256=sha256)
    opened = open_archive(aside / "archive")
    if document_in(file.name for file in opened.files) is None:
        opened.close()
        raise PackRefused(f"{url} has no {SKILL_FILE} at its top: nothing was installed.")
    return opened


def _listing(data: bytes, url: str) -> Listing:
    try:
        found = msgspec.json.decode(data, type=Listing)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{url} is not a list of skills ({error}): nothing was installed.") from error
    if found.schema not in {"", SCHEMA}:
        raise PackRefused(f"{url} has an unknown form ({found.schema[:100]!r}): update vademecum.")
    names = [offer.name for offer in found.skills]
    if len(names) > MAX_LISTED or len(set(names)) < len(names):
        raise PackRefused(f"{url} lists too many skills, or one of them twice: nothing was installed.")
    wrong = next((name for name in names if not name or check(name)), None)
    if wrong is not None:
        raise PackRefused(f"{url} lists {wrong[:100]!r}, which cannot name a skill: nothing was installed.")
    return found


def _check(offer: Offer, site: Site) -> None:
    if site.has_digests:
        scheme, _, digest = offer.digest.partition(":")
        if scheme != "sha256" or len(digest) != 64:
            raise IntegrityFailed(f"{site.url} has no sha256 for {offer.name!r}: nothing was installed.")
        site.address(offer)
        return
    if document_in(offer.files) is None or len(offer.files) > MAX_FILES_EACH:
        raise PackRefused(f"{site.url} lists no {SKILL_FILE} for {offer.name!r}, or too many files.")
    names = NameCheck()
    for name in offer.files:
        names.file(name)


def _fetched(offer: Offer, site: Site, web: Web, aside: Path) -> Opened:
    if site.has_digests:
        digest = offer.digest.removeprefix("sha256:").lower()
        is_document = offer.type == "skill-md"
        return fetch_artifact(site.address(offer), digest, web, aside, is_document=is_document)
    for name in offer.files:
        target = aside / name
        target.parent.mkdir(parents=True, exist_ok=True)
        web.download(urljoin(site.url, quote(f"{offer.name}/{name}")), target, cap=MAX_DOCUMENT_BYTES)
    return open_directory(aside)
