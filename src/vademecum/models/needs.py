"""What each kind of model needs before it can be asked: a package, a key in the environment, an address.

The SDKs find these out by themselves when they are used; this is for saying beforehand what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from msgspec import Struct


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
