"""A web site that lists its skills in a well-known place → their files, each checked against the list.

Version 0.2.0 of the list has a digest for each skill; 0.1.0 has only names of files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.archive import Entry, Opened, open_archive
from vademecum.packs.download import Web, hop_of, led_to
from vademecum.packs.names import check_name
from vademecum.packs.staging import MAX_DOCUMENT_BYTES
from vademecum.packs.trees import open_directory
from vademecum.skill.names import check
from vademecum.skill.skill import MANIFEST as SKILL_FILE

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
WELL_KNOWN = ".well-known/agent-skills/index.json"
WELL_KNOWN_BEFORE = ".well-known/skills/index.json"
MAX_LISTED = 5000
MAX_FILES_EACH = 1000


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
        """Whether the list says what its skills' bytes are."""
        return self.listing.schema == SCHEMA

    def wanted(self, only: Collection[str]) -> list[Offer]:
        """The skills that are asked for and can be had; one that is asked for must be there."""
        offers = [offer for offer in self.listing.skills if not only or offer.name in only]
        missing = sorted(set(only) - {offer.name for offer in offers})
        if missing:
            known = ", ".join(sorted(offer.name for offer in self.listing.skills)[:20]) or "nothing"
            raise PackRefused(f"{self.url} has no skill {missing[0]!r}: it has {known}.", code="missing")
        return [offer for offer in offers if not self.has_digests or offer.type in {"skill-md", "archive"}]


def find_site(url: str, web: Web, aside: Path) -> Site:
    """The list of a site: the newer form first, below the address and then at the site's top."""
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
    """Fetch skills of a site; nothing is unpacked that is not what the list says."""
    parts = [
        _fetched(offer, site, web, aside / str(number)) for number, offer in enumerate(site.wanted(only))
    ]
    return joined(parts, stack)


def joined(parts: Sequence[tuple[str, Opened]], stack: ExitStack) -> Opened:
    """Several sources as one, each below a directory of its own name."""
    entries: list[Entry] = []
    for prefix, opened in parts:
        stack.callback(opened.close)
        entries += [structs.replace(entry, name=f"{prefix}/{entry.name}") for entry in opened.entries]
    return Opened(tuple(entries), close=lambda: None)


def _listing(data: bytes, url: str) -> Listing:
    try:
        found = msgspec.json.decode(data, type=Listing)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{url} is no list of skills ({error}): nothing was installed.") from error
    if found.schema not in {"", SCHEMA}:
        raise PackRefused(
            f"{url} has a form that is not known here ({found.schema[:100]!r}): update vademecum."
        )
    names = [offer.name for offer in found.skills]
    if len(names) > MAX_LISTED or len(set(names)) < len(names):
        raise PackRefused(f"{url} lists too many skills, or one of them twice: nothing was installed.")
    wrong = next((name for name in names if not name or check(name)), None)
    if wrong is not None:
        raise PackRefused(f"{url} lists {wrong[:100]!r}, which is no name of a skill: nothing was installed.")
    return found


def _fetched(offer: Offer, site: Site, web: Web, aside: Path) -> tuple[str, Opened]:
    aside.mkdir(parents=True)
    if not site.has_digests:
        return offer.name, _files(offer, site, web, aside)
    scheme, _, digest = offer.digest.partition(":")
    if scheme != "sha256" or len(digest) != 64:
        raise IntegrityFailed(f"{site.url} has no sha256 for {offer.name!r}: nothing was installed.")
    url = led_to(urljoin(site.url, offer.url), hop_of(site.url))
    if offer.type == "archive":
        web.download(url, aside / "archive", sha256=digest.lower())
        opened = open_archive(aside / "archive")
        if not any(entry.name == SKILL_FILE for entry in opened.entries):
            opened.close()
            raise PackRefused(f"{url} has no {SKILL_FILE} at its top: nothing was installed.")
        return offer.name, opened
    web.download(url, aside / SKILL_FILE, cap=MAX_DOCUMENT_BYTES, sha256=digest.lower())
    return offer.name, open_directory(aside)


def _files(offer: Offer, site: Site, web: Web, aside: Path) -> Opened:
    if SKILL_FILE not in offer.files or len(offer.files) > MAX_FILES_EACH:
        raise PackRefused(f"{site.url} lists no {SKILL_FILE} for {offer.name!r}, or too many files.")
    for name in offer.files:
        target = aside / check_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        web.download(urljoin(site.url, f"{offer.name}/{name}"), target, cap=MAX_DOCUMENT_BYTES)
    return open_directory(aside)
