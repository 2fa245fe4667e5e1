"""Text → the same text without secrets: keys of the environment, bearer tokens, well-known kinds of keys."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MASK = "[secret]"
MIN_SECRET_CHARS = 8

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH|SESSION|_PAT\b|_DSN\b", re.IGNORECASE
)
_SECRET_HEADER = re.compile(
    r"(?:x-)?(?:api-?key|auth-?token|access-?token)|authorization|(?:set-)?cookie|proxy-authorization",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_URL_PASSWORD = re.compile(r"(://[^/\s:@]{0,200}:)[^/\s@]+(?=@)")
_KNOWN = re.compile(
    r"(?P<lead>\b(?:Bearer|Basic|Token|ApiKey)\s+"
    r"|\b(?:api[_-]?key|password|passphrase|secret|token)[\"']?\s{0,5}[=:]\s{0,5}[\"']?)"
    r"(?P<value>[^\s\"'@&,;]{8,})"
    r"|(?<![\w-])(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|eyJ[\w-]{10,4000}\.[\w-]{10,4000}\.[\w-]+|hf_\w{20,})",
    re.IGNORECASE,
)


class Secrets:
    """What must not be written down: the values of variables whose names say so, and what looks like a key.

    >>> Secrets({"MY_API_KEY": "correct-horse"}).mask("used correct-horse and Bearer abcdefgh12")
    'used [secret] and Bearer [secret]'
    """

    def __init__(self, env: Mapping[str, str], *, given: Iterable[str] = ()) -> None:
        """Take the environment, and the names of variables that scripts are ``given``."""
        values = {value for name, value in env.items() if name in set(given) or _SECRET_NAME.search(name)}
        values |= {password for value in env.values() for password in _IN_URL.findall(value)}
        # A key of several lines may be written with its ends escaped.
        values |= {value.replace("\n", "\\n") for value in values}
        values = {value for value in values if len(value) >= MIN_SECRET_CHARS}
        # The longest first: one value may begin with another.
        parts = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
        self._values = re.compile("|".join(parts)) if parts else None
        self._bytes = re.compile("|".join(parts).encode("utf-8", "replace")) if parts else None

    def mask(self, text: str) -> str:
        """The text with every secret in it replaced."""
        return _KNOWN.sub(_masked, _URL_PASSWORD.sub(rf"\g<1>{MASK}", self.mask_values(text)))

    def mask_values(self, text: str) -> str:
        """Return the text without the known secret values; what only looks like a key stays."""
        return text if self._values is None else self._values.sub(MASK, text)

    def mask_file(self, path: Path) -> None:
        """Replace the known secret values in a file."""
        if self._bytes is None or not path.stat().st_size:
            return
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = self._bytes.search(data) is not None
        if found:
            path.write_bytes(self._bytes.sub(MASK.encode(), path.read_bytes()))

    def mask_all(self, value: Any) -> Any:
        """The same for all texts inside of lists and dictionaries."""
        match value:
            case str():
                return self.mask(value)
            case dict():
                return {self._key(key): self._named(key, item) for key, item in value.items()}
            case list() | tuple():
                return [self.mask_all(item) for item in value]
        return value

    def _key(self, key: Any) -> Any:
        return self.mask(key) if isinstance(key, str) else key

    def _named(self, key: Any, value: Any) -> Any:
        """A value whose own name says that it is a secret, such as that of a header."""
        if isinstance(key, str) and isinstance(value, str) and _SECRET_HEADER.fullmatch(key):
            return MASK
        return self.mask_all(value)


def _masked(found: re.Match[str]) -> str:
    return f"{found['lead']}{MASK}" if found["lead"] else MASK
