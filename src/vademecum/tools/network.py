"""``network_request``: one HTTP request to a host that is allowed, at an address that is public.

The name is resolved here, every address is checked, and the connection goes to the address that was
checked: a name that changes its mind in between gains nothing. Each redirect is a new request to the gate.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from vademecum.errors import ToolRefused
from vademecum.skill.text import without_hidden
from vademecum.tools.calls import Method, NetworkRequest, Observation
from vademecum.tools.hosts import Hop, Permit, Resolve, hop_to, permitted_address, resolved

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
MAX_ANSWER_BYTES = 10 * 1024 * 1024
MAX_SHOWN_CHARS = 20_000
MAX_SECONDS = 30.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_HEADERS = ("content-type", "content-length", "last-modified", "etag", "location", "retry-after")
# Headers that decide where a request goes or how it is framed are ours alone.
_OWN_HEADERS = frozenset({"host", "connection", "transfer-encoding", "content-length", "upgrade", "te"})
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


def network_request(
    call: NetworkRequest,
    *,
    permit: Permit,
    keep: Path,
    resolve: Resolve = resolved,
    clock: Callable[[], float] = time.monotonic,
) -> Observation:
    """Send it, follow redirects one by one, and keep the answer."""
    import httpx  # noqa: PLC0415 - 80 ms, for this tool alone

    sent = _Sent(call.method, call.url, _headers(call), call.body.encode("utf-8", "replace"))
    with httpx.Client(trust_env=False, follow_redirects=False, timeout=MAX_SECONDS) as client:
        way = _Way(client, permit, resolve, clock, deadline=clock() + MAX_SECONDS)
        for _ in range(MAX_REDIRECTS + 1):
            answer = way.send(sent)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None:
                return _observed(sent, answer, keep)
            sent = sent.redirected(_target(sent.url, target), answer.status)
    raise ToolRefused(f"{call.url[:200]!r} redirects more than {MAX_REDIRECTS} times.", code="redirects")


def about_request(call: object, hop: Hop) -> str:
    """Describe a request for the person who approves it: its destination and its content."""
    if not isinstance(call, NetworkRequest):
        return ""
    lines = [f"{call.method} {call.url}"]
    if hop.url != call.url:
        lines.append(f"redirected to {hop.url}")
    lines += [f"{name}: …" for name in call.headers]
    if call.body:
        lines += [f"with a body of {len(call.body):,} characters:", call.body[:500]]
    return "\n".join(lines)


def _target(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise ToolRefused(f"{url[:200]!r} redirects to no address ({error}).", code="url") from error


@dataclass(frozen=True, slots=True)
class _Sent:
    method: Method
    url: str
    headers: dict[str, str]
    body: bytes

    def redirected(self, url: str, status: int) -> _Sent:
        """The request that follows: as browsers do it, and without credentials for another host."""
        headers = self.headers
        here, there = hop_to(self.url), hop_to(url)
        if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
            headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
        if status in {301, 302, 303} and self.method not in {"GET", "HEAD"}:
            return _Sent("GET", url, headers, b"")
        return replace(self, url=url, headers=headers)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool


def _headers(call: NetworkRequest) -> dict[str, str]:
    refused = [name for name in call.headers if name.lower() in _OWN_HEADERS]
    if refused:
        raise ToolRefused(f"The header {refused[0]!r} cannot be set: leave it out.", code="header")
    return dict(call.headers)


@dataclass(frozen=True, slots=True)
class _Way:
    """How requests of one call are sent: each asks first, and goes to an address that was checked."""

    client: httpx.Client
    permit: Permit
    resolve: Resolve
    clock: Callable[[], float]
    deadline: float

    def send(self, sent: _Sent) -> _Answer:
        hop = hop_to(sent.url)
        address = permitted_address(hop, permit=self.permit, resolve=self.resolve)
        return self._sent_to(address, hop, sent)

    def _sent_to(self, address: str, hop: Hop, sent: _Sent) -> _Answer:
        import httpx  # noqa: PLC0415 - imported already

        try:
            request = self.client.build_request(
                sent.method,
                httpx.URL(sent.url).copy_with(host=address),
                headers={"accept-encoding": "identity", **sent.headers, "host": hop.resource},
                content=sent.body or None,
                extensions={"sni_hostname": hop.host},
            )
            answer = self.client.send(request, stream=True)
            try:
                body, cut = self._capped(answer)
            finally:
                answer.close()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ToolRefused(
                f"{hop.resource} did not answer ({type(error).__name__}: {error}).", code="unreachable"
            ) from error
        return _Answer(answer.status_code, dict(answer.headers), body, cut)

    def _capped(self, answer: httpx.Response) -> tuple[bytes, bool]:
        """The body up to its cap; what was compressed all the same is unpacked once, and no further."""
        pieces, size = [], 0
        for piece in answer.iter_raw():
            size += len(piece)
            pieces.append(piece)
            if self.clock() > self.deadline:
                raise ToolRefused(f"The answer took longer than {MAX_SECONDS:.0f} seconds.", code="time")
            if size > MAX_ANSWER_BYTES:
                break
        data = b"".join(pieces)
        if answer.headers.get("content-encoding", "").lower() in {"gzip", "deflate"}:
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                data = unpack.decompress(data, MAX_ANSWER_BYTES + 1)
            except zlib.error as error:
                raise ToolRefused(f"The answer cannot be unpacked ({error}).", code="unreachable") from error
        return data[:MAX_ANSWER_BYTES], len(data) > MAX_ANSWER_BYTES


def _observed(sent: _Sent, answer: _Answer, keep: Path) -> Observation:
    keep.parent.mkdir(parents=True, exist_ok=True)
    keep.write_bytes(answer.body)
    headers = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    if b"\0" in answer.body[:8192]:
        shown = f"[{len(answer.body):,} bytes that are not text]"
    else:
        shown = without_hidden(answer.body.decode("utf-8", "replace"))[0]
    if len(shown) > MAX_SHOWN_CHARS:
        shown = f"{shown[:MAX_SHOWN_CHARS]}\n[cut; the whole answer is kept with the run]"
    lines = [f"HTTP {answer.status} from {sent.url}", *(f"{k}: {v}" for k, v in headers.items()), "", shown]
    facts = {
        "status": answer.status,
        "url": sent.url,
        "bytes": len(answer.body),
        "cut": answer.cut,
        "sha256": hashlib.sha256(answer.body).hexdigest(),
    }
    return Observation("network_request", "\n".join(lines), facts=facts, files=(str(keep),))
