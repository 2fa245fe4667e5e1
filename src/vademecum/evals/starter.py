"""A skill → a first suite for it: a request that should take it, one that should not, a run with a mock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vademecum.errors import CaseRefused
from vademecum.files import write_atomic
from vademecum.skill.skill import Skill


def write_starter(skill: Skill, place: Path) -> list[Path]:
    """Write the suite; what is there already is left alone."""
    if place.exists():
        raise CaseRefused(f"{place} is there already: edit it, or remove it first.")
    written = []
    for name, document in (("triggers.json", _triggers(skill)), ("cases/first.json", _case(skill))):
        write_atomic(place / name, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
        written.append(place / name)
    return written


def _triggers(skill: Skill) -> dict[str, Any]:
    first = skill.description.partition(". ")[0].rstrip(".")
    return {
        "skill_name": skill.name,
        "triggers": [
            {"query": f"Please do this for me: {first[:200]}", "should_trigger": True},
            {"query": "What is the capital of Norway?", "should_trigger": False},
        ],
    }


def _case(skill: Skill) -> dict[str, Any]:
    """A whole run with a mock: it loads the skill and answers, and shows what can be said about that."""
    select = {"type": "select_skills", "payload": {"skills": [{"name": skill.name}]}}
    answer = {"type": "final_answer", "payload": {"text": "Replace this by what a good answer says."}}
    return {
        "id": f"{skill.name}-first",
        "input": f"Use ${skill.name}: replace this by a request that people really make.",
        "files": {"input.txt": "replace this by a file that the request names\n"},
        "expected": {
            "skills_any_of": [skill.name],
            "trajectory": [{"must_occur": "load_skill", "before": "final_answer"}, {"never": "delete_file"}],
            "output": {"contains": ["good answer"]},
        },
        "constraints": {"max_turns": 6},
        "mock": {"turns": [{"action": select}, {"action": answer}]},
    }
