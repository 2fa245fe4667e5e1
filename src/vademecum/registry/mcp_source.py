"""MCP servers as sources of skills: the servers that the user added, their listings and their files."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused, IntegrityFailed, PackRefused, PathRefused
from vademecum.files import read_own, write_atomic
from vademecum.nearest import meant, nearest
from vademecum.paths import check_relative
from vademecum.registry.base import MAX_BYTES, MAX_FILES, ProvidedFile, ProvidedSkill
from vademecum.registry.mcp_messages import (
    ANSWER_SECONDS,
    ServerConnection,
    ServerProcess,
    SourceFailed,
    WebServer,
    is_loopback,
)
from vademecum.registry.provided import fetch
from vademecum.registry.roots import Root, Source
from vademecum.secret_store import SecretStore
from vademecum.skill.names import is_plain
from vademecum.skill.skill import MANIFEST, Problem

MAX_PAGES = 200
MAX_SKILLS = 20_000
MAX_LISTING_BYTES = 256 * 1024 * 1024
TOKEN = "MCP_TOKEN"  # noqa: S105 - the name of a secret

_PREFIX = "sha256:"


class _File(msgspec.Struct):
    uri: str
    digest: Annotated[str, msgspec.Meta(pattern=rf"^{_PREFIX}[0-9a-f]{{64}}\Z")]
    size: Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct):
    uri: str
    frontmatter: dict[str, Any]
    resources: list[_File]


class _Page(msgspec.Struct, rename="camel"):
    skills: list[Any]
    next_cursor: str | None = None


class _Content(msgspec.Struct):
    uri: str
    text: str | None = None
    blob: bytes | None = None  # as base64


class _Contents(msgspec.Struct):
    contents: tuple[_Content]


class _Listing(msgspec.Struct, frozen=True):
    """The cached listing of a source, and the working directory of its command."""

    address: str
    directory: str = "/"
    listed: float = 0.0
    skills: tuple[ProvidedSkill, ...] = ()
    left_out: tuple[Problem, ...] = ()


class McpSource:
    """One server that the user added, under the name that the user chose."""

    def __init__(self, name: str, context: Context, *, seconds: float = ANSWER_SECONDS) -> None:
        """Use the server of that name; ``seconds`` is the time limit for each of its answers."""
        self.name = name
        self._seconds = seconds
        self._context = context
        self._file = _directory(context) / f"{name}.json"
        cache = context.cache_directory() or context.home / ".cache" / "vademecum"
        # Users choose the name, so the type cannot list every source.
        self.root = Root(cache / "sources" / name, cast("Source", f"mcp:{name}"), priority=-1, explicit=False)

    def add(self, address: str, *, token: str = "") -> None:
        """Store the address (a command or a URL), after asking the server for its skills."""
        if not is_plain(self.name):
            raise ConfigError(f"{self.name!r} is not a name for a source: use a-z, 0-9 and hyphens.")
        _check_address(address)
        if token:
            SecretStore(self._context).set(TOKEN, token, skill=f"mcp:{self.name}")
        self._list(_Listing(address, str(self._context.cwd)))

    def refresh(self) -> None:
        """Ask the server for its skills again."""
        self._list(self._kept())

    def remove(self) -> None:
        """Remove the source and its token."""
        self._kept()
        self._file.unlink()
        store = SecretStore(self._context)
        for secret in store.list():
            if secret.skill == f"mcp:{self.name}":
                store.remove(secret)

    def to_json(self) -> dict[str, Any]:
        """Return the source in the form that commands print."""
        kept = self._kept()
        return {
            "name": self.name,
            "mcp": kept.address,
            "listed": kept.listed,
            "skills": [skill.name for skill in kept.skills],
            "left_out": [problem.message for problem in kept.left_out],
        }

    def listing(self) -> tuple[tuple[ProvidedSkill, ...], tuple[Problem, ...], os.stat_result]:
        """Return the server's last announcement."""
        kept = self._kept()
        return kept.skills, kept.left_out, os.stat(self._file)

    def read(self, skill: ProvidedSkill) -> Iterator[tuple[ProvidedFile, bytes]]:
        """Fetch the files of a skill from the server, one at a time."""
        with self._connected(self._kept()) as server:
            for file in skill.files:
                (content,) = server.request("resources/read", {"uri": file.uri}, _Contents).contents
                if content.uri != file.uri or (content.text is None) == (content.blob is None):
                    raise SourceFailed(f"The answer to resources/read is not {file.uri[:200]!r}.")
                yield file, content.blob or (content.text or "").encode()

    def _list(self, asked: _Listing) -> None:
        """Fetch all pages of the list, and store them."""
        entries: list[Any] = []
        cursor: str | None = ""
        with self._connected(asked) as server:
            for _ in range(MAX_PAGES):
                page = server.request("skills/list", {"cursor": cursor} if cursor else {}, _Page)
                entries += page.skills
                cursor = page.next_cursor
                if cursor is None or len(entries) > MAX_SKILLS:
                    break
        if cursor is not None:
            raise SourceFailed(f"The list of {self.name} does not end: none of it is used.")
        skills, left_out = _checked(entries)
        listing = _Listing(asked.address, asked.directory, time.time(), tuple(skills), tuple(left_out))
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._file, msgspec.json.encode(listing), mode=0o600)

    @contextlib.contextmanager
    def _connected(self, asked: _Listing) -> Iterator[ServerConnection]:
        """Connect to the server; an error names the source."""
        try:
            with self._connection(asked) as server:
                yield server
        except SourceFailed as error:
            text = f"The source {self.name!r} failed ({str(error).rstrip('.')})."
            advice = f"check that {asked.address!r} is an MCP server that serves skills"
            raise SourceFailed(text, advice=advice) from error

    def _connection(self, asked: _Listing) -> ServerConnection:
        if "://" in asked.address:
            token = SecretStore(self._context).get(TOKEN, skill=f"mcp:{self.name}") or ""
            return WebServer(asked.address, token=token, seconds=self._seconds)
        words = shlex.split(asked.address)
        return ServerProcess(words, self._context.env, cwd=asked.directory, seconds=self._seconds)

    def _kept(self) -> _Listing:
        try:
            return msgspec.json.decode(read_own(self._file, cap=MAX_LISTING_BYTES), type=_Listing)
        except FileNotFoundError as error:
            known = [source.name for source in sources(self._context)]
            hint = meant(nearest(self.name, known), otherwise="vade source list shows them")
            raise ConfigError(f"There is no source {self.name!r}: {hint}", code="no-source") from error
        except (OSError, FileRefused, msgspec.MsgspecError) as error:
            text = f"{self._file} cannot be read ({error}): remove it and add the source again."
            raise ConfigError(text) from error


def sources(context: Context) -> list[McpSource]:
    """Return the servers that the user added, sorted by name."""
    with contextlib.suppress(OSError):
        names = sorted(file.stem for file in _directory(context).glob("*.json"))
        return [McpSource(name, context) for name in names if is_plain(name)]
    return []


def fetch_from_source(context: Context, name: str, aside: Path) -> str:
    """Copy the skill ``SERVER/NAME`` below ``aside``, verify each file, and return the digest of all."""
    server, _, wanted = name.partition("/")
    source = McpSource(server, context)
    skills, _, _ = source.listing()
    found = next((skill for skill in skills if skill.name == wanted), None)
    if found is None:
        known = ", ".join(f"mcp:{server}/{skill.name}" for skill in skills[:20]) or "it has none"
        raise PackRefused(f"The source {server!r} has no skill {wanted!r}: {known}.", code="missing")
    fetch(source, found, aside / found.name)
    return f"sha256:{found.digest}"


def _directory(context: Context) -> Path:
    return context.home / ".agent" / "sources"


def _check_address(address: str) -> None:
    if "://" not in address:
        try:
            words = shlex.split(address)
        except ValueError as error:
            raise ConfigError(f"{address!r} is not a command ({error}).") from error
        if not words:
            raise ConfigError("Name the command that starts the server, or its address.")
        return
    parts = urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise ConfigError(f"{address!r} is not encrypted: use https.")


def _checked(entries: list[object]) -> tuple[list[ProvidedSkill], list[Problem]]:
    """Return the usable entries, and the problems of the others."""
    skills: list[ProvidedSkill] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            skills.append(_skill(entry))
        except (IntegrityFailed, PathRefused) as error:
            problems.append(Problem("source-entry", "error", str(error)))
    count = Counter(skill.name for skill in skills)
    for name in (name for name, times in count.items() if times > 1):
        text = f"The source has several skills called {name!r}: none of them is used."
        problems.append(Problem("source-entry", "error", text))
    return [skill for skill in skills if count[skill.name] == 1], problems


def _skill(raw: object) -> ProvidedSkill:
    try:
        entry = msgspec.convert(raw, _Entry)
        msgspec.json.encode(entry.frontmatter)
    except (msgspec.ValidationError, RecursionError) as error:
        uri = raw.get("uri") if isinstance(raw, dict) else raw
        raise _wrong(
            uri, f"is not an entry with uri, frontmatter and files with digests ({error})"
        ) from error
    name = entry.frontmatter.get("name")
    if not isinstance(name, str) or not is_plain(name) or not entry.uri.endswith(f"/{name}/{MANIFEST}"):
        raise _wrong(entry.uri, f"does not end in the name {str(name)[:80]!r}, or that is not a plain name")
    listed = tuple(_file(entry.uri, file) for file in entry.resources)
    paths = {file.path for file in listed}
    if MANIFEST not in paths or len({path.casefold() for path in paths}) != len(listed):
        raise _wrong(entry.uri, "does not announce SKILL.md, or announces a file twice")
    if len(listed) > MAX_FILES or sum(file.size for file in listed) > MAX_BYTES:
        raise _wrong(entry.uri, f"has more than {MAX_FILES} files or {MAX_BYTES:,} bytes")
    return ProvidedSkill(entry.uri, entry.frontmatter, listed)


def _file(skill: str, file: _File) -> ProvidedFile:
    base = skill.removesuffix(MANIFEST)
    if not file.uri.startswith(base) or len(file.uri) == len(base):
        raise _wrong(skill, f"announces a file outside its directory ({file.uri[:200]!r})")
    path = unquote(file.uri.removeprefix(base), errors="replace")
    check_relative(base, path)
    steps = path.split("/")
    if any(step in {"", ".", "__pycache__", ".git"} or step.endswith(".pyc") for step in steps):
        raise _wrong(skill, f"announces {file.uri[:200]!r}, which is not a file of a skill")
    return ProvidedFile(file.uri, path, file.digest.removeprefix(_PREFIX), file.size)


def _wrong(uri: object, reason: str) -> IntegrityFailed:
    return IntegrityFailed(f"{str(uri)[:200]!r} {reason}.", code="source-entry")
