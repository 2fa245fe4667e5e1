"""`vade doctor` on keys and on the model: what it finds, what it says to do, and whom it asks."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.models import server as models_server
from tests.models.server import serving
from tests.support import Place, write_skill
from vademecum.models import known_services
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


def test_everything_is_looked_at(place: Place) -> None:
    names = [check["name"] for check in place.vade("doctor", "--json").json["checks"]]
    looked_at = "python configuration permissions sandbox roots cache packages model"
    assert names == looked_at.split()


def test_the_offline_model_speaks_to_nobody(place: Place) -> None:
    with server() as (address, asked):
        found = checked(
            place, "model", OPENAI_BASE_URL=f"http://{address}", ANTHROPIC_BASE_URL=f"http://{address}"
        )
    assert (found, asked) == (("ok", "offline: rules, not a language model; no key, no network", None), [])


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
    ) in done.out
    assert ("secret" in done.out, asked) == (False, [])


def test_a_key_that_is_not_set(place: Place) -> None:
    configure(
        place, model={"provider": "openai:x", "params": {"base_url": f"http://127.0.0.1:{closed_port()}"}}
    )
    assert checked(place, "model key", OPENAI_API_KEY="") == (
        "problem",
        "OPENAI_API_KEY is not set",
        "Set OPENAI_API_KEY (your own server accepts any text), or run:"
        " vade secrets set OPENAI_API_KEY --models",
    )
    assert "✗ model key: OPENAI_API_KEY is not set. Set OPENAI_API_KEY (" in place.vade("doctor").out


def test_a_key_that_is_kept(place: Place) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    configure(place, model={"provider": "openai:x", "params": {"base_url": url}})
    SecretStore(place.context, keyring=lambda: None).set("OPENAI_API_KEY", "correct-horse", skill=None)
    assert checked(place, "model key") == ("ok", "OPENAI_API_KEY is stored by vade secrets", None)
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
        ("scripted:gone.json", "model", "the file gone.json does not exist"),
        ("recorded:gone.jsonl", "model", "the file gone.jsonl does not exist"),
    ],
)
def test_a_model_that_could_not_be_asked(place: Place, provider: str, name: str, expected: str) -> None:
    configure(place, model={"provider": provider})
    status, message, fix = checked(place, name)
    assert (status, message) == ("problem", expected)
    assert fix


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
    assert said["model tools"] == ("note", "none: the model writes actions as JSON text")
    assert said["model streaming"] == ("note", "the server does not stream")
    assert said["model context"] == ("ok", "the server does not report its length")


def test_a_call_without_a_key(place: Place) -> None:
    configure(
        place, model={"provider": "deepseek:x", "params": {"base_url": f"http://127.0.0.1:{closed_port()}"}}
    )
    done = place.vade("doctor", "--model", "--json")
    (call,) = [check for check in done.json["checks"] if check["name"] == "model call"]
    assert call["status"] == "problem"
    assert "set DEEPSEEK_API_KEY, or run `vade secrets set DEEPSEEK_API_KEY --models`" in call["message"]


def test_a_directory_of_trusted_keys_that_is_none(place: Place) -> None:
    (place.home / ".agent").mkdir()
    (place.home / ".agent/trusted-keys").write_text("")
    refused = place.vade("install", str(place.cwd))
    said = (
        f"{place.home}/.agent/trusted-keys cannot be listed (Not a directory): make it a readable directory."
    )
    assert (refused.code, refused.err) == (2, f"vade: {said}\n")


def test_a_corrupt_lock_and_a_directory_that_cannot_be_written(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    (place.cwd / ".agent/skills.lock.json").write_text("{")
    done = place.vade("doctor")
    assert (done.code, f"✗ lock: {place.cwd}/.agent/skills.lock.json" in done.out) == (1, True), done.out
    (place.cwd / ".agent/skills.lock.json").unlink()
    assert place.vade("doctor").code == 0
    if os.geteuid() != 0:  # root can write everywhere
        (place.cwd / ".agent").chmod(0o500)
        done = place.vade("doctor")
        (place.cwd / ".agent").chmod(0o700)
        assert (done.code, f"✗ state: {place.cwd}/.agent cannot be written" in done.out) == (1, True)


def test_a_sentence_has_one_end(place: Place) -> None:
    assert not re.search(r"\.[;,.)]", place.vade("doctor", VADE_TEST_WITHOUT="bubblewrap", PATH="/none").out)


def test_keys_that_keep_skills_from_being_installed(place: Place) -> None:
    configure(place, security={"require_signatures": ["project"]})
    assert (
        "! trusted keys: vade install accepts only signed skills, and no key is trusted"
        in place.vade("doctor").out
    )
    keys = place.home / ".agent/trusted-keys"
    keys.mkdir(parents=True)
    (keys / "k.pub").write_text("x")
    done = place.vade("doctor")
    assert (done.code, "✗ trusted keys: " in done.out) == (1, True), done.out


def test_what_has_no_effect_is_said_once(place: Place) -> None:
    (place.cwd / ".agent").mkdir(exist_ok=True)
    (place.cwd / ".agent/config.json").write_text('{"model": {"provider": "openai:x"}}')
    done = place.vade("doctor")
    assert (done.out.count("has no effect"), done.err) == (1, ""), (done.out, done.err)
