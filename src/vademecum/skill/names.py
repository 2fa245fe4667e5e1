"""Check names of skills, and find the nearest valid name."""

from __future__ import annotations

import re
import unicodedata

from vademecum.skill.skill import Problem
from vademecum.wildcards import comparable

MAX_NAME_CHARS = 64

# Invisible characters of the letter and mark categories: fillers, the grapheme joiner, variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_plain(name: str) -> bool:
    """Return whether a name is plain ASCII, short and valid, so that no other check is needed."""
    return len(name) <= MAX_NAME_CHARS and _PLAIN.fullmatch(name) is not None


def check(name: str, *, line: int | None = None) -> list[Problem]:
    """Return all problems of a name, in the reference library's wording, plus what to write.

    >>> [problem.message for problem in check("My-Skill")]
    ["Skill name 'My-Skill' must be lowercase. Write: name: my-skill"]
    >>> check("मेरा-कौशल")
    []
    """
    if is_plain(name):
        return []
    found = []
    if len(name) > MAX_NAME_CHARS:
        limit = f"Skill name {name[:80]!r} exceeds {MAX_NAME_CHARS} character limit ({len(name)} chars)"
        found.append(("name-too-long", limit))
    if name != name.lower():
        found.append(("name-uppercase", f"Skill name {name[:80]!r} must be lowercase"))
    if name.startswith("-") or name.endswith("-"):
        found.append(("name-hyphen-at-end", "Skill name cannot start or end with a hyphen"))
    if "--" in name:
        found.append(("name-double-hyphen", "Skill name cannot contain consecutive hyphens"))
    if not all(c == "-" or _is_name_character(c) for c in name) or unicodedata.category(name[0])[0] == "M":
        allowed = "contains invalid characters. Only letters, digits, and hyphens are allowed"
        found.append(("name-characters", f"Skill name {name[:80]!r} {allowed}"))
    better = slug(name)
    fix = f"Write: name: {better}" if better else "Write a short name such as pdf-forms"
    return [Problem(code, "error", f"{text}. {fix}", "name", line) for code, text in found]


def slug(text: str) -> str:
    """Return the nearest valid name to ``text``, or ``""`` if no character can be kept.

    >>> slug("My Cool_Skill!"), slug("PDF处理"), slug("!!!")
    ('my-cool-skill', 'pdf处理', '')
    """
    lowered = comparable(comparable(text).lower())
    kept = "".join(c if _is_name_character(c) else "-" for c in lowered)
    joined = "-".join(word for word in kept.split("-") if word)
    # A mark cannot begin a name: it belongs to the letter before it.
    while joined and (joined[0] == "-" or unicodedata.category(joined[0])[0] == "M"):
        joined = joined[1:]
    return joined[:MAX_NAME_CHARS].strip("-")


def _is_name_character(char: str) -> bool:
    """Return whether a character is a letter of any script, a mark or a digit."""
    category = unicodedata.category(char)
    return (category[0] in "LM" or category == "Nd") and not _INVISIBLE.match(char)
