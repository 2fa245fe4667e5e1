"""The user's settings for pip and uv → the environment that uv runs with.

uv does not read pip's files and variables, so the indexes, proxy and certificates in them are translated.
Variables that uv reads itself win. Nothing else of the user's environment reaches uv.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import FileRefused
from vademecum.files import read_capped

MAX_PIP_CONFIG_BYTES = 256 * 1024

# If one of these is set, the user chose indexes for uv, and those of pip are not used.
_UV_INDEXES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
)
_PASSED_ON = frozenset(
    {
        *_UV_INDEXES,
        "UV_CACHE_DIR",
        "UV_EXCLUDE_NEWER",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX_STRATEGY",
        "UV_INSECURE_HOST",
        "UV_NATIVE_TLS",
        "UV_OFFLINE",
        "UV_SYSTEM_CERTS",
        "HOME",
        "NETRC",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "SSL_CLIENT_CERT",
        "TMPDIR",
        "XDG_CACHE_HOME",
    }
)
_PASSED_PATTERN = re.compile(r"UV_INDEX_\w+_(?:USERNAME|PASSWORD)|(?:https?|all|no)_proxy", re.IGNORECASE)
# pip's name of a setting → uv's variable, and what separates several values.
_INDEXES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
_CONNECTION = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
}


def uv_environment(context: Context) -> dict[str, str]:
    """Return the variables that uv gets: what it reads itself, and what the user set for pip."""
    env = context.env
    found = {
        name: value
        for name, value in env.items()
        if value and (name in _PASSED_ON or _PASSED_PATTERN.fullmatch(name))
    }
    pip = _pip_settings(context)
    if not any(found.get(name) for name in _UV_INDEXES):
        for name, (variable, between) in _INDEXES.items():
            if values := pip.get(name, "").split():
                found.setdefault(variable, between.join(values))
    for name, variables in _CONNECTION.items():
        for variable in variables:
            # Variables for proxies are in use in both cases.
            if pip.get(name) and variable.lower() not in found:
                found.setdefault(variable, pip[name])
    if "REQUESTS_CA_BUNDLE" in env:  # as pip does
        found.setdefault("SSL_CERT_FILE", env["REQUESTS_CA_BUNDLE"])
    return found


def _pip_settings(context: Context) -> dict[str, str]:
    """Return pip's settings by name: its files first, then the environment, which wins."""
    import configparser  # noqa: PLC0415 - only when something is built

    found: dict[str, str] = {}
    for file in _pip_files(context.env, context.home):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(read_capped(file, cap=MAX_PIP_CONFIG_BYTES).decode("utf-8-sig"))
        except (OSError, FileRefused, UnicodeDecodeError, configparser.Error):
            continue  # pip will complain about it; a build that needs it says what is missing
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= {name.replace("_", "-"): value for name, value in parser.items(section) if value}
    for name, value in context.env.items():
        if name.startswith("PIP_") and value:
            found[name[4:].lower().replace("_", "-")] = value
    if found.get("no-index", "").lower() in {"0", "false", "no", "off"}:
        del found["no-index"]
    return found


def _pip_files(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the files that pip reads, the weakest first."""
    own = env.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    for directory in env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(directory, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    if not (own and Path(own).exists()):
        yield home / ".pip" / "pip.conf"
        if sys.platform == "darwin":
            yield home / "Library" / "Application Support" / "pip" / "pip.conf"
        yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if own:
        yield Path(own)
