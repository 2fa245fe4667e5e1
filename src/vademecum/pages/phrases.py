"""The words of pages in English and Chinese, and the Chinese of sentences that runs and evaluations keep."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import re2

MAX_SENTENCE_CHARS = 2000
MAX_PARTS = 50
_QUOTED = re2.compile(r"'(?:[^'\\]|\\.)*'|" + r'"(?:[^"\\]|\\.)*"')
_MEANT = {
    "quoted": _QUOTED.pattern,
    "names": r"[^:;()]+",
    **dict.fromkeys(("name", "path", "words"), "[^:;]+"),
    "number": r"[-+–]?[\d.,]*%?",
    **dict.fromkeys(("first", "then", "what", "steps"), "(?:[^:;]|:[^ ;])+"),
}
_BETWEEN = (("; ", "；", MAX_PARTS), (": ", "：", 1), (", ", "、", MAX_PARTS), (" (", " (", 1))
# What is quoted is not taken apart.
_HIDE = str.maketrans(":;,(", "\ue000\ue001\ue002\ue003")
_SHOW = {new: old for old, new in _HIDE.items()}


@lru_cache(maxsize=4096)
def chinese(text: str, depth: int = 6) -> str:
    """Return a sentence of ours in Chinese, with what it names as it is; nothing if it is not one of ours.

    >>> chinese("that run ended: done"), chinese("fast: flaky: a, b"), chinese("hello")
    ('那次运行结束了：完成', 'fast：不稳定：a, b', '')
    """
    if len(text) > MAX_SENTENCE_CHARS:
        return ""
    for pattern, to in _patterns():
        found = pattern.fullmatch(text)
        if found:
            values = {
                key: (depth and key.isupper() and chinese(value, depth - 1)) or value
                for key, value in found.groupdict().items()
            }
            shown = to.format(**values)
            if shown != text:
                return shown
    hidden = _QUOTED.sub(lambda found: found[0].translate(_HIDE), text)
    for between, shown, most in _BETWEEN:
        parts = [part.translate(_SHOW) for part in hidden.split(between, most)]
        told = [chinese(part, depth - 1) for part in parts] if depth and len(parts) > 1 else []
        if any(told):
            return shown.join(new or old for new, old in zip(told, parts, strict=True))
    return ""


@cache
def catalogue(name: str) -> dict[str, str]:
    """Return the texts of ``words`` or ``sentences`` beside the templates, in English and in Chinese."""
    text = files("vademecum.pages").joinpath("templates", f"{name}.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {english: said.strip() for english, said in zip(lines[::2], lines[1::2], strict=True)}


@cache
def _patterns() -> list[tuple[Any, str]]:
    return [(_pattern(english), to) for english, to in catalogue("sentences").items()]


def _pattern(template: str) -> Any:
    """Return the regular expression, linear in any text, of a template's sentences."""
    parts = []
    for n, part in enumerate(re2.split(r"\{(\w+)\}", template)):
        meant = _MEANT.get(part.rstrip("23"), ".+?") if n % 2 else re2.escape(part)
        parts.append(f"(?P<{part}>{meant})" if n % 2 else meant)
    return re2.compile(f"(?s){''.join(parts)}")
