"""Find the Python packages that a script requires, by PEP 723 or ``requirements.txt``.

Only plain requirements are accepted: a name with extras, versions and markers. Options, addresses, paths and
``[tool.uv]`` are refused, because they choose where code comes from, and only the user may do that.
"""

from __future__ import annotations

import os
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from itertools import takewhile
from pathlib import Path

from vademecum.errors import ToolRefused
from vademecum.paths import read_contained
from vademecum.skill.text import visible
from vademecum.tools.packages import BLOCK_OPENS, REQUIREMENT_FILES

MAX_REQUIREMENTS = 200
MAX_REQUIREMENTS_BYTES = 64 * 1024
MAX_SHOWN_CHARS = 120
MAX_SHOWN_PROBLEMS = 5

_CLOSES = "# ///"
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_PLAIN = "write a name and its versions, such as 'name>=1.2'"
_IS_ADDRESS = f"is an address: {_PLAIN}"
# Lines that are not plain requirements, and why they are refused; the first match counts.
_REFUSED = (
    (r"(?:-r|--requirement|-c|--constraint).*", "is an option that reads another file: copy its lines here"),
    (r"-.*|.* --.*", f"has an option: {_PLAIN}; indexes are set by the user, for uv or pip"),
    (r".*\\", "continues on the next line: write it on one line"),
    (r".*://.*|git\+.*", _IS_ADDRESS),
    (r"[.~].*|[^;]*[/\\].*|[^;]*\.(?:whl|zip|gz)(?:;.*)?", f"is a path: {_PLAIN}"),
)


def requirements_of(text: str, skill: Path, relative: str) -> tuple[str, ...]:
    r"""Return the requirements of the script at ``relative`` with this text, normalized and sorted.

    ``skill`` is the skill's directory. Raise ``ToolRefused``, with every problem and its line, if the
    declaration cannot be used.

    >>> script = '# /// script\n# dependencies = ["Rich >= 13", "tomli; python_version < \'3\'"]\n# ///\n'
    >>> requirements_of(script, Path("/nonexistent"), "scripts/report.py")
    ('rich>=13',)
    """
    blocks = list(_blocks(text))
    if blocks:
        return _of_block(blocks, relative)
    for name in REQUIREMENT_FILES:
        found = _read(skill, name)
        if found is not None:
            lines = enumerate(found.split("\n"), start=1)
            return _checked(((number, _COMMENT.sub("", line).strip()) for number, line in lines), name)
    return ()


def is_installed(requirement: str) -> bool:
    """Return whether the running interpreter has a package, so that it need not be installed."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - for these alone

    wanted = Requirement(requirement)
    if wanted.extras:  # their own requirements would have to be checked as well
        return False
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.specifier.contains(installed, prereleases=True)


def without_credentials(text: str) -> str:
    """Return the text with user names and passwords in addresses replaced.

    >>> without_credentials("https://ada:hunter2@index.example/simple")
    'https://***@index.example/simple'
    """
    return _CREDENTIALS.sub("***@", text)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each block: the number of its first line, and its lines without comment signs."""
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), start=1)
    for number, line in lines:
        if line != BLOCK_OPENS:
            continue
        comments = takewhile(lambda each: each[1] == "#" or each[1].startswith("# "), lines)
        block = [line for _, line in comments]
        if _CLOSES in block:  # it ends with the last closing line, since TOML can contain one as well
            end = len(block) - block[::-1].index(_CLOSES) - 1
            yield number + 1, [line[2:] for line in block[:end]]


def _of_block(blocks: list[tuple[int, list[str]]], relative: str) -> tuple[str, ...]:
    """Return the requirements in a block; each block has the number of its first line."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - for these alone

    if len(blocks) > 1:
        raise _refused(f"{relative}, line {blocks[1][0] - 1}: a second '# /// script' block: keep one")
    first, lines = blocks[0]
    try:
        block = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problem = f"{relative}, line {first - 1}: its '# /// script' block is not valid TOML ({error})"
        raise _refused(f"{problem}: correct it") from error

    def line_of(word: str) -> int:
        return next((first + at for at, line in enumerate(lines) if word in line), first)

    def refused(word: str, problem: str) -> ToolRefused:
        return _refused(f"{relative}, line {line_of(word)}: {problem}")

    tool, wanted, found = block.get("tool"), block.get("requires-python", ""), block.get("dependencies", [])
    if isinstance(tool, dict) and "uv" in tool:
        text = "[tool.uv] is not read here: remove it; indexes are set by the user, for uv or pip"
        raise refused("[tool", text)
    here, shown = platform.python_version(), _shown(str(wanted))
    try:
        met = isinstance(wanted, str) and SpecifierSet(wanted).contains(here, prereleases=True)
    except InvalidSpecifier:
        raise refused("requires-python", f"{shown} is not a range of versions: write '>=3.11'") from None
    if not met:
        text = f"it requires Python {shown} and this is {here}: run vade with that Python"
        raise refused("requires-python", text)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise refused("dependencies", "'dependencies' is not a list of strings: write ['name>=1.2']")
    return _checked(((line_of(item), item.strip()) for item in found), relative)


def _read(skill: Path, name: str) -> str | None:
    """Return the file's text, or None if the file is missing; refuse a link that leads out."""
    if not os.path.lexists(skill / name):
        return None
    data = read_contained(skill, name, MAX_REQUIREMENTS_BYTES + 1)
    if len(data) > MAX_REQUIREMENTS_BYTES:
        raise _refused(f"{name} is larger than {MAX_REQUIREMENTS_BYTES:,} bytes: make it shorter")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _refused(f"{name} is not UTF-8: save it as UTF-8") from error


def _checked(lines: Iterable[tuple[int, str]], source: str) -> tuple[str, ...]:
    """Check every requirement and return those that apply to this interpreter."""
    wanted: set[str] = set()
    problems: list[str] = []
    for number, line in lines:
        if not line:
            continue
        try:
            wanted |= _normalized(line)
        except ValueError as problem:
            problems.append(f"{source}, line {number}: {_shown(line)} {problem}")
    if problems:
        raise _refused(*problems)
    if len(wanted) > MAX_REQUIREMENTS:
        raise _refused(f"{source} requires {len(wanted):,} packages: at most {MAX_REQUIREMENTS} are provided")
    return tuple(sorted(wanted))


def _normalized(line: str) -> set[str]:
    """Return a normalized requirement, or nothing if its marker does not apply here.

    Raise ``ValueError`` for anything else, with the reason and what to write instead.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - for these alone
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    for pattern, reason in _REFUSED:
        if re.fullmatch(pattern, line, re.DOTALL):
            raise ValueError(reason)
    try:
        found = Requirement(line)
        applies = found.marker is None or found.marker.evaluate()
    except (InvalidRequirement, ValueError, KeyError) as error:
        raise ValueError(f"is not a requirement: {_PLAIN}") from error
    if found.url:
        raise ValueError(_IS_ADDRESS)
    extras = f"[{','.join(sorted(map(canonicalize_name, found.extras)))}]" if found.extras else ""
    return {f"{canonicalize_name(found.name)}{extras}{found.specifier}"} if applies else set()


def _shown(text: str) -> str:
    plain = visible(without_credentials(text))
    return repr(plain if len(plain) <= MAX_SHOWN_CHARS else f"{plain[:MAX_SHOWN_CHARS]}…")


def _refused(*problems: str) -> ToolRefused:
    more = len(problems) - MAX_SHOWN_PROBLEMS
    shown = [*problems[:MAX_SHOWN_PROBLEMS], *([f"and {more:,} more"] if more > 0 else [])]
    return ToolRefused(f"The script cannot be run: {'; '.join(shown)}.", code="dependencies")
