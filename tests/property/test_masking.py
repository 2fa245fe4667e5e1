"""Masking: whatever the values, the text around them and the way it arrives."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from vademecum.masking import Secrets

_ENCODINGS: list[Callable[[str], str]] = [
    str,
    lambda value: base64.b64encode(value.encode()).decode(),
    lambda value: base64.urlsafe_b64encode(b"x" + value.encode() + b"yz").decode(),
    lambda value: base64.encodebytes(b"xy" * 40 + value.encode() + b"z" * 80).decode(),
    lambda value: value.encode().hex(),
    lambda value: value.encode().hex().upper(),
    lambda value: quote(value, safe=""),
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False),
]
_values = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")), min_size=8)
# Few letters, so that values overlap with themselves, each other and the text around them.
_narrow = st.text("ab\n", min_size=8, max_size=12)
_chunks = st.lists(st.text("abc \r\n", max_size=9), max_size=12)


def _masking(*values: str) -> Secrets:
    secrets = Secrets({})
    secrets.add(values)
    return secrets


@given(_values, st.sampled_from(_ENCODINGS), st.text(max_size=20), st.text(max_size=20))
def test_no_form_leaves(value: str, encode: Callable[[str], str], before: str, behind: str) -> None:
    masked = _masking(value).mask_values(f"{before}{encode(value)}{behind}")
    assert "[secret]" in masked
    if value not in before + "[secret]" + behind:
        assert value not in masked


@given(st.lists(_narrow, min_size=1, max_size=3), _chunks)
def test_chunks_are_masked_like_the_whole(values: list[str], chunks: list[str]) -> None:
    secrets = _masking(*values)
    pieces = [part.encode() for chunk in chunks for part in (chunk, *values[:1])]
    stream = secrets.stream()
    shown = b"".join([*(stream.feed(piece) for piece in pieces), stream.feed(b"", last=True)])
    assert shown == secrets.mask_bytes(b"".join(pieces))


@given(st.lists(_narrow, min_size=1, max_size=3), st.lists(st.binary(max_size=6), max_size=9), st.data())
def test_any_bytes_in_any_pieces(values: list[str], around: list[bytes], data: st.DataObject) -> None:
    secrets = _masking(*values)
    whole = b"".join(part + data.draw(st.sampled_from(values)).encode() for part in around)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    stream = secrets.stream()
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown = b"".join([*(stream.feed(piece) for piece in pieces), stream.feed(b"", last=True)])
    assert shown == secrets.mask_bytes(whole)
    assert secrets.masks(whole) == (shown != whole)


@given(st.lists(_narrow, min_size=1, max_size=3), st.text("ab", max_size=60))
def test_exactly_the_occurrences_are_masked(values: list[str], text: str) -> None:
    """Compare with the definition: a character goes if it belongs to an occurrence of a value or a line."""
    known = {value.strip().replace("\n", "") for value in values}
    known |= {line.strip() for value in values for line in value.strip().splitlines()}
    covered = [False] * len(text)
    for value in (each for each in known if len(each) >= 8):
        for start in range(len(text) - len(value) + 1):
            if text.startswith(value, start):
                covered[start : start + len(value)] = [True] * len(value)
    expected = "".join("\0" if hidden else char for char, hidden in zip(text, covered, strict=True))
    masked = _masking(*values).mask_values(text)
    parts = [part for part in expected.split("\0") if part]
    assert [part for part in masked.split("[secret]") if part] == parts
