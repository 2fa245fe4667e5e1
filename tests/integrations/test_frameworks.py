"""Each adapter against the real framework, with the framework's own test model. E1-E3."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integrations.test_mcp import processes, until
from tests.support import Place, write_skill
from vademecum import Toolkit
from vademecum.errors import Declined
from vademecum.policy.approval import Answer, Consent, Question
from vademecum.session.base import Result

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("default")]

CALL = {"skill": "greeter", "relative_path": "hello.py", "args": ["you"]}


@pytest.fixture(autouse=True)
def _no_loop_left() -> Iterator[None]:
    """Some frameworks keep a loop of their own open; whoever is tested next should not hear of it."""
    yield
    with contextlib.suppress(RuntimeError):  # most leave none
        asyncio.get_event_loop_policy().get_event_loop().close()
    asyncio.set_event_loop(None)
    gc.collect()


class Never:
    """A person who says no."""

    def ask(self, question: Question) -> Answer:
        return Answer("reject", "not today")


@pytest.fixture
def place(place: Place) -> Place:
    skills = place.cwd / ".agent/skills"
    skill = write_skill(
        skills,
        "greeter",
        "---\nname: greeter\ndescription: Greets people. 问候。\n---\n# Greet\nSay hello.\n",
    )
    (skill / "scripts").mkdir()
    (skill / "scripts/hello.py").write_text("import sys; print('hello', *sys.argv[1:])")
    write_skill(skills, "secret")
    (place.home / ".agent").mkdir()
    rules = [{"permission": "skill", "pattern": "secret", "effect": "deny"}]
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    return place


@pytest.fixture
def kit(place: Place) -> Toolkit:
    return Toolkit(place.build(), approver=Consent(), context=place.context)


@pytest.fixture
def refusing(place: Place) -> Toolkit:
    kit = Toolkit(place.build(), approver=Never(), context=place.context)
    kit.session.activate("greeter")
    return kit


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("search_skills", {"query": "greet somebody"}),
    ("skill", {"name": "greeter"}),
    ("skill", {"name": "secret"}),
    ("run_script", CALL),
]


def check(prompt: str, results: list[str]) -> None:
    """What the model was told, whatever the framework."""
    assert "<name>\ngreeter\n</name>" in prompt
    assert "secret" not in prompt
    assert len(results) == 4, results
    assert "greeter" in results[0]
    assert "Say hello." in results[1]
    assert "No skill is called 'secret'" in results[2]
    assert "hello you" in results[3]


def recorded(place: Place) -> list[str]:
    (run,) = (place.cwd / ".agent/runs").glob("2*/events.jsonl")
    return [json.loads(line)["type"] for line in run.read_text().splitlines()]


def test_pydantic_ai(place: Place, kit: Toolkit, refusing: Toolkit) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from vademecum.integrations.pydantic_ai import skills_toolset

    prompts: list[str] = []
    steps = iter(STEPS)

    def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(str(info.instructions))
        step = next(steps, None)
        return ModelResponse(parts=[ToolCallPart(*step) if step else TextPart("done")])

    agent = Agent(FunctionModel(decide), toolsets=[skills_toolset(kit)])
    done = agent.run_sync("Greet me")
    returns = [p for m in done.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    check(prompts[0], [str(part.content) for part in returns])
    assert done.output == "done"
    assert {"skill_loaded", "approval_answered", "tool_called"} <= set(recorded(place))

    steps = iter([("skill", {"name": 1}), *STEPS[1:2]])
    assert asyncio.run(agent.run("Greet me")).output == "done"

    steps = iter(STEPS[3:])
    with pytest.raises(Declined, match="not today"):
        Agent(FunctionModel(decide), toolsets=[skills_toolset(refusing)]).run_sync("Greet me")


def test_pydantic_ai_with_its_test_model(kit: Toolkit) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    from vademecum.integrations.pydantic_ai import skills_toolset

    model = TestModel(call_tools=["search_skills"])
    Agent(model, toolsets=[skills_toolset(kit)]).run_sync("Greet me")
    assert model.last_model_request_parameters is not None
    assert {tool.name for tool in model.last_model_request_parameters.function_tools} == set(kit.tool_names)


def fake_chat(calls: list[tuple[str, dict[str, Any]]], prompts: list[str]) -> Any:
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage

    class Fake(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
            prompts.append(str(messages[0].text))
            return super()._generate(messages, *arguments, **options)

    replies = [
        AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"c{n}"}])
        for n, (name, arguments) in enumerate(calls)
    ]
    return Fake(responses=[*replies, AIMessage("done")])


def test_langchain(place: Place, kit: Toolkit, refusing: Toolkit) -> None:
    from langchain.agents import create_agent
    from langchain_core.messages import ToolMessage

    from vademecum.integrations.langchain import SkillsMiddleware, skill_tools

    asked = {"messages": [{"role": "user", "content": "Greet me"}]}
    prompts: list[str] = []
    agent = create_agent(
        fake_chat(STEPS, prompts), middleware=[SkillsMiddleware(kit)], system_prompt="Be kind."
    )
    messages = agent.invoke(asked)["messages"]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    check(prompts[0], [str(message.content) for message in results])
    assert [message.status for message in results] == ["success", "success", "error", "success"]
    assert prompts[0].startswith("Be kind.")
    assert "tool_called" in recorded(place)

    agent = create_agent(fake_chat(STEPS[:1], prompts), middleware=[SkillsMiddleware(kit)])
    assert asyncio.run(agent.ainvoke(asked))["messages"][-1].text == "done"

    agent = create_agent(fake_chat(STEPS[3:], []), tools=skill_tools(refusing))
    with pytest.raises(Declined, match="not today"):
        agent.invoke(asked)


def test_langgraph(kit: Toolkit) -> None:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    from vademecum.integrations.langchain import skill_tools

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(skill_tools(kit)))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    call = {"name": "skill", "args": {"name": "greeter"}, "id": "c"}
    asked = {"messages": [AIMessage("", tool_calls=[call])]}
    assert "Say hello." in graph.compile().invoke(asked)["messages"][-1].text
    kit.call("run_script", CALL)
    assert "Say hello." in asyncio.run(graph.compile().ainvoke(asked))["messages"][-1].text


def test_openai_agents(place: Place, kit: Toolkit, refusing: Toolkit) -> None:
    from agents import Agent, Runner, set_tracing_disabled
    from agents.items import ToolCallOutputItem
    from agents.testing import ScriptedModel, assistant_message, function_call

    from vademecum.integrations.openai_agents import skill_tools

    set_tracing_disabled(True)

    def scripted(calls: list[tuple[str, dict[str, Any]]]) -> ScriptedModel:
        steps = [
            [function_call(name, arguments, call_id=f"c{n}")] for n, (name, arguments) in enumerate(calls)
        ]
        return ScriptedModel([*steps, [assistant_message("done")]])

    def agent(model: ScriptedModel, skills: Toolkit) -> Agent[Any]:
        return Agent(
            name="clerk", instructions=skills.system_prompt(), tools=skill_tools(skills), model=model
        )

    model = scripted(STEPS)
    done = Runner.run_sync(agent(model, kit), "Greet me")
    results = [str(item.output) for item in done.new_items if isinstance(item, ToolCallOutputItem)]
    check(str(model.calls[0].system_instructions), results)
    assert done.final_output == "done"
    assert "tool_called" in recorded(place)
    assert asyncio.run(Runner.run(agent(scripted(STEPS[:1]), kit), "Greet me")).final_output == "done"
    with pytest.raises(Exception, match="not today"):
        Runner.run_sync(agent(scripted(STEPS[3:]), refusing), "Greet me")


def test_google_adk(place: Place, kit: Toolkit, refusing: Toolkit) -> None:
    from google.adk.agents import Agent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from vademecum.integrations.google_adk import SkillToolset

    class Fake(BaseLlm):
        model: str = "fake"
        calls: list[Any] = []  # noqa: RUF012 - a pydantic model
        asked: list[Any] = []  # noqa: RUF012

        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            self.asked.append(llm_request)
            number = len(self.asked) - 1
            part = types.Part(text="done")
            if number < len(self.calls):
                name, arguments = self.calls[number]
                part = types.Part.from_function_call(name=name, args=arguments)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def run(model: Fake, skills: Toolkit) -> list[Any]:
        runner = InMemoryRunner(
            agent=Agent(name="clerk", model=model, tools=[SkillToolset(skills)]), app_name="t"
        )

        async def whole() -> list[Any]:
            session = await runner.session_service.create_session(app_name="t", user_id="u")
            message = types.Content(role="user", parts=[types.Part(text="Greet me")])
            return [
                event
                async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message)
            ]

        return asyncio.run(whole())

    model = Fake(calls=STEPS, asked=[])
    events = run(model, kit)
    responses = [answer for event in events for answer in event.get_function_responses()]
    results = [str(next(iter(answer.response.values()))) for answer in responses]
    check(str(model.asked[0].config.system_instruction), results)
    assert "error" in responses[2].response
    assert "tool_called" in recorded(place)
    with pytest.raises(Exception, match="not today"):
        run(Fake(calls=STEPS[3:], asked=[]), refusing)


def test_smolagents(place: Place, kit: Toolkit) -> None:
    from smolagents import ToolCallingAgent
    from smolagents.models import (
        ChatMessage,
        ChatMessageToolCall,
        ChatMessageToolCallFunction,
        MessageRole,
        Model,
    )

    from vademecum.integrations.smolagents import skill_tools

    class Fake(Model):
        def __init__(self) -> None:
            super().__init__(model_id="fake")
            self.prompts: list[str] = []
            self.seen: list[str] = []
            self.steps = iter([*STEPS, ("final_answer", {"answer": "done"})])

        def generate(self, messages: Any, **_: Any) -> ChatMessage:
            self.prompts.append(str(messages[0].content))
            self.seen.append(str(messages[-1].content))
            name, arguments = next(self.steps)
            function = ChatMessageToolCallFunction(name=name, arguments=arguments)
            call = ChatMessageToolCall(function=function, id="c", type="function")
            return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])

    model = Fake()
    agent = ToolCallingAgent(
        tools=skill_tools(kit), model=model, instructions=kit.system_prompt(), verbosity_level=0
    )
    assert agent.run("Greet me") == "done"
    check(model.prompts[0].replace("\\n", "\n"), model.seen[1:])
    assert "tool_called" in recorded(place)


@pytest.mark.parametrize("framework", ["pydantic_ai", "langchain", "openai_agents", "google_adk"])
def test_a_task_that_is_cancelled_ends_its_script(place: Place, kit: Toolkit, framework: str) -> None:
    (place.cwd / ".agent/skills/greeter/scripts/hello.py").write_text(
        "import time; print('begun', flush=True); time.sleep(60)"
    )
    kit.session.activate("greeter")
    tool = _tool_of(framework, kit)
    runs = place.cwd / ".agent/runs"

    async def work() -> None:
        task = asyncio.create_task(tool())
        while not any(file.read_text() for file in runs.glob("*/calls/*/stdout")):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    until(lambda: not processes(runs))


def _tool_of(framework: str, kit: Toolkit) -> Callable[[], Any]:
    """The tool that runs scripts, called as the framework calls it."""
    name = "run_script"
    if framework == "pydantic_ai":
        from vademecum.integrations.pydantic_ai import skills_toolset

        function = skills_toolset(kit).tools[name].function
        context = SimpleNamespace(tool_call_id="c", tool_call_approved=False, agent=None)
        return lambda: function(context, **CALL)
    if framework == "langchain":
        from vademecum.integrations.langchain import skill_tools

        (found,) = [tool for tool in skill_tools(kit) if tool.name == name]
        return lambda: found.ainvoke(CALL)
    if framework == "openai_agents":
        from vademecum.integrations import openai_agents

        (called,) = [tool for tool in openai_agents.skill_tools(kit) if tool.name == name]
        return lambda: called.on_invoke_tool(SimpleNamespace(tool_call_id="c"), json.dumps(CALL))
    from vademecum.integrations.google_adk import SkillToolset

    (adk,) = [tool for tool in asyncio.run(SkillToolset(kit).get_tools()) if tool.name == name]
    context = SimpleNamespace(function_call_id="c", tool_confirmation=None)
    return lambda: adk.run_async(args=CALL, tool_context=context)


BLOCKS = dict(
    re.findall(
        r'^```py title="(\w+)"\n(.*?)^```$',
        (Path(__file__).parents[2] / "docs/frameworks.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


def shown(framework: str, function: str = "assistant") -> Any:
    """What the documentation shows for a framework."""
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[framework], f"docs/frameworks.md, {framework}", "exec"), names)
    return names[function]


class Person:
    """Answers questions, and remembers what was asked."""

    def __init__(self, *, says: bool) -> None:
        self.says = says
        self.asked: list[str] = []

    def __call__(self, question: object) -> bool:
        self.asked.append(str(question))
        return self.says


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The documentation's examples work in this place; a script of its skill draws a chart."""
    monkeypatch.chdir(place.cwd)
    monkeypatch.setenv("HOME", str(place.home))
    chart = (
        f"open('chart.png', 'wb').write({PNG!r}); open('report.pdf', 'wb').write(b'%PDF-1.7'); print('drawn')"
    )
    (place.cwd / ".agent/skills/greeter/scripts/chart.py").write_text(chart)
    return place


PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
IN_BASE64 = base64.b64encode(PNG).decode()
DRAWING: list[tuple[str, dict[str, Any]]] = [
    ("skill", {"name": "greeter"}),
    ("run_script", {"skill_name": "greeter", "script_name": "chart.py"}),
]


def was_run(place: Place) -> bool:
    return any((place.cwd / ".agent/runs").glob("*/calls/*/outputs/chart.png"))


@pytest.mark.parametrize("says", [True, False])
def test_pydantic_ai_asks(here: Place, says: bool) -> None:
    from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    steps = iter(DRAWING)
    seen: list[Any] = []

    def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = [part.content for part in messages[-1].parts]
        step = next(steps, None)
        return ModelResponse(parts=[ToolCallPart(*step) if step else TextPart("done")])

    person = Person(says=says)
    assert shown("pydantic_ai", "ask")(FunctionModel(decide), "Draw", person) == "done"
    assert len(person.asked) == 1
    assert was_run(here) == says
    pictures = [each.media_type for each in seen[-1] if isinstance(each, BinaryContent)] if says else []
    assert pictures == (["image/png", "application/pdf"] if says else [])


@pytest.mark.parametrize("says", [True, False])
def test_langgraph_asks(here: Place, says: bool) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    saver, person = InMemorySaver(), Person(says=says)
    assert shown("langchain", "ask")(fake_chat(DRAWING, []), "Draw", person, saver) == "done"
    assert ["script greeter/scripts/chart.py" in question for question in person.asked] == [True]
    assert was_run(here) == says
    (last,) = list(saver.list({"configurable": {"thread_id": "1"}}, limit=1))
    answer = last.checkpoint["channel_values"]["messages"][-2]
    assert answer.status == ("success" if says else "error")
    if says:
        assert [block["type"] for block in answer.content] == ["text", "image", "file"]
        assert answer.content[1]["base64"] == IN_BASE64


def test_langgraph_asks_in_asynchronous_code(here: Place) -> None:
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    from vademecum.integrations.langchain import SkillsMiddleware

    middleware = [SkillsMiddleware()]
    agent = create_agent(fake_chat(DRAWING, []), middleware=middleware, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}

    async def work() -> Any:
        asked = await agent.ainvoke({"messages": [("user", "Draw")]}, thread)
        (question,) = asked["__interrupt__"]
        assert not was_run(here)
        return await agent.ainvoke(Command(resume={question.id: True}), thread)

    assert asyncio.run(work())["messages"][-1].text == "done"
    assert was_run(here)


def test_langgraph_without_a_checkpointer_refuses(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    from langchain.agents import create_agent

    from vademecum.integrations.langchain import SkillsMiddleware

    agent = create_agent(fake_chat(DRAWING, []), middleware=[SkillsMiddleware()])
    messages = agent.invoke({"messages": [("user", "Draw")]})["messages"]
    assert messages[-2].text == "ask script 'greeter/scripts/chart.py' (refused)."
    assert "nobody is there to ask" in caplog.text  # for the developer
    assert not was_run(here)


def test_a_framework_that_cannot_ask_refuses(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The model reads only that it was refused; the reason and the way out are for the developer."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from vademecum.integrations import pydantic_ai, smolagents

    steps = iter(DRAWING)
    seen: list[str] = []

    def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = [str(part.content) for part in messages[-1].parts]
        step = next(steps, None)
        return ModelResponse(parts=[ToolCallPart(*step) if step else TextPart("done")])

    agent = Agent(FunctionModel(decide), toolsets=[pydantic_ai.skills_toolset()])  # nothing can be deferred
    assert agent.run_sync("Draw").output == "done"
    tools = {tool.name: tool for tool in smolagents.skill_tools()}
    tools["skill"](name="greeter")
    for told in (seen[-1], tools["run_script"](**DRAWING[1][1])):
        assert told.removeprefix("Error: ") == "ask script 'greeter/scripts/chart.py' (refused)."
    assert caplog.text.count("give the Toolkit an approver") == 2
    assert not was_run(here)


@pytest.mark.parametrize("says", [True, False])
def test_openai_agents_asks(here: Place, says: bool) -> None:
    from agents import set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call

    set_tracing_disabled(True)
    steps = [[function_call(name, arguments, call_id=f"c{n}")] for n, (name, arguments) in enumerate(DRAWING)]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    person = Person(says=says)
    assert shown("openai_agents", "ask")(model, "Draw", person) == "done"
    assert len(person.asked) == 1
    assert was_run(here) == says
    output = model.calls[-1].input[-1]["output"]
    assert (IN_BASE64 in str(output)) == says
    if says:
        assert [each["type"] for each in output] == ["input_text", "input_image", "input_file"]


@pytest.mark.parametrize("says", [True, False])
def test_google_adk_asks(here: Place, says: bool) -> None:
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    seen: list[Any] = []
    steps = iter(DRAWING)

    class Fake(BaseLlm):
        model: str = "fake"

        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            seen[:] = llm_request.contents
            step = next(steps, None)
            part = (
                types.Part.from_function_call(name=step[0], args=step[1]) if step else types.Part(text="done")
            )
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    runner = InMemoryRunner(agent=shown("google_adk")(Fake()), app_name="t")
    answer, person = shown("google_adk", "answer"), Person(says=says)

    async def whole() -> None:
        session = await runner.session_service.create_session(app_name="t", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="Draw")])
        while message is not None:
            ran = runner.run_async(user_id="u", session_id=session.id, new_message=message)
            events = [event async for event in ran]
            message = next((said for event in events if (said := answer(event, person))), None)

    asyncio.run(whole())
    assert ["script greeter/scripts/chart.py" in question for question in person.asked] == [True]
    assert was_run(here) == says
    kinds = [p.inline_data.mime_type for content in seen for p in content.parts if p.inline_data]
    assert kinds == (["image/png", "application/pdf"] if says else [])


@pytest.mark.parametrize("says", [True, False])
def test_agent_framework_asks(here: Place, says: bool) -> None:
    from agent_framework import BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

    seen: list[str] = []
    steps = iter(
        [
            ("load_skill", {"skill_name": "greeter"}),
            ("run_skill_script", {"skill_name": "greeter", "script_name": "chart.py"}),
        ]
    )

    class Fake(FunctionInvocationLayer[Any], BaseChatClient[Any]):
        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
            async def reply() -> Any:
                seen.append(str(options.get("instructions")) + str([m.to_dict() for m in messages]))
                step = next(steps, None)
                found = Content.from_text("done")
                if step:
                    found = Content.from_function_call(step[0], step[0], arguments=json.dumps(step[1]))
                return ChatResponse(messages=[Message("assistant", [found])])

            return reply()

    person = Person(says=says)
    done = asyncio.run(shown("agent_framework", "ask")(Fake(), "Greet me", person))
    assert done == "done"
    assert len(person.asked) == 1
    assert "Greets people." in seen[0]
    assert "secret" not in seen[0]
    assert "Say hello." in seen[1]
    assert was_run(here) == says
    assert [kind in seen[-1] for kind in ("image/png", "application/pdf", IN_BASE64)] == [says] * 3


@pytest.mark.parametrize("says", [True, False])
def test_smolagents_asks(here: Place, monkeypatch: pytest.MonkeyPatch, says: bool) -> None:
    from smolagents.models import Model

    asked: list[str] = []

    def typed(text: str) -> str:
        asked.append(text)
        return "y" if says else "n"

    monkeypatch.setattr("builtins.input", typed)
    tools = shown("smolagents")(Model(model_id="fake")).tools
    tools["skill"](name="greeter")
    if says:
        assert "chart.png" in tools["run_script"](**DRAWING[1][1])
    else:
        with pytest.raises(Declined):
            tools["run_script"](**DRAWING[1][1])
    assert asked == ["script greeter/scripts/chart.py? [y/N] "]
    assert was_run(here) == says


def test_answers_in_another_process(here: Place) -> None:
    """The question is found again by the call alone, and only for the same content."""
    from vademecum.integrations.toolkit import call_or_ask

    call = ("run_script", DRAWING[1][1], "c")
    first = Toolkit()
    first.call("skill", {"name": "greeter"})
    assert isinstance(call_or_ask(first, *call), Question)
    first.close()
    script = here.cwd / ".agent/skills/greeter/scripts/chart.py"
    script.write_text(script.read_text() + "\n# more")
    changed = call_or_ask(Toolkit(), *call, Answer("once"))
    assert isinstance(changed, Result)
    assert changed.code == "changed"
    second = Toolkit()
    second.call("skill", {"name": "greeter"})
    assert isinstance(call_or_ask(second, *call), Question)
    done = call_or_ask(Toolkit(), *call, Answer("once"))
    assert isinstance(done, Result)
    assert done.ok
    assert [each.media_type for each in done.content] == ["image/png", "application/pdf"]


def test_the_documentation_is_short() -> None:
    assert set(BLOCKS) == {
        "pydantic_ai", "langchain", "openai_agents", "google_adk", "smolagents", "openai", "anthropic",
        "agent_framework",
    }  # fmt: skip
    for name in set(BLOCKS) - {"openai", "anthropic"}:
        lines = [line for line in BLOCKS[name].splitlines() if line.strip() and "import " not in line]
        assert len(lines) <= 10, name


def test_importing_vademecum_imports_none_of_them() -> None:
    code = (
        "import sys, vademecum as vm; vm.Toolkit; vm.Agent\n"
        "print(sorted({'pydantic_ai', 'langchain', 'langgraph', 'agents', 'google', 'smolagents', 'mcp', 'openai',"
        " 'anthropic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_adapter_is_short() -> None:
    doors = Path(__file__).parents[2] / "src/vademecum/integrations"
    for name in set(BLOCKS) - {"openai", "anthropic"} | {"plain"}:
        assert len((doors / f"{name}.py").read_text().splitlines()) < 150, name
