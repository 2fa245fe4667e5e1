"""H3: both SDKs against a server that speaks their real wire formats, and misbehaves in every way it can."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models import server
from tests.models.server import Answering, serving
from tests.support import Place
from vademecum import ConfigError, Context, models
from vademecum.agent.protocol import schema
from vademecum.errors import ModelRefused, ModelUnavailable
from vademecum.models import choose_model, known_services
from vademecum.models.base import Message, Model, Reply, Usage
from vademecum.secret_store import SecretStore

MESSAGES = [Message("system", "rules"), Message("user", "do it")]
TEXT = json.dumps({"action": {"type": "final_answer", "payload": {"text": "from the server, 你好"}}})

Make = Callable[..., Model]


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("VADE_CACHE_DIR", str(tmp_path / "cache"))
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
    assert reply == Reply(TEXT, Usage(11, 5, 4))
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
        assert body["system"][0]["text"] == "rules"
        assert body["messages"][0]["content"][0]["text"] == "do it"


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


def test_a_key_that_is_kept(kind: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"{kind.upper()}_API_KEY"
    monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(place.home))
    SecretStore(place.context, keyring=lambda: None).set(variable, "correct-horse-battery", skill=None)

    def echoing(handler: server.Handler) -> None:
        text = "wrong key correct-horse-battery or Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"
        handler.reply(401, json.dumps({"error": {"message": text}}).encode())

    with serving(replying(kind), echoing) as found:
        asked = model(kind, found.url)
        assert asked.reply(MESSAGES, schema=schema()).text == TEXT
        with pytest.raises(ModelRefused, match=r"wrong key \[secret\] or \[secret\]") as caught:
            asked.reply(MESSAGES, schema=schema())
        assert all("correct-horse-battery" in json.dumps(headers) for _, headers, _ in found.asked)
    assert "correct-horse" not in str(caught.value)


def test_a_server_beyond_its_deadline(kind: str) -> None:
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ask(kind, server.silence(), timeout=0.2)


def test_nobody_listens(kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        model(kind, url).reply(MESSAGES, schema=schema())


def test_keys_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigError, match="set OPENAI_API_KEY, or run `vade secrets set OPENAI_API_KEY --models`"
    ):
        models.openai("m")


@pytest.mark.parametrize("wanted", ["bedrock:m", "vertex:m"])
def test_a_region_that_is_missing(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelRefused, match=r"The model cannot be used: No .*region"):
        choose_model(wanted)


@pytest.mark.parametrize("wanted", ["nonsense", "openai", "openai:", "scripted:/nonexistent"])
def test_models_that_are_not_there(wanted: str) -> None:
    with pytest.raises(ConfigError):
        choose_model(wanted)


def test_settings_that_do_not_fit(kind: str) -> None:
    with pytest.raises(ModelRefused, match="settings are wrong"):
        ask(kind, replying(kind), no_such_setting=1)


def test_services_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = known_services()
    assert {"ollama", "llamacpp", "vllm", "lmstudio"} <= {
        name for name, each in found.items() if not each.variables
    }
    for name in ("openrouter", "deepseek", "qwen", "zhipu", "moonshot"):
        assert found[name].base_url.startswith("https://")
        (key,) = found[name].variables
        monkeypatch.delenv(key, raising=False)
        with pytest.raises(ConfigError, match=f"set {key}, or run `vade secrets set"):
            choose_model(f"{name}:m")


def test_a_service_of_the_configuration(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.home / ".agent").mkdir()
    with serving(server.openai_reply(TEXT)) as found:
        mine = {"base_url": f"{found.url}/v1", "key": "MINE_KEY"}
        (place.home / ".agent/config.json").write_text(json.dumps({"model": {"services": {"mine": mine}}}))
        context = Context(place.cwd, place.home, {"MINE_KEY": "the-key"})
        chosen = choose_model("mine:big", context=context)
        assert (chosen.name, chosen.reply(MESSAGES, schema={}).text) == ("mine:big", TEXT)
        headers = {name.lower(): value for name, value in found.asked[0][1].items()}
    assert headers["authorization"] == "Bearer the-key"
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        choose_model("min:big", context=context)


def test_the_context_length(kind: str) -> None:
    with serving(replying(kind)) as found:
        found.models.append({"id": "m", "max_model_len": 4096})
        made: Any = model(kind, found.url)
        assert made.context_length() == 4096
        found.models.clear()
        assert made.context_length() is None
