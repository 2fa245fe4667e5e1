"""Files → a suite: our own cases, ``evals.json`` and trigger sets as others write them, and what is wrong."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

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
    found = _Collected({}, [])
    read = [_Read.of(file, os.path.relpath(file, place), skill) for file in _files(path)]
    for file in _without_brought(read):
        found.take(file)
    if not found.cases and not found.malformed:
        raise CaseRefused(f"{path} holds no cases: vade eval init NAME writes some.", code="no-suite")
    cases, malformed = tuple(found.cases.values()), tuple(found.malformed)
    return Suite(name or _name(path), str(place), cases, malformed, skill or found.skill)


@dataclass(frozen=True, slots=True)
class _Read:
    """One file: its entries, each as a case or as what is wrong with it."""

    file: Path
    shown: str
    skill: str
    entries: tuple[variants.RawCase, ...]
    cases: tuple[Case | list[tuple[str, str]], ...]

    @classmethod
    def of(cls, file: Path, shown: str, skill: str) -> _Read:
        """Read it; what is wrong with it keeps nothing else from being read."""
        try:
            found = variants.entries(_parsed(file), file, skill)
        except (CaseRefused, FileRefused, OSError) as error:
            whole = variants.RawCase(None, str(error))
            return cls(file, shown, "", (whole,), ([("", str(error))],))
        cases = tuple(_case(entry, file) for entry in found.cases)
        return cls(file, shown, found.skill, tuple(found.cases), cases)


def _case(entry: variants.RawCase, file: Path) -> Case | list[tuple[str, str]]:
    if entry.problem:
        return [(entry.field, entry.problem)]
    try:
        return Case.model_validate(entry.fields).model_copy(update={"place": str(file.parent)})
    except ValidationError as error:
        return list(_problems(error))


def _without_brought(read: Sequence[_Read]) -> Iterator[_Read]:
    """Leave out files that are an input of a case or part of its project."""
    brought = {path for one in read for path in _brought(one)}
    for one in read:
        if not brought & {one.file, *one.file.parents}:
            yield one


def _brought(one: _Read) -> Iterator[Path]:
    """Return the paths that the cases of a file name, without directories that contain the file itself."""
    for case in (case for case in one.cases if isinstance(case, Case)):
        for name in (*sources_of(case), case.setup.project):
            for place in places_of(case.place) if name else ():
                path = Path(os.path.normpath(place / name))
                if path != one.file and path not in one.file.parents:
                    yield path


@dataclass(slots=True)
class _Collected:
    """The cases and problems that were read so far."""

    cases: dict[str, Case]
    malformed: list[Malformed]
    skill: str = ""

    def take(self, read: _Read) -> None:
        """Add the cases and problems of a file."""
        self.skill = self.skill or read.skill
        for number, (entry, found) in enumerate(zip(read.entries, read.cases, strict=True), 1):
            wrong = self._add(found, entry, read) if isinstance(found, Case) else found
            said = _said(entry.fields, number)
            self.malformed += [Malformed(_fit(read.shown), said, field, _fit(why)) for field, why in wrong]

    def _add(self, case: Case, entry: variants.RawCase, read: _Read) -> list[tuple[str, str]]:
        if case.id in self.cases and entry.own_ids:
            case = case.model_copy(update={"id": self._free(f"{os.path.splitext(read.shown)[0]}-{case.id}")})
        if case.id in self.cases:
            return [("id", "another case has this id: give each its own.")]
        if len(self.cases) >= MAX_CASES:
            raise CaseRefused(f"{read.file} has more than {MAX_CASES:,} cases: split it.")
        self.cases[case.id] = case
        return []

    def _free(self, wanted: str) -> str:
        """Return an id that no other case has: the wanted one, or with a number after it."""
        numbered = (f"{wanted}-{number}" for number in count(2))
        return wanted if wanted not in self.cases else next(one for one in numbered if one not in self.cases)


def _said(fields: Any, number: int) -> str:
    if fields is None:
        return "-"
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
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = "there is no such field."
        seen[".".join(steps), message] = None
    yield from seen


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    count = 0
    for directory, names, files in os.walk(path):
        names[:] = sorted(
            name for name in names if name not in {"files", "project", "results"} and name[0] != "."
        )
        for file in sorted(files):
            if file.endswith(ENDINGS) and not file.startswith("."):
                count += 1
                if count > MAX_FILES:
                    raise CaseRefused(
                        f"{path} holds more than {MAX_FILES:,} files: name a smaller directory."
                    )
                yield Path(directory, file)


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
    except (ValueError, RecursionError, yaml.YAMLError) as error:
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
    """YAML whose dates are texts, and whose keys are there once."""

    def as_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if not all(isinstance(key, Hashable) for key in keys):
            raise yaml.YAMLError("a key is a list or an object")
        values = [self.construct_object(value, deep=True) for _, value in node.value]
        return _once(list(zip(keys, values, strict=True)))

    def as_text(self, node: yaml.ScalarNode) -> str:
        return str(self.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.as_mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.as_text)


def _yaml(text: str) -> Any:
    """YAML without aliases, which can make a small file enormous."""
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read here")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe one


def _name(path: Path) -> str:
    """Return the name of a suite: of its file or directory, or of the skill whose ``evals`` it is."""
    whole = Path(os.path.abspath(path))
    if whole.is_file() and whole.stem in {
        "evals",
        "triggers",
        "trigger-eval",
        "eval_queries",
        "case",
        "cases",
    }:
        whole = whole.parent
    if whole.name == "evals":
        whole = whole.parent
    return (whole.stem if whole.is_file() else whole.name) or "suite"
