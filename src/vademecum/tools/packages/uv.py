"""Find uv, build its environment, and turn its failures into one sentence.

uv does not read pip's files and variables, so their indexes, proxy and certificates are translated. Variables
that uv reads itself win. Nothing else of the user's environment is passed to uv.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import FileRefused, ToolRefused
from vademecum.files import read_capped
from vademecum.sandbox.base import search_path
from vademecum.skill.text import visible
from vademecum.tools.packages.requirements import without_credentials

MAX_COMPLAINT_CHARS = 300

_DRAWN = re.compile(r"[│├╰─▶×]+")
# Bounded, so that a search takes no long time, whatever text a package prints.
_NAME = r"`?([\w.\[\]-]{1,100}(?:==[\w.+!-]{1,100})?)`?"
DISK_FULL = "the disk is full: make room, for example with `vade refresh --environments`"
_NO_WHEEL = (
    "{0} has no wheel for this Python and platform, and sources are not built: require another version"
)
_BUILDING = "to build it in the sandbox, set execution.build_packages to true in ~/.agent/config.json"
# uv's message → the rest of our sentence, with the text of its groups. The first match counts.
_EXPLANATIONS = [
    (r"no space left on device|disk quota exceeded", DISK_FULL),
    (r"unexpected argument", "uv is too old: update it, or run: pip install -U 'vademecum[packages]'"),
    (rf"because {_NAME} was not found in", "there is no package {0} in the package index: check its name"),
    (rf"hash mismatch for {_NAME}", "what the package index sent for {0} does not match its hash: try later"),
    (rf"{_NAME} has no (?:usable wheels|wheels with a matching)", _NO_WHEEL),
    (
        rf"for package {_NAME}.*?included as a url dependency",
        "{0} requires another package by its address, which is not allowed: require another version",
    ),
    (rf"failed to build {_NAME}", "{0} cannot be built from source here: require a version with a wheel"),
    (rf"{_NAME} requires python (\S+)", "{0} requires Python {1}: require another version"),
    (
        r"no solution found.*?because (.+?)(?:, we can conclude|$)",
        "no versions fit together ({0}): change the versions",
    ),
    (
        r"(401 unauthorized|403 forbidden)",
        "the package index answered {0}: check the user name and password of your index",
    ),
    (
        r"(?:error sending request for url|failed to fetch:?) .?(?:https?://)([^/\s`)]+)",
        "the package index at {0} cannot be reached: check the network and your settings for pip or uv",
    ),
]
MAX_PIP_CONFIG_BYTES = 256 * 1024

# If one of these is set, the user chose indexes for uv, and pip's are not used.
_UV_INDEX = re.compile(r"UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX)")
_PASSED_ON = re.compile(
    rf"{_UV_INDEX.pattern}|UV_INDEX_\w+_(?:USERNAME|PASSWORD)|UV_(?:CACHE_DIR|EXCLUDE_NEWER|HTTP_RETRIES"
    r"|HTTP_TIMEOUT|INDEX_STRATEGY|INSECURE_HOST|NATIVE_TLS|OFFLINE|SYSTEM_CERTS)|HOME|NETRC|TMPDIR"
    r"|SSL_(?:CERT_DIR|CERT_FILE|CLIENT_CERT)|XDG_CACHE_HOME|(?i:(?:https?|all|no)_proxy)"
)
# pip's name of a setting → uv's variable, and what separates several values.
_INDEXES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# uv's variable → pip's name of the setting.
_CONNECTION = {
    "SSL_CERT_FILE": "cert",
    "SSL_CLIENT_CERT": "client-cert",
    "HTTPS_PROXY": "proxy",
    "HTTP_PROXY": "proxy",
}


def find_uv(env: Mapping[str, str]) -> str:
    """Return the path of uv: the user's, or the one next to the running interpreter."""
    beside = sysconfig.get_path("scripts")
    found = shutil.which("uv", path=f"{search_path(env.get('PATH', ''))}:{beside}")
    if found is None:
        raise failed("uv, which installs them, is not installed: run pip install 'vademecum[packages]'")
    return found


def uv_environment(context: Context) -> dict[str, str]:
    """Return the environment of uv: its own variables, and the user's settings for pip."""
    env = context.env
    found = {name: value for name, value in env.items() if value and _PASSED_ON.fullmatch(name)}
    pip = _pip_settings(context)
    if not any(map(_UV_INDEX.fullmatch, found)):
        for name, (variable, between) in _INDEXES.items():
            if values := pip.get(name, "").split():
                found.setdefault(variable, between.join(values))
    for variable, name in _CONNECTION.items():
        # Variables for proxies are used in both cases.
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
            continue  # pip reports it; a build that needs it says what is missing
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
    """Yield the files that pip reads, lowest precedence first."""
    own = env.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    yield from (Path(each, "pip/pip.conf") for each in env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"))
    yield Path("/etc/pip.conf")
    if not (own and Path(own).exists()):
        yield home / ".pip/pip.conf"
        yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if own:
        yield Path(own)


def failed(reason: str, advice: str = "") -> ToolRefused:
    """Return the error for packages that cannot be installed."""
    return ToolRefused(f"The packages cannot be installed: {reason}.", code="packages", advice=advice)


def explained(complaint: str) -> ToolRefused:
    """Return an error for uv's message, in one sentence that says what to do.

    >>> str(explained("error: rich requires Python 3.99"))
    'The packages cannot be installed: rich requires Python 3.99: require another version.'
    """
    plain = visible(without_credentials(_DRAWN.sub(" ", complaint)))
    for pattern, reason in _EXPLANATIONS:
        found = re.search(pattern, plain, re.IGNORECASE)
        if found:
            words = (part[:MAX_COMPLAINT_CHARS] for part in found.groups())
            return failed(reason.format(*words), _BUILDING if reason is _NO_WHEEL else "")
    said = plain.partition("error: ")[2] or plain or "nothing"
    return failed(f"uv failed and said: {said[:MAX_COMPLAINT_CHARS].rstrip('. ')}")
