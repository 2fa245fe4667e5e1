"""Try descriptions of a skill on one half of its cases, and keep one only if it wins on the other half."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from vademecum.errors import CaseRefused
from vademecum.evals.cases import Case
from vademecum.evals.evaluating import Evaluator
from vademecum.evals.output import json_in
from vademecum.evals.plan import Configuration
from vademecum.evals.pool import Engine
from vademecum.evals.reading import Suite
from vademecum.evals.results import Result
from vademecum.evals.summary import Comparison, compare, rates_of
from vademecum.evals.workshop import Workshop
from vademecum.files import write_atomic
from vademecum.models.base import Message, Model
from vademecum.registry.index import SkillIndex
from vademecum.skill.diagnosis import split
from vademecum.skill.skill import Skill

MAX_CANDIDATES = 20
MAX_DESCRIPTION_CHARS = 1024
LEAST_CASES = 4

_ASK = (
    "Write better descriptions for a skill of an assistant. A description decides which requests trigger the "
    "skill. Answer with one JSON list of at most 5 texts of at most 1,024 characters, without < and >."
)


class Improvement(Struct, frozen=True):
    """What came of it: the candidate that did best on the first half, and how it did on the second."""

    skill: str
    old: str
    new: str
    tuned: dict[str, float]
    comparison: Comparison | None

    @property
    def is_better(self) -> bool:
        """Return true if the candidate wins beyond chance on cases that it was not chosen by."""
        return self.comparison is not None and self.comparison.difference.verdict == "better"


class Improver(Struct, frozen=True):
    """Evaluates descriptions of one skill; results go below ``workshop.out``."""

    skill: Skill
    workshop: Workshop
    engine: Engine
    configuration: Configuration

    def improve(self, suite: Suite, candidates: Callable[[Sequence[Case]], Sequence[str]]) -> Improvement:
        """Choose among candidates by the first half of the cases, and test the best on the second."""
        about = [case for case in suite.cases if case.is_about_skills]
        if len(about) < LEAST_CASES:
            raise CaseRefused(
                f"{suite.name} has {len(about)} cases about skills; at least {LEAST_CASES} are needed."
            )
        tune, held = halves(about)
        before = self._results(suite, tune, self.skill.description, "tune-0")
        failed = {result.case for result in before if result.outcome != "pass"}
        tried = list(dict.fromkeys(candidates([case for case in tune if case.id in failed])))[:MAX_CANDIDATES]
        if not tried:
            raise CaseRefused("There is no candidate description: name a model or a file of descriptions.")
        scores = {self.skill.description: _score(before)}
        for number, text in enumerate(tried, 1):
            scores[text] = _score(self._results(suite, tune, text, f"tune-{number}"))
        best = max(tried, key=lambda text: scores[text])
        if scores[best] <= scores[self.skill.description]:
            return Improvement(self.skill.name, self.skill.description, best, scores, None)
        old = self._results(suite, held, self.skill.description, "held-old")
        new = self._results(suite, held, best, "held-new")
        found = compare(old, new, old_name="old", new_name="new")
        return Improvement(self.skill.name, self.skill.description, best, scores, found)

    def _results(self, suite: Suite, cases: Sequence[Case], text: str, name: str) -> tuple[Result, ...]:
        index = _described(self.workshop.index, self.skill, text)
        workshop = dataclasses.replace(self.workshop, index=index, out=self.workshop.out / name)
        part = structs.replace(suite, cases=tuple(cases))
        return Evaluator(self.engine, workshop).evaluate(part, [self.configuration]).results


def halves(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Split cases in two, always in the same way, those that should trigger and the others evenly."""
    found: tuple[list[Case], list[Case]] = ([], [])
    for wanted in (True, False):
        some = [case for case in cases if bool(case.expects_skills) is wanted]
        some.sort(key=lambda case: hashlib.sha256(case.input.encode("utf-8", "replace")).digest())
        for number, case in enumerate(some):
            found[number % 2].append(case)
    return found


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
    """Return those that may be a description; refuse if none may."""
    kept = [text for text in found if isinstance(text, str) and 0 < len(text) <= MAX_DESCRIPTION_CHARS]
    kept = [text for text in kept if not set("<>") & set(text)]
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


def _described(index: SkillIndex, skill: Skill, text: str) -> SkillIndex:
    skills = [structs.replace(one, description=text) if one is skill else one for one in index.skills]
    digest = hashlib.sha256(f"{index.hash}\0{skill.name}\0{text}".encode("utf-8", "replace")).hexdigest()
    changed = index.restricted(skills, index.shadowed)
    report = structs.replace(changed.report, hash=f"sha256:{digest}")
    options = dataclasses.replace(changed.options, cache=None)
    return dataclasses.replace(changed, report=report, options=options)


def _score(results: Sequence[Result]) -> float:
    rates = rates_of(results)
    return float(sum(rates.values()) / len(rates)) if rates else 0.0
