"""The shapes in which people write cases → the one shape that we read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals.cases import ANY_SKILL
from vademecum.files import read_capped
from vademecum.nearest import nearest

MAX_MANIFEST_BYTES = 64 * 1024
MAX_ID_CHARS = 48
TRIGGER_LISTS = ("triggers", "queries", "eval_queries", "trigger_queries")
_BOTH = ("id", "input", "query", "prompt", "files", "mock", "repeat", "tags", "category")
_EVAL_FIELDS = (*_BOTH, "expected_output", "assertions", "expectations", "name", "constraints")
_TRIGGER_FIELDS = (*_BOTH, "should_trigger", "gold", "expected", "skill", "skill_name")
_SAID = ("text", "assertion", "expectation", "statement", "description", "name", "check")
_EXACT = {"contains": "contains", "not_contains": "contains_none", "regex": "regex"}
_NAME = re.compile(rb"^name:[ \t]*[\"']?([\w-]+)", re.MULTILINE)


class FieldRefused(Exception):
    """A case that cannot be read: which field of it, and why."""


# A case as fields of our own form, and whether its id counts within its file only.
RawCase = tuple[Any, bool]
# The skill that a file is about, its entries, and how each becomes a case.
RawCases = tuple[str, Sequence[Any], Callable[[Any], RawCase]]


def entries(document: Any, file: Path, about: str = "") -> RawCases:
    """Return the cases in a document, whichever shape it has; ``about`` is their skill if none is named."""
    if isinstance(document, list):
        return _listed(document, _skill_around(file, about), file)
    if not isinstance(document, Mapping):
        raise CaseRefused("the file holds neither a case nor a list of cases: see docs/evals.md.")
    skill = str(document.get("skill_name") or document.get("skill") or _skill_around(file, about))
    lists = {key: document[key] for key in document if isinstance(document[key], list)}
    if "evals" in lists:
        return skill, lists["evals"], _from_eval
    for key in TRIGGER_LISTS:
        if key in lists:
            return skill, lists[key], partial(_from_trigger, skill=skill, file=file)
    if "cases" in lists:
        return _listed(lists["cases"], skill, file)
    if not document:
        raise CaseRefused("the file is empty: write a case, or remove it.")
    # A case that is alone in its file is named after the file or its directory.
    name = file.parent.name if file.stem == "case" else file.stem.removesuffix(".case")
    return skill, [document], lambda entry: ({"id": name, **entry}, False)


def _listed(found: list[Any], skill: str, file: Path) -> RawCases:
    """Return a list of cases, or of requests with whether they should trigger."""
    objects = [entry for entry in found if isinstance(entry, Mapping)]
    if any("should_trigger" in one or ("query" in one and "input" not in one) for one in objects):
        return skill, found, partial(_from_trigger, skill=skill, file=file)
    return skill, found, _own


def _own(entry: Any) -> RawCase:
    """Return a case of our own form; one without an id gets it from its request."""
    if not isinstance(entry, Mapping):
        raise FieldRefused("", "a case is an object.")
    if "id" in entry or not isinstance(entry.get("input"), str):
        return entry, False
    return {"id": id_from(entry["input"]), **entry}, True


def _from_trigger(entry: Any, *, skill: str, file: Path) -> RawCase:
    """Return the case of one request of a trigger set; the run may end once the skill is known."""
    case = _begun(entry, _TRIGGER_FIELDS, ("query", "prompt", "input"), "should_trigger")
    gold = entry.get("gold", [])
    if not isinstance(gold, list) or not all(isinstance(each, str) and each for each in gold):
        raise FieldRefused("gold", "it is a list of names of skills.")
    wanted = entry.get("should_trigger", entry.get("expected", bool(gold or "gold" not in entry)))
    name = str(entry.get("skill") or entry.get("skill_name") or skill)
    if not isinstance(wanted, bool):
        raise FieldRefused("should_trigger", f"it is true or false, not {wanted!r}.")
    if wanted and not (name or gold):
        raise FieldRefused(
            "skill", f"it names no skill, and {file.name} is in no skill's directory: add skill_name."
        )
    # Without a skill's name it is a request that no skill should take.
    expected = {"skills_any_of": gold or [name]} if wanted else {"skills_none_of": [name or ANY_SKILL]}
    case |= {"expected": expected, "tags": [*case["tags"], "trigger"], "until": "loaded"}
    return case, True


def _from_eval(entry: Any) -> RawCase:
    """Return one entry of ``evals.json``: a prompt, and what is expected in words that a judge reads."""
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
    return case, True


def _begun(entry: Any, known: Sequence[str], asked: Sequence[str], needed: str) -> dict[str, Any]:
    """Return what all shapes of others share; the request is in one of the fields ``asked``.

    Refuse an unknown field that is nearly one we read; other unknown fields are ignored.
    """
    if not isinstance(entry, Mapping):
        raise FieldRefused("", f"an entry is an object with {asked[0]} and {needed}.")
    for key in entry:
        near = None if key in known else nearest(str(key), known, like=0.8)
        if near and near not in entry:
            raise FieldRefused(str(key), f"there is no such field: did you mean {near!r}?")
    request = next((entry[key] for key in asked if key in entry), None)
    if not isinstance(request, str) or not request.strip():
        raise FieldRefused(asked[0], f"it has no text under {asked[0]}.")
    tags = entry.get("tags", entry.get("category", []))
    own = entry.get("id")
    return {
        **{key: entry[key] for key in ("files", "mock", "repeat") if entry.get(key) is not None},
        "id": id_from(request) if own is None else own,
        "input": request,
        "tags": [tags] if isinstance(tags, str) else list(tags) if isinstance(tags, list) else [],
    }


def _expected(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return all that an entry expects of the output; nothing of it is left out in silence."""
    said = entry.get("expected_output")
    said = [] if said is None else said if isinstance(said, list) else [said]
    if not all(isinstance(each, str) for each in said):
        raise FieldRefused("expected_output", "it is a text, or a list of texts.")
    output: dict[str, list[str]] = {"judge": [each for each in said if each.strip()]}
    for key in ("assertions", "expectations"):
        asserted = entry.get(key) or []
        if not isinstance(asserted, list):
            raise FieldRefused(key, "it is a list of texts or objects.")
        for place, assertion in enumerate(asserted):
            kind, text = _assertion(assertion, f"{key}.{place}")
            output.setdefault(kind, []).append(text)
    return output


def _assertion(assertion: Any, field: str) -> tuple[str, str]:
    """Return what an assertion says: words for the judge, or a test that needs none."""
    if isinstance(assertion, str):
        assertion = {"text": assertion}
    if not isinstance(assertion, Mapping):
        raise FieldRefused(field, "an assertion is a text or an object.")
    kind, value = assertion.get("type"), assertion.get("value", assertion.get("pattern"))
    if isinstance(kind, str) and kind in _EXACT and isinstance(value, str):
        return _EXACT[kind], value
    said = next((assertion[key] for key in _SAID if isinstance(assertion.get(key), str)), "")
    if not said.strip():
        raise FieldRefused(field, f"an assertion says what it asserts under one of {', '.join(_SAID)}.")
    return "judge", said


def id_from(request: str) -> str:
    """Return an id made of the first words of a request.

    >>> id_from("Compare a.txt with b.txt, please!"), id_from("比较两个文件。"), id_from("?")
    ('compare-a-txt-with-b-txt-please', '比较两个文件', 'case')
    """
    return re.sub(r"\W+", "-", request.casefold()).strip("-")[:MAX_ID_CHARS].strip("-") or "case"


def _skill_around(file: Path, otherwise: str) -> str:
    """Return the skill whose directory a file lies in, as its SKILL.md names it."""
    for place in list(file.absolute().parents)[:3]:
        try:
            found = _NAME.search(read_capped(place / "SKILL.md", cap=MAX_MANIFEST_BYTES))
        except (OSError, FileRefused):
            continue
        return found[1].decode() if found else place.name
    return otherwise
