"""Check the model for ``vade doctor``: its package, its key and its server."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from vademecum.cli.doctor import HealthCheck
from vademecum.config import ModelSettings
from vademecum.context import Context
from vademecum.errors import ConfigError, ModelFailed, ToolsUnsupported, VademecumError
from vademecum.models.base import Message, Model, Tool, wire_of
from vademecum.models.choose import Service, choose_model, find_key, kind_and_name, services_of

MAX_SECONDS = 2.0
_CONFIG = "~/.agent/config.json"


def model(settings: ModelSettings, context: Context) -> list[HealthCheck]:
    """Check the model that ``vade run`` takes here, and what it needs; only its own server is spoken to."""
    try:
        services = services_of(context)
        kind, name = kind_and_name(settings.provider, services)
    except ConfigError as error:
        return [HealthCheck("model", "problem", str(error), f"Correct model.provider in {_CONFIG}.")]
    if kind in {"offline", "mock"}:
        return [HealthCheck("model", "ok", "offline, by rules, not a language model: no key, no network")]
    if kind not in services:
        return [_from_a_file(settings.provider, Path(name))]
    service = services[kind]
    return [_package(settings, service), _key(service, context), _server(service, settings, context.env)]


def called(wanted: str, settings: ModelSettings, context: Context) -> list[HealthCheck]:
    """Make one cheap call, and say what works: the reply, native tools, streaming, the context's length."""
    same = wanted.partition(":")[0] == settings.provider.partition(":")[0]
    try:
        chosen = choose_model(wanted, settings.params if same else {}, context=context)
    except VademecumError as error:
        return [HealthCheck("model call", "problem", str(error), "Correct it, and try again.")]
    if not hasattr(chosen, "context_length"):
        return [HealthCheck("model call", "ok", f"{wanted} calls nobody")]
    started = time.monotonic()
    try:
        tools = _tools(chosen)
    except ModelFailed as error:
        return [HealthCheck("model call", "problem", str(error), "Check the key, the name and the address.")]
    seconds = time.monotonic() - started
    length = chosen.context_length()
    streams = getattr(chosen, "streamed", False)
    return [
        HealthCheck("model call", "ok", f"{wanted} answers in {seconds:.1f} s"),
        tools,
        HealthCheck(
            "model streaming",
            "ok" if streams else "note",
            "works" if streams else "the server does not stream",
        ),
        HealthCheck(
            "model context", "ok", f"{length:,} tokens" if length else "the server does not tell its length"
        ),
    ]


_PING = Tool(
    "ping",
    "Call this to show that tool calls work.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


def _tools(chosen: Model) -> HealthCheck:
    asked = Message("user", "Call the tool ping with the text pong.")
    name = "model tools"
    if wire_of(chosen) == "tools":
        try:
            reply = chosen.reply(
                [Message("system", "You test tool calls.", tools=(_PING,)), asked], schema={}
            )
        except ToolsUnsupported:
            pass
        else:
            if reply.calls:
                return HealthCheck(name, "ok", "native tool calls work")
            return HealthCheck(
                name,
                "note",
                "the server takes tools, but the model did not call one",
                'Set model.params.protocol to "json" if runs end without doing anything.',
            )
    chosen.reply([Message("system", "Answer in JSON."), Message("user", 'Answer {"ok": true}')], schema={})
    return HealthCheck(name, "note", "none: actions are JSON in the text")


def _from_a_file(provider: str, file: Path) -> HealthCheck:
    if file.is_file():
        return HealthCheck("model", "ok", provider)
    return HealthCheck(
        "model", "problem", f"there is no file {file}", f"Correct model.provider in {_CONFIG}."
    )


def _package(settings: ModelSettings, needs: Service) -> HealthCheck:
    if find_spec(needs.package) is not None:
        return HealthCheck("model", "ok", f"{settings.provider}, by the package {needs.package}")
    fix = f"Run: pip install 'vademecum[{needs.package}]'"
    return HealthCheck("model", "problem", f"{settings.provider} needs the package {needs.package}", fix)


def _key(service: Service, context: Context) -> HealthCheck:
    """Say where the key comes from, and never what it is."""
    variables = tuple(service.variables)
    if not variables:
        told = "none is needed" if service.package == "openai" else "its own, as the SDK finds it"
        return HealthCheck("model key", "ok", told)
    try:
        key = find_key(service, context)
    except ConfigError as error:
        return HealthCheck("model key", "problem", str(error), "Repair the secrets, or set the variable.")
    if key is not None:
        place = "set in the environment" if key.source == "environment" else "kept by vade secrets"
        return HealthCheck("model key", "ok", f"{key.variable} is {place}")
    name = variables[0]
    fix = f"Set {name} (a server of your own takes any text), or run: vade secrets set {name} --models"
    return HealthCheck("model key", "problem", f"{' or '.join(variables)} is not set", fix)


def _server(needs: Service, settings: ModelSettings, env: Mapping[str, str]) -> HealthCheck:
    import httpx  # only for those who have a server to ask

    name = "model server"
    address = needs.address_in(env, settings.params)
    fix = f"Check the network, and model.params.base_url in {_CONFIG}"
    fix += f", and {needs.address_variable}." if needs.address_variable else "."
    if not address and needs.variables:
        return HealthCheck(name, "problem", "it has no address", f"Set {needs.address_variable}.")
    if not address:
        return HealthCheck(name, "ok", "its region decides the address, so it was not tried")
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        return HealthCheck(name, "problem", "its address is not like https://host/v1", fix)
    # The user, path and query of the address may be secret, so they are not shown.
    origin = f"{url.scheme}://{url.netloc.decode()}"
    status, said = _tried(origin)
    return HealthCheck(name, status, f"{origin} {said}", None if status == "ok" else fix)


def _tried(origin: str) -> tuple[Literal["ok", "note", "problem"], str]:
    """Return whether anything answers; a thread waits for it, because a name lookup cannot be cut short."""
    import httpx

    codes: list[int] = []
    problems: list[str] = []

    def ask() -> None:
        try:
            with httpx.Client(timeout=MAX_SECONDS, follow_redirects=False) as client:
                codes.append(client.head(origin).status_code)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
            problems.append(str(error) or type(error).__name__)

    waiting = threading.Thread(target=ask, daemon=True)
    waiting.start()
    waiting.join(MAX_SECONDS)
    if codes and codes[0] >= httpx.codes.INTERNAL_SERVER_ERROR:
        return "note", f"answers with {codes[0]}: it cannot serve now"
    if codes:
        return "ok", "answers"
    why = problems[0] if problems else f"nothing came within {MAX_SECONDS:.0f} seconds"
    return "problem", f"does not answer ({why})"
