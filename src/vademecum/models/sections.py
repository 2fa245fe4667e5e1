"""Write a prompt in sections, and read them back (the offline model does)."""

from __future__ import annotations

import re

_HEAD = re.compile(r"^=== ([a-z ]+) ===$", re.MULTILINE)
_SPOOF = re.compile(r"^(\s*===)", re.MULTILINE)


def safe(text: str) -> str:
    r"""Text in which nothing can pass for the head of a section.

    >>> safe("=== plan ===")
    '\\=== plan ==='
    """
    return _SPOOF.sub(r"\\\1", text) if "===" in text else text


def mended(text: str) -> str:
    r"""Return a text that can be sent: halves of a character are joined, and a lone half is replaced.

    >>> mended("\ud83d\ude00"), mended("\ud83d") == "\ufffd"
    ('😀', True)
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def written(sections: dict[str, str]) -> str:
    """Return the sections one after the other; what comes from outside was made safe before.

    >>> print(written({"request": "do it", "plan": "none"}))
    === request ===
    do it
    <BLANKLINE>
    === plan ===
    none
    """
    return "\n\n".join(f"=== {name} ===\n{text}" for name, text in sections.items())


def read(text: str) -> dict[str, str]:
    """Return the sections of a prompt.

    >>> read(written({"request": "do it", "plan": "none"}))
    {'request': 'do it', 'plan': 'none'}
    """
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=True):  # the first of a name is ours
        found.setdefault(head[1], text[head.end() + 1 : end].rstrip("\n"))
    return found
