"""Files → a suite: our own cases, ``evals.json`` and trigger sets as others write them, and what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from pydantic import ValidationError

from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals import variants
from vademecum.evals.cases import Case
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
        """In one sentence."""
        field = f", field {self.field}" if self.field else ""
        return f"{self.file}, case {self.case}{field}: {self.message}"


class Suite(Struct, frozen=True):
    """Cases that can be run, and those that cannot."""

    name: str
    place: str
    cases: tuple[Case, ...]
    malformed: tuple[Malformed, ...] = ()
    skill: str = ""


def read_suite(path: Path, *, name: str = "") -> Suite:
    """The cases of a file, or of all files below a directory, in the order of their names."""
    if not path.exists():
        raise CaseRefused(f"There are no cases at {path}: vade eval init NAME writes some.", code="no-suite")
    place = path if path.is_dir() else path.parent
    found = _Collected({}, [])
    for file in _files(path):
        found.take(file, os.path.relpath(file, place))
    if not found.cases and not found.malformed:
        raise CaseRefused(f"{path} holds no cases: vade eval init NAME writes some.", code="no-suite")
    cases, malformed = tuple(found.cases.values()), tuple(found.malformed)
    return Suite(name or _name(path), str(place), cases, malformed, found.skill)


@dataclass(slots=True)
class _Collected:
    """What was read so far."""

    cases: dict[str, Case]
    malformed: list[Malformed]
    skill: str = ""

    def take(self, file: Path, shown: str) -> None:
        """Read one file; what is wrong with it keeps nothing else from being read."""
        try:
            found = variants.entries(_parsed(file), file)
        except (CaseRefused, FileRefused, OSError) as error:
            self.malformed.append(Malformed(shown, "-", "", str(error)))
            return
        self.skill = self.skill or found.skill
        for number, entry in enumerate(found.cases, 1):
            wrong = [(entry.field, entry.problem)] if entry.problem else self._add(entry.fields, file)
            self.malformed += [Malformed(shown, _said(entry.fields, number), *each) for each in wrong]

    def _add(self, fields: Any, file: Path) -> list[tuple[str, str]]:
        try:
            case = Case.model_validate(fields).model_copy(update={"place": str(file.parent)})
        except ValidationError as error:
            return list(_problems(error))
        if case.id in self.cases:
            return [("id", "another case has this id: give each its own.")]
        if len(self.cases) >= MAX_CASES:
            raise CaseRefused(f"{file} has more than {MAX_CASES:,} cases: split it.")
        self.cases[case.id] = case
        return []


def _said(fields: Any, number: int) -> str:
    found = fields.get("id") if isinstance(fields, Mapping) else None
    return str(found)[:200] if isinstance(found, str | int) and str(found) else f"#{number}"


def _problems(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Each problem with its field, each once."""
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
    try:
        text = data.decode("utf-8-sig")
        return json.loads(text) if file.suffix == ".json" else _yaml(text)
    except UnicodeDecodeError as error:
        raise CaseRefused("the file is not UTF-8: save it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        raise CaseRefused(f"the file is not JSON ({error}): correct it.") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise CaseRefused(f"the file is not YAML ({said}): correct it.") from error


def _yaml(text: str) -> Any:
    """YAML without aliases, which can make a small file enormous."""
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read here")
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _name(path: Path) -> str:
    """A suite is called like its file or directory, or the skill whose ``evals`` it is."""
    whole = path.absolute()
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
    return whole.stem if whole.is_file() else whole.name
