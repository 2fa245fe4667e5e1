"""The server: the protocol's requests → the toolkit of the client that sent them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from vademecum.doors import tools
from vademecum.doors.mcp.asking import Unanswered, WhenTheCallComesAgain, WhileTheCallWaits
from vademecum.doors.mcp.shelf import Shelf
from vademecum.doors.toolkit import INSTRUCTIONS, Toolkit, ToolResult
from vademecum.errors import VademecumError
from vademecum.policy.approval import Approver
from vademecum.skill.skill import Skill
from vademecum.version import VERSION

# `skill` is the same as `load_skill`, for models that know the one name or the other; one of them is enough.
TOOL_NAMES = tuple(name for name in tools.TOOLS if name != "skill")
PAGE = 200
MAX_COMPLETIONS = 100
MAX_AGENT_CHARS = 64
SKILL_FILE = "SKILL.md"
_TICK_SECONDS = 1.0
_URI = re.compile(r"skill://([^/]+)/(.+)")

Context = ServerRequestContext[Any, Any]
Result = TypeVar("Result")


class SkillServer(Server[Any]):
    """A server of the official SDK for the skills of one place."""

    def __init__(self, shelf: Shelf, *, agent: str | None = None) -> None:
        """``agent`` is the name that rules know every client by; without it, what the client calls itself."""
        self._shelf = shelf
        self._agent = agent
        self._bus = InMemorySubscriptionBus()
        self._listeners: set[ServerSession] = set()
        super().__init__(
            "vademecum",
            version=VERSION,
            instructions=INSTRUCTIONS.replace("`skill`", "`load_skill`")
            + " Find skills with `search_skills`; run their scripts with `run_skill_script`.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._joined)
        schemas = tools.schemas("mcp", names=TOOL_NAMES)
        self._tools = types.ListToolsResult(tools=[types.Tool.model_validate(schema) for schema in schemas])

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK has it, with the promise to tell when skills come and go."""
        told = notification_options or NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)

    async def watch(self) -> None:
        """Look at the skills now and then, and tell the clients when they changed; until it is cancelled."""
        while True:
            await anyio.sleep(self._shelf.pause)
            if await anyio.to_thread.run_sync(self._shelf.look):
                await self._tell()

    async def _tell(self) -> None:
        await self._bus.publish(ResourcesListChanged())
        await self._bus.publish(PromptsListChanged())
        for session in list(self._listeners):
            try:
                await session.send_resource_list_changed()
                await session.send_prompt_list_changed()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._listeners.discard(session)

    async def _joined(self, context: Context, _params: types.NotificationParams) -> None:
        session = context.session
        self._listeners.add(session)
        # The connection knows when it ends; the SDK has no other way to be told.
        session._connection.exit_stack.callback(self._listeners.discard, session)

    async def _list_tools(self, _context: Context, _params: object) -> types.ListToolsResult:
        return self._tools

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        agent = self._name(context)
        call = await self._in_thread(lambda: _checked(self._shelf.for_model(agent), params))
        approver = _approver(context, params)

        def run() -> ToolResult:
            return self._again(agent, lambda kit: kit.run(call, approver=approver, cancelled=_cancelled))

        try:
            if isinstance(call, tools.RunSkillScript):
                result = await self._with_progress(context, call, run)
            else:
                result = await anyio.to_thread.run_sync(run)
        except Unanswered as unanswered:
            return unanswered.result()
        except VademecumError as error:
            result = ToolResult(str(error), is_error=True, code=error.code)
        text = types.TextContent(text=result.text)
        return types.CallToolResult(content=[text], is_error=result.is_error)

    async def _with_progress(
        self, context: Context, call: tools.RunSkillScript, run: Callable[[], ToolResult]
    ) -> ToolResult:
        """Run it in a thread, and say every second that it still goes on."""

        async def tick(group: TaskGroup) -> None:
            done = 0
            while not group.cancel_scope.cancel_called:
                await anyio.sleep(_TICK_SECONDS)
                done += 1
                told = f"{call.skill_name}/{call.script_name} has been running for {done} s"
                await context.session.report_progress(done, message=told)

        async with anyio.create_task_group() as group:
            group.start_soon(tick, group)
            try:
                result = await anyio.to_thread.run_sync(_kept(run))
            finally:
                group.cancel_scope.cancel()
        return result()

    def _again(self, agent: str, use: Callable[[Toolkit], Result]) -> Result:
        """Use the toolkit; what is not found is looked for again, where skills may have come since."""
        try:
            return use(self._shelf.for_model(agent))
        except VademecumError as error:
            if error.code != "skill-not-found" or not self._shelf.look_if_old():
                raise
            return use(self._shelf.for_model(agent))

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        kit = await self._in_thread(lambda: self._shelf.for_model(self._name(context)))
        page, rest = _page(kit.skills, params)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=_uri(skill.name, SKILL_FILE),
                    name=skill.name,
                    description=skill.description,
                    mime_type="text/markdown",
                )
                for skill in page
            ],
            next_cursor=rest,
        )

    async def _list_templates(self, _context: Context, _params: object) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template="skill://{name}/{+path}",
            name="a file of a skill",
            description="SKILL.md, or a file below references/, assets/ or scripts/ of a skill.",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        found = _URI.fullmatch(str(params.uri))
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"{str(params.uri)[:200]!r} is not skill://NAME/PATH.")
        name, path = unquote(found[1]), unquote(found[2])
        call: tools.Call = tools.LoadSkillAsset(name, path)
        if path == SKILL_FILE:
            call = tools.LoadSkill(name)
        agent = self._name(context)
        text = await self._in_thread(lambda: self._again(agent, lambda kit: kit.run(call)).text)
        kind = "text/markdown" if path.endswith(".md") else "text/plain"
        content = types.TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[content])

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        kit = await self._in_thread(lambda: self._shelf.for_people(self._name(context)))
        page, rest = _page(kit.skills, params)
        request = types.PromptArgument(name="request", description="What is to be done.", required=False)
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=skill.name, description=skill.description, arguments=[request])
                for skill in page
            ],
            next_cursor=rest,
        )

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        def load() -> str:
            kit = self._shelf.for_people(self._name(context))
            return kit.run(tools.LoadSkill(params.name)).text

        text = await self._in_thread(load)
        request = (params.arguments or {}).get("request", "")
        whole = f"{text}\n\n{request}" if request else text
        message = types.PromptMessage(role="user", content=types.TextContent(text=whole))
        return types.GetPromptResult(messages=[message])

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """The names of skills that begin as what was typed, for the resource template."""
        begun = params.argument.value if params.argument.name == "name" else None
        kit = await self._in_thread(lambda: self._shelf.for_model(self._name(context)))
        names = [skill.name for skill in kit.skills if begun is not None and skill.name.startswith(begun)]
        shown = names[:MAX_COMPLETIONS]
        more = len(names) > len(shown)
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(names), has_more=more)
        )

    def _name(self, context: Context) -> str:
        """Whose rules hold for this client."""
        if self._agent is not None:
            return self._agent
        told = context.session.client_params
        name = "" if told is None else re.sub(r"[^\w.@/ -]", "", told.client_info.name)[:MAX_AGENT_CHARS]
        return name.strip() or "default"

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Do something that reads files; what is wrong with it becomes an error of the protocol."""
        try:
            return await anyio.to_thread.run_sync(work)
        except VademecumError as error:
            data = {"code": error.code}
            raise MCPError(types.INVALID_PARAMS, str(error), data) from error


def _checked(kit: Toolkit, params: types.CallToolRequestParams) -> tools.Call:
    if params.name not in TOOL_NAMES:
        there = ", ".join(TOOL_NAMES)
        raise VademecumError(f"There is no tool {params.name[:80]!r}: there are {there}.", code="no-tool")
    return kit.checked(params.name, params.arguments or {})


def _approver(context: Context, params: types.CallToolRequestParams) -> Approver | None:
    """Whoever the client can ask; nobody where it cannot."""
    able = context.session.client_capabilities
    if able is None or able.elicitation is None:
        return None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return WhenTheCallComesAgain(params)
    return WhileTheCallWaits(context.session, context.request_id)


def _cancelled() -> bool:
    """Whether the call that this thread works for was given up, by its client or with its connection."""
    try:
        anyio.from_thread.check_cancelled()
    except anyio.get_cancelled_exc_class():
        return True
    return False


def _kept(run: Callable[[], Result]) -> Callable[[], Callable[[], Result]]:
    """Keep what is raised for later: a group of tasks would wrap it into another exception."""

    def kept() -> Callable[[], Result]:
        try:
            result = run()
        except (VademecumError, Unanswered) as error:
            raised = error

            def again() -> Result:
                raise raised

            return again
        return lambda: result

    return kept


def _page(
    skills: Sequence[Skill], params: types.PaginatedRequestParams | None
) -> tuple[Sequence[Skill], str | None]:
    """The skills behind the cursor, which is the last name of the page before, and the next cursor."""
    cursor = params.cursor if params is not None else None
    behind = [skill for skill in skills if cursor is None or skill.name > cursor]
    page = behind[:PAGE]
    return page, page[-1].name if len(behind) > PAGE else None


def _uri(name: str, path: str) -> str:
    return f"skill://{quote(name, safe='')}/{quote(path)}"
