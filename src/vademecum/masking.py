"""Remove secrets from text: values of the environment and of scripts.

A secret value is recognised in several forms: unchanged, in base64 (at each alignment, also wrapped), in hex,
URL-encoded, JSON-escaped, and line by line. Any other transformation is not recognised.
"""

from __future__ import annotations

import json
import os
import re
import threading
from binascii import b2a_base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

MASK = "[secret]"
MIN_SECRET_CHARS = 8
# A longer form is searched for in pieces of at least half this size.
MAX_PIECE_BYTES = 64
# A form that line ends make longer than this is not recognised.
MAX_SPAN_BYTES = 4096
# After this many matches everything is masked, so that a repetitive text does not take minutes.
MAX_MATCHES = 20_000
# Up to this many bytes times forms, a search form by form is faster than importing RE2 (15 ms).
MAX_PLAIN_WORK = 4_000_000
_CHUNK_BYTES = 1024 * 1024

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH(?!ORS?(?:_|$))|SESSION|_PAT\b|_DSN\b",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_LINE_ENDS = b"\r\n"
_LINE_END = re.compile(rb"[\r\n]")
_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")
T = TypeVar("T")
_PERCENT = re.compile(r"%[0-9A-F]{2}")


class Secrets:
    """The values that must not leave, and the methods that remove them from text, files and streams.

    Threads can share an object.

    >>> secrets = Secrets({"MY_API_KEY": "correct-horse"})
    >>> secrets.mask_values("used correct-horse")
    'used [secret]'
    >>> secrets.add(["battery-staple"])
    >>> secrets.mask_values("YmF0dGVyeS1zdGFwbGU= is base64")
    '[secret] is base64'
    """

    def __init__(self, env: Mapping[str, str], *, given: Iterable[str] = ()) -> None:
        """Take the environment, and the names of its variables that scripts are ``given``."""
        names = frozenset(given)
        values = [value for name, value in env.items() if name in names or _SECRET_NAME.search(name)]
        values += [password for value in env.values() for password in _IN_URL.findall(value)]
        self._lock = threading.Lock()
        self._values = values
        self.added: frozenset[str] = frozenset()  # the values that were added later
        self.forms = Forms(values)

    def add(self, values: Iterable[str]) -> None:
        """Mask these values too from now on; streams that began earlier do not."""
        with self._lock:
            new = frozenset(values) - self.added
            if new:
                self.added |= new
                self.forms = Forms([*self._values, *self.added])

    def stream(self) -> MaskedStream:
        """Return a stream that masks what is fed to it in chunks."""
        return MaskedStream(self.forms)

    def masks(self, data: bytes) -> bool:
        """Return whether the data contains a form of a known value."""
        return self.forms.are_in(data.translate(None, _LINE_ENDS))

    def masks_file(self, path: Path) -> bool:
        """Return whether a file contains a form of a known value."""
        forms, tail = self.forms, b""
        with open(path, "rb") as file:
            while forms.pieces and (chunk := file.read(_CHUNK_BYTES)):
                stripped = tail + chunk.translate(None, _LINE_ENDS)
                if forms.are_in(stripped):
                    return True
                tail = stripped[-forms.longest :]
        return False

    def mask_bytes(self, data: bytes) -> bytes:
        """Return the data without the known values."""
        return MaskedStream(self.forms).feed(data, last=True) if self.masks(data) else data

    def mask_file(self, path: Path) -> None:
        """Remove the known values from a file; a file without them is not touched."""
        if not self.masks_file(path):
            return
        stream = self.stream()
        temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with open(path, "rb") as file, os.fdopen(os.open(temporary, flags, 0o600), "wb") as out:
                while chunk := file.read(_CHUNK_BYTES):
                    out.write(stream.feed(chunk))
                out.write(stream.feed(b"", last=True))
            os.chmod(temporary, path.stat().st_mode & 0o777)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def mask_values(self, value: T) -> T:
        """Return a text, or nested lists and dictionaries, without the known values."""
        return self._masked(value) if self.forms.pieces else value

    def _masked(self, value: Any) -> Any:
        match value:
            case str():
                data = value.encode("utf-8", "surrogatepass")
                masked = self.mask_bytes(data)
                try:
                    return value if masked is data else masked.decode("utf-8", "surrogatepass")
                except UnicodeDecodeError:  # a value that is not UTF-8 ended inside a character
                    return masked.decode("utf-8", "replace")
            case dict():
                return {self._masked(key): self._masked(item) for key, item in value.items()}
            case list() | tuple():
                return [self._masked(item) for item in value]
        return value


class Forms:
    """All forms of some secret values, as bytes without line ends, and the search for them."""

    def __init__(self, values: Iterable[str]) -> None:
        found = (form for value in values for form in _forms_of(value))
        self.pieces = sorted({piece for form in found for piece in _cut(form)})
        self.longest = max(map(len, self.pieces), default=0)

    @cached_property
    def _search(self) -> Callable[[bytes, int], re.Match[bytes] | None]:
        import re2  # noqa: PLC0415 - only if there is something to mask

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # any bytes may be around a secret
        options.max_mem = 256 * 1024 * 1024
        # The longest first: of the forms that begin at the same place, it is masked.
        longest_first = sorted(self.pieces, key=len, reverse=True)
        return re2.compile(b"|".join(map(re.escape, longest_first)), options).search  # type: ignore[no-any-return]

    def are_in(self, stripped: bytes) -> bool:
        """Return whether data without line ends contains a form."""
        if "_search" not in self.__dict__ and len(stripped) * len(self.pieces) <= MAX_PLAIN_WORK:
            return any(piece in stripped for piece in self.pieces)
        return self._search(stripped, 0) is not None

    def matches(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where forms begin and end, overlapping ones too: at each beginning the longest."""
        stripped, position = data.translate(None, _LINE_ENDS), 0
        if not self.are_in(stripped):
            return
        removed = _line_ends(data)
        while (found := self._search(stripped, position)) is not None:
            start, end = found.span()
            yield start + bisect_right(removed, start), end + bisect_right(removed, end - 1)
            position = start + 1

    def begun_in(self, tail: bytes) -> int:
        """Return the size of the longest suffix that can be the beginning of a form."""
        stripped = tail.translate(None, _LINE_ENDS)
        for position in range(max(0, len(stripped) - self.longest + 1), len(stripped)):
            suffix = stripped[position:]
            following = bisect_right(self.pieces, suffix)
            if following < len(self.pieces) and self.pieces[following].startswith(suffix):
                return len(tail) - position - bisect_right(_line_ends(tail), position)
        return 0


def _line_ends(data: bytes) -> list[int]:
    """Return the position of each line end, counted in the data without line ends."""
    return [found.start() - before for before, found in enumerate(_LINE_END.finditer(data))]


class MaskedStream:
    """Masks data in chunks. The output is the same however the data is cut.

    >>> stream = Secrets({"MY_API_KEY": "correct-horse"}).stream()
    >>> stream.feed(b"used corr"), stream.feed(b"ect-horse twice corr", last=True)
    (b'used ', b'[secret] twice corr')
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._held = b""
        # How far the last mask reaches into the data held back; -1 if it ended before.
        self._reach = -1
        self._left = MAX_MATCHES

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        """Return what can be shown now; the beginning of a possible secret waits for the next chunk."""
        if not self._forms.pieces:
            return chunk
        data = self._held + chunk
        if self._left < 0:  # the rest is masked
            return b""
        cut = len(data) - (0 if last else self._forms.begun_in(data[-MAX_SPAN_BYTES:]))
        out: list[bytes] = []
        for first, behind in self._forms.matches(data):
            if first >= cut:
                break
            if behind - first > MAX_SPAN_BYTES:
                continue
            if first > self._reach:
                out += [data[max(self._reach, 0) : first], MASK.encode()]
            self._reach = max(self._reach, behind)
            self._left -= 1
            if self._left < 0:
                self._reach = cut = len(data)
                break
        out.append(data[max(self._reach, 0) : cut])
        self._reach = self._reach - cut if self._reach >= cut else -1
        self._held = data[cut:]
        return b"".join(out)


def _cut(form: bytes) -> list[bytes]:
    """Cut a long form into pieces; a text that contains the form contains them one after another."""
    count = -(-len(form) // MAX_PIECE_BYTES)
    return [form[n * len(form) // count : (n + 1) * len(form) // count] for n in range(count)]


def _forms_of(value: str) -> Iterator[bytes]:
    """Yield the forms of a secret value, without line ends; a value that is too short has none."""
    value = value.strip()
    if len(value) < MIN_SECRET_CHARS:
        return
    data = _encoded(value)
    texts = {value, data.decode("utf-8", "replace"), data.hex(), data.hex().upper()}
    texts |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    # As Python, browsers and HTML forms write it; some programs use lowercase letters.
    texts |= {quote(data, safe=""), quote(data), quote(data, safe="!~*'()"), quote_plus(data)}
    texts |= {_PERCENT.sub(lambda found: found[0].lower(), quote(data, safe=""))}
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        # The first and last line of a PEM file are not secret.
        texts |= {line for line in lines if not (line.startswith("-----") and line.endswith("-----"))}
    forms = {data, *map(_encoded, texts), *(text.encode("utf-8", "surrogatepass") for text in texts)}
    forms |= set(_base64_forms(data))
    for form in forms:
        stripped = form.translate(None, _LINE_ENDS)
        if len(stripped) >= MIN_SECRET_CHARS:
            yield stripped


def _encoded(text: str) -> bytes:
    """Encode a text; bytes of the environment that are not UTF-8 become the same bytes again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _base64_forms(data: bytes) -> Iterator[bytes]:
    """Yield the data in base64, and the part of it that stays the same inside longer data."""
    alone = b2a_base64(data, newline=False)
    forms = [alone, alone.rstrip(b"=")]
    for before in range(3):
        whole = b2a_base64(bytes(before) + data, newline=False)
        forms.append(whole[-(-before * 8 // 6) : (before + len(data)) * 8 // 6])
    for form in forms:
        yield form
        yield form.translate(_URL_ALPHABET)
