"""Find what readers overlook: names that look like other names, and hidden characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from vademecum.skill.text import HIDDEN_CHARACTERS

MAX_LOOKED_AT_BYTES = 2 * 1024 * 1024

# Letters and digits that many fonts draw alike, each group behind the letter it is taken for.
_DRAWN_LIKE = "aаαɑ bв cс dԁđ eе3 gɡ hһ iіι1ıl jј kкκ mм nп oоο0 pрρ qԛ rг sѕ5 tтτ uυ vν wԝ xхχ yу"
_ALIKE = str.maketrans({odd: group[0] for group in _DRAWN_LIKE.split() for odd in group[1:]})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


def looks_like(name: str, others: Iterable[str]) -> str | None:
    """Return another name that this one could be mistaken for, or None.

    >>> looks_like("раypal-tools", ["paypal-tools"]), looks_like("file-dlff", ["file-diff"])
    ('paypal-tools', 'file-diff')
    >>> looks_like("pdf", ["pdf", "docx"]) is None
    True
    """
    own = _skeleton(name)
    return next((other for other in others if other != name and _skeleton(other) == own), None)


def mixed_scripts(name: str) -> bool:
    """Return whether one word of a name mixes alphabets that are not written together.

    >>> mixed_scripts("pаypal"), mixed_scripts("文件-diff"), mixed_scripts("pdf-工具")
    (True, False, False)
    """
    return any(len(_scripts(word)) > 1 for word in name.split("-"))


def hidden_in(place: Path, files: Iterable[str]) -> list[str]:
    """Return the text files with hidden characters, each with the first such character and its line."""
    found = []
    for file in files:
        with open(place / file, "rb") as opened:
            data = opened.read(MAX_LOOKED_AT_BYTES)
        if data.isascii() or b"\0" in data:
            continue  # what ASCII can hide, the loader takes out
        text = data.decode("utf-8", "ignore").removeprefix("\ufeff")
        hit = HIDDEN_CHARACTERS.search(text)
        if hit:
            line = text.count("\n", 0, hit.start()) + 1
            found.append(f"{file} holds hidden characters (U+{ord(hit[0]):04X} on line {line})")
    return found


def _skeleton(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    for pair, one in _ALIKE_PAIRS:
        plain = plain.replace(pair, one)
    return plain.replace("-", "").replace("_", "")


def _scripts(word: str) -> set[str]:
    """Return the alphabets of a word, by the first word of each letter's name; ignore Han and Kana."""
    found = {unicodedata.name(char, "?").split()[0] for char in word if char.isalpha()}
    return found & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}
