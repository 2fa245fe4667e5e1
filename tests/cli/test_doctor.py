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

from tests.support import Place
from vademecum.cli.checks import OLDEST_PYTHON
from vademecum.cli.model_checks import NEEDS


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
    assert names == ["python", "configuration", "permissions", "sandbox", "roots", "cache", "keys", "model"]


def test_the_offline_model_speaks_to_nobody(place: Place) -> None:
    with server() as (address, asked):
        found = checked(
            place, "model", OPENAI_BASE_URL=f"http://{address}", ANTHROPIC_BASE_URL=f"http://{address}"
        )
    assert (found, asked) == (("ok", "offline, by rules: no key, no network", None), [])


@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI"), ("anthropic", "ANTHROPIC")])
def test_a_model_with_all_it_needs(place: Place, kind: str, variable: str) -> None:
    configure(place, model={"provider": f"{kind}:some-model"})
    with server() as (address, asked):
        env = {f"{variable}_BASE_URL": f"http://{address}/v1", f"{variable}_API_KEY": "sk-secret"}
        done = place.vade("doctor", cwd=None, **env)
    assert done.code == 0
    assert (
        f"✓ model: {kind}:some-model, by the package {kind}\n"
        f"✓ model key: {variable}_API_KEY is set\n"
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
    assert fix == "Check the network, model.params.base_url in ~/.agent/config.json, and OPENAI_BASE_URL."
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
        "Set OPENAI_API_KEY; a server of your own takes any text.",
    )
    assert "✗ model key: OPENAI_API_KEY is not set. Set OPENAI_API_KEY;" in place.vade("doctor").out


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
        needs = NEEDS[kind]
        monkeypatch.setenv(needs.keys[0], "the-key")
        client: Any = make()
        assert (client.api_key, str(client.base_url).rstrip("/")) == ("the-key", needs.address)
        monkeypatch.setenv(needs.address_variable, "http://127.0.0.1:9/v1")
        assert str(make().base_url).rstrip("/") == "http://127.0.0.1:9/v1"
    azure = NEEDS["azure"]
    monkeypatch.setenv(azure.keys[0], "the-key")
    monkeypatch.setenv(azure.address_variable, "http://127.0.0.1:9")
    found = openai.AzureOpenAI(api_version="1")
    assert (found.api_key, str(found.base_url).startswith("http://127.0.0.1:9/")) == ("the-key", True)


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
        assert f"{trusted / name} is no public key or certificate in PEM form" in message


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
