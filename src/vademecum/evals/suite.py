"""Files → a suite: our own cases, ``evals.json`` and trigger sets as others write them, and what is wrong."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import Struct
from pydantic import ValidationError

from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals import variants
from vademecum.evals.cases import Case
from vademecum.evals.isolation import places_of, sources_of
from vademecum.files import read_capped

MAX_SUITE_BYTES = 64 * 1024 * 1024
MAX_FILES = 10_000
MAX_CASES = 200_000
ENDINGS = (".json", ".yaml", ".yml")


class Malformed(Struct, frozen=True):
    """A case that cannot be run: in which file, which case, which field, and what is wrong with it."""

    file: str
    case: str
    field: str
    message: str

    def __str__(self) -> str:
        """Return it in one sentence."""
        field = f", field {self.field}" if self.field else ""
        return f"{self.file}, case {self.case}{field}: {self.message}"


class Suite(Struct, frozen=True):
    """Cases that can be run, and those that cannot."""

    name: str
    place: str
    cases: tuple[Case, ...]
    malformed: tuple[Malformed, ...] = ()
    skill: str = ""


def read_suite(path: Path, *, name: str = "", skill: str = "") -> Suite:
    """Return the cases of a file, or of all files below a directory, in the order of their names.

    They are about ``skill`` where neither they nor a SKILL.md around them name another.
    """
    path = Path(os.path.abspath(path))
    if not path.exists():
        raise CaseRefused(f"There are no cases at {path}: vade eval init NAME writes some.", code="no-suite")
    place = path if path.is_dir() else path.parent
    files = list(islice(_files(path), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise CaseRefused(f"{path} holds more than {MAX_FILES:,} files: name a smaller directory.")
    read = [_read(file, _fit(os.path.relpath(file, place)), skill) for file in files]
    brought = {path for one in read for path in _brought(one)}
    # A file that is an input of a case, or part of its project, has no cases.
    kept = [one for one in read if not brought & {one.file, *one.file.parents}]
    cases: dict[str, Case] = {}
    malformed: list[Malformed] = []
    for one in kept:
        malformed += one.malformed
        for case, own_id in one.cases:
            own = _free(one, case.id, cases) if own_id else case.id
            if own in cases:
                why = "another case has this id: give each its own."
                malformed.append(Malformed(one.shown, own, "id", why))
            if len(cases) >= MAX_CASES:
                raise CaseRefused(f"{one.file} has more than {MAX_CASES:,} cases: split it.")
            cases.setdefault(own, case.model_copy(update={"id": own}))
    if not cases and not malformed:
        raise CaseRefused(f"{path} holds no cases: vade eval init NAME writes some.", code="no-suite")
    about = skill or next((one.skill for one in kept if one.skill), "")
    return Suite(name or _name(path), str(place), tuple(cases.values()), tuple(malformed), about)


class _Read(NamedTuple):
    """One file: the skill it is about, its cases, and what is wrong with the others.

    With each case comes whether its id counts within the file only.
    """

    file: Path
    shown: str
    skill: str
    cases: list[tuple[Case, bool]]
    malformed: list[Malformed]


def _read(file: Path, shown: str, skill: str) -> _Read:
    """Read a file; what is wrong with it keeps nothing else from being read."""
    try:
        about, entries, case_of = variants.entries(_parsed(file), file, skill)
    except (CaseRefused, FileRefused, OSError) as error:
        return _Read(file, shown, "", [], [Malformed(shown, "-", "", _fit(str(error)))])
    read = _Read(file, shown, about, [], [])
    for number, entry in enumerate(entries, 1):
        said = _said(entry, number)
        try:
            fields, own_id = case_of(entry)
            said = _said(fields, number)
            case = Case.model_validate(fields).model_copy(update={"place": str(file.parent)})
        except variants.FieldRefused as error:
            read.malformed.append(Malformed(shown, said, *map(_fit, error.args)))
        except ValidationError as error:
            read.malformed.extend(Malformed(shown, said, field, _fit(why)) for field, why in _problems(error))
        else:
            read.cases.append((case, own_id))
    return read


def _brought(one: _Read) -> Iterator[Path]:
    """Return the paths that the cases of a file name, without directories that contain the file itself."""
    for case, _ in one.cases:
        for name in (*sources_of(case), case.setup.project):
            for place in places_of(case.place) if name else ():
                path = Path(os.path.normpath(place / name))
                if path != one.file and path not in one.file.parents:
                    yield path


def _free(one: _Read, wanted: str, cases: Mapping[str, Case]) -> str:
    """Return an id that no other case has: if need be with the name of its file, and a number after it."""
    named = f"{os.path.splitext(one.shown)[0]}-{wanted}"
    numbered = (f"{named}-{number}" for number in count(2))
    return next(each for each in chain([wanted, named], numbered) if each not in cases)


def _said(fields: Any, number: int) -> str:
    """Return how a case is called in a message: by its id, or by its number in the file."""
    found = fields.get("id") if isinstance(fields, Mapping) else None
    return _fit(str(found)[:200]) if isinstance(found, str | int) and str(found) else f"#{number}"


def _fit(text: str) -> str:
    """Return a text that can be written down, whatever it was read from."""
    return text.encode("utf-8", "replace").decode()


def _problems(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Return each problem with its field, each once."""
    seen: dict[tuple[str, str], None] = {}
    for detail in error.errors(include_url=False)[:20]:
        steps = [str(step).rstrip("_") for step in detail["loc"] if not str(step).startswith("function-")]
        is_unknown = detail["type"] == "extra_forbidden"
        message = "there is no such field." if is_unknown else detail["msg"].removeprefix("Value error, ")
        seen[".".join(steps), message] = None
    yield from seen


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    left_out = {"files", "project", "results"}
    for directory, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in left_out and name[0] != ".")
        yield from (
            Path(directory, name) for name in sorted(files) if name.endswith(ENDINGS) and name[0] != "."
        )


def _parsed(file: Path) -> Any:
    data = read_capped(file, cap=MAX_SUITE_BYTES)
    kind = {".json": "JSON", ".jsonl": "JSON lines"}.get(file.suffix, "YAML")
    try:
        text = data.decode("utf-8-sig")
        if kind == "JSON lines":
            return [json.loads(line, object_pairs_hook=_once) for line in text.splitlines() if line.strip()]
        return json.loads(text, object_pairs_hook=_once) if kind == "JSON" else _yaml(text)
    except UnicodeDecodeError as error:
        raise CaseRefused("the file is not UTF-8: save it as UTF-8.") from error
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise CaseRefused(f"the file is not {kind} ({said}): correct it.") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; refuse a key that is there twice, because one of the two would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


class _Loader(yaml.CSafeLoader):
    """Load YAML with dates as texts; refuse a key that is there twice."""

    def as_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        return _once(self.construct_pairs(node, deep=True))

    def as_text(self, node: yaml.ScalarNode) -> str:
        return str(self.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.as_mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.as_text)


def _yaml(text: str) -> Any:
    """Read YAML without aliases, which can make a small file enormous."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.CSafeLoader)):
        raise yaml.YAMLError("aliases are not read here")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe one


def _name(path: Path) -> str:
    """Return the name of a suite: of its file or directory, or of the skill whose ``evals`` it is."""
    plain = {"evals", "triggers", "trigger-eval", "eval_queries", "case", "cases"}
    whole = path.parent if path.is_file() and path.stem in plain else path
    whole = whole.parent if whole.name == "evals" else whole
    return (whole.stem if whole.is_file() else whole.name) or "suite"
