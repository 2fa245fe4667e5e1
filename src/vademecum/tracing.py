"""Make OpenTelemetry spans of a run's events, by the GenAI conventions, if the environment configures it.

The extra ``otel`` installs the SDK. The standard variables (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_TRACES_EXPORTER``, …) set exporter and endpoint. Texts are exported only if
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
    """Return the provider of spans, or ``None`` if the extra is not installed."""
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
    """Return a listener that also makes spans, or ``None`` if traces are not configured."""
    provider = _provider() if is_configured() else None
    return None if provider is None else Traced(provider, listener, env)


@contextmanager
def belonging(name: str) -> Iterator[None]:
    """Make one span for all runs of this process and its children, such as an evaluation."""
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
    """Return the parent span of a run, from the variable that names it."""
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
        self._runs: list[tuple[Span, str]] = []  # the unfinished ones, each with its model
        self._asked = 0  # when the model, or a person, was asked last
        self._with_contents = os.environ.get(_CONTENTS, "").lower() == "true"
        self._root = self._tracer.start_span("invoke_agent", context=_given(env))

    @property
    def traceparent(self) -> str:
        """The ``traceparent`` of this run's span, for processes that it starts."""
        return _traceparent(self._root)

    def __call__(self, event: Any) -> None:
        """Make spans of an event, and pass it to the listener."""
        self._take(event.type, event.data, int(event.time * 1e9))
        if self._listener is not None:
            self._listener(event)

    def _take(self, type_: str, data: Mapping[str, Any], now: int) -> None:
        match type_:
            case "run_started":
                self._asked = now
                self._begin(data, now)
            case "model_asked" | "approval_asked":
                self._asked = now
            case "model_replied" | "model_failed":
                model = self._runs[-1][1] if self._runs else ""
                about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
                kinds = ("input_tokens", "output_tokens")
                about |= {f"gen_ai.usage.{kind}": data[kind] for kind in kinds if kind in data}
                about |= self._contents("gen_ai.output.messages", data.get("text"))
                self._span(f"chat {model}", self._asked, now, about, error=data.get("code"))
            case "tool_called" | "skill_loaded" | "resource_loaded":
                loads = {"skill_loaded": "skill", "resource_loaded": "load_skill_asset"}
                tool = str(loads.get(type_) or data.get("tool", ""))
                about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
                if type_ in loads:
                    about["vademecum.skill"] = str(data.get("skill", ""))
                else:
                    about |= self._contents("gen_ai.tool.call.arguments", data.get("parameters", ""))
                if decision := data.get("decision"):
                    about["vademecum.decision"] = str(decision.get("effect", ""))
                started = int(float(data.get("started") or now / 1e9) * 1e9)
                self._span(f"execute_tool {tool}", started, now, about, error=data.get("code"))
            case "approval_answered":
                about = {f"vademecum.approval.{key}": str(data.get(key, "")) for key in ("id", "verdict")}
                self._span("approval", self._asked, now, about)
            case "run_finished" if self._runs:
                span, _ = self._runs.pop()
                status = str(data.get("status", ""))
                _end(span, now, {"vademecum.run.status": status}, failed=status == "failed")
                if not self._runs:
                    self._provider.force_flush(FLUSH_MILLISECONDS)

    def _begin(self, data: Mapping[str, Any], now: int) -> None:
        agent, model = str(data.get("agent", "default")), str(data.get("model", ""))
        span = self._started("invoke_agent", now) if self._runs else self._root
        span.update_name(f"invoke_agent {agent}")
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        about |= self._contents("gen_ai.input.messages", data.get("request", ""))
        span.set_attributes({**about, "gen_ai.request.model": model})
        self._runs.append((span, model))

    def _contents(self, name: str, text: object) -> dict[str, str]:
        return {name: str(text)} if self._with_contents and text is not None else {}

    def _span(self, name: str, started: int, now: int, about: Mapping[str, Any], *, error: Any = "") -> None:
        about = {**about, "error.type": str(error)} if error else about
        _end(self._started(name, started), now, about, failed=bool(error))

    def _started(self, name: str, now: int) -> Span:
        from opentelemetry import trace  # noqa: PLC0415

        parent = trace.set_span_in_context(self._runs[-1][0] if self._runs else self._root)
        return self._tracer.start_span(name, context=parent, start_time=now)


def _end(span: Span, now: int, about: Mapping[str, Any], *, failed: bool) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    span.set_attributes(dict(about))
    if failed:
        span.set_status(StatusCode.ERROR)
    span.end(now)


def _traceparent(span: Span) -> str:
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-01"
