"""Draft a first suite for a skill: requests from its description, near-misses from its neighbours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from vademecum.errors import CaseRefused
from vademecum.files import write_atomic
from vademecum.registry.index import SkillIndex
from vademecum.search.finder import Finder
from vademecum.skill.skill import Skill

MAX_REQUESTS = 6
MAX_NEIGHBOURS = 5
_LEAST_CHARS = 8
_CLAUSES = re.compile(r"[.;。；!！\n]+\s*")
_LEAD = re.compile(r"^(?:use (?:this skill )?(?:when|for|to)\b[:,]?|when|for|当|用于)\s*", re.IGNORECASE)


def write_draft(skill: Skill, index: SkillIndex, place: Path) -> list[Path]:
    """Write a draft suite to ``place`` and return its files; refuse if there is one already."""
    if place.exists():
        raise CaseRefused(f"{place} is there already: edit it, or remove it first.")
    written = []
    for name, document in (
        ("triggers.json", draft_triggers(skill, index)),
        ("cases/first.json", _case(skill)),
    ):
        write_atomic(place / name, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
        written.append(place / name)
    return written


def draft_triggers(skill: Skill, index: SkillIndex) -> dict[str, Any]:
    """Return requests that should trigger a skill and near-misses that should not, tagged ``draft``."""
    wanted = requests_from(skill.description)
    hits = Finder(index).search(skill.description, MAX_NEIGHBOURS + 1)
    near = [
        request for hit in hits if hit.name != skill.name for request in requests_from(hit.description)[:1]
    ]
    entries = [(text, True) for text in wanted] + [(text, False) for text in near if text not in wanted]
    entries.append(("What is the capital of Norway?", False))
    return {
        "skill_name": skill.name,
        "triggers": [
            {"query": text, "should_trigger": should, "tags": ["draft"]} for text, should in entries
        ],
    }


def requests_from(description: str) -> list[str]:
    """Return the clauses of a description as requests.

    >>> requests_from("Compare two files. Use when somebody asks what changed; e.g. in a contract.")
    ['Compare two files', 'somebody asks what changed']
    """
    clauses = (_LEAD.sub("", clause.strip()).strip(" ,:：，") for clause in _CLAUSES.split(description))
    found = [
        clause
        for clause in clauses
        if len(clause) >= _LEAST_CHARS and not re.match(r"(?i)in\b|e\.?g", clause)
    ]
    return list(dict.fromkeys(clause[:200] for clause in found))[:MAX_REQUESTS] or [description[:200]]


def _case(skill: Skill) -> dict[str, Any]:
    """Return a whole run with a mock model, as an example of what a case can say."""
    select = {"type": "select_skills", "payload": {"skills": [{"name": skill.name}]}}
    answer = {"type": "final_answer", "payload": {"text": "Replace this by what a good answer says."}}
    return {
        "id": f"{skill.name}-first",
        "input": f"Use ${skill.name}: replace this by a request that people really make.",
        "tags": ["draft"],
        "files": {"input.txt": "replace this by a file that the request names\n"},
        "expected": {
            "skills_any_of": [skill.name],
            "trajectory": [{"must_occur": "load_skill", "before": "final_answer"}, {"never": "delete_file"}],
            "output": {"contains": ["good answer"]},
        },
        "constraints": {"max_turns": 6},
        "mock": {"turns": [{"action": select}, {"action": answer}]},
    }
