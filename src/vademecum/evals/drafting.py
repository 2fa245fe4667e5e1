"""Draft a suite for a skill, and try other descriptions of the skill on it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import CaseRefused
from vademecum.evals.cases import Case
from vademecum.evals.checks.answers import json_in
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.reports.summary import Comparison, compare, rates_of
from vademecum.evals.results import CaseResult
from vademecum.evals.suite import Suite
from vademecum.evals.units import Configuration, other_index
from vademecum.files import write_atomic
from vademecum.models.base import Message, Model
from vademecum.registry.index import SkillIndex
from vademecum.search.finder import Finder
from vademecum.skill.diagnosis import split
from vademecum.skill.skill import Skill

MAX_REQUESTS = 6
MAX_NEIGHBOURS = 5
_LEAST_CHARS = 8
_CLAUSES = re.compile(r"(?:\.(?=\s|$)|[;。；!！\n])+\s*")
_LEAD = re.compile(
    r"^(?:use (?:this skill )?(?:when|for|to)\b[:,]?|when|for|适?用于|適用於)?\s*"
    r"(?:asked (?:to\b|for\b)?)?\s*"
    r"(?:[当當](?![天日周月季年前地])(?:用户|使用者|用戶)?(?:要求|需要|想要?|询问|詢問|提到|问|問|说|說)?)?",
    re.IGNORECASE,
)
_END = re.compile(r"(?:的时候|的時候|[时時])(?:使?用|调用|觸發|触发)$")


def write_draft(skill: Skill, index: SkillIndex, place: Path) -> Path:
    """Write a draft suite to the directory ``place`` and return its file; refuse if it exists."""
    if place.exists():
        raise CaseRefused(f"{place} exists already: edit it, or remove it first.")
    text = json.dumps(draft_triggers(skill, index), ensure_ascii=False, indent=2)
    write_atomic(place / "triggers.json", f"{text}\n".encode())
    return place / "triggers.json"


def draft_triggers(skill: Skill, index: SkillIndex) -> dict[str, Any]:
    """Return requests that should trigger a skill and near-misses that should not, tagged ``draft``."""
    asked = dict.fromkeys(requests_from(skill.description), True)
    for hit in Finder(index).search(skill.description, MAX_NEIGHBOURS + 1):
        if hit.name != skill.name:
            asked.setdefault(requests_from(hit.description)[0], False)
    asked["What is the capital of Norway?"] = False
    return {
        "skill_name": skill.name,
        "triggers": [
            {"query": text, "should_trigger": should, "tags": ["draft"]} for text, should in asked.items()
        ],
    }


def requests_from(description: str) -> list[str]:
    """Return the clauses of a description as requests.

    >>> requests_from("Compare two files. Use when asked to find out what changed; e.g. in a contract.")
    ['Compare two files', 'find out what changed']
    >>> requests_from("统计字数。当用户问一篇文章有多少字、要读多久时使用。")
    ['一篇文章有多少字、要读多久']
    """
    said = (_END.sub("", _LEAD.sub("", clause.strip())) for clause in _CLAUSES.split(description))
    clauses = (clause.strip(" ,:：，") for clause in said)
    found = [
        clause
        for clause in clauses
        if len(clause) >= _LEAST_CHARS and not re.match(r"(?i)in\b|e\.?g", clause)
    ]
    return list(dict.fromkeys(clause[:200] for clause in found))[:MAX_REQUESTS] or [description[:200]]


MAX_CANDIDATES = 20
MAX_DESCRIPTION_CHARS = 1024
LEAST_CASES = 4

_ASK = (
    "Write better descriptions for a skill of an assistant. A description decides which requests trigger the "
    "skill. Answer with one JSON list of at most 5 texts of at most 1,024 characters, without < and >."
)


class Improvement(Struct, frozen=True):
    """The best candidate on the first half of the requests, and its result on the second half."""

    old: str
    new: str
    tuned: dict[str, float]
    comparison: Comparison | None

    @property
    def is_better(self) -> bool:
        """Return whether the candidate wins beyond chance on the cases that it was not chosen by."""
        return self.comparison is not None and self.comparison.verdict == "better"


def improve(
    suite: Suite,
    candidates: Callable[[Sequence[Case]], Sequence[str]],
    *,
    skill: Skill,
    evaluator: Evaluator,
    configuration: Configuration,
) -> Improvement:
    """Choose among candidates by the first half of the cases, and test the best on the second.

    Results go below the evaluator's directory.
    """
    about = [case for case in suite.cases if case.expects_skills or case.expected.skills_none_of]
    if len(about) < LEAST_CASES:
        raise CaseRefused(
            f"{suite.name} has {len(about)} cases about skills; at least {LEAST_CASES} are needed."
        )

    def results(cases: Sequence[Case], text: str, name: str) -> tuple[CaseResult, ...]:
        """Run cases with this description of the skill."""
        place, index = evaluator.workshop, evaluator.workshop.index
        skills = [structs.replace(one, description=text) if one is skill else one for one in index.skills]
        index = other_index(index, skills, index.shadowed, skill.name, text)
        workshop = dataclasses.replace(place, index=index, out=place.out / name)
        part = structs.replace(suite, cases=tuple(cases))
        return dataclasses.replace(evaluator, workshop=workshop).evaluate(part, [configuration]).results

    tune, held = halves(about)
    old = skill.description
    before = results(tune, old, "tune-0")
    failed = {result.case for result in before if result.outcome != "pass"}
    tried = list(dict.fromkeys(candidates([case for case in tune if case.id in failed])))[:MAX_CANDIDATES]
    scores = {old: _score(before)}
    for number, text in enumerate(tried, 1):
        scores[text] = _score(results(tune, text, f"tune-{number}"))
    best = max(tried, key=lambda text: scores[text])
    found = None
    if scores[best] > scores[old]:
        sides = results(held, old, "held-old"), results(held, best, "held-new")
        found = compare(*sides, old_name="old", new_name="new")
    return Improvement(old, best, scores, found)


def halves(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Split cases into the same two halves every time, each with its share of those that should trigger."""
    ordered = sorted(cases, key=lambda case: (not case.expects_skills, sha256(case.input.encode()).digest()))
    return ordered[::2], ordered[1::2]


def ask_for_candidates(model: Model, skill: Skill, failed: Sequence[Case]) -> list[str]:
    """Return descriptions that a language model proposes, given the requests that went wrong."""
    wrong = "\n".join(
        f"- {'should' if case.expects_skills else 'must not'} trigger: {case.input}" for case in failed[:40]
    )
    asked = (
        f"The skill {skill.name} is described so:\n{skill.description}\n\nRequests that go wrong:\n{wrong}"
    )
    reply = model.reply([Message("system", _ASK), Message("user", asked)], schema={"type": "array"}).text
    return checked(next((found for found in json_in(reply) if isinstance(found, list)), []))


def read_candidates(text: str) -> list[str]:
    """Return the descriptions of a file: a JSON list, or one in each line."""
    try:
        found = json.loads(text)
    except ValueError:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    return checked(found if isinstance(found, list) else [])


def checked(found: Sequence[object]) -> list[str]:
    """Return the texts that can be a description; refuse if there are none."""
    texts = [text for text in found if isinstance(text, str)]
    kept = [text for text in texts if 0 < len(text) <= MAX_DESCRIPTION_CHARS and not set("<>") & set(text)]
    if not kept:
        raise CaseRefused("No candidate is a description of 1 to 1,024 characters without < and >.")
    return kept


def write_description(skill: Skill, text: str) -> Path:
    """Replace the description in a skill's file, and nothing else; return the file."""
    file = Path(skill.location) / skill.file
    content = file.read_text("utf-8")
    lines = content.split("\n")
    end = lines.index("---", 1)
    entry = next(each for each in split(lines[1:end], first=1) if each.key.lower() == "description")
    last = entry.line + len(entry.more)
    new = f"description: {json.dumps(text, ensure_ascii=False)}"
    write_atomic(file, "\n".join([*lines[: entry.line], new, *lines[last + 1 :]]).encode())
    return file


def _score(results: Sequence[CaseResult]) -> float:
    rates = rates_of(results)
    return float(sum(rates.values()) / len(rates)) if rates else 0.0
