"""What a Python script says it needs, at its top (PEP 723), and what of it is missing here."""

from __future__ import annotations

import tomllib
from importlib import metadata

from msgspec import Struct

_OPENS, _CLOSES = "# /// script", "# ///"


class Needs(Struct, frozen=True):
    """What a script declares, what of it is not installed, and what is wrong with the declaration."""

    requirements: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""


def needs_of(text: str) -> Needs:
    r"""Read the declaration.

    >>> needs_of('# /// script\n# dependencies = ["no-such-thing>=2"]\n# ///\n').missing
    ('no-such-thing>=2',)
    """
    blocks = _blocks(text)
    if not blocks:
        return Needs()
    if len(blocks) > 1:
        return Needs(problem="it has more than one '# /// script' block")
    try:
        found = tomllib.loads(blocks[0]).get("dependencies", [])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return Needs(problem=f"its '# /// script' block is not valid TOML ({error})")
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        return Needs(problem="its 'dependencies' are not a list of texts")
    return Needs(tuple(found), tuple(item for item in found if not _is_met(item)))


def _blocks(text: str) -> list[str]:
    """The blocks as TOML: comment lines from an opening line to the last closing line that follows on."""
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line != _OPENS:
            continue
        block: list[str] = []
        closed = 0
        for inner in lines:
            if inner == _CLOSES:
                closed = len(block)
            elif inner != "#" and not inner.startswith("# "):
                break
            block.append(inner[2:])
        if _CLOSES[2:] in block:
            found.append("\n".join(block[:closed]))
    return found


def _is_met(requirement: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - for these alone

    try:
        wanted = Requirement(requirement)
    except InvalidRequirement:
        return False
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.url is None and wanted.specifier.contains(installed, prereleases=True)
