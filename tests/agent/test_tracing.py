"""Q4: traces reach a real OTLP receiver on loopback; children, child processes and evaluations join them."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.agent.support import final, run_script, select, tool
from tests.support import Place, write_skill

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """What was exported so far."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.url = ""

    def named(self, start: str) -> list[Any]:
        return [span for span in self.spans if span.name.startswith(start)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            sent = ExportTraceServiceRequest.FromString(data)
            found.spans += [s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{running.server_port}"
    try:
        yield found
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def scripted(place: Place, *turns: Any) -> str:
    file = place.cwd / "turns.json"
    file.write_text(json.dumps(turns))
    return f"scripted:{file}"


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_run_is_a_trace(place: Place, receiver: Receiver) -> None:
    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("import os; print('parent', os.environ.get('TRACEPARENT'))")
    model = scripted(
        place,
        select("mine"),
        run_script("mine", "scripts/x.py"),
        tool("read_file", path="none"),
        final("the end"),
    )
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "TRACEPARENT": TRACEPARENT}
    done = place.vade("run", "secret words", "--model", model, "--yes", "--json", cwd=None, **env)
    assert done.code == 0
    (run,) = receiver.named("invoke_agent default")
    assert run.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert run.parent_span_id.hex() == "b7ad6b7169203331"
    assert attributes(run)["gen_ai.operation.name"] == "invoke_agent"
    assert len(receiver.named("chat scripted")) == 4
    called = {span.name: attributes(span) for span in receiver.named("execute_tool")}
    assert set(called) == {"execute_tool skill", "execute_tool run_script", "execute_tool read_file"}
    assert called["execute_tool run_script"]["gen_ai.tool.name"] == "run_script"
    assert called["execute_tool read_file"]["error.type"]
    (approval,) = receiver.named("approval")
    assert attributes(approval)["vademecum.approval.verdict"] == "once"
    assert {span.trace_id for span in receiver.spans} == {run.trace_id}
    assert all(span.parent_span_id == run.span_id for span in receiver.spans if span is not run)
    assert "secret words" not in str(receiver.spans)
    assert "the end" not in str(receiver.spans)
    observed = "".join(file.read_text() for file in (place.cwd / ".agent/runs").glob("*/observations/*"))
    assert f"parent 00-{run.trace_id.hex()}-{run.span_id.hex()}-01" in observed


def test_contents_only_when_asked_for_and_masked(place: Place, receiver: Receiver) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/v1/traces",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        "MY_API_TOKEN": "correct-horse-battery",
    }
    model = scripted(place, final("it is correct-horse-battery"))
    assert place.vade("run", "tell me", "--model", model, cwd=None, **env).code == 0
    texts = str(receiver.spans)
    assert "tell me" in texts
    assert "it is [secret]" in texts
    assert "correct-horse" not in texts


def test_nothing_is_exported_unless_configured(place: Place, receiver: Receiver) -> None:
    model = scripted(place, final())
    for env in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SDK_DISABLED": "true"}):
        assert place.vade("run", "x", "--model", model, cwd=None, **env).code == 0
    assert receiver.spans == []


def test_an_evaluation_is_one_trace(place: Place, receiver: Receiver) -> None:
    suite = place.cwd / ".agent/evals/mine"
    suite.mkdir(parents=True)
    cases = [{"id": n, "input": "x", "mock": {"turns": [final("ok")]}} for n in ("a", "b")]
    (suite / "cases.json").write_text(json.dumps({"cases": cases}))
    done = place.vade("eval", "run", str(suite), cwd=None, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    assert done.code == 0, done.err + done.out
    (whole,) = receiver.named("evaluate")
    runs = receiver.named("invoke_agent")
    assert [run.parent_span_id for run in runs] == [whole.span_id] * 2
