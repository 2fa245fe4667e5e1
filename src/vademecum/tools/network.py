"""``network_request``: one HTTP request to a host that is allowed. Each redirect is asked for anew."""

from __future__ import annotations

import contextlib
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

    refused = [name for name in call.headers if name.lower() in _OWN_HEADERS]
    if refused:
        raise ToolRefused(f"The header {refused[0]!r} cannot be set: leave it out.", code="header")
    sent = _Sent(call.method, call.url, dict(call.headers), call.body.encode("utf-8", "replace"))
    deadline = clock() + MAX_SECONDS

    def check() -> None:
        if clock() > deadline:
            raise ToolRefused(f"The answer took longer than {MAX_SECONDS:.0f} seconds.", code="time")

    with httpx.Client(trust_env=False, follow_redirects=False, timeout=MAX_SECONDS) as client:
        for _ in range(MAX_REDIRECTS + 1):
            hop = hop_to(sent.url)
            address = permitted_address(hop, permit=permit, resolve=resolve)
            answer = _answer_to(sent, hop, address, client, check)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None:
                return _observed(sent, answer, keep)
            try:
                sent = sent.redirected(urljoin(sent.url, target), answer.status)
            except ValueError as error:
                raise ToolRefused(
                    f"{sent.url[:200]!r} redirects to no address ({error}).", code="url"
                ) from error
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


@dataclass(frozen=True, slots=True)
class _Sent:
    method: Method
    url: str
    headers: dict[str, str]
    body: bytes

    def redirected(self, url: str, status: int) -> _Sent:
        """Return the request that follows: as browsers do it, and without credentials for another host."""
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


def _answer_to(
    sent: _Sent, hop: Hop, address: str, client: httpx.Client, check: Callable[[], None]
) -> _Answer:
    """Send a request to an address that was checked; ``check`` raises when it takes too long."""
    import httpx  # noqa: PLC0415 - imported already

    try:
        request = client.build_request(
            sent.method,
            httpx.URL(sent.url).copy_with(host=address),
            headers={"accept-encoding": "identity", **sent.headers, "host": hop.resource},
            content=sent.body or None,
            extensions={"sni_hostname": hop.host},
        )
        with contextlib.closing(client.send(request, stream=True)) as answer:
            data = bytearray()
            for piece in answer.iter_raw():
                data += piece
                check()
                if len(data) > MAX_ANSWER_BYTES:
                    break
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ToolRefused(
            f"{hop.resource} did not answer ({type(error).__name__}: {error}).", code="unreachable"
        ) from error
    body = bytes(data)
    if answer.headers.get("content-encoding", "").lower() in {"gzip", "deflate"}:
        # What was compressed all the same is unpacked once, up to the cap.
        try:
            body = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, MAX_ANSWER_BYTES + 1)
        except zlib.error as error:
            raise ToolRefused(f"The answer cannot be unpacked ({error}).", code="unreachable") from error
    cut = len(body) > MAX_ANSWER_BYTES
    return _Answer(answer.status_code, dict(answer.headers), body[:MAX_ANSWER_BYTES], cut)


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
