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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context as SpanContext
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

PARENT = "TRACEPARENT"
FLUSH_MILLISECONDS = 3000
_CONTENTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


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
        from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415
    except ImportError:
        return None
    is_console = os.environ.get("OTEL_TRACES_EXPORTER") == "console"
    exporter: export.SpanExporter = export.ConsoleSpanExporter() if is_console else OTLPSpanExporter()
    named = os.environ.get("OTEL_SERVICE_NAME", "vademecum")
    provider = TracerProvider(resource=Resource.create({"service.name": named}))
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
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
        self._root = self._tracer.start_span("invoke_agent", context=_given(env))

    @property
    def traceparent(self) -> str:
        """The name of this run's span, for processes that it starts."""
        return _traceparent(self._root)

    def __call__(self, event: Any) -> None:
        """Take an event of a run."""
        self._take(event.type, event.data, int(event.time * 1e9))
        if self._listener is not None:
            self._listener(event)

    def _take(self, type_: str, data: Mapping[str, Any], now: int) -> None:
        match type_:
            case "run_started":
                self._run(data, now)
            case "model_asked":
                model = self._runs[-1][1] if self._runs else ""
                about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
                self._waiting["chat"] = self._span(f"chat {model}", now, about)
            case "model_replied":
                kinds = ("input_tokens", "output_tokens")
                used = {f"gen_ai.usage.{kind}": int(data.get(kind, 0)) for kind in kinds}
                said = self._contents("gen_ai.output.messages", data.get("text"))
                self._end(self._waiting.pop("chat", None), now, used | said)
            case "model_failed":
                error = {"error.type": data.get("code", "")}
                self._end(self._waiting.pop("chat", None), now, error, failed=True)
            case "tool_called":
                code, decision = str(data.get("code") or ""), data.get("decision")
                about = {"error.type": code} if code else {}
                if isinstance(decision, Mapping):
                    about["vademecum.decision"] = str(decision.get("effect", ""))
                about |= self._contents("gen_ai.tool.call.arguments", data.get("parameters", ""))
                started = int(float(data.get("started") or now / 1e9) * 1e9)
                self._end(self._tool(str(data.get("tool", "")), started, about), now, failed=bool(code))
            case "skill_loaded" | "resource_loaded":
                tool = "skill" if type_ == "skill_loaded" else "load_skill_asset"
                self._end(self._tool(tool, now, {"vademecum.skill": str(data.get("skill", ""))}), now)
            case "approval_asked":
                wanted = {"vademecum.approval.id": str(data.get("id", ""))}
                self._waiting["approval"] = self._span("approval", now, wanted)
            case "approval_answered":
                verdict = {"vademecum.approval.verdict": str(data.get("verdict", ""))}
                self._end(self._waiting.pop("approval", None), now, verdict)
            case "run_finished" if self._runs:
                span, _ = self._runs.pop()
                status = {"vademecum.run.status": str(data.get("status", ""))}
                self._end(span, now, status, failed=data.get("status") == "failed")
                if not self._runs:
                    self._provider.force_flush(FLUSH_MILLISECONDS)

    def _run(self, data: Mapping[str, Any], now: int) -> None:
        agent, model = str(data.get("agent", "default")), str(data.get("model", ""))
        about = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.request.model": model,
            **self._contents("gen_ai.input.messages", data.get("request", "")),
        }
        span = self._span(f"invoke_agent {agent}", now, about) if self._runs else self._root
        span.update_name(f"invoke_agent {agent}")
        span.set_attributes(about)
        self._runs.append((span, model))

    def _contents(self, name: str, text: object) -> dict[str, str]:
        return {name: str(text)} if self._with_contents and text is not None else {}

    def _tool(self, name: str, started: int, about: Mapping[str, Any]) -> Span:
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        return self._span(f"execute_tool {name}", started, named | dict(about))

    def _span(self, name: str, started: int, about: Mapping[str, Any]) -> Span:
        from opentelemetry import trace  # noqa: PLC0415

        parent = trace.set_span_in_context(self._runs[-1][0] if self._runs else self._root)
        return self._tracer.start_span(name, context=parent, start_time=started, attributes=dict(about))

    def _end(
        self, span: Span | None, now: int, about: Mapping[str, Any] = {}, *, failed: bool = False
    ) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        if span is not None:
            span.set_attributes(dict(about))
            if failed:
                span.set_status(StatusCode.ERROR)
            span.end(now)


def _traceparent(span: Span) -> str:
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-01"
