"""Read a suite from files: our own cases, ``evals.json`` and trigger sets of others, with all problems."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import Struct
from pydantic import ValidationError

from vademecum.config import once
from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals.cases import ANY_SKILL, FIELDS, Case
from vademecum.evals.isolation import places_of, sources_of
from vademecum.files import read_capped
from vademecum.nearest import meant, nearest
from vademecum.runs.record import EVENTS, INDEX

MAX_SUITE_BYTES = 64 * 1024 * 1024
MAX_FILES = 10_000
MAX_CASES = 200_000
MAX_DEPTH = 100
ENDINGS = (".json", ".yaml", ".yml")
MAX_MANIFEST_BYTES = 64 * 1024
MAX_ID_CHARS = 48
RESULTS, HEADER = "results.jsonl", "evaluation.json"
_TRIGGER_LISTS = ("triggers", "queries", "eval_queries", "trigger_queries")
_BOTH = ("id", "input", "query", "prompt", "files", "mock", "repeat", "tags", "category")
_EVAL_FIELDS = (*_BOTH, "expected_output", "assertions", "expectations", "name", "constraints")
_TRIGGER_FIELDS = (*_BOTH, "should_trigger", "gold", "expected", "skill", "skill_name")
_SAID = ("text", "assertion", "expectation", "statement", "description", "name", "check")
_EXACT = {"contains": "contains", "not_contains": "contains_none", "regex": "regex"}
_NAME = re.compile(rb"^name:[ \t]*[\"']?([\w-]+)", re.MULTILINE)


class Malformed(Struct, frozen=True):
    """A case that cannot be run: its file, its id (empty: the whole file), the field and the problem."""

    file: str
    case: str
    field: str
    message: str

    def __str__(self) -> str:
        """Return the problem in one sentence."""
        case = f", case {self.case}" if self.case else ""
        field = f", field {self.field}" if self.field else ""
        return f"{self.file}{case}{field}: {self.message}"


class Suite(Struct, frozen=True):
    """Cases that can be run, and those that cannot."""

    name: str
    cases: tuple[Case, ...]
    malformed: tuple[Malformed, ...] = ()
    skill: str = ""


def read_suite(path: Path, *, name: str = "", skill: str = "") -> Suite:
    """Return the cases of a file, or of all files below a directory, in the order of their names.

    They are about ``skill`` unless they, or a SKILL.md above them, name another.
    """
    path = Path(os.path.abspath(path))
    if not path.exists():
        raise CaseRefused(f"There are no cases at {path}: vade eval init NAME writes some.", code="no-suite")
    place = path if path.is_dir() else path.parent
    files = list(islice(_files(path), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise CaseRefused(f"{path} contains more than {MAX_FILES:,} files: name a smaller directory.")
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
        raise CaseRefused(f"{path} contains no cases: vade eval init NAME writes some.", code="no-suite")
    about = skill or next((one.skill for one in kept if one.skill), "")
    return Suite(name or _name(path), tuple(cases.values()), tuple(malformed), about)


class _Read(NamedTuple):
    """One file: the skill it is about, its cases, and the problems of the others.

    Each case comes with a flag: whether its id is only valid within the file.
    """

    file: Path
    shown: str
    skill: str
    cases: list[tuple[Case, bool]]
    malformed: list[Malformed]


def _read(file: Path, shown: str, skill: str) -> _Read:
    """Read a file; its problems are part of the result."""
    try:
        about, entries, case_of = _entries(_parsed(file), file, skill)
    except (CaseRefused, FileRefused, OSError) as error:
        return _Read(file, shown, "", [], [Malformed(shown, "", "", _fit(str(error)))])
    read = _Read(file, shown, about, [], [])
    for number, entry in enumerate(entries, 1):
        said = _said(entry, number)
        try:
            fields = case_of(entry)
            said = _said(fields, number)
            _refuse_unfit(fields)
            case = Case.model_validate(fields).model_copy(update={"place": str(file.parent)})
        except _FieldRefused as error:
            read.malformed.append(Malformed(shown, said, *map(_fit, error.args)))
        except ValidationError as error:
            read.malformed.extend(Malformed(shown, said, field, _fit(why)) for field, why in _problems(error))
        else:
            read.cases.append((case, case_of is not _own or "id" not in entry))
    return read


def _refuse_unfit(value: Any, depth: int = 0) -> None:
    """Refuse a value that is nested too deeply, or has a lone surrogate, which cannot be written."""
    if depth > MAX_DEPTH:
        raise _FieldRefused("", f"it is nested more than {MAX_DEPTH} levels deep: make it flatter")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _FieldRefused("", "it contains half a character (a lone surrogate): correct it") from None
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            _refuse_unfit(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_unfit(item, depth + 1)


def _brought(one: _Read) -> Iterator[Path]:
    """Return the paths that the cases of a file name, without directories that contain the file itself."""
    for case, _ in one.cases:
        for name in (*sources_of(case), case.setup.project):
            for place in places_of(case.place) if name else ():
                path = Path(os.path.normpath(place / name))
                if path != one.file and path not in one.file.parents:
                    yield path


def _free(one: _Read, wanted: str, cases: Mapping[str, Case]) -> str:
    """Return an id that no other case has, if necessary with the name of the file and a number."""
    named = f"{os.path.splitext(one.shown)[0]}-{wanted}"
    numbered = (f"{named}-{number}" for number in count(2))
    return next(each for each in chain([wanted, named], numbered) if each not in cases)


def _said(fields: Any, number: int) -> str:
    """Return the id of a case for a message, else its number in the file."""
    found = fields.get("id") if isinstance(fields, Mapping) else None
    return _fit(str(found)[:200]) if isinstance(found, str | int) and str(found) else f"#{number}"


def _fit(text: str) -> str:
    """Return a text that can be written as UTF-8, with lone surrogates replaced."""
    return text.encode("utf-8", "replace").decode()


def _problems(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield each problem with its field, each once."""
    seen: dict[tuple[str, str], None] = {}
    for detail in error.errors(include_url=False)[:20]:
        steps = [str(step).rstrip("_") for step in detail["loc"] if not str(step).startswith("function-")]
        is_unknown = detail["type"] == "extra_forbidden"
        hint = meant(nearest(steps[-1], FIELDS, like=0.8), otherwise="") if is_unknown else ""
        unknown = f"there is no such field: {hint}" if hint else "there is no such field."
        message = unknown if is_unknown else detail["msg"].removeprefix("Value error, ")
        seen[".".join(steps), message] = None
    yield from seen


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    left_out = {"files", "project", "results"}
    for directory, names, files in os.walk(path):
        if {RESULTS, HEADER} <= {*files} or {EVENTS, INDEX} <= {*files}:  # an evaluation, or a run
            names.clear()
            continue
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
            return [json.loads(line, object_pairs_hook=once) for line in text.splitlines() if line.strip()]
        return json.loads(text, object_pairs_hook=once) if kind == "JSON" else _yaml(text)
    except UnicodeDecodeError as error:
        raise CaseRefused("the file is not UTF-8: save it as UTF-8.") from error
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).replace('"<unicode string>", ', "").split())
        raise CaseRefused(f"the file is not {kind} ({said}): correct it.") from error


class _Loader(yaml.CSafeLoader):
    """Load YAML with dates as texts; refuse duplicate keys."""

    def as_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        return once(self.construct_pairs(node, deep=True))

    def as_text(self, node: yaml.ScalarNode) -> str:
        return str(self.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.as_mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.as_text)


def _yaml(text: str) -> Any:
    """Read YAML without aliases, which can make a small file enormous."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.CSafeLoader)):
        raise yaml.YAMLError("aliases are not allowed here")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe one


def _name(path: Path) -> str:
    """Return the name of a suite: of its file or directory, or of the skill whose ``evals`` it is."""
    plain = {"evals", "triggers", "trigger-eval", "eval_queries", "case", "cases"}
    whole = path.parent if path.is_file() and path.stem in plain else path
    whole = whole.parent if whole.name == "evals" else whole
    return (whole.stem if whole.is_file() else whole.name) or "suite"


class _FieldRefused(Exception):
    """A case that cannot be read: its field, and why."""


# Turns an entry into the fields of a case in our own format.
_CaseOf = Callable[[Any], Any]


def _entries(document: Any, file: Path, about: str) -> tuple[str, list[Any], _CaseOf]:
    """Return the skill that a document is about, its entries, and the function that makes cases of them.

    ``about`` is the skill if none is named.
    """
    found = {"cases": document} if isinstance(document, list) else document
    if not isinstance(found, Mapping):
        raise CaseRefused("the file contains neither a case nor a list of cases: see docs/evals.md.")
    if not found:
        raise CaseRefused("the file is empty: write a case, or remove it.")
    skill = str(found.get("skill_name") or found.get("skill") or _skill_around(file, about))
    from_trigger = partial(_from_trigger, skill=skill, file=file)
    ways: dict[str, _CaseOf] = {
        "evals": _from_eval,
        **dict.fromkeys(_TRIGGER_LISTS, from_trigger),
        "cases": _own,
    }
    for key, case_of in ways.items():
        listed = found.get(key)
        if isinstance(listed, list):
            objects = [entry for entry in listed if isinstance(entry, Mapping)]
            asks = any("should_trigger" in one or ("query" in one and "input" not in one) for one in objects)
            return skill, listed, from_trigger if key == "cases" and asks else case_of
    # A case that is alone in its file is named after the file or its directory.
    name = file.parent.name if file.stem == "case" else file.stem.removesuffix(".case")
    return skill, [{"id": name, **found}], _own


def _own(entry: Any) -> Any:
    """Return a case of our own form; one without an id gets it from its request."""
    if not isinstance(entry, Mapping):
        raise _FieldRefused("", "a case is an object.")
    if "id" in entry or not isinstance(entry.get("input"), str):
        return entry
    return {"id": id_from(entry["input"]), **entry}


def _from_trigger(entry: Any, *, skill: str, file: Path) -> Any:
    """Return the case of one request of a trigger set; the run may end once the skill is known."""
    case = _begun(entry, _TRIGGER_FIELDS, ("query", "prompt", "input"), "should_trigger")
    gold = entry.get("gold", [])
    if not isinstance(gold, list) or not all(isinstance(each, str) and each for each in gold):
        raise _FieldRefused("gold", "it is a list of names of skills.")
    wanted = entry.get("should_trigger", entry.get("expected", bool(gold or "gold" not in entry)))
    name = str(entry.get("skill") or entry.get("skill_name") or skill)
    if not isinstance(wanted, bool):
        raise _FieldRefused("should_trigger", f"it is true or false, not {wanted!r}.")
    if wanted and not (name or gold):
        raise _FieldRefused(
            "skill", f"it names no skill, and {file.name} is not in the directory of a skill: add skill_name."
        )
    # Without a skill's name it is a request that no skill should take.
    expected = {"skills_any_of": gold or [name]} if wanted else {"skills_none_of": [name or ANY_SKILL]}
    case |= {"expected": expected, "tags": [*case["tags"], "trigger"], "until": "loaded"}
    return case


def _from_eval(entry: Any) -> Any:
    """Return the case of one entry of ``evals.json``: a prompt, and expectations for a judge."""
    case = _begun(entry, _EVAL_FIELDS, ("prompt", "input", "query"), "expected_output")
    case["expected"] = {"output": _expected(entry)}
    if isinstance(case.get("files"), list):
        case["files"] = [
            {"name": Path(path).name, "source": path} if isinstance(path, str) and path else path
            for path in case["files"]
        ]
    if isinstance(entry.get("name"), str):
        case["description"] = entry["name"]
    if "constraints" in entry:
        case["constraints"] = entry["constraints"]
    return case


def _begun(entry: Any, known: Sequence[str], asked: Sequence[str], needed: str) -> dict[str, Any]:
    """Return the fields that the formats of others share; the request is in one of the fields ``asked``.

    Refuse an unknown field that resembles a known one; ignore other unknown fields.
    """
    if not isinstance(entry, Mapping):
        raise _FieldRefused("", f"an entry is an object with {asked[0]} and {needed}.")
    for key in entry:
        near = None if key in known else nearest(str(key), known, like=0.8)
        if near and near not in entry:
            raise _FieldRefused(str(key), f"there is no such field: did you mean {near!r}?")
    request = next((entry[key] for key in asked if key in entry), None)
    if not isinstance(request, str) or not request.strip():
        raise _FieldRefused(asked[0], f"it has no text under {asked[0]}.")
    tags = entry.get("tags", entry.get("category", []))
    own = entry.get("id")
    return {
        **{key: entry[key] for key in ("files", "mock", "repeat") if entry.get(key) is not None},
        "id": id_from(request) if own is None else own,
        "input": request,
        "tags": [tags] if isinstance(tags, str) else list(tags) if isinstance(tags, list) else [],
    }


def _expected(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return everything that an entry expects of the output; refuse what cannot be read."""
    said = entry.get("expected_output")
    said = [] if said is None else said if isinstance(said, list) else [said]
    if not all(isinstance(each, str) for each in said):
        raise _FieldRefused("expected_output", "it is a text, or a list of texts.")
    output: dict[str, list[str]] = {"judge": [each for each in said if each.strip()]}
    for key in ("assertions", "expectations"):
        asserted = entry.get(key) or []
        if not isinstance(asserted, list):
            raise _FieldRefused(key, "it is a list of texts or objects.")
        for place, assertion in enumerate(asserted):
            kind, text = _assertion(assertion, f"{key}.{place}")
            output.setdefault(kind, []).append(text)
    return output


def _assertion(assertion: Any, field: str) -> tuple[str, str]:
    """Return an assertion: a statement for the judge, or an exact test."""
    if isinstance(assertion, str):
        assertion = {"text": assertion}
    if not isinstance(assertion, Mapping):
        raise _FieldRefused(field, "an assertion is a text or an object.")
    kind, value = assertion.get("type"), assertion.get("value", assertion.get("pattern"))
    if isinstance(kind, str) and kind in _EXACT and isinstance(value, str):
        return _EXACT[kind], value
    said = next((assertion[key] for key in _SAID if isinstance(assertion.get(key), str)), "")
    if not said.strip():
        raise _FieldRefused(field, f"an assertion needs a text under one of {', '.join(_SAID)}.")
    return "judge", said


def id_from(request: str) -> str:
    """Return an id made of the first words of a request.

    >>> id_from("Compare a.txt with b.txt, please!"), id_from("比较两个文件。"), id_from("?")
    ('compare-a-txt-with-b-txt-please', '比较两个文件', 'case')
    """
    return re.sub(r"\W+", "-", request.casefold()).strip("-")[:MAX_ID_CHARS].strip("-") or "case"


def _skill_around(file: Path, otherwise: str) -> str:
    """Return the skill whose directory contains a file, as its SKILL.md names it."""
    for place in list(file.absolute().parents)[:3]:
        try:
            found = _NAME.search(read_capped(place / "SKILL.md", cap=MAX_MANIFEST_BYTES))
        except (OSError, FileRefused):
            continue
        return found[1].decode() if found else place.name
    return otherwise
