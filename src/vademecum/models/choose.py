"""A model by what a person typed: ``offline``, ``openai:NAME``, ``anthropic:NAME``, ``scripted:FILE``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused, ModelRefused
from vademecum.files import read_capped
from vademecum.models.base import Model

MAX_CASE_BYTES = 16 * 1024 * 1024


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
        from vademecum.models.scripted_model import Scripted  # noqa: PLC0415

        return Scripted(turns, wire=given.get("protocol", "json"))
    if kind in {"offline", "mock"}:
        from vademecum.models.offline_model import Offline  # noqa: PLC0415 - each when it is asked for

        return Offline()
    if kind == "scripted" and name:
        return _scripted(Path(name))
    if kind == "recorded" and name:
        from vademecum.models.recorded_model import Recorded  # noqa: PLC0415

        return Recorded(Path(name), mode="strict")
    return _by_sdk(wanted, given, context or Context.current())


def _by_sdk(wanted: str, params: dict[str, Any], context: Context) -> Model:
    from vademecum.models.services import kind_and_name, require_key, services_of  # noqa: PLC0415
    from vademecum.models.wire import Remembered, said  # noqa: PLC0415

    services = services_of(context)
    kind, name = kind_and_name(wanted, services)
    service = services[kind]
    try:
        ours = import_module(f"vademecum.models.{service.package}_sdk")
    except ImportError as error:
        advice = f"pip install 'vademecum[{service.package}]'"
        raise ConfigError(f"The model {wanted} needs a package that is not here: {advice}.") from error
    if service.structure:
        params.setdefault("structure", service.structure)
    address = service.address_in(context.env, params)
    if address and kind not in {"azure", "bedrock", "vertex"}:
        params["base_url"] = address
    own = {key: params.pop(key) for key in ("base_url", "timeout") if key in params}
    try:
        client = getattr(ours.SDK, service.client)(**own, **require_key(service, context))
    except (ours.SDK_ERROR, ValueError) as error:
        raise ModelRefused(f"The model cannot be used: {said(error)}") from error
    made: Model = ours.MODEL(wanted, name, client, remembered=Remembered.at(context), **params)
    return made


def _scripted(file: Path) -> Model:
    from vademecum.models.scripted_model import Scripted  # noqa: PLC0415

    try:
        found = msgspec.json.decode(read_capped(file, cap=MAX_CASE_BYTES))
        turns = found if isinstance(found, list) else found.get("turns") or found["mock"]["turns"]
        return Scripted(turns)
    except (OSError, FileRefused, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} has no turns for a scripted model ({error}): write a list.") from error
