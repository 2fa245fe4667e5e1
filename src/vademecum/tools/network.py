"""``network_request``: one HTTP request to an allowed host. Each redirect needs permission again."""

from __future__ import annotations

import contextlib
import hashlib
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from vademecum.errors import ToolRefused
from vademecum.skill.text import without_hidden
from vademecum.tools.calls import NetworkRequest, Observation
from vademecum.tools.hosts import Hop, Permit, Resolve, hop_to, permitted_address, resolved

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
MAX_ANSWER_BYTES = 10 * 1024 * 1024
MAX_SHOWN_CHARS = 20_000
MAX_SECONDS = 30.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_HEADERS = ("content-type", "content-length", "last-modified", "etag", "location", "retry-after")
# Only we set headers that control where a request goes or how it is framed.
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
    """Send the request, follow redirects one by one, and store the answer."""
    import httpx  # noqa: PLC0415 - 80 ms, for this tool alone

    refused = [name for name in call.headers if name.lower() in _OWN_HEADERS]
    if refused:
        raise ToolRefused(f"The header {refused[0]!r} cannot be set: leave it out.", code="header")
    method, url, headers, body = call.method, call.url, call.headers, call.body.encode("utf-8", "replace")
    hop, deadline = hop_to(url), clock() + MAX_SECONDS
    with httpx.Client(trust_env=False, follow_redirects=False, timeout=MAX_SECONDS) as client:
        for _ in range(MAX_REDIRECTS + 1):
            address = permitted_address(hop, permit=permit, resolve=resolve)
            try:
                request = client.build_request(
                    method,
                    httpx.URL(url).copy_with(host=address),
                    headers={"accept-encoding": "identity", **headers, "host": hop.resource},
                    content=body or None,
                    extensions={"sni_hostname": hop.host},
                )
                with contextlib.closing(client.send(request, stream=True)) as answer:
                    data = _body(answer, clock, deadline)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                text = f"{hop.resource} did not answer ({type(error).__name__}: {error})."
                raise ToolRefused(text, code="unreachable") from error
            target = answer.headers.get("location")
            if answer.status_code not in _REDIRECTS or target is None:
                return _observed(url, answer, data, keep)
            # As browsers do, and without credentials for another host.
            try:
                earlier, url = hop, urljoin(url, target)
            except ValueError as error:
                text = f"{url[:200]!r} redirects to no address ({error})."
                raise ToolRefused(text, code="url") from error
            hop = hop_to(url)
            if (hop.scheme, hop.host, hop.port) != (earlier.scheme, earlier.host, earlier.port):
                headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
            if answer.status_code in {301, 302, 303} and method not in {"GET", "HEAD"}:
                method, body = "GET", b""
    raise ToolRefused(f"{call.url[:200]!r} redirects more than {MAX_REDIRECTS} times.", code="redirects")


def about_request(call: NetworkRequest, hop: Hop) -> str:
    """Describe a request for the person who approves it: its destination and its content."""
    lines = [f"{call.method} {call.url}"]
    if hop.url != call.url:
        lines.append(f"redirected to {hop.url}")
    lines += [f"{name}: …" for name in call.headers]
    if call.body:
        lines += [f"with a body of {len(call.body):,} characters:", call.body[:500]]
    return "\n".join(lines)


def _body(answer: httpx.Response, clock: Callable[[], float], deadline: float) -> bytes:
    """Return the body, up to just beyond the cap; raise if it takes too long."""
    data = bytearray()
    for piece in answer.iter_raw():
        data += piece
        if clock() > deadline:
            raise ToolRefused(f"The answer took longer than {MAX_SECONDS:.0f} seconds.", code="time")
        if len(data) > MAX_ANSWER_BYTES:
            break
    if answer.headers.get("content-encoding", "").lower() not in {"gzip", "deflate"}:
        return bytes(data)
    try:  # an unexpectedly compressed answer is unpacked once, up to the cap
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, MAX_ANSWER_BYTES + 1)
    except zlib.error as error:
        raise ToolRefused(f"The answer cannot be unpacked ({error}).", code="unreachable") from error


def _observed(url: str, answer: httpx.Response, data: bytes, keep: Path) -> Observation:
    body = data[:MAX_ANSWER_BYTES]
    keep.parent.mkdir(parents=True, exist_ok=True)
    keep.write_bytes(body)
    if b"\0" in body[:8192]:
        shown = f"[{len(body):,} bytes that are not text]"
    else:
        shown = without_hidden(body.decode("utf-8", "replace"))[0]
    if len(shown) > MAX_SHOWN_CHARS:
        shown = f"{shown[:MAX_SHOWN_CHARS]}\n[cut; the whole answer is kept with the run]"
    headers = [f"{name}: {answer.headers[name]}" for name in _KEPT_HEADERS if name in answer.headers]
    lines = [f"HTTP {answer.status_code} from {url}", *headers, "", shown]
    facts = {
        "status": answer.status_code,
        "url": url,
        "bytes": len(body),
        "cut": len(data) > len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return Observation("network_request", "\n".join(lines), facts=facts, files=(str(keep),))
