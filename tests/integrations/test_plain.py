"""Loops of one's own on the official SDKs, against a loopback server that speaks their wire formats."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.test_examples import model
from tests.support import Place
from vademecum import Toolkit
from vademecum.integrations.plain import answer_anthropic, answer_openai
from vademecum.policy.approval import Consent


def kit_of(place: Place) -> Toolkit:
    for name, text in (("a.txt", "one\n"), ("b.txt", "two\n")):
        (place.cwd / name).write_text(text)
    return Toolkit(place.build(), approver=Consent(), context=place.context)


RUN = {"skill_name": "file-diff", "script_name": "compare.py", "arguments": ["a.txt", "b.txt"]}


def completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def called(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return completion({"content": None, "tool_calls": [call]})


def test_openai(place: Place) -> None:
    kit = kit_of(place)
    replies = [
        called(1, "skill", {"name": "file-diff"}),
        called(2, "run_script", RUN),
        called(3, "load_skill", {"wrong": 1}),
        completion({"content": "They differ."}),
    ]
    asked: list[dict[str, Any]] = []
    with model(replies, asked) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
        messages: list[Any] = [
            {"role": "system", "content": kit.system_prompt()},
            {"role": "user", "content": "Compare a.txt with b.txt"},
        ]
        while True:
            reply = client.chat.completions.create(
                model="m",
                messages=messages,
                tools=kit.schemas("openai"),  # type: ignore[arg-type]
            )
            message = reply.choices[0].message
            if not message.tool_calls:
                break
            messages += answer_openai(kit, message)
    assert message.content == "They differ."
    results = [one["content"] for one in asked[-1]["body"]["messages"] if one["role"] == "tool"]
    assert results[0].startswith("<skill_content ")
    assert "The files differ" in results[1]
    assert results[2].startswith("The arguments of load_skill are wrong")


def message(*content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def test_anthropic_from_async_code(place: Place) -> None:
    kit = kit_of(place)
    both = [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(
            [
                ("skill", {"name": "file-diff"}),
                ("run_script", RUN),
                ("load_skil", {"skill_name": "nope"}),
                ("mine", {}),
            ]
        )
    ]
    asked: list[dict[str, Any]] = []

    async def loop(url: str) -> Any:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="k")
        messages: list[Any] = [{"role": "user", "content": "Compare a.txt with b.txt"}]
        while True:
            reply = await client.messages.create(
                model="m",
                max_tokens=100,
                system=kit.system_prompt(),
                tools=kit.schemas("anthropic"),  # type: ignore[arg-type]
                messages=messages,
            )
            answers = await asyncio.to_thread(answer_anthropic, kit, reply, others=["mine"])
            if len(answers) == 1:
                return reply.content[0]
            messages += answers

    replies = [
        message({"type": "text", "text": "Let me see."}, *both),
        message({"type": "text", "text": "Done."}),
    ]
    with model(replies, asked) as url:
        assert asyncio.run(loop(url)).text == "Done."
    results = asked[-1]["body"]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["t0", "t1", "t2"]
    assert "The files differ" in results[1]["content"]
    assert [result["is_error"] for result in results] == [False, False, True]
    assert results[2]["content"].startswith("There is no tool 'load_skil'")


def test_what_the_documentation_shows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.cwd)
    monkeypatch.setenv("HOME", str(place.home))
    page = (Path(__file__).parents[2] / "docs/frameworks.md").read_text("utf-8")
    blocks = dict(re.findall(r'^```py title="(\w+)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL))
    names: dict[str, Any] = {}
    load = ("skill", {"name": "file-diff"})
    exec(blocks["openai"], names)
    with model([called(1, *load), completion({"content": "They differ."})], []) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
        assert names["ask"](client, "m", "Compare") == "They differ."
    exec(blocks["anthropic"], names)
    use = {"type": "tool_use", "id": "t", "name": load[0], "input": load[1]}
    with model([message(use), message({"type": "text", "text": "Done."})], []) as url:
        client = anthropic.Anthropic(base_url=url, api_key="k")  # type: ignore[assignment]
        assert names["ask"](client, "m", "Compare") == "Done."
