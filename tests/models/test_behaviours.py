"""Q1, Q3, H3: what servers really do, over both wires: outcome, answer and outputs of a whole run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.models import server
from tests.models.server import Answering, serving
from tests.support import Place, write_skill
from vademecum import Agent, Budget
from vademecum.agent.loop import Outcome
from vademecum.models import choose_model
from vademecum.policy.approval import Consent
from vademecum.runs.stored import PastRun, read_run

MAKE = "open('made.txt', 'w').write('made'); print('it ran')"
RUN = ("run_script", '{"skill": "maker", "relative_path": "scripts/x.py"}')
LOAD = ("skill", '{"name": "maker"}')
READ = ("read_file", '{"path": "a.txt"}')
LIST = ("list_dir", "{}")
ANSWER = "from the server, 你好"


def action(kind: str, **payload: Any) -> str:
    return json.dumps({"action": {"type": kind, "payload": payload}}, ensure_ascii=False)


def final(text: str = ANSWER) -> str:
    return action("final_answer", text=text)


O, A = server.openai_reply, server.anthropic_reply  # noqa: E741
REFUSE = server.status


@dataclass(frozen=True)
class Case:
    """A behaviour: what the server answers in turn, and what must come of the run."""

    wire: str
    answers: Sequence[Answering]
    status: str = "done"
    answer: str = ANSWER  # it is in the answer
    outputs: Sequence[str] = ()
    asked: int = 0  # how many requests, if that matters
    params: dict[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    sees: str = ""  # a text in the last request


def with_error(code: int, words: str, **headers: str) -> Answering:
    return server.status(code, words, **headers)


LONG = "word " * 400

CASES: dict[str, Case] = {
    # OpenAI-compatible servers
    "openai: text is the answer": Case("openai", [O(ANSWER)], asked=1),
    "openai: native calls in several replies": Case(
        "openai", [O(calls=[LOAD], finish="tool_calls"), O(calls=[RUN]), O(ANSWER)], outputs=["made.txt"]
    ),
    "openai: several calls in one reply": Case(
        "openai", [O(calls=[LOAD, RUN, READ]), O(ANSWER)], outputs=["made.txt"], asked=2, sees="content of a"
    ),
    "openai: text beside calls": Case(
        "openai", [O("Let me see.", calls=[READ]), O(ANSWER)], sees="Let me see."
    ),
    "openai: legacy function_call": Case(
        "openai",
        [
            O(
                more=[
                    server._chunk({"function_call": {"name": "read_file", "arguments": '{"path": "a.txt"}'}})
                ],
                finish="function_call",
            ),
            O(ANSWER),
        ],
        sees="content of a",
    ),
    "openai: ignores stream": Case("openai", [server.openai_whole({"content": ANSWER})]),
    "openai: ignores stream, with calls": Case(
        "openai",
        [
            server.openai_whole(
                {
                    "content": None,
                    "tool_calls": [
                        {"id": "1", "function": {"name": "read_file", "arguments": {"path": "a.txt"}}}
                    ],
                },
                "tool_calls",
            ),
            server.openai_whole({"content": ANSWER}),
        ],
        sees="content of a",
    ),
    "openai: ends with eos": Case("openai", [O(ANSWER, finish="eos")]),
    "openai: ends with no reason": Case("openai", [O(ANSWER, finish=None, usage=False, done=False)]),
    "openai: calls without an id, all with one index": Case(
        "openai",
        [
            O(
                more=[
                    server._chunk(
                        {
                            "tool_calls": [
                                {
                                    "index": 0,
                                    "id": "a",
                                    "function": {"name": "skill", "arguments": '{"name": "maker"}'},
                                }
                            ]
                        }
                    ),
                    server._chunk(
                        {
                            "tool_calls": [
                                {
                                    "index": 0,
                                    "id": "b",
                                    "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'},
                                }
                            ]
                        }
                    ),
                ]
            ),
            O(ANSWER),
        ],
        sees="content of a",
    ),
    "openai: refuses tools": Case(
        "openai",
        [
            REFUSE(400, "this model does not support tools"),
            O(action("call_tool", tool="read_file", arguments={"path": "a.txt"})),
            O(final()),
        ],
        sees="content of a",
    ),
    "openai: refuses tools with 404": Case(
        "openai", [REFUSE(404, "No endpoints found that support tool use"), O(final())]
    ),
    "openai: refuses response_format": Case(
        "openai",
        [REFUSE(400, "unsupported: response_format"), REFUSE(422, "response_format json_object"), O(final())],
        params={"protocol": "json"},
        asked=3,
    ),
    "openai: refuses response_format as a fault of its own": Case(
        "openai",
        [REFUSE(500, "1 validation error: {'loc': ('body', 'response_format', 'type')}"), O(final())],
        params={"protocol": "json"},
        asked=2,
    ),
    "openai: refuses strict": Case(
        "openai", [REFUSE(400, "unknown field strict"), O(final())], params={"protocol": "json"}, asked=2
    ),
    "openai: refuses stream_options": Case(
        "openai", [REFUSE(422, "extra field stream_options"), O(ANSWER)], asked=2
    ),
    "openai: refuses stream": Case(
        "openai", [REFUSE(400, "stream is not supported"), server.openai_whole({"content": ANSWER})], asked=2
    ),
    "openai: refuses without saying what": Case(
        "openai", [REFUSE(400, "bad request"), REFUSE(400, "bad request"), O(final())]
    ),
    "openai: knows no system role": Case(
        "openai", [REFUSE(400, "System role not supported"), O(ANSWER)], asked=2
    ),
    "openai: thoughts in <think>": Case(
        "openai", [O(f"<think>a {{ brace\nand more</think>\n{ANSWER}", size=3)]
    ),
    "openai: a thought that only ends": Case("openai", [O(f"so it is</think>{ANSWER}")]),
    "openai: calls written into the text": Case(
        "openai",
        [
            O('Now.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n</tool_call>'),
            O(ANSWER),
        ],
        sees="content of a",
    ),
    "openai: an unmatched brace before the JSON": Case(
        "openai", [O(f"Take {{ this: {final()}")], params={"protocol": "json"}
    ),
    "openai: the answer is cut": Case(
        "openai", [O("from the ", finish="length"), O("server, 你好")], asked=2
    ),
    "openai: a call is cut": Case(
        "openai",
        [O(calls=[("write_file", '{"path": "b.txt", "content": "xx')], finish="length"), O(ANSWER)],
        sees="cut at its length limit",
    ),
    "openai: JSON is cut": Case(
        "openai",
        [O(final(LONG)[:300], finish="length"), O(final())],
        params={"protocol": "json"},
        sees="smaller steps",
    ),
    "openai: the context is too long": Case(
        "openai",
        [
            *[O(calls=[READ])] * 4,
            REFUSE(400, "This model's maximum context length is 8192 tokens"),
            O(ANSWER),
        ],
        sees="The conversation was shortened",
    ),
    "openai: the context is too long from the start": Case(
        "openai", [REFUSE(413, "too large")], "failed", "too long for the model", asked=1
    ),
    "openai: a reply without end": Case(
        "openai", [O(LONG * 20_000, size=100_000), O(ANSWER)], asked=2, sees="smaller steps"
    ),
    "openai: a call without end": Case(
        "openai",
        [O(calls=[("write_file", '{"path": "' + LONG * 20_000)], size=100_000), O(ANSWER)],
        asked=2,
        sees="smaller steps",
    ),
    "openai: a body without end": Case(
        "openai",
        [server.openai_whole({"content": LONG * 20_000}), O(ANSWER)],
        asked=2,
        sees="go on exactly where it stopped",
    ),
    "openai: a call that is longer than the context": Case(
        "openai",
        [
            O(calls=[("write_file", json.dumps({"path": "b.txt", "content": LONG * 200}))], size=100_000),
            O(ANSWER),
        ],
        sees="full text",
    ),
    "openai: a character in two halves": Case(
        "openai",
        [
            O(more=[server._chunk({"content": half}) for half in ("a \ud83d", "\ude00 b ")], calls=[READ]),
            O(ANSWER),
        ],
        sees="a 😀 b",
    ),
    "openai: the name of a file is not text": Case(
        "openai", [O(calls=[LIST]), O(ANSWER)], sees="b\ufffd.txt"
    ),
    "openai: busy, then well": Case("openai", [REFUSE(503), O(ANSWER)], asked=2),
    "openai: asks to wait": Case("openai", [REFUSE(429, "slow down", retry_after="0"), O(ANSWER)], asked=2),
    "openai: no money": Case(
        "openai", [REFUSE(429, "insufficient_quota")], "failed", "Check the account", asked=1
    ),
    "openai: wrong key": Case("openai", [REFUSE(401, "invalid api key")], "failed", "Check key", asked=1),
    "openai: overloaded in mid-stream": Case(
        "openai",
        [O(ANSWER[:5], more=[server._event({"error": {"message": "overloaded, try again"}})]), O(ANSWER)],
        asked=2,
    ),
    "openai: breaks off in the middle": Case("openai", [O(ANSWER, cut=True), O(ANSWER)], asked=2),
    "openai: an error with status 200": Case(
        "openai",
        [
            lambda handler: handler.reply(200, b'{"error": {"message": "server_error", "code": 503}}'),
            O(ANSWER),
        ],
    ),
    "openai: a page instead of a reply": Case(
        "openai", [server.garbage()], "failed", "not a reply of a model"
    ),
    "openai: an empty stream": Case("openai", [lambda handler: handler.stream([]), O(ANSWER)], asked=2),
    "openai: an empty reply": Case("openai", [O(""), O(ANSWER)], sees="The reply is empty"),
    "openai: filtered": Case("openai", [O("x", finish="content_filter")], "failed", "content filter"),
    "openai: says no": Case("openai", [O(refusal="I will not")], "failed", "I will not"),
    "openai: arguments that are not JSON": Case(
        "openai", [O(calls=[("read_file", "{path: a}")]), O(ANSWER)], sees="arguments of read_file are wrong"
    ),
    "openai: a tool that does not exist": Case(
        "openai", [O(calls=[("read_fil", '{"path": "a.txt"}')]), O(ANSWER)], sees="did you mean 'read_file'"
    ),
    "openai: fails after work was done": Case(
        "openai",
        [O(calls=[LOAD, RUN]), REFUSE(401, "key revoked")],
        "failed",
        "Outputs: output:1/made.txt",
        ["made.txt"],
    ),
    "openai: never stops calling": Case(
        "openai",
        [O(calls=[READ])],
        "degraded",
        "max turns",
        budget=Budget(turns=3),
        asked=3,
        sees="last turn",
    ),
    "openai: tools beyond the limit": Case(
        "openai",
        [O(calls=[READ, READ, READ]), O(ANSWER)],
        budget=Budget(tool_calls=2),
        sees="all tool calls are used up",
    ),
    # Anthropic's wire
    "anthropic: text is the answer": Case("anthropic", [A(ANSWER)], asked=1),
    "anthropic: several calls in one reply": Case(
        "anthropic", [A("I load it.", calls=[LOAD, RUN]), A(ANSWER)], outputs=["made.txt"], asked=2
    ),
    "anthropic: thoughts are given back": Case(
        "anthropic", [A("Hm.", calls=[READ], thinking="deep"), A(ANSWER)], sees='"signature": "sig"'
    ),
    "anthropic: overloaded in mid-stream": Case(
        "anthropic", [A(ANSWER[:7], error="overloaded_error"), A(ANSWER)], asked=2
    ),
    "anthropic: overloaded at once": Case(
        "anthropic", [REFUSE(529, "Overloaded", retry_after="0"), A(ANSWER)], asked=2
    ),
    "anthropic: the prompt is too long": Case(
        "anthropic",
        [
            *[A(calls=[READ])] * 4,
            REFUSE(400, "prompt is too long: 210000 tokens > 200000 maximum"),
            A(ANSWER),
        ],
        sees="The conversation was shortened",
    ),
    "anthropic: max_tokens is more than the model writes": Case(
        "anthropic",
        [
            REFUSE(400, "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens"),
            A(ANSWER),
        ],
        sees='"max_tokens": 8192',
    ),
    "anthropic: the answer is cut": Case(
        "anthropic", [A("from the ", stop="max_tokens"), A("server, 你好")], asked=2
    ),
    "anthropic: a call is cut": Case(
        "anthropic",
        [A(calls=[("write_file", '{"path": "b.txt", "con')], stop="max_tokens"), A(ANSWER)],
        sees="cut at its length limit",
    ),
    "anthropic: ignores stream": Case(
        "anthropic", [server.anthropic_whole([{"type": "text", "text": ANSWER}])]
    ),
    "anthropic: ignores stream, with calls": Case(
        "anthropic",
        [
            server.anthropic_whole(
                [{"type": "tool_use", "id": "1", "name": "read_file", "input": {"path": "a.txt"}}], "tool_use"
            ),
            A(ANSWER),
        ],
        sees="content of a",
    ),
    "anthropic: a reply without end": Case(
        "anthropic", [A(LONG * 20_000, size=100_000), A(ANSWER)], asked=2, sees="smaller steps"
    ),
    "anthropic: half a character in a call": Case(
        "anthropic",
        [A("\ud83d", calls=[("write_file", '{"path": "b.txt", "content": "\\ud83d"}')]), A(ANSWER)],
        sees="\ufffd",
    ),
    "anthropic: breaks off in the middle": Case("anthropic", [A(ANSWER, cut=True), A(ANSWER)], asked=2),
    "anthropic: says no": Case("anthropic", [A("", stop="refusal")], "failed", "refuses this request"),
    "anthropic: wrong key": Case(
        "anthropic", [REFUSE(401, "invalid x-api-key")], "failed", "Check key", asked=1
    ),
    "anthropic: a page instead of a reply": Case(
        "anthropic", [server.garbage()], "failed", "not a reply of a model"
    ),
    "anthropic: the JSON protocol": Case(
        "anthropic", [A(f"```json\n{final()}\n```")], params={"protocol": "json"}
    ),
    "anthropic: an unknown stop reason": Case("anthropic", [A(ANSWER, stop="pause_turn")]),
    "anthropic: fails after work was done": Case(
        "anthropic", [A(calls=[LOAD, RUN]), REFUSE(403, "no")], "failed", "What was done:", ["made.txt"]
    ),
}


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-key")
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("VADE_CACHE_DIR", str(place.home / "cache"))
    skill = write_skill(
        place.cwd, ".agent/skills/maker", "---\nname: maker\ndescription: Make it.\n---\nRun x.py.\n"
    )
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text(MAKE)
    (place.cwd / "a.txt").write_text("content of a\n" * 300)
    (place.cwd / os.fsdecode(b"b\xff.txt")).write_text("x")
    return place


def run(place: Place, case: Case, url: str) -> Outcome:
    base = f"{url}/v1" if case.wire == "openai" else url
    model = choose_model(f"{case.wire}:m", {"base_url": base, **case.params})
    agent = Agent(
        model,
        place.build(),
        context=place.context,
        approver=Consent(),
        budget=case.budget,
    )
    return agent.run("do it")


@pytest.mark.parametrize("name", CASES)
def test_a_behaviour(name: str, place: Place) -> None:
    case = CASES[name]
    with serving(*case.answers) as found:
        outcome = run(place, case, found.url)
        asked = [body for _, _, body in found.asked]
    assert (outcome.status, case.answer in outcome.answer) == (case.status, True), outcome
    assert [output.name for output in outcome.outputs] == list(case.outputs)
    if case.status == "done":
        assert outcome.answer == ANSWER
    if case.asked:
        assert len(asked) == case.asked
    assert case.sees in json.dumps(asked[-1], ensure_ascii=False)
    written = "".join(
        file.read_text("utf-8", "replace") for file in Path(place.cwd).rglob("*") if file.is_file()
    )
    assert "test-key" not in written


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60
    assert sum(case.wire == "anthropic" for case in CASES.values()) >= 15


def test_what_a_server_refused_is_remembered(place: Place) -> None:
    case = CASES["openai: refuses tools"]
    refused = [REFUSE(400, "no tools here"), O(final()), O(final())]
    with serving(*refused) as found:
        assert run(place, case, found.url).answer == ANSWER
        assert run(place, case, found.url).answer == ANSWER
        forms = ["tools" in body for _, _, body in found.asked]
    assert forms == [True, False, False]


def events(past: PastRun) -> list[tuple[str, dict[str, Any]]]:
    """What happened, without what the model was asked and said word by word, and without times."""
    left_out = {"model_asked", "model_replied", "run_started", "run_finished"}
    changing = {"started", "ended", "seconds", "report", "number", "times", "result", "kept", "characters"}
    return [
        (event.type, {key: value for key, value in event.data.items() if key not in changing})
        for event in past.events
        if event.type not in left_out
    ]


CASE_FILE = Path(__file__).with_name("case.json")


def test_one_case_file_through_both_protocols(place: Place) -> None:
    from vademecum.models.scripted_model import Scripted

    turns = json.loads(CASE_FILE.read_text())
    seen = []
    for wire in ("json", "tools"):
        agent = Agent(Scripted(turns, wire=wire), place.build(), context=place.context, approver=Consent())
        outcome = agent.run("do it")
        assert (outcome.status, outcome.answer) == ("done", "It is made.")
        seen.append(events(read_run(place.cwd / ".agent/runs", outcome.run_id)))
    assert [kind for kind, _ in seen[0]] == [kind for kind, _ in seen[1]]
    for one, other in zip(*seen, strict=True):
        if one[0] in {"action", "plan", "observation"}:
            assert one == other


def test_after_a_refusal_the_rest_is_not_done(place: Place) -> None:
    write = ("write_file", '{"path": "b.txt", "content": "x"}')
    with serving(O(calls=[write, READ, READ]), O(ANSWER)) as found:
        model = choose_model("openai:m", {"base_url": f"{found.url}/v1"})
        outcome = Agent(model, place.build(), context=place.context).run("do it")
        last = [m["content"] for m in found.asked[-1][2]["messages"] if m["role"] == "tool"]
    assert outcome.status == "done"
    assert [text.splitlines()[0].rpartition(": ")[2] for text in last] == ["denied", "not-done", "not-done"]
    assert "Not done, because a call before it was refused." in last[2]
    assert outcome.stats["tool_calls"] == 1


def test_anthropic_marks_what_is_worth_caching(place: Place) -> None:
    with serving(A(calls=[READ]), A(ANSWER)) as found:
        run(place, Case("anthropic", []), found.url)
        bodies = [body for _, _, body in found.asked]
    for body in bodies:
        assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        assert json.dumps(body).count("cache_control") == 2
        assert "tool_choice" not in body
    first = bodies[0]["messages"][0]["content"][0]
    assert bodies[1]["messages"][0]["content"][0] == {key: first[key] for key in ("type", "text")}
