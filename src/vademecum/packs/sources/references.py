"""Parse the source that a user typed; the network is not used here."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from vademecum.context import Context
from vademecum.errors import PackRefused, ToolRefused
from vademecum.tools.hosts import Hop, hop_to

GITHUB = "https://github.com"

_SHORTHAND = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[\w.-]+?)(?:@(?P<ref>[^#\s]+))?(?:#(?P<dir>.+))?\Z")
_ON_GITHUB = re.compile(
    r"/(?P<repo>[\w.-]+/[\w.-]+?)(?:\.git)?(?:/tree/(?P<ref>[^/]+)(?:/(?P<dir>.+?))?)?/?\Z"
)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_ARCHIVES = (".zip", ".skill", ".tar", ".gz", ".tgz", ".xz", ".zst", ".json")
_GIT_SCHEMES = frozenset({"git+https", "git+http", "git+ssh", "git+file"})


class LocalSource(Struct, frozen=True):
    """An archive or a directory on this machine."""

    path: Path
    sha256: str | None = None


class ArchiveSource(Struct, frozen=True):
    """An archive on the web."""

    url: str
    sha256: str | None = None


class GitSource(Struct, frozen=True):
    """A repository, a branch, tag or commit of it, and a directory in it."""

    url: str
    ref: str | None = None
    directory: str = ""


class SiteSource(Struct, frozen=True):
    """A web site that lists its skills in a well-known place, or that list itself."""

    url: str


class KindSource(Struct, frozen=True):
    """A skill that an agent wrote in a run (``run:ID/NAME``), or one of a server (``mcp:SERVER/NAME``)."""

    kind: str
    name: str


Reference = LocalSource | ArchiveSource | GitSource | SiteSource | KindSource


def reference_to(typed: str, *, context: Context, base: Path | None = None) -> Reference:
    """Parse a source; an existing file or directory of that name wins.

    >>> here = Context(cwd=Path("/nonexistent"), home=Path("/home/ada"), env={})
    >>> reference_to("git+https://example.org/a.git@v1#skills/x", context=here)
    GitSource(url='https://example.org/a.git', ref='v1', directory='skills/x')
    >>> reference_to("ada/skills@main", context=here)
    GitSource(url='https://github.com/ada/skills', ref='main', directory='')
    >>> reference_to("https://example.org", context=here)
    SiteSource(url='https://example.org/')
    """
    scheme = typed.partition("://")[0].lower() if "://" in typed else ""
    if scheme in _GIT_SCHEMES:
        return git_source(typed)
    if scheme in {"http", "https"}:
        return _web(typed)
    if scheme == "file" and not urlsplit(typed).netloc:
        typed = unquote(typed[len("file://") :])
    elif scheme:
        raise PackRefused(f"Skills cannot come from {typed[:200]!r}: use https://, git+https:// or a path.")
    kind, colon, rest = typed.partition(":")
    if colon and kind in {"run", "mcp"}:
        return KindSource(kind, rest)
    name, wanted = _with_digest(typed)
    path = context.expand(name, base=base)
    if path.exists():
        return LocalSource(path, wanted)
    shorthand = _SHORTHAND.match(typed)
    if shorthand and not typed.startswith((".", "/", "~")) and not typed.lower().endswith(_ARCHIVES):
        return checked(GitSource(f"{GITHUB}/{shorthand['repo']}", shorthand["ref"], shorthand["dir"] or ""))
    raise PackRefused(
        f"There is no {name!r} to install from: name an archive, a directory, an address or owner/repo.",
        code="missing",
    )


def remembered(reference: Reference, *, base: Path) -> str:
    """Return a source as the lock stores it, independent of the location of the project."""
    match reference:
        case LocalSource(path, sha256):
            # A name alone could also mean a repository.
            address = f"./{os.path.relpath(path, base)}" if path.is_relative_to(base) else str(path)
        case ArchiveSource(address, sha256):
            pass
        case GitSource(url, ref, directory):
            return f"git+{url}" + (f"@{ref}" if ref else "") + (f"#{directory}" if directory else "")
        case SiteSource(url):
            return url
        case KindSource(kind, name):
            return f"{kind}:{name}"
    return address + (f"#sha256={sha256}" if sha256 else "")


def git_source(typed: str) -> GitSource:
    """Parse the address of a repository, as in ``git+https://example.org/repo.git@ref#directory``."""
    address, _, directory = typed.removeprefix("git+").partition("#")
    start, at, ref = address.rpartition("@")
    # An "@" in front of the host is a user's name.
    if not at or "/" not in start.partition("://")[2]:
        start, ref = address, ""
    return checked(GitSource(start, ref or None, directory))


def checked(source: GitSource) -> GitSource:
    """Return the source; raise ``PackRefused`` if git could misread one of its parts."""
    scheme, _, rest = source.url.partition("://")
    if scheme.lower() in {"http", "https"}:
        hop_of(source.url)
    elif ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise PackRefused("An address must not contain a password: leave it to git's own credentials.")
    for word in (source.url, source.ref or "", source.directory):
        if word.startswith("-") or any(char.isspace() or ord(char) < 32 for char in word):
            raise PackRefused(f"{word[:200]!r} is not a part of a repository's address: correct it.")
    if ".." in source.directory.split("/") or source.directory.startswith("/"):
        raise PackRefused(f"The directory {source.directory!r} leads out of the repository: correct it.")
    return GitSource(source.url, source.ref, source.directory.strip("/"))


def _web(typed: str) -> Reference:
    url, wanted = _with_digest(typed)
    host, path = hop_of(url).host, urlsplit(url).path
    on_github = _ON_GITHUB.match(path) if host == "github.com" else None
    if on_github:
        return checked(GitSource(f"{GITHUB}/{on_github['repo']}", on_github["ref"], on_github["dir"] or ""))
    if path.endswith(".git"):
        return checked(GitSource(url))
    if wanted is None and (path in {"", "/"} or path.endswith(("/", "/index.json"))):
        return SiteSource(url if path else f"{url}/")
    return ArchiveSource(url, wanted)


def _with_digest(typed: str) -> tuple[str, str | None]:
    name, mark, wanted = typed.partition("#sha256=")
    if mark and not _SHA256.match(wanted.lower()):
        raise PackRefused(f"{wanted[:100]!r} is not a sha256: it has 64 hexadecimal digits.")
    return name, wanted.lower() if mark else None


def hop_of(url: str) -> Hop:
    """Parse an address, which must be https, or http on this machine."""
    if "@" in re.split("[/?#]", url.partition("://")[2])[0]:
        text = "An address must not contain a user name or a password: remove them"
        raise PackRefused(f"{text}; git uses its own credentials. Nothing was installed.")
    try:
        hop = hop_to(url)
    except ToolRefused as error:
        raise PackRefused(f"{error} Nothing was installed.") from error
    if hop.scheme != "https" and not is_here(hop.host):
        raise PackRefused(f"{url[:200]} is not encrypted: use https. Nothing was installed.")
    return hop


def is_here(host: str) -> bool:
    """Return whether a host name means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
