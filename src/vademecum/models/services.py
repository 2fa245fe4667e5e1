"""Which services there are, where they are, and the variable that has the key of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, ModelRefused
from vademecum.nearest import meant, nearest
from vademecum.secret_store import SecretStore

OWN_KINDS = ("offline", "mock", "scripted", "recorded")
_UNNAMED = frozenset({"offline", "mock"})
NO_KEY = "none"


class Service(Struct, frozen=True, forbid_unknown_fields=True):
    """One service: its address, the variables of its key with the client's name for each, and its package.

    A service without a variable takes any key. ``package`` is also the name of our extra that brings it.
    """

    name: str
    base_url: str = ""
    key: str = ""
    address_variable: str = ""
    structure: str = ""
    package: Literal["openai", "anthropic"] = "openai"
    client: str = "OpenAI"
    keys: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The variables that may have the key, and what the client calls each."""
        return self.keys or ({self.key: "api_key"} if self.key else {})

    def address_in(self, env: Mapping[str, str], params: Mapping[str, Any]) -> str:
        """Return the address of requests, or nothing if only the SDK knows it."""
        return str(params.get("base_url") or env.get(self.address_variable) or self.base_url)


@cache
def known_services() -> dict[str, Service]:
    """Return the services that are known without configuration, by name.

    >>> known_services()["ollama"].base_url
    'http://localhost:11434/v1'
    """
    rows = msgspec.json.decode(Path(__file__).with_name("services.json").read_bytes(), type=list[Service])
    return {service.name: service for service in rows}


def services_of(context: Context) -> dict[str, Service]:
    """Return the known services and those of the user's configuration, which win."""
    own = load_config(context).settings.model.services
    return known_services() | {name: Service(name, each.base_url, each.key) for name, each in own.items()}


def kind_and_name(wanted: str, services: Mapping[str, Service] | None = None) -> tuple[str, str]:
    """Take apart what was typed.

    >>> kind_and_name("openai:gpt-5")
    ('openai', 'gpt-5')
    """
    kind, _, name = wanted.partition(":")
    kinds = (*OWN_KINDS, *(known_services() if services is None else services))
    if kind not in kinds:
        hint = meant(nearest(kind, kinds), otherwise=f"there are {', '.join(kinds)}.")
        raise ConfigError(f"There is no kind of model {kind!r}: {hint}")
    if not name and kind not in _UNNAMED:
        raise ConfigError(f"Which model of {kind!r}? Write it as {kind}:NAME.")
    return kind, name


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A key that was found: under which variable, where, and how it is given to the SDK's client."""

    variable: str
    source: Literal["environment", "secrets"]
    argument: str
    value: str = field(repr=False)


def find_key(service: Service, context: Context) -> ModelKey | None:
    """Return the key of a service: from the environment, else from what ``vade secrets`` keeps."""
    for variable, argument in service.variables.items():
        if value := context.env.get(variable):
            return ModelKey(variable, "environment", argument, value)
    for variable, argument in service.variables.items():
        if value := SecretStore(context).get(variable, skill=None):
            return ModelKey(variable, "secrets", argument, value)
    return None


def require_key(service: Service, context: Context) -> dict[str, str]:
    """Return the key as the client takes it; if it is missing, say which variable has to be set."""
    key = find_key(service, context)
    if key is not None:
        return {key.argument: key.value}
    if service.variables:
        variable = next(iter(service.variables))
        raise ModelRefused(
            f"The key of {service.name} is missing: set {variable}, "
            f"or run `vade secrets set {variable} --models`."
        )
    return {"api_key": NO_KEY} if service.package == "openai" else {}
