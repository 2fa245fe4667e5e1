"""One file from the web, within limits of size and time, never from a private address by a redirect."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin

from vademecum.errors import IntegrityFailed, PackRefused, ToolRefused
from vademecum.packs.sources.archive import MAX_PACKED_BYTES
from vademecum.tools.hosts import Hop, hop_to, is_private, resolved

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
MAX_SECONDS = 600.0
MAX_SILENCE_SECONDS = 30.0
MAX_SMALL_BYTES = 5 * 1024 * 1024

_REDIRECTS = frozenset({301, 302, 303, 307, 308})

# Bytes done and bytes in all; the total is 0 if it is not known.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Web:
    """Download files within a limit of time, and report progress."""

    progress: Progress
    seconds: float = MAX_SECONDS
    clock: Callable[[], float] = time.monotonic

    def download(
        self, url: str, target: Path, *, cap: int = MAX_PACKED_BYTES, sha256: str | None = None
    ) -> str:
        """Fetch a file and return its sha256; if another one was wanted, delete it and refuse."""
        with open(target, "wb") as out:
            digest = self._fetched(url, out, cap)
        if sha256 is not None and digest != sha256:
            target.unlink()
            raise IntegrityFailed(f"{url} has sha256 {digest}, not {sha256}: nothing was installed.")
        return digest

    def read(self, url: str, aside: Path, *, cap: int = MAX_SMALL_BYTES) -> bytes | None:
        """Return the content of a small file, or None if there is none."""
        target = aside / "read"
        try:
            self.download(url, target, cap=cap)
        except PackRefused as error:
            if error.code == "missing":
                return None
            raise
        return target.read_bytes()

    def _fetched(self, url: str, out: IO[bytes], cap: int) -> str:
        import httpx  # noqa: PLC0415 - 80 ms, only for sources on the network

        deadline = self.clock() + self.seconds
        timeout = min(MAX_SILENCE_SECONDS, self.seconds)
        first = hop_of(url)
        with httpx.Client(follow_redirects=False, timeout=timeout) as client:
            for _ in range(MAX_REDIRECTS + 1):
                try:
                    with client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer:
                        target = answer.headers.get("location")
                        if answer.status_code not in _REDIRECTS or target is None:
                            return self._taken(answer, out, cap, deadline)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    reason = f"{type(error).__name__}: {error}".rstrip(": ")
                    raise PackRefused(f"{url} could not be fetched ({reason}): try again later.") from error
                url = led_to(urljoin(url, target), first)
        raise PackRefused(f"{url} redirects more than {MAX_REDIRECTS} times: nothing was installed.")

    def _taken(self, answer: httpx.Response, out: IO[bytes], cap: int, deadline: float) -> str:
        url = answer.url
        if answer.status_code in {401, 403}:
            raise PackRefused(f"{url} may not be read (HTTP {answer.status_code}).", code="forbidden")
        if answer.status_code in {404, 410}:
            raise PackRefused(f"{url} does not exist (HTTP {answer.status_code}).", code="missing")
        if not answer.is_success:
            raise PackRefused(f"{url} answered with HTTP {answer.status_code}: try again later.")
        said = answer.headers.get("content-length", "")
        total = int(said) if said.isascii() and said.isdigit() else 0
        too_large = PackRefused(f"{url} is larger than {cap:,} bytes: nothing was installed.")
        if total > cap:
            raise too_large
        digest, size = hashlib.sha256(), 0
        for piece in answer.iter_raw():
            size += len(piece)
            if size > cap:
                raise too_large
            if self.clock() > deadline:
                raise PackRefused(
                    f"{url} took longer than {self.seconds:.0f} seconds: nothing was installed."
                )
            digest.update(piece)
            out.write(piece)
            self.progress(size, total)
        return digest.hexdigest()


def hop_of(url: str) -> Hop:
    """Parse an address, which must be https, or http on this machine."""
    try:
        hop = hop_to(url)
    except ToolRefused as error:
        raise PackRefused(f"{error} Nothing was installed.") from error
    if hop.scheme != "https" and not _is_here(hop.host):
        raise PackRefused(f"{url[:200]} is not encrypted: use https. Nothing was installed.")
    return hop


def led_to(url: str, first: Hop) -> str:
    """Return an address that a host led to; one on the web must not lead to a private network."""
    hop = hop_of(url)
    if _is_here(first.host) or hop.host == first.host:
        return url
    try:
        inside = any(map(is_private, resolved(hop.host, hop.port)))
    except ToolRefused:
        inside = False  # a proxy may know the name
    if inside:
        raise PackRefused(f"{first.host} leads to a private address ({hop.host}): nothing was installed.")
    return url


def _is_here(host: str) -> bool:
    """Return whether a host name means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
