"""Serve MCP: answer each request with the session of the client that sent it."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from vademecum.errors import SkillNotFound, VademecumError
from vademecum.integrations.mcp.clients import Client, Clients
from vademecum.integrations.mcp.questions import RepeatedCallApprover, Unanswered, WaitingApprover
from vademecum.integrations.mcp.resources import (
    RESOURCE_NOT_FOUND,
    SETTINGS,
    SkillResources,
    page_of,
    wrong_cursor,
)
from vademecum.integrations.toolkit import INSTRUCTIONS
from vademecum.policy.approval import Approver, Nobody
from vademecum.registry.mcp_messages import EXTENSION
from vademecum.session import schemas
from vademecum.session.base import Content, Result
from vademecum.tools import calls
from vademecum.version import VERSION

_TICK_SECONDS, _TELL_SECONDS = 1.0, 5.0

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Found = TypeVar("Found")
Params = TypeVar("Params")


# The most calls at one time, of all clients and of one.
_SCRIPTS, _OTHERS = (64, 8), (256, 32)


class SkillServer(Server[Any]):
    """A server of the official SDK for the skills of one place."""

    def __init__(
        self, clients: Clients, *, agent: str | None = None, tools: Sequence[str] = schemas.SKILL_TOOLS
    ) -> None:
        """Use ``agent`` as the name of every client in rules, or if it is None, the client's own name."""
        self._clients = clients
        self._agent = agent
        self._offered = tuple(tools)
        self._resources = SkillResources(clients)
        self._bus = InMemorySubscriptionBus()
        self._listeners: set[ServerSession] = set()
        self._running: dict[tuple[int, int], Counter[Client]] = {_SCRIPTS: Counter(), _OTHERS: Counter()}
        self._threads = {most: anyio.CapacityLimiter(most[0]) for most in (_SCRIPTS, _OTHERS)}
        super().__init__(
            "vademecum",
            version=VERSION,
            instructions=INSTRUCTIONS
            + " Find skills with `search_skills`; run their scripts with `run_script`.",
            on_list_tools=self._handler(self._list_tools),
            on_call_tool=self._call_tool,
            on_list_resources=self._handler(self._resources.list_resources),
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._handler(self._resources.read),
            on_list_prompts=self._handler(self._list_prompts),
            on_get_prompt=self._handler(self._get_prompt),
            on_completion=self._handler(self._resources.completions),
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._joined)
        for method, params, work in self._resources.methods():
            self.add_request_handler(method, params, self._handler(work))
        self.middleware.append(_declaring)

    async def watch(self) -> None:
        """Look for changed skills regularly and tell the clients about changes, until cancelled.

        An unreadable file is reported once; its last content stays in use.
        """
        wrong = ""
        while True:
            await anyio.sleep(self._clients.pause)
            try:
                if await anyio.to_thread.run_sync(self._clients.look):
                    await self._tell()
                wrong = ""
            except (VademecumError, OSError) as error:
                if str(error) != wrong:
                    wrong = str(error)
                    logger.warning("The skills cannot be read again; the last ones stay in use: %s", wrong)

    async def _tell(self) -> None:
        for change in (ResourcesListChanged(), PromptsListChanged(), ToolsListChanged()):
            await self._bus.publish(change)
        for session in list(self._listeners):
            with anyio.move_on_after(_TELL_SECONDS):  # a stuck client must not delay others
                try:
                    await session.send_resource_list_changed()
                    await session.send_prompt_list_changed()
                    await session.send_tool_list_changed()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    self._listeners.discard(session)

    async def _joined(self, context: Context, _params: types.NotificationParams) -> None:
        session = context.session
        self._listeners.add(session)
        # Only the connection knows when it ends; the SDK has no other hook.
        ending = session._connection.exit_stack
        ending.callback(self._clients.leave, self._client(context))
        ending.callback(self._listeners.discard, session)

    def _list_tools(
        self, client: Client, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise wrong_cursor(params.cursor)
        with self._clients.session(client) as session:
            catalogue = session.view.catalogue(budget=schemas.LISTED_BUDGET)
        found = schemas.schemas("mcp", names=self._offered, catalogue=catalogue)
        return types.ListToolsResult(tools=[types.Tool.model_validate(each) for each in found])

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            parse = partial(calls.parse_call, params.name, params.arguments or {}, offered=self._offered)
            call = await anyio.to_thread.run_sync(parse)
            with self._counted(self._client(context), call) as threads:
                result = await self._waited_for(context, call, _approver(context, params), threads)
        except VademecumError as error:
            if error.code == "no-tool":
                raise MCPError(types.INVALID_PARAMS, str(error), {"code": error.code}) from error
            result = Result(str(error), error.code, "error")
        if isinstance(result, Unanswered):
            return result.result()
        if result.code == "denied" and result.advice:
            logger.warning("%s was refused: %s", params.name, result.advice)
        content: list[types.ContentBlock] = [types.TextContent(text=result.text)]
        content += map(_block, result.content)
        return types.CallToolResult(content=content, is_error=not result.ok)

    async def _waited_for(
        self, context: Context, call: calls.Call, approver: Approver, threads: anyio.CapacityLimiter
    ) -> Result | Unanswered:
        """Do the call in a thread, report progress every second, and stop it if the client disconnects."""
        given_up = anyio.get_cancelled_exc_class()

        def cancelled() -> bool:
            try:
                anyio.from_thread.check_cancelled()
            except given_up:
                return True
            return False

        work = partial(self._done, self._client(context), call, approver, cancelled)
        result: Result | Unanswered = Result("The client has disconnected.", "stopped-cancelled", "error")
        async with anyio.create_task_group() as group:
            group.start_soon(_tick, context, call, group.cancel_scope)
            result = await anyio.to_thread.run_sync(work, limiter=threads)
            group.cancel_scope.cancel()
        return result

    @contextmanager
    def _counted(self, client: Client, call: calls.Call) -> Iterator[anyio.CapacityLimiter]:
        """Count a call that runs or waits for an answer; raise ``VademecumError`` if there are too many."""
        limits = for_all, for_one = _SCRIPTS if isinstance(call, calls.RunScript) else _OTHERS
        running = self._running[limits]
        if running[client] >= for_one or running.total() >= for_all:
            raise VademecumError("Too many calls run or wait for an answer: try again later.", code="busy")
        running[client] += 1
        try:
            yield self._threads[limits]
        finally:
            running[client] -= 1
            self._running[limits] += Counter()  # forget clients without calls

    def _done(
        self, client: Client, call: calls.Call, approver: Approver, cancelled: Callable[[], bool]
    ) -> Result | Unanswered:
        """Do the call; if a skill is not found, look again, in case it is new."""
        while True:
            try:
                with self._clients.session(client) as session:
                    if client.session is None and isinstance(call, calls.RunScript):
                        with contextlib.suppress(SkillNotFound):  # the call itself reports it
                            session.activate(call.skill, source=call.source, origin="model")
                    result = session.call(call, approver=approver, cancelled=cancelled)
            except Unanswered as unanswered:
                return unanswered
            except VademecumError as error:
                return Result(str(error), error.code, "error")
            if result.code != "skill-not-found" or not self._clients.look_if_old():
                return result

    async def _list_templates(self, _context: Context, _params: object) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template="skill://{name}/{+path}",
            name="a file of a skill",
            description="SKILL.md, or a file below references/, assets/ or scripts/ of a skill.",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    def _list_prompts(
        self, client: Client, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        page, rest = page_of(self._clients.for_people(client).offered.skills, params)
        request = types.PromptArgument(name="request", description="The task to do.", required=False)
        prompts = [types.Prompt(name=s.name, description=s.description, arguments=[request]) for s in page]
        return types.ListPromptsResult(prompts=prompts, next_cursor=rest)

    def _get_prompt(self, client: Client, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        skill = self._clients.for_people(client).offered.get(params.name)
        with self._clients.session(client) as session:
            result = session.call(calls.UseSkill(skill.skill_id), origin="user")
        if result.code:
            raise VademecumError(result.text, code=result.code)
        request = (params.arguments or {}).get("request", "")
        whole = f"{result.text}\n\n{request}" if request else result.text
        message = types.PromptMessage(role="user", content=types.TextContent(text=whole))
        return types.GetPromptResult(messages=[message])

    def _client(self, context: Context) -> Client:
        """Return the client whose rules apply, and whose session remembers answers."""
        told = context.session.client_params
        name = self._agent or ("" if told is None else told.client_info.name) or "default"
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return Client(name, id(context.session._connection))
        # Since 2026-07-28 every request over HTTP is independent; on streams there is one client.
        return Client(name, None if context.request is not None else "streams")

    def _handler(
        self, work: Callable[[Client, Params], Found]
    ) -> Callable[[Context, Params], Awaitable[Found]]:
        """Return a handler that runs ``work`` in a thread and turns its errors into protocol errors."""

        async def handle(context: Context, params: Params) -> Found:
            try:
                return await anyio.to_thread.run_sync(work, self._client(context), params)
            except VademecumError as error:
                code, data = types.INVALID_PARAMS, {"code": error.code}
                if isinstance(params, types.ReadResourceRequestParams):
                    data["uri"] = str(params.uri)[:2000]
                    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
                    code = types.INVALID_PARAMS if is_modern else RESOURCE_NOT_FOUND
                raise MCPError(code, str(error), data) from error

        return handle


async def _declaring(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Declare the extension, in both eras, and notifications when a list changes.

    The SDK would also declare notifications when one resource changes.
    """
    result = await call_next(ctx)
    if ctx.method in {"initialize", "server/discover"} and isinstance(result, dict):
        lists = {kind: {"listChanged": True} for kind in ("prompts", "resources", "tools")}
        kept = {**lists, "extensions": {EXTENSION: SETTINGS}}
        return {**result, "capabilities": {**result["capabilities"], **kept}}
    return result


def _block(content: Content) -> types.ImageContent | types.EmbeddedResource:
    if content.is_image:
        return types.ImageContent(data=content.base64, mime_type=content.media_type)
    uri = f"output:{quote(content.name.removeprefix('output:'))}"
    blob = types.BlobResourceContents(uri=uri, mime_type=content.media_type, blob=content.base64)
    return types.EmbeddedResource(resource=blob)


def _approver(context: Context, params: types.CallToolRequestParams) -> Approver:
    """Return the approver of a call: the client's user, if the client can show forms."""
    able = context.session.client_capabilities
    if able is None or able.elicitation is None:
        return Nobody(message="refused", advice="the client cannot ask its user")
    if able.elicitation.form is None and able.elicitation.url is not None:
        advice = "the client can open pages, but cannot show a form to its user"
        return Nobody(message="refused", advice=advice)
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return RepeatedCallApprover(params)
    return WaitingApprover(context.session, context.request_id)


async def _tick(context: Context, call: calls.Call, scope: anyio.CancelScope) -> None:
    """Report progress every second, and cancel the call when its HTTP client has disconnected."""
    what = calls.NAMES[type(call)]
    if isinstance(call, calls.RunScript):
        what = f"{call.skill}/{call.relative_path}"
    for seconds in itertools.count(1):
        await anyio.sleep(_TICK_SECONDS)
        if context.request is not None and await context.request.is_disconnected():
            scope.cancel()
            return
        await context.session.report_progress(seconds, message=f"{what}: {seconds} s")
