"""Messages → Reply: the models that decide. Create one with a function here, or by its typed name.

Each adapter is imported on first use.

>>> import vademecum as vm
>>> vm.models.offline().name
'offline'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused, ModelRefused
from vademecum.files import read_capped
from vademecum.nearest import there_is_no

if TYPE_CHECKING:
    from vademecum.models.base import Model, Wire
    from vademecum.models.scripted_model import Scripted, Turn

__all__ = ["anthropic", "offline", "openai", "recorded", "scripted"]

MAX_CASE_BYTES = 16 * 1024 * 1024


def offline() -> Model:
    """Return the default model: rules, no network, no key.

    >>> offline().name
    'offline'
    """
    from vademecum.models.offline_model import Offline  # noqa: PLC0415 - each on first use

    return Offline()


def scripted(turns: Sequence[Turn], *, piece: int = 0, wire: Wire = "json") -> Scripted:
    """Return a model with fixed replies, sent whole or in pieces of a size.

    >>> from vademecum.models.base import Message
    >>> model = scripted(["first", "second"])
    >>> [model.reply([Message("user", "Well?")], schema={}).text for _ in range(3)]
    ['first', 'second', 'second']
    """
    from vademecum.models.scripted_model import Scripted  # noqa: PLC0415

    return Scripted(turns, piece=piece, wire=wire)


def openai(name: str, **params: Any) -> Model:
    """Return a model behind the OpenAI protocol; ``base_url`` sets the server, ``timeout`` the time limit.

    It needs the extra ``openai``, and ``OPENAI_API_KEY`` in the environment or in ``vade secrets``.

    >>> import os
    >>> os.environ["OPENAI_API_KEY"] = "for a server of one's own, anything"
    >>> openai("qwen3", base_url="http://localhost:11434/v1").name
    'openai:qwen3'
    """
    return choose_model(f"openai:{name}", params)


def anthropic(name: str, **params: Any) -> Model:
    """Return one of Anthropic's models.

    It needs the extra ``anthropic``, and ``ANTHROPIC_API_KEY`` in the environment or in ``vade secrets``.

    >>> import os
    >>> os.environ["ANTHROPIC_API_KEY"] = "..."
    >>> anthropic("claude-sonnet-4-5", max_tokens=2000).name
    'anthropic:claude-sonnet-4-5'
    """
    return choose_model(f"anthropic:{name}", params)


def recorded(tape: Path | str, inner: Model | None = None) -> Model:
    """Return a model that records the replies of ``inner`` in a file, and replays them from it.

    >>> from vademecum.models.base import Message
    >>> asked = [Message("user", "Well?")]
    >>> recorded("tape.jsonl", scripted(["first", "second"])).reply(asked, schema={}).text
    'first'
    >>> recorded("tape.jsonl").reply(asked, schema={}).text  # without a model: from the file
    'first'
    """
    from vademecum.models.recorded_model import Recorded  # noqa: PLC0415

    return Recorded(Path(tape), inner)


def choose_model(
    wanted: str, params: Mapping[str, Any] | None = None, *, context: Context | None = None
) -> Model:
    """Return the model of that name.

    >>> choose_model("offline").name
    'offline'
    """
    given = dict(params or {})
    kind, _, name = wanted.partition(":")
    if kind == "mock" and (turns := given.get("turns")):
        return scripted(turns, wire=given.get("protocol", "json"))
    if kind in {"offline", "mock"}:
        return offline()
    if kind == "scripted" and name:
        try:
            found = msgspec.json.decode(read_capped(name, cap=MAX_CASE_BYTES))
            turns = found if isinstance(found, list) else found.get("turns") or found["mock"]["turns"]
            return scripted(turns)
        except (OSError, FileRefused, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{name} has no turns for a scripted model ({error}): write a list.") from error
    if kind == "recorded" and name:
        return recorded(name)
    return _by_sdk(wanted, given, context or Context.current())


def _by_sdk(wanted: str, params: dict[str, Any], context: Context) -> Model:
    services = services_of(context)
    kind, name = kind_and_name(wanted, services)
    service = services[kind]
    try:
        ours = import_module(f"vademecum.models.{service.package}_sdk")
    except ImportError as error:
        advice = f"pip install 'vademecum[{service.package}]'"
        raise ConfigError(f"The model {wanted} needs a package that is not installed: {advice}.") from error
    if service.structure:
        params.setdefault("structure", service.structure)
    address = params.get("base_url") or context.env.get(service.address_variable) or service.base_url
    if address and kind not in {"azure", "bedrock", "vertex"}:  # their clients find it themselves
        params["base_url"] = address
    own: dict[str, Any] = {key: params.pop(key) for key in ("base_url", "timeout") if key in params}
    if key := find_key(service, context):
        own[key.argument] = key.value
    elif service.variables:
        variable = next(iter(service.variables))
        advice = f"set {variable}, or run `vade secrets set {variable} --models`"
        raise ConfigError(f"The key of {service.name} is missing: {advice}.")
    elif service.package == "openai":
        own["api_key"] = "none"
    try:
        client = getattr(ours.MODEL.sdk, service.client)(**own)
    except (ours.SDK_ERROR, ValueError) as error:
        raise ModelRefused(f"The model cannot be used: {' '.join(str(error).split())}") from error
    made: Model = ours.MODEL(wanted, name, client, caches=context.cache_directory(), **params)
    return made


class Service(Struct, frozen=True, forbid_unknown_fields=True):
    """One service: its address, its key's variables with the client's parameter for each, its package.

    A service without a variable accepts any key. ``package`` is also the name of our extra that installs it.
    """

    name: str
    base_url: str = ""
    variables: dict[str, str] = {}
    address_variable: str = ""
    structure: str = ""
    package: Literal["openai", "anthropic"] = "openai"
    client: str = "OpenAI"


@cache
def known_services() -> dict[str, Service]:
    """Return the built-in services by name.

    >>> known_services()["ollama"].base_url
    'http://localhost:11434/v1'
    """
    rows = msgspec.json.decode(Path(__file__).with_name("services.json").read_bytes(), type=list[Service])
    return {service.name: service for service in rows}


def services_of(context: Context) -> dict[str, Service]:
    """Return the built-in services and those of the user's configuration, which win."""
    found = dict(known_services())
    for name, own in load_config(context).settings.model.services.items():
        found[name] = Service(name, own.base_url, {own.key: "api_key"} if own.key else {})
    return found


def kind_and_name(wanted: str, services: Mapping[str, Service]) -> tuple[str, str]:
    """Split a typed model into its kind and its name.

    >>> kind_and_name("openai:gpt-5", known_services())
    ('openai', 'gpt-5')
    """
    kind, _, name = wanted.partition(":")
    kinds = ("offline", "mock", "scripted", "recorded", *services)
    if kind not in kinds:
        raise ConfigError(there_is_no("kind of model", kind, kinds))
    if not name and kind not in {"offline", "mock"}:
        raise ConfigError(f"Which model of {kind!r}? Write it as {kind}:NAME.")
    return kind, name


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A key: its variable, where it was found, and the parameters for the SDK's client."""

    variable: str
    source: Literal["environment", "secrets"]
    argument: str
    value: str = field(repr=False)


def find_key(service: Service, context: Context) -> ModelKey | None:
    """Return the key of a service: from the environment, else from ``vade secrets``."""
    from vademecum.secret_store import SecretStore  # noqa: PLC0415 - only for models that have a key

    for variable, argument in service.variables.items():
        if value := context.env.get(variable):
            return ModelKey(variable, "environment", argument, value)
    for variable, argument in service.variables.items():
        if value := SecretStore(context).get(variable, skill=None):
            return ModelKey(variable, "secrets", argument, value)
    return None
