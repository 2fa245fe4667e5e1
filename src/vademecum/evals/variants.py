"""The shapes in which people write cases → the one shape that we read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vademecum.errors import CaseRefused, FileRefused
from vademecum.evals.cases import ANY_SKILL
from vademecum.files import read_capped

MAX_MANIFEST_BYTES = 64 * 1024
MAX_ID_CHARS = 48
TRIGGER_LISTS = ("triggers", "queries", "eval_queries", "trigger_queries")
_BOTH = ("id", "input", "query", "prompt", "files", "mock", "repeat", "tags", "category")
_EVAL_FIELDS = (*_BOTH, "expected_output", "assertions", "expectations", "name", "constraints")
_TRIGGER_FIELDS = (*_BOTH, "should_trigger", "gold", "expected", "skill", "skill_name")
_SAID = ("text", "assertion", "expectation", "statement", "description", "name", "check")
_NAME = re.compile(rb"^name:[ \t]*[\"']?([\w-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RawCase:
    """One case as fields, or what is wrong with it: in which field, and how."""

    fields: Any
    problem: str = ""
    field: str = ""
    # In files of others an id counts within its file; beside another file's it gets the file's name.
    own_ids: bool = False


@dataclass(frozen=True, slots=True)
class RawCases:
    """The content of a file of cases: the skill it is about, and its cases."""

    skill: str
    cases: list[RawCase]


def entries(document: Any, file: Path, about: str = "") -> RawCases:
    """Return the cases in a document, whichever shape it has; ``about`` is their skill if none is named."""
    if isinstance(document, list):
        return _listed(document, _skill_around(file, about), file)
    if not isinstance(document, Mapping):
        raise CaseRefused("the file holds neither a case nor a list of cases: see docs/evals.md.")
    skill = str(document.get("skill_name") or document.get("skill") or _skill_around(file, about))
    if isinstance(document.get("evals"), list):
        return RawCases(skill, [_from_eval(entry) for entry in document["evals"]])
    for key in TRIGGER_LISTS:
        if isinstance(document.get(key), list):
            return _triggers(document[key], skill, file)
    if isinstance(document.get("cases"), list):
        return _listed(document["cases"], skill, file)
    if not document:
        raise CaseRefused("the file is empty: write a case, or remove it.")
    return RawCases(skill, [RawCase(_with_id(document, file))])


def _listed(found: list[Any], skill: str, file: Path) -> RawCases:
    """Return a list of cases, or of requests with whether they should trigger."""
    if any(isinstance(entry, Mapping) and _is_trigger(entry) for entry in found):
        return _triggers(found, skill, file)
    return RawCases(skill, [_own(entry) for entry in found])


def _own(entry: Any) -> RawCase:
    """Return a case of our own form; one without an id gets it from its request."""
    if not isinstance(entry, Mapping):
        return RawCase(entry, "a case is an object.")
    if "id" in entry or not isinstance(entry.get("input"), str):
        return RawCase(entry)
    return RawCase({"id": id_from(entry["input"]), **entry}, own_ids=True)


def _with_id(document: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Return a case that is alone in its file, named after the file or its directory by default."""
    own = file.parent.name if file.stem == "case" else file.stem.removesuffix(".case")
    return document if "id" in document else {"id": own, **document}


def _is_trigger(entry: Mapping[str, Any]) -> bool:
    return "should_trigger" in entry or ("query" in entry and "input" not in entry)


def _triggers(found: list[Any], skill: str, file: Path) -> RawCases:
    return RawCases(skill, [_from_trigger(entry, skill, file) for entry in found])


def _from_trigger(entry: Any, skill: str, file: Path) -> RawCase:
    """Return the case of one request of a trigger set; the run may end once the skill is known."""
    if not isinstance(entry, Mapping):
        return RawCase(entry, "an entry is an object with query and should_trigger.", "")
    misspelt = _misspelt(entry, _TRIGGER_FIELDS)
    if misspelt is not None:
        return misspelt
    query = entry.get("query", entry.get("prompt", entry.get("input")))
    gold = entry.get("gold", [])
    if not isinstance(gold, list) or not all(isinstance(each, str) and each for each in gold):
        return RawCase(entry, "it is a list of names of skills.", "gold")
    wanted = entry.get("should_trigger", entry.get("expected", bool(gold or "gold" not in entry)))
    name = str(entry.get("skill") or entry.get("skill_name") or skill)
    if not isinstance(query, str) or not query.strip():
        return RawCase(entry, "it has no text under query.", "query")
    if not isinstance(wanted, bool):
        return RawCase(entry, f"it is true or false, not {wanted!r}.", "should_trigger")
    if wanted and not (name or gold):
        problem = f"it names no skill, and {file.name} is in no skill's directory: add skill_name."
        return RawCase(entry, problem, "skill")
    # Without a skill's name it is a request that no skill should take.
    expected = {"skills_any_of": gold or [name]} if wanted else {"skills_none_of": [name or ANY_SKILL]}
    tags = [*_tags(entry), "trigger"]
    case = {
        "id": _id(entry, query),
        "input": query,
        "expected": expected,
        "tags": tags,
    }
    fields = {**case, "until": "loaded", **_kept(entry, "files", "mock", "repeat")}
    return RawCase(fields, own_ids=True)


def _from_eval(entry: Any) -> RawCase:
    """Return one entry of ``evals.json``: a prompt, and what is expected in words that a judge reads."""
    if not isinstance(entry, Mapping):
        return RawCase(entry, "an entry is an object with prompt and expected_output.", "")
    misspelt = _misspelt(entry, _EVAL_FIELDS)
    if misspelt is not None:
        return misspelt
    prompt = entry.get("prompt", entry.get("input", entry.get("query")))
    if not isinstance(prompt, str) or not prompt.strip():
        return RawCase(entry, "it has no text under prompt.", "prompt")
    output: dict[str, Any] = {"judge": [], "contains": [], "contains_none": [], "regex": []}
    wrong = _expect(entry, output)
    if wrong is not None:
        return wrong
    files = entry.get("files") or []
    if isinstance(files, list):
        files = [
            {"name": Path(path).name, "source": path} if isinstance(path, str) and path else path
            for path in files
        ]
    fields = {
        "id": _id(entry, prompt),
        "input": prompt,
        "expected": {"output": output},
        "files": files,
    }
    described = {"description": str(entry["name"])} if isinstance(entry.get("name"), str) else {}
    kept = _kept(entry, "mock", "repeat", "constraints")
    return RawCase({**fields, **described, "tags": _tags(entry), **kept}, own_ids=True)


def _expect(entry: Mapping[str, Any], output: dict[str, Any]) -> RawCase | None:
    """Add all that an entry expects; or say what is wrong with it, so that nothing is left out in silence."""
    said = entry.get("expected_output")
    said = [] if said is None else said if isinstance(said, list) else [said]
    if not all(isinstance(each, str) for each in said):
        return RawCase(entry, "it is a text, or a list of texts.", "expected_output")
    output["judge"] += [each for each in said if each.strip()]
    for key in ("assertions", "expectations"):
        asserted = entry.get(key) or []
        if not isinstance(asserted, list):
            return RawCase(entry, "it is a list of texts or objects.", key)
        for place, assertion in enumerate(asserted):
            problem = _assert(assertion, output)
            if problem:
                return RawCase(entry, problem, f"{key}.{place}")
    return None


def _assert(assertion: Any, output: dict[str, Any]) -> str:
    """Add what an assertion says: words for the judge, or a test that needs none; or say what is wrong."""
    if isinstance(assertion, str) and assertion.strip():
        output["judge"].append(assertion)
        return ""
    if not isinstance(assertion, Mapping):
        return "an assertion is a text or an object."
    kind, value = assertion.get("type"), assertion.get("value", assertion.get("pattern"))
    exact = {"contains": "contains", "not_contains": "contains_none", "regex": "regex"}
    if isinstance(kind, str) and kind in exact and isinstance(value, str):
        output[exact[kind]].append(value)
        return ""
    said = next((assertion[key] for key in _SAID if isinstance(assertion.get(key), str)), "")
    if not said.strip():
        return f"an assertion says what it asserts under one of {', '.join(_SAID)}."
    output["judge"].append(said)
    return ""


def _id(entry: Mapping[str, Any], request: str) -> Any:
    found = entry.get("id")
    return id_from(request) if found is None else found


def id_from(request: str) -> str:
    """Return an id made of the first words of a request.

    >>> id_from("Compare a.txt with b.txt, please!"), id_from("比较两个文件。"), id_from("?")
    ('compare-a-txt-with-b-txt-please', '比较两个文件', 'case')
    """
    return re.sub(r"\W+", "-", request.casefold()).strip("-")[:MAX_ID_CHARS].strip("-") or "case"


def _misspelt(entry: Mapping[str, Any], known: Sequence[str]) -> RawCase | None:
    """Return an unknown field that is nearly one we read; other unknown fields are ignored."""
    for key in entry:
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.8)
        if key not in known and near and near[0] not in entry:
            return RawCase(entry, f"there is no such field: did you mean {near[0]!r}?", str(key))
    return None


def _kept(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: entry[key] for key in keys if key in entry}


def _tags(entry: Mapping[str, Any]) -> list[Any]:
    tags = entry.get("tags", entry.get("category", []))
    return [tags] if isinstance(tags, str) else list(tags) if isinstance(tags, list) else []


def _skill_around(file: Path, otherwise: str) -> str:
    """Return the skill whose directory a file lies in, as its SKILL.md names it."""
    for place in list(file.absolute().parents)[:3]:
        try:
            found = _NAME.search(read_capped(place / "SKILL.md", cap=MAX_MANIFEST_BYTES))
        except (OSError, FileRefused):
            continue
        return found[1].decode() if found else place.name
    return otherwise
