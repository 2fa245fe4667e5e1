"""Offer skills as resources, and as entries with digests for the protocol's extension for skills."""

from __future__ import annotations

import base64
import logging
import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from vademecum.errors import LoadRefused, SkillNotFound
from vademecum.integrations.mcp.clients import Client, Clients
from vademecum.session.publishing import Publications, PublishedSkill
from vademecum.session.session import Session
from vademecum.skill.skill import MANIFEST, Skill

SETTINGS = {"directoryRead": True}
PAGE = 200
MAX_COMPLETIONS = 100
DIRECTORY = "inode/directory"
RESOURCE_NOT_FOUND = -32002  # until 2025-11-25; later it is a wrong parameter
# Rules and files can change at any time, and the rules are those of one client.
FRESHNESS = {"ttlMs": 0, "cacheScope": "private"}

_BEHIND = "vademecum:"  # the prefix of our cursors

_URI = re.compile(r"skill://([^/]+)(?:/(.+))?")

logger = logging.getLogger(__name__)


class SkillUriParams(types.RequestParams):
    """The parameters of ``skills/get``."""

    uri: str


class DirectoryParams(SkillUriParams):
    """The parameters of ``resources/directory/read``."""

    cursor: str | None = None


class SkillResources:
    """Answer requests about resources and skills with the files that the rules let each client read."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._publications = Publications()
        self._unlisted: set[str] = set()

    def list_resources(
        self, client: Client, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return the documents of the skills, a page at a time."""
        with self._clients.session(client) as session:
            page, rest = page_of(session.view.offered.skills, params)
        kind = _media_type(MANIFEST)
        resources = [
            types.Resource(
                uri=_uri(skill.name), name=skill.name, description=skill.description, mime_type=kind
            )
            for skill in page
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=rest)

    def read(self, client: Client, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Return one file of a skill unchanged, as text if it is UTF-8."""
        uri = str(params.uri)
        name, path = _parts(uri)
        if not path:
            raise SkillNotFound(f"{uri[:200]!r} is not skill://NAME/PATH.")
        data = self._clients.found(client, lambda session: session.read_bytes(name, path))
        kind = _media_type(path)
        content: types.TextResourceContents | types.BlobResourceContents
        try:
            content = types.TextResourceContents(uri=uri, mime_type=kind, text=data.decode("utf-8"))
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode()
            content = types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
        return types.ReadResourceResult(contents=[content])

    def methods(self) -> Iterable[tuple[str, type[types.RequestParams], Callable[[Client, Any], Any]]]:
        """Return the methods of the extension, with their parameters and handlers."""
        yield "skills/list", types.PaginatedRequestParams, self.list_skills
        yield "skills/get", SkillUriParams, self._get_skill
        yield "resources/directory/read", DirectoryParams, self._read_directory

    def completions(self, client: Client, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Return the names of skills that begin with the typed text, for the resource template."""
        names: list[str] = []
        if params.argument.name == "name":
            with self._clients.session(client) as session:
                names = [s.name for s in session.view.offered if s.name.startswith(params.argument.value)]
        shown = names[:MAX_COMPLETIONS]
        found = types.Completion(values=shown, total=len(names), has_more=len(names) > len(shown))
        return types.CompleteResult(completion=found)

    def list_skills(self, client: Client, params: types.PaginatedRequestParams | None) -> dict[str, Any]:
        """Return a page of entries: each with its frontmatter and the digests of all its files.

        A skill that does not fit the extension is left out; the server logs that once.
        """
        entries: list[dict[str, Any]] = []
        with self._clients.session(client) as session:
            offered = session.view.offered.skills
            for skill in _behind(offered, params):
                if len(entries) == PAGE:
                    rest = _BEHIND + entries[-1]["frontmatter"]["name"]
                    return {"skills": entries, "nextCursor": rest, **FRESHNESS}
                try:
                    entries.append(_entry(session.publish(skill, self._publications)))
                except LoadRefused as error:
                    if skill.location not in self._unlisted:
                        self._unlisted.add(skill.location)
                        logger.warning("%s It is not in skills/list; tools and prompts offer it.", error)
        return {"skills": entries, **FRESHNESS}

    def _get_skill(self, client: Client, params: SkillUriParams) -> dict[str, Any]:
        name, _ = _parts(params.uri)
        if params.uri != _uri(name):
            raise SkillNotFound(f"{params.uri[:200]!r} is not the address of a skill.")
        return {"skill": _entry(self._published(client, name)), **FRESHNESS}

    def _read_directory(self, client: Client, params: DirectoryParams) -> dict[str, Any]:
        """Return the direct children of a directory of a skill, all on one page."""
        if params.cursor is not None:
            raise wrong_cursor(params.cursor)
        name, path = _parts(params.uri)
        below = f"{path}/" if path else ""
        children: dict[str, dict[str, Any]] = {}
        for file in self._published(client, name).files:
            if not file.path.startswith(below):
                continue
            child, slash, _ = file.path.removeprefix(below).partition("/")
            about = {"mimeType": DIRECTORY} if slash else {"mimeType": _media_type(child), "size": file.size}
            children[child] = {"uri": _uri(name, f"{below}{child}"), "name": child, **about}
        if not children:
            raise SkillNotFound(f"{params.uri[:200]!r} is not a directory of a skill.")
        return {"resources": list(children.values()), **FRESHNESS}

    def _published(self, client: Client, name: str) -> PublishedSkill:
        def publish(session: Session) -> PublishedSkill:
            skill = session.find(name)
            if skill.name != name:  # found by another spelling, which is not its address
                raise SkillNotFound(f"No skill is called {name!r}.")
            return session.publish(skill, self._publications)

        return self._clients.found(client, publish)


def page_of(
    skills: Sequence[Skill], params: types.PaginatedRequestParams | None
) -> tuple[Sequence[Skill], str | None]:
    """Return the skills after the cursor, and the cursor of the next page, if there is one."""
    behind = list(_behind(skills, params))
    page = behind[:PAGE]
    return page, _BEHIND + page[-1].name if len(behind) > PAGE else None


def _behind(skills: Iterable[Skill], params: types.PaginatedRequestParams | None) -> Iterable[Skill]:
    cursor = None if params is None else params.cursor
    if cursor is None:
        return skills
    name = cursor.removeprefix(_BEHIND)
    if name == cursor:
        raise wrong_cursor(cursor)
    return (skill for skill in skills if skill.name > name)


def wrong_cursor(cursor: str) -> MCPError:
    """Return the error for a cursor that this server did not give."""
    text = f"The cursor {cursor[:80]!r} is not from this server: begin without one."
    return MCPError(types.INVALID_PARAMS, text)


def _entry(skill: PublishedSkill) -> dict[str, Any]:
    files = [
        {"uri": _uri(skill.name, file.path), "digest": file.digest, "size": file.size} for file in skill.files
    ]
    return {"uri": _uri(skill.name), "frontmatter": skill.frontmatter, "resources": files}


def _parts(uri: str) -> tuple[str, str]:
    found = _URI.fullmatch(uri)
    if found is None:
        raise SkillNotFound(f"{uri[:200]!r} is not skill://NAME/PATH.")
    return unquote(found[1]), unquote(found[2] or "")


def _uri(name: str, path: str = MANIFEST) -> str:
    return f"skill://{quote(name, safe='')}/{quote(path)}"


def _media_type(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "text/plain"
