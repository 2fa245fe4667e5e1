"""Pictures and documents in results, as models take them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from vademecum.files import read_capped
from vademecum.tools.outputs import Output

# What providers accept in one result.
MAX_CONTENT_BYTES = 5 * 1024 * 1024
MAX_CONTENTS = 8

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}


@dataclass(frozen=True, slots=True)
class Content:
    """A picture or a PDF: its name, its media type and its bytes."""

    name: str
    media_type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Return whether it is a picture."""
        return self.media_type.startswith("image/")

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The content as a ``data:`` address."""
        return f"data:{self.media_type};base64,{self.base64}"


def media_type(data: bytes) -> str:
    r"""Return the type of a picture or PDF by its first bytes, or nothing.

    >>> media_type(b"%PDF-1.7 ..."), media_type(b"text")
    ('application/pdf', '')
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), "")


def contents_of(outputs: Iterable[Output]) -> tuple[Content, ...]:
    """Return the pictures and PDFs among outputs, except large ones and those that contain a secret."""
    found: list[Content] = []
    for output in outputs:
        if output.secret or output.bytes > MAX_CONTENT_BYTES or len(found) == MAX_CONTENTS:
            continue
        data = read_capped(output.file, cap=MAX_CONTENT_BYTES)
        if kind := media_type(data):
            found.append(Content(output.reference, kind, data))
    return tuple(found)
