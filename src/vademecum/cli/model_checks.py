"""What ``vade doctor`` says about the model: which one it is, and whether it could be asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from vademecum.cli.checks import Check
from vademecum.config import ModelSettings
from vademecum.errors import ConfigError
from vademecum.models.choose import kind_and_name

MAX_SECONDS = 2.0
_CONFIG = "~/.agent/config.json"


class Needs(Struct, frozen=True):
    """What a kind of model needs; ``package`` is also the name of our extra that brings it."""

    package: str
    # One of these variables holds the key; where there are none, the SDK has its own ways to it.
    keys: tuple[str, ...]
    address_variable: str
    # Where the variable does not say otherwise; empty where it must, or where a region decides.
    address: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the package is here; it is not imported."""
        return find_spec(self.package) is not None

    def key_in(self, env: Mapping[str, str]) -> str | None:
        """The variable that holds the key, if one does."""
        return next((name for name in self.keys if env.get(name)), None)

    def address_in(self, env: Mapping[str, str], params: Mapping[str, Any]) -> str:
        """Where requests would go, or nothing where only the SDK knows."""
        return str(params.get("base_url") or env.get(self.address_variable) or self.address)


NEEDS: Mapping[str, Needs] = {
    "openai": Needs("openai", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", "https://api.openai.com/v1"),
    "azure": Needs("openai", ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"), "AZURE_OPENAI_ENDPOINT"),
    "anthropic": Needs(
        "anthropic",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
    ),
    "bedrock": Needs("anthropic", (), "ANTHROPIC_BEDROCK_BASE_URL"),
    "vertex": Needs("anthropic", (), "ANTHROPIC_VERTEX_BASE_URL"),
}


def model(settings: ModelSettings, env: Mapping[str, str]) -> list[Check]:
    """The model that ``vade run`` takes here, and what it needs; only its own server is spoken to."""
    try:
        kind, name = kind_and_name(settings.provider)
    except ConfigError as error:
        return [Check("model", "problem", str(error), f"Correct model.provider in {_CONFIG}.")]
    if kind == "offline":
        return [Check("model", "ok", "offline, by rules: no key, no network")]
    if kind not in NEEDS:
        return [_from_a_file(settings.provider, Path(name))]
    needs = NEEDS[kind]
    return [_package(settings, needs), _key(needs, env), _server(needs, settings, env)]


def _from_a_file(provider: str, file: Path) -> Check:
    if file.is_file():
        return Check("model", "ok", provider)
    return Check("model", "problem", f"there is no file {file}", f"Correct model.provider in {_CONFIG}.")


def _package(settings: ModelSettings, needs: Needs) -> Check:
    if needs.is_installed:
        return Check("model", "ok", f"{settings.provider}, by the package {needs.package}")
    fix = f"Run: pip install 'vademecum[{needs.package}]'"
    return Check("model", "problem", f"{settings.provider} needs the package {needs.package}", fix)


def _key(needs: Needs, env: Mapping[str, str]) -> Check:
    if not needs.keys:
        return Check("model key", "ok", "its own, as the SDK finds it")
    if found := needs.key_in(env):
        return Check("model key", "ok", f"{found} is set")
    fix = f"Set {needs.keys[0]}; a server of your own takes any text."
    return Check("model key", "problem", f"{' or '.join(needs.keys)} is not set", fix)


def _server(needs: Needs, settings: ModelSettings, env: Mapping[str, str]) -> Check:
    import httpx  # only for those who have a server to ask

    name = "model server"
    address = needs.address_in(env, settings.params)
    fix = f"Check the network, model.params.base_url in {_CONFIG}, and {needs.address_variable}."
    if not address and needs.keys:
        return Check(name, "problem", "it has no address", f"Set {needs.address_variable}.")
    if not address:
        return Check(name, "ok", "its region decides the address, so it was not tried")
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        return Check(name, "problem", "its address is not like https://host/v1", fix)
    # Only where it is, and nothing that may be secret: no user, no path, no query.
    origin = f"{url.scheme}://{url.netloc.decode()}"
    status, said = _tried(origin)
    return Check(name, status, f"{origin} {said}", None if status == "ok" else fix)


def _tried(origin: str) -> tuple[Literal["ok", "note", "problem"], str]:
    """Whether anything answers; a thread waits for it, for looking up a name cannot be cut short."""
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
