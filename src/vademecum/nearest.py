"""Find the known word that was probably meant by an unknown one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

# High enough to refuse another word of three letters, low enough for one with two letters swapped.
_LIKE = 0.65
# Longer texts are not typing mistakes, and comparing takes time with the square of the length.
MAX_WORD_CHARS = 200


def nearest(typed: str, known: Iterable[str], *, like: float = _LIKE) -> str | None:
    """Return the known word most like the typed one, ignoring case, or ``None``.

    >>> nearest("rnu", ["run", "report"]), nearest("zzz", ["run", "report"])
    ('run', None)
    """
    import difflib  # noqa: PLC0415 - only after a misspelling

    words = {word.casefold(): word for word in known}
    near = difflib.get_close_matches(typed[:MAX_WORD_CHARS].casefold(), words, n=1, cutoff=like)
    return words[near[0]] if near else None


def nearest_file(typed: str, known: Iterable[str]) -> str | None:
    """Return the known path that was probably meant, by the whole path or by its last part.

    >>> nearest_file("forms.md", ["references/forms.md", "scripts/fill.py"])
    'references/forms.md'
    """
    paths = list(known)
    by_name = {path.rpartition("/")[2]: path for path in paths}
    name = nearest(typed.rpartition("/")[2], by_name)
    return nearest(typed, paths) or (by_name[name] if name else None)


def meant(near: str | None, *, otherwise: str) -> str:
    """Return the end of a sentence: a question if there is a near word, else other advice.

    >>> meant("run", otherwise="there are two."), meant(None, otherwise="there are two.")
    ("did you mean 'run'?", 'there are two.')
    """
    return f"did you mean {near!r}?" if near else otherwise


def there_is_no(what: str, word: str, known: Collection[str]) -> str:
    """Return the sentence about an unknown word, with the probable one or all known ones.

    >>> there_is_no("form", "lst", ["list", "xml"])
    "There is no form 'lst': did you mean 'list'?"
    """
    every = ", ".join(dict.fromkeys(known))
    return f"There is no {what} {word!r}: {meant(nearest(word, known), otherwise=f'there are {every}.')}"
