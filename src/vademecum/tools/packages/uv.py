"""uv as a child process: where it is, its environment, how it runs and ends, and its failures in a sentence.

uv does not read pip's files and variables, so the indexes, proxy and certificates in them are translated.
Variables that uv reads itself win. Nothing else of the user's environment reaches uv.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import FileRefused, ToolRefused
from vademecum.files import read_capped
from vademecum.sandbox.interpreters import search_path
from vademecum.skill.text import visible
from vademecum.tools.packages.requirements import without_credentials

MAX_COMPLAINT_BYTES = 16 * 1024
MAX_COMPLAINT_CHARS = 300
MIN_FREE_BYTES = 64 * 1024 * 1024

_LOOK_SECONDS = 0.05
_DRAWN = re.compile(r"[│├╰─▶×]+")
# Bounded, so that no text of a package's making takes long to search.
_NAME = r"`?([\w.\[\]-]{1,100}(?:==[\w.+!-]{1,100})?)`?"
DISK_FULL = "the disk is full: make room, for example with `vade refresh --environments`"
_NO_WHEEL = (
    "{0} has no wheel for this Python and platform, and sources are not built: require another version"
)
_BUILDING = "to build it in the sandbox, set execution.build_packages to true in ~/.agent/config.json"
# What uv says → the rest of our sentence, with what its groups matched. The first that matches counts.
_EXPLANATIONS = [
    (r"no space left on device|disk quota exceeded", DISK_FULL),
    (r"unexpected argument", "uv is too old: update it, or run: pip install -U 'vademecum[packages]'"),
    (rf"because {_NAME} was not found in", "there is no package {0} in the package index: check its name"),
    (rf"hash mismatch for {_NAME}", "what the package index sent for {0} does not match its hash: try later"),
    (
        rf"{_NAME} has no (?:usable wheels|wheels with a matching)",
        _NO_WHEEL,
    ),
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
    (
        r"network connectivity is disabled",
        "uv is set to be offline (UV_OFFLINE), and they are not in its cache",
    ),
]
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


@dataclass(frozen=True, slots=True)
class StopConditions:
    """The conditions that end a child process early: a deadline, or a caller that cancels."""

    deadline: float
    cancelled: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic

    def check(self, place: Path) -> None:
        """Raise if it is time to end, or if the disk of ``place`` is nearly full."""
        if self.cancelled():
            raise ToolRefused("The packages were not installed: it was cancelled.", code="stopped-cancelled")
        if self.clock() > self.deadline:
            raise failed("it takes too long: try again, since what was downloaded is kept")
        disk = os.statvfs(place)
        if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
            raise failed(DISK_FULL)


def find_uv(env: Mapping[str, str]) -> str:
    """Return the path of uv: the user's, or the one beside the interpreter that runs us."""
    beside = sysconfig.get_path("scripts")
    found = shutil.which("uv", path=f"{search_path(env.get('PATH', ''))}:{beside}")
    if found is None:
        raise failed("uv, which installs them, is not here: run pip install 'vademecum[packages]'")
    return found


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


def run_child(
    words: Sequence[str], place: Path, env: Mapping[str, str], stop: StopConditions
) -> tuple[int, str]:
    """Run a command in the empty directory ``place`` and return its exit code and what it complained.

    It has its own process group, which is ended with it, whatever happens here.
    """
    log = place.with_name(f"{place.name}.log")
    with open(log, "wb") as out:
        process = subprocess.Popen(  # noqa: S603 - a list of words, none of them from a shell
            list(words),
            cwd=place,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            stop.check(place)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with open(log, "rb") as said:
        return process.returncode, said.read(MAX_COMPLAINT_BYTES).decode("utf-8", "replace")


def failed(reason: str, advice: str = "") -> ToolRefused:
    """Return the error for packages that cannot be installed."""
    return ToolRefused(f"The packages cannot be installed: {reason}.", code="packages", advice=advice)


def explained(complaint: str) -> ToolRefused:
    """Return an error for uv's complaint, in one sentence that says what to do.

    >>> str(explained("error: No solution found. Because nope was not found in the package registry"))
    'The packages cannot be installed: there is no package nope in the package index: check its name.'
    """
    plain = visible(without_credentials(_DRAWN.sub(" ", complaint)))
    for pattern, reason in _EXPLANATIONS:
        found = re.search(pattern, plain, re.IGNORECASE)
        if found:
            words = (part[:MAX_COMPLAINT_CHARS] for part in found.groups())
            return failed(reason.format(*words), _BUILDING if reason is _NO_WHEEL else "")
    said = plain.partition("error: ")[2] or plain or "nothing"
    return failed(f"uv failed and said: {said[:MAX_COMPLAINT_CHARS].rstrip('. ')}")
