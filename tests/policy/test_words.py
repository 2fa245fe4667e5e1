"""Words that mean nothing are errors that name the nearest one; D4's own words are understood."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support import Place
from vademecum import Context
from vademecum.cli.running import model_for
from vademecum.config import load_config
from vademecum.errors import ConfigError
from vademecum.masking import Secrets
from vademecum.models import choose_model
from vademecum.policy.approval import Answer, Desk, Question
from vademecum.policy.base import Decision, Effect, Request
from vademecum.runs.record import masked


def configured(place: Place, **settings: Any) -> Context:
    (place.home / ".agent").mkdir(exist_ok=True)
    (place.home / ".agent/config.json").write_text(json.dumps(settings))
    return place.context


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"permissions": [{"permission": "raed", "pattern": "*", "effect": "deny"}]}, "did you mean 'read'"),
        ({"permissions": [{"permission": "tool", "pattern": "wite_file", "effect": "deny"}]}, "'write_file'"),
        ({"execution": {"require_approval_for": ["run_scrpt"]}}, "did you mean 'run_script'"),
    ],
)
def test_unknown_words_are_errors(place: Place, settings: dict[str, Any], words: str) -> None:  # F1
    context = configured(place, **settings)
    with pytest.raises(ConfigError, match=words):
        load_config(context)


def test_an_unknown_agent_is_an_error(place: Place) -> None:  # F1
    configured(place, agents={"reviewer": {"permissions": []}})
    for words in (
        ["run", "hello", "--agent", "reviewr"],
        ["permissions", "explain", "read", "x", "--agent", "reviewr"],
    ):
        done = place.vade(*words)
        assert (done.code, "did you mean 'reviewer'?" in done.err) == (2, True)
    done = place.vade("permissions", "explain", "raed", "x")
    assert (done.code, "did you mean 'read'?" in done.err) == (2, True)


def test_the_words_of_the_documents_are_understood(place: Place) -> None:  # H3, N1
    context = configured(
        place,
        model={"provider": "mock", "params": {}},
        execution={"require_approval_for": ["write_file", "run_script", "network"]},
        skill_roots=[".agent/skills", "~/.agent/skills"],
    )
    settings = load_config(context).settings
    assert settings.execution.require_approval_for == ("write_file", "run_script", "network_request")
    assert model_for(None, load_config(context), context).name == "offline"
    assert choose_model("mock", {"turns": ["x"]}).reply([], schema={}).text == "x"
    assert place.vade("list", "--json").code == 0


def test_a_model_by_name_has_the_parameters_of_its_provider(place: Place) -> None:
    address = "http://127.0.0.1:9/v1"
    context = configured(place, model={"provider": "openai:one", "params": {"base_url": address}})
    context = replace(context, env={**context.env, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    for name, expected in (("openai:two", True), ("anthropic:three", False)):
        model: Any = model_for(name, load_config(context), context)
        assert str(model._client.base_url).startswith(address) is expected


def test_an_answer_for_one_run_releases_no_other() -> None:
    import threading

    desk, answers = Desk(), dict[str, Answer]()
    request = Request("script", ("x",))

    def ask(number: str, conversation: str) -> None:
        decision = Decision(Effect.ASK, None, "script", "x")
        answers[number] = desk.ask(Question(number, (request,), decision, conversation=conversation))

    asked = [("one", "a"), ("same", "a"), ("other", "b")]
    threads = [threading.Thread(target=ask, args=each) for each in asked]
    for thread in threads:
        thread.start()
    while len(desk.waiting()) < 3:
        pass
    desk.answer("one", Answer("always", scope="run"))
    threads[0].join(60)
    threads[1].join(60)
    assert [question.id for question in desk.waiting()] == ["other"]
    desk.close()
    threads[2].join(60)
    assert [answers[number].verdict for number, _ in asked] == ["always", "always", "reject"]


def test_what_scripts_are_given_is_masked_and_addresses_are_not() -> None:
    secrets = Secrets({"PLAIN": "a value of mine"}, given=["PLAIN"])
    assert masked("x a value of mine y", secrets) == "x [secret] y"
    for text in ("http://localhost:8080/path/to", "https://example.org:8443/abcdefgh?x=1"):
        assert masked(text, secrets) == text
    assert masked("https://me:hunter2@example.org/", secrets) == "https://me:[secret]@example.org/"
