"""H3: both SDKs against a server that speaks their real wire formats, and misbehaves in every way it can."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models import server
from tests.models.server import Answering, serving
from tests.support import Place
from vademecum import Agent, ConfigError, models
from vademecum.agent.protocol import schema
from vademecum.errors import ModelRefused, ModelReplyWrong, ModelUnavailable
from vademecum.models.base import Message, Model, Reply, Usage
from vademecum.models.choose import choose_model

MESSAGES = [Message("system", "rules"), Message("user", "do it")]
TEXT = json.dumps({"action": {"type": "final_answer", "payload": {"text": "from the server, 你好"}}})

Make = Callable[..., Model]


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-key")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return str(request.param)


def model(kind: str, url: str, **params: object) -> Model:
    base = f"{url}/v1" if kind == "openai" else url
    return choose_model(f"{kind}:m", {"base_url": base, **params})


def replying(kind: str, text: str = TEXT) -> Answering:
    return server.openai_reply(text) if kind == "openai" else server.anthropic_reply(text)


def ask(kind: str, *answers: Answering, **params: object) -> Reply:
    with serving(*answers) as found:
        return model(kind, found.url, **params).reply(MESSAGES, schema=schema())


def test_a_streamed_reply(kind: str) -> None:
    pieces: list[str] = []
    with serving(replying(kind)) as found:
        reply = model(kind, found.url, max_tokens=77).reply(MESSAGES, schema=schema(), on_text=pieces.append)
        ((path, headers, body),) = found.asked
    assert reply == Reply(TEXT, Usage(11, 5))
    assert "".join(pieces) == TEXT
    assert len(pieces) > 5
    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 77)
    if kind == "openai":
        assert path == "/v1/chat/completions"
        assert (
            headers["authorization" if "authorization" in headers else "Authorization"]
            == "Bearer sk-test-key-of-openai"
        )
        assert body["messages"] == [{"role": m.role, "content": m.content} for m in MESSAGES]
        assert body["response_format"]["type"] == "json_schema"
    else:
        assert path == "/v1/messages"
        assert (body["system"], body["messages"]) == ("rules", [{"role": "user", "content": "do it"}])
        assert body["tool_choice"] == {"type": "tool", "name": "turn"}


@pytest.mark.parametrize(
    ("code", "headers", "wait"),
    [(429, {"retry_after": "7"}, 7.0), (500, {}, None), (503, {}, None), (529, {}, None)],
)
def test_servers_that_cannot_now(kind: str, code: int, headers: dict[str, str], wait: float | None) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        ask(kind, server.status(code, **headers))
    assert caught.value.wait == wait


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_servers_that_will_not(kind: str, code: int) -> None:
    with pytest.raises(ModelRefused, match=rf"refuses \({code}\)"):
        ask(kind, server.status(code))


def test_a_stream_that_breaks_off(kind: str) -> None:
    cut = server.openai_reply(TEXT, cut=True) if kind == "openai" else server.anthropic_reply(TEXT, cut=True)
    with pytest.raises(ModelUnavailable):
        ask(kind, cut)


def test_a_reply_over_its_length(kind: str) -> None:
    long = (
        server.openai_reply(TEXT, finish="length")
        if kind == "openai"
        else server.anthropic_reply(TEXT, stop="max_tokens")
    )
    with pytest.raises(ModelReplyWrong, match="length limit"):
        ask(kind, long)


def test_a_refusal(kind: str) -> None:
    refused = (
        server.openai_reply("", refusal="I will not")
        if kind == "openai"
        else server.anthropic_reply("", stop="refusal")
    )
    with pytest.raises(ModelRefused, match="refuses"):
        ask(kind, refused)


def test_a_body_that_is_no_reply(kind: str) -> None:
    with pytest.raises((ModelReplyWrong, ModelUnavailable)):
        ask(kind, server.garbage())


def test_a_server_beyond_its_deadline(kind: str) -> None:
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ask(kind, server.silence(), timeout=0.2)


def test_nobody_listens(kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        model(kind, url).reply(MESSAGES, schema=schema())


def test_a_run_goes_on_after_a_pause(kind: str, place: Place) -> None:
    with serving(server.status(500), server.status(429, retry_after="0"), replying(kind)) as found:
        agent = Agent(model=model(kind, found.url), index=place.build(), context=place.context)
        outcome = agent.run("do it")
        assert len(found.asked) == 3
    assert (outcome.status, outcome.answer, outcome.stats["input_tokens"]) == (
        "done",
        "from the server, 你好",
        11,
    )
    written = "".join(file.read_text() for file in Path(place.cwd).rglob("*") if file.is_file())
    assert "test-key" not in written


def test_a_server_without_structured_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    refused = server.status(400, "unsupported parameter: response_format")
    with serving(
        refused,
        refused,
        server.openai_reply(f"Here you are:\n```json\n{TEXT}\n```"),
        server.openai_reply(TEXT),
    ) as found:
        local = model("openai", found.url)
        assert TEXT in local.reply(MESSAGES, schema=schema()).text
        assert local.reply(MESSAGES, schema=schema()).text == TEXT  # and it is not asked again
        forms = [body.get("response_format", {}).get("type") for _, _, body in found.asked]
    assert forms == ["json_schema", "json_object", None, None]


def test_keys_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelRefused, match="cannot be used"):
        models.openai("m")


@pytest.mark.parametrize("wanted", ["nonsense", "openai", "openai:", "scripted:/nonexistent"])
def test_models_that_are_not_there(wanted: str) -> None:
    with pytest.raises(ConfigError):
        choose_model(wanted)


def test_settings_that_do_not_fit(kind: str) -> None:
    with pytest.raises(ModelRefused, match="settings do not fit"):
        ask(kind, replying(kind), no_such_setting=1)
