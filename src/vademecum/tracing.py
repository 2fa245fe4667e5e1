"""Events of a run → OpenTelemetry spans, by the GenAI conventions; off unless the environment configures it.

The extra ``otel`` brings the SDK. Exporter and endpoint are those of the standard variables
(``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_EXPORTER``, …). Texts are exported only if
``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` is ``true``; they are masked as in the record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.context import Context as SpanContext
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

PARENT = "TRACEPARENT"
FLUSH_MILLISECONDS = 3000
_CONTENTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class _Happened(Protocol):
    """An event of a run."""

    @property
    def type(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def data(self) -> dict[str, Any]: ...


def is_configured(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment asks for traces.

    >>> is_configured({}), is_configured({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})
    (False, True)
    """
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return bool(env.get("OTEL_TRACES_EXPORTER")) or any(env.get(name) for name in _ENDPOINTS)


@cache
def _provider() -> TracerProvider | None:
    """Return what makes spans and exports them, or nothing if the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import (  # noqa: PLC0415
            BatchSpanProcessor,
            ConsoleSpanExporter,
            SpanExporter,
        )
    except ImportError:
        return None
    is_console = os.environ.get("OTEL_TRACES_EXPORTER") == "console"
    exporter: SpanExporter = ConsoleSpanExporter() if is_console else OTLPSpanExporter()
    named = os.environ.get("OTEL_SERVICE_NAME", "vademecum")
    provider = TracerProvider(resource=Resource.create({"service.name": named}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def tracing(listener: Callable[[Any], None] | None, env: Mapping[str, str]) -> Traced | None:
    """Return a listener that also makes spans, or nothing if traces are not configured."""
    provider = _provider() if is_configured() else None
    return None if provider is None else Traced(provider, listener, env)


@contextmanager
def belonging(name: str) -> Iterator[None]:
    """Make one span that all runs of this process and its children belong to, such as an evaluation."""
    provider = _provider() if is_configured() else None
    if provider is None:
        yield
        return
    span = provider.get_tracer("vademecum").start_span(name, context=_given(os.environ))
    before = os.environ.get(PARENT)
    os.environ[PARENT] = _traceparent(span)
    try:
        yield
    finally:
        os.environ.pop(PARENT)
        if before is not None:
            os.environ[PARENT] = before
        span.end()
        provider.force_flush(FLUSH_MILLISECONDS)


def _given(env: Mapping[str, str]) -> SpanContext | None:
    """Return the span that a run belongs to, by the variable that names it."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    parent = os.environ.get(PARENT) or env.get(PARENT)
    return TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None


class Traced:
    """Listens to a run and its children, and makes a span of each run, model call, call and approval."""

    def __init__(
        self, provider: TracerProvider, listener: Callable[[Any], None] | None, env: Mapping[str, str]
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("vademecum")
        self._listener = listener
        self._runs: list[tuple[Span, str]] = []
        self._waiting: dict[str, Span] = {}
        self._with_contents = os.environ.get(_CONTENTS, "").lower() == "true"
        self._parent = _given(env)
        self._root = self._tracer.start_span("invoke_agent", context=self._parent)

    @property
    def traceparent(self) -> str:
        """The name of this run's span, for processes that it starts."""
        return _traceparent(self._root)

    def __call__(self, event: _Happened) -> None:
        """Take an event."""
        self._take(event)
        if self._listener is not None:
            self._listener(event)

    def _take(self, event: _Happened) -> None:
        data, nanoseconds = event.data, int(event.time * 1e9)
        match event.type:
            case "run_started":
                self._run(data, nanoseconds)
            case "model_asked":
                self._waiting["chat"] = self._span(f"chat {self._model}", nanoseconds, self._chat())
            case "model_replied":
                self._replied(data, nanoseconds)
            case "model_failed":
                self._ended("chat", nanoseconds, {"error.type": data.get("code", "")}, failed=True)
            case "tool_called":
                self._called(data, nanoseconds)
            case "skill_loaded" | "resource_loaded":
                tool = "skill" if event.type == "skill_loaded" else "load_skill_asset"
                more = {"vademecum.skill": str(data.get("skill", ""))}
                self._span(f"execute_tool {tool}", nanoseconds, _tool(tool) | more).end(nanoseconds)
            case "approval_asked":
                wanted = {"vademecum.approval.id": str(data.get("id", ""))}
                self._waiting["approval"] = self._span("approval", nanoseconds, wanted)
            case "approval_answered":
                verdict = {"vademecum.approval.verdict": str(data.get("verdict", ""))}
                self._ended("approval", nanoseconds, verdict)
            case "run_finished":
                self._finished(data, nanoseconds)

    @property
    def _model(self) -> str:
        return self._runs[-1][1] if self._runs else ""

    def _chat(self) -> dict[str, Any]:
        return {"gen_ai.operation.name": "chat", "gen_ai.request.model": self._model}

    def _run(self, data: Mapping[str, Any], now: int) -> None:
        agent, model = str(data.get("agent", "default")), str(data.get("model", ""))
        about = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.request.model": model,
        }
        if self._with_contents:
            about["gen_ai.input.messages"] = str(data.get("request", ""))
        if self._runs:
            span = self._span(f"invoke_agent {agent}", now, about)
        else:
            span = self._root
            span.update_name(f"invoke_agent {agent}")
            span.set_attributes(about)
        self._runs.append((span, model))

    def _replied(self, data: Mapping[str, Any], now: int) -> None:
        about = {
            "gen_ai.usage.input_tokens": int(data.get("input_tokens", 0)),
            "gen_ai.usage.output_tokens": int(data.get("output_tokens", 0)),
        }
        if self._with_contents and "text" in data:
            about["gen_ai.output.messages"] = data["text"]
        self._ended("chat", now, about)

    def _called(self, data: Mapping[str, Any], now: int) -> None:
        tool, code = str(data.get("tool", "")), str(data.get("code") or "")
        started = int(float(data.get("started") or now / 1e9) * 1e9)
        about = _tool(tool) | ({"error.type": code} if code else {})
        decision = data.get("decision")
        if isinstance(decision, Mapping):
            about["vademecum.decision"] = str(decision.get("effect", ""))
        if self._with_contents:
            about["gen_ai.tool.call.arguments"] = str(data.get("parameters", ""))
        span = self._span(f"execute_tool {tool}", started, about)
        self._end(span, now, failed=bool(code))

    def _finished(self, data: Mapping[str, Any], now: int) -> None:
        if not self._runs:
            return
        span, _ = self._runs.pop()
        span.set_attribute("vademecum.run.status", str(data.get("status", "")))
        self._end(span, now, failed=data.get("status") == "failed")
        if not self._runs:
            self._provider.force_flush(FLUSH_MILLISECONDS)

    def _span(self, name: str, started: int, about: Mapping[str, Any]) -> Span:
        from opentelemetry import trace  # noqa: PLC0415

        parent = trace.set_span_in_context(self._runs[-1][0] if self._runs else self._root)
        return self._tracer.start_span(name, context=parent, start_time=started, attributes=dict(about))

    def _ended(self, kind: str, now: int, about: Mapping[str, Any], *, failed: bool = False) -> None:
        span = self._waiting.pop(kind, None)
        if span is not None:
            span.set_attributes(dict(about))
            self._end(span, now, failed=failed)

    def _end(self, span: Span, now: int, *, failed: bool) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        if failed:
            span.set_status(StatusCode.ERROR)
        span.end(now)


def _traceparent(span: Span) -> str:
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-01"


def _tool(name: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
