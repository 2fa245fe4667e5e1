"""Render a template as one page that needs no other file; put our words and sentences into Chinese."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import re2
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

MAX_PAGE_BYTES = 1024 * 1024
MAX_MARKDOWN_CHARS = 100_000
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

# Lines that only make sense one below the other: tables of columns, differences, boxes.
_ALIGNED = re.compile(r"(?m)^(?:[-+@]{1,4} ?\S|.*\S {2,}\S.*\S {2,}\S|\s*[|│├└┌].*)")


def render(template: str, **values: Any) -> str:
    """Return the page of a template; every value is escaped."""
    return _environment().get_template(f"{template}.html").render(**values)


def both(english: str, chinese: str, *, element: str = "span") -> Markup:
    """Return a text in two languages, of which the browser shows the one that it prefers."""
    texts = Markup('<{0} class="en">{1}</{0}><{0} class="zh" lang="zh">{2}</{0}>')
    return texts.format(element, english, chinese)


def word(english: str, **values: Any) -> Markup:
    """Return words of ours in both languages, with values in them."""
    in_chinese = {name: chinese(str(value)) or value for name, value in values.items()}
    return both(english.format(**values), catalogue("words")[english].format(**in_chinese))


def said(text: str, most: int | None = None, *, depth: int = 6) -> Markup | str:
    """Return a sentence of ours in both languages, and any other text as it is; each cut to ``most``."""
    shown = chinese(text, depth)
    return both(text[:most], shown[:most]) if shown else text[:most]


def drawn(english: str, shown: str = "") -> Markup | str:
    """Return the content of an SVG text in both languages, if there are two."""
    shown = shown or chinese(english)
    return english if shown in {"", english} else both(english, shown, element="tspan")


def status(text: str) -> Markup | str:
    """Return the word for a status in both languages; one that we do not know as it is."""
    return said(text.replace("_", " "), depth=0)


def rich_text(text: str) -> Markup:
    r"""Return Markdown as HTML: raw HTML is shown as text, and pictures of other places are left out.

    >>> rich_text("**4** <script>")
    Markup('<p><strong>4</strong> &lt;script&gt;</p>\n')
    """
    text = text[:MAX_MARKDOWN_CHARS]
    is_whole = "```" in text or "~~~" in text  # with fences, a paragraph may be only a part of a block
    return Markup("").join(map(_block, [text] if is_whole else re.split(r"\n{2,}", text)))


def _block(text: str) -> Markup:
    if "```" not in text and len(_ALIGNED.findall(text)) > 1 and not re.search(r"(?m)^\|.*\|\s*$", text):
        return Markup('<pre tabindex="0">{}</pre>').format(text)
    return Markup(_markdown().render(text))  # noqa: S704 - the parser escapes all HTML


@cache
def _markdown() -> MarkdownIt:
    return (
        MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True})
        .enable("table")
        .disable("image")
    )


def asset(name: str) -> str:
    """Return a file beside the templates."""
    return files("vademecum.pages").joinpath("templates", name).read_text("utf-8")


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("vademecum.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = asset("page.js").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found.globals |= {
        "both": both,
        "w": word,
        "style": Markup(asset("page.css")),  # noqa: S704 - a file of ours
        "script": Markup(script),  # noqa: S704 - a file of ours
        "script_digest": digest,
    }
    found.filters |= {"chinese": chinese, "rich_text": rich_text, "said": said, "status": status}
    return found


@lru_cache(maxsize=4096)
def chinese(text: str, depth: int = 6) -> str:
    """Return a sentence of ours in Chinese, with what it names as it is; nothing if it is not one of ours.

    >>> chinese("that run ended: done"), chinese("fast: flaky: a, b"), chinese("hello")
    ('子运行结束：完成', 'fast：不稳定：a, b', '')
    """
    if len(text) > MAX_SENTENCE_CHARS:
        return ""
    for english, to in catalogue("sentences").items():
        found = _pattern(english).fullmatch(text)
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
    lines = [line for line in asset(f"{name}.txt").splitlines() if line and not line.startswith("#")]
    return {english: said.strip() for english, said in zip(lines[::2], lines[1::2], strict=True)}


@cache
def _pattern(template: str) -> Any:
    """Return the regular expression, linear in any text, of a template's sentences."""
    parts = []
    for n, part in enumerate(re2.split(r"\{(\w+)\}", template)):
        meant = _MEANT.get(part.rstrip("23"), ".+?") if n % 2 else re2.escape(part)
        parts.append(f"(?P<{part}>{meant})" if n % 2 else meant)
    return re2.compile(f"(?s){''.join(parts)}")
