"""`vade doctor` on keys and on the model: what it finds, what it says to do, and whom it asks."""

from __future__ import annotations

import json
import re
import socket
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.models import server as models_server
from tests.models.server import serving
from tests.support import Place
from vademecum.cli.doctor import OLDEST_PYTHON
from vademecum.models.choose import known_services
from vademecum.secret_store import SecretStore


def configure(place: Place, **settings: Any) -> None:
    (place.home / ".agent").mkdir(exist_ok=True)
    (place.home / ".agent/config.json").write_text(json.dumps(settings))


def checked(place: Place, name: str, **env: str) -> tuple[str, str, str | None]:
    """What is said of one thing: status, message, advice."""
    done = place.vade("doctor", "--json", cwd=None, **env)
    wrong = any(check["status"] == "problem" for check in done.json["checks"])
    assert (done.code, done.json["healthy"]) == (int(wrong), not wrong)
    (check,) = (check for check in done.json["checks"] if check["name"] == name)
    return check["status"], check["message"], check["fix"]


@contextmanager
def server(code: int = 401) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that answers every request with a code, and keeps what it was asked."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append({"method": self.command, "path": self.path, **dict(self.headers)})
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{running.server_port}", asked
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_oldest_python_is_the_one_that_the_package_declares() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert declared["requires-python"] == f">={'.'.join(map(str, OLDEST_PYTHON))}"


def test_everything_is_looked_at(place: Place) -> None:
    names = [check["name"] for check in place.vade("doctor", "--json").json["checks"]]
    looked_at = "python configuration permissions sandbox roots cache keys packages model"
    assert names == looked_at.split()


def test_the_offline_model_speaks_to_nobody(place: Place) -> None:
    with server() as (address, asked):
        found = checked(
            place, "model", OPENAI_BASE_URL=f"http://{address}", ANTHROPIC_BASE_URL=f"http://{address}"
        )
    assert (found, asked) == (("ok", "offline, by rules, not a language model: no key, no network", None), [])


@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI"), ("anthropic", "ANTHROPIC")])
def test_a_model_with_all_it_needs(place: Place, kind: str, variable: str) -> None:
    configure(place, model={"provider": f"{kind}:some-model"})
    with server() as (address, asked):
        env = {f"{variable}_BASE_URL": f"http://{address}/v1", f"{variable}_API_KEY": "sk-secret"}
        done = place.vade("doctor", cwd=None, **env)
    assert done.code == 0
    assert (
        f"✓ model: {kind}:some-model, by the package {kind}\n"
        f"✓ model key: {variable}_API_KEY is set in the environment\n"
        f"✓ model server: http://{address} answers\n"
    ) in done.out
    assert [(request["method"], request["path"]) for request in asked] == [("HEAD", "/")]
    assert "secret" not in json.dumps(asked)


def test_nothing_secret_of_the_address_is_sent_or_shown(place: Place) -> None:
    with server() as (address, asked):
        url = f"http://ada:hunter2@{address}/hunter2/v1?key=hunter2"
        configure(place, model={"provider": "openai:x", "params": {"base_url": url}})
        assert checked(place, "model server") == ("ok", f"http://{address} answers", None)
        assert "hunter2" not in place.vade("doctor").out
    assert "hunter2" not in json.dumps(asked)
    assert not any("authorization" in map(str.lower, request) for request in asked)


def test_a_server_that_is_not_there(place: Place) -> None:
    address = f"http://127.0.0.1:{closed_port()}"
    configure(place, model={"provider": "openai:x", "params": {"base_url": f"{address}/v1"}})
    status, message, fix = checked(place, "model server", OPENAI_API_KEY="k")
    assert status == "problem"
    assert re.fullmatch(rf"{address} does not answer \(.*Connection refused\)", message)
    assert fix == "Check the network, and model.params.base_url in ~/.agent/config.json, and OPENAI_BASE_URL."
    shown = place.vade("doctor", OPENAI_API_KEY="k")
    assert (shown.code, f"✗ model server: {address} does not answer" in shown.out) == (1, True)


def test_a_server_that_never_answers(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        configure(place, model={"provider": "openai:x", "params": {"base_url": address}})
        status, message, _ = checked(place, "model server", OPENAI_API_KEY="k")
    assert status == "problem"
    assert message.startswith(f"{address} does not answer (")


def test_a_server_that_cannot_serve(place: Place) -> None:
    with server(503) as (address, _):
        configure(place, model={"provider": "openai:x", "params": {"base_url": f"http://{address}"}})
        status, message, _ = checked(place, "model server", OPENAI_API_KEY="k")
    assert (status, message) == ("note", f"http://{address} answers with 503: it cannot serve now")


@pytest.mark.parametrize("address", ["localhost:11434/v1", "http://", "ftp://x/"])
def test_what_is_no_address(place: Place, address: str) -> None:
    configure(place, model={"provider": "openai:x", "params": {"base_url": address}})
    status, message, _ = checked(place, "model server")
    assert (status, message) == ("problem", "its address is not like https://host/v1")


def test_a_key_that_is_not_set(place: Place) -> None:
    configure(
        place, model={"provider": "openai:x", "params": {"base_url": f"http://127.0.0.1:{closed_port()}"}}
    )
    assert checked(place, "model key", OPENAI_API_KEY="") == (
        "problem",
        "OPENAI_API_KEY is not set",
        "Set OPENAI_API_KEY (a server of your own takes any text), or run:"
        " vade secrets set OPENAI_API_KEY --models",
    )
    assert "✗ model key: OPENAI_API_KEY is not set. Set OPENAI_API_KEY (" in place.vade("doctor").out


def test_a_key_that_is_kept(place: Place) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    configure(place, model={"provider": "openai:x", "params": {"base_url": url}})
    SecretStore(place.context, keyring=lambda: None).set("OPENAI_API_KEY", "correct-horse", skill=None)
    assert checked(place, "model key") == ("ok", "OPENAI_API_KEY is kept by vade secrets", None)
    assert checked(place, "model key", OPENAI_API_KEY="k")[1] == "OPENAI_API_KEY is set in the environment"
    shown = place.vade("doctor")
    assert "correct-horse" not in shown.out + shown.err
    (place.home / ".agent/secrets.json").chmod(0o644)
    status, message, _ = checked(place, "model key")
    assert (status, "others can read or change it: run chmod 600" in message) == ("problem", True)


@pytest.mark.parametrize(
    ("provider", "name", "expected"),
    [
        ("opnai:x", "model", "There is no kind of model 'opnai': did you mean 'openai'?"),
        ("openai", "model", "Which model of 'openai'? Write it as openai:NAME."),
        ("scripted:gone.json", "model", "there is no file gone.json"),
        ("recorded:gone.jsonl", "model", "there is no file gone.jsonl"),
        ("azure:x", "model server", "it has no address"),
    ],
)
def test_a_model_that_could_not_be_asked(place: Place, provider: str, name: str, expected: str) -> None:
    configure(place, model={"provider": provider})
    status, message, fix = checked(place, name)
    assert (status, message) == ("problem", expected)
    assert fix


def test_a_model_whose_region_decides(place: Place) -> None:
    configure(place, model={"provider": "bedrock:x"})
    assert checked(place, "model key")[0] == "ok"
    assert checked(place, "model server") == (
        "ok",
        "its region decides the address, so it was not tried",
        None,
    )


def test_what_models_need_is_what_their_packages_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import anthropic
    import openai

    for kind, make in (("openai", openai.OpenAI), ("anthropic", anthropic.Anthropic)):
        needs = known_services()[kind]
        monkeypatch.setenv(next(iter(needs.variables)), "the-key")
        client: Any = make()
        assert (client.api_key, str(client.base_url).rstrip("/")) == ("the-key", needs.base_url)
        monkeypatch.setenv(needs.address_variable, "http://127.0.0.1:9/v1")
        assert str(make().base_url).rstrip("/") == "http://127.0.0.1:9/v1"
    azure = known_services()["azure"]
    monkeypatch.setenv(next(iter(azure.variables)), "the-key")
    monkeypatch.setenv(azure.address_variable, "http://127.0.0.1:9")
    found = openai.AzureOpenAI(api_version="1")
    assert (found.api_key, str(found.base_url).startswith("http://127.0.0.1:9/")) == ("the-key", True)


def test_one_call_says_what_works(place: Place) -> None:
    with serving(models_server.openai_reply(calls=[("ping", '{"text": "pong"}')])) as found:
        found.models.append({"id": "x", "context_length": 32768})
        configure(place, model={"provider": "openai:x", "params": {"base_url": f"{found.url}/v1"}})
        done = place.vade("doctor", "--model", OPENAI_API_KEY="k")
        assert len(found.asked) == 1
    assert re.search(r"✓ model call: openai:x answers in \d+\.\d s\n", done.out), done.out
    assert (
        "✓ model tools: native tool calls work\n✓ model streaming: works\n✓ model context: 32,768 tokens\n"
        in done.out
    )


def test_a_model_of_another_service_is_called(place: Place) -> None:
    refused = models_server.status(400, "this model does not support tools")
    whole = models_server.openai_whole({"content": '{"ok": true}'})
    with serving(refused, whole) as found:
        services = {"mine": {"base_url": f"{found.url}/v1"}}
        configure(place, model={"services": services})
        done = place.vade("doctor", "--model", "mine:x", "--json")
    said = {check["name"]: (check["status"], check["message"]) for check in done.json["checks"]}
    assert said["model key"] == ("ok", "none is needed")
    assert said["model tools"] == ("note", "none: actions are JSON in the text")
    assert said["model streaming"] == ("note", "the server does not stream")
    assert said["model context"] == ("ok", "the server does not tell its length")


def test_a_call_without_a_key(place: Place) -> None:
    configure(
        place, model={"provider": "deepseek:x", "params": {"base_url": f"http://127.0.0.1:{closed_port()}"}}
    )
    done = place.vade("doctor", "--model", "--json")
    (call,) = [check for check in done.json["checks"] if check["name"] == "model call"]
    assert call["status"] == "problem"
    assert "set DEEPSEEK_API_KEY, or run `vade secrets set DEEPSEEK_API_KEY --models`" in call["message"]


def test_keys(place: Place) -> None:
    assert checked(place, "keys") == ("ok", "0 trusted keys, 0 keys to sign with", None)
    assert place.vade("keygen", "--trust").code == 0
    assert checked(place, "keys") == ("ok", "1 trusted key, 1 key to sign with", None)


def test_a_signing_key_that_others_can_read(place: Place) -> None:
    place.vade("keygen")
    key = place.home / ".agent/keys/default.pem"
    key.chmod(0o640)
    assert checked(place, "keys") == (
        "problem",
        f"{key} is open to others (mode 640)",
        f"Run: chmod 600 {key}",
    )
    key.chmod(0o600)
    assert checked(place, "keys")[0] == "ok"


def test_trusted_keys_that_are_none(place: Place) -> None:
    place.vade("keygen", "--trust")
    trusted = place.home / ".agent/trusted-keys"
    (trusted / "one.pub").write_text("no key")
    (trusted / "two.pub").mkdir()
    status, message, _ = checked(place, "keys")
    assert status == "problem"
    assert message.startswith("nothing can be installed: ")
    for name in ("one.pub", "two.pub"):
        assert f"{trusted / name} is not a public key in PEM form" in message


def test_a_directory_of_trusted_keys_that_is_none(place: Place) -> None:
    (place.home / ".agent").mkdir()
    (place.home / ".agent/trusted-keys").write_text("")
    said = (
        f"{place.home}/.agent/trusted-keys cannot be listed (Not a directory): make it a readable directory."
    )
    assert checked(place, "keys")[:2] == ("problem", f"nothing can be installed: {said}")
    refused = place.vade("install", str(place.cwd))
    assert (refused.code, refused.err) == (2, f"vade: {said}\n")


def test_signatures_are_required_and_nobody_is_trusted(place: Place) -> None:
    configure(place, security={"require_signatures": ["project"]})
    status, message, fix = checked(place, "keys")
    assert status == "note"
    assert message.endswith("but the project scope takes only signed skills")
    assert fix == f"Put the .pub files of those you trust into {place.home}/.agent/trusted-keys."
