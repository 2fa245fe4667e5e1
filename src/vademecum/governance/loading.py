"""A charter file → a charter, or everything that keeps it from being one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.errors import CharterRefused, FileRefused
from vademecum.files import read_capped
from vademecum.governance.charter import Charter
from vademecum.governance.lint import lint
from vademecum.governance.reading import Draft, read_draft
from vademecum.governance.registry import SkillRegistry
from vademecum.governance.roles import RoleEnforcer
from vademecum.skill.skill import Problem

CHARTER_FILE = "skill_registry.yaml"
MAX_CHARTER_BYTES = 64 * 1024 * 1024


class Linted(Struct, frozen=True):
    """What came of reading a charter: the registry and roles, where nothing is wrong, and all problems.

    >>> _ = Path("skill_registry.yaml").write_text('skills: [{skill_id: rest, eligible_agent_types: ["*"]}]')
    >>> found = lint_charter("skill_registry.yaml")
    >>> found.valid, found.skills, found.problems[0].message
    (False, 1, "The key 'implementation_mapping' is missing.")
    """

    registry: SkillRegistry | None
    roles: RoleEnforcer | None
    problems: tuple[Problem, ...]
    skills: int = 0

    @property
    def valid(self) -> bool:
        """Whether the charter can be used."""
        return self.registry is not None

    def to_json(self) -> dict[str, Any]:
        """As ``vade govern lint`` prints it."""
        problems = [problem.to_json() for problem in self.problems]
        return {"valid": self.valid, "skills": self.skills, "problems": problems}


def load_charter(path: str | Path) -> Charter:
    """The charter of a file; one with errors is refused, and the text names the first of them.

    >>> rest = '{skill_id: rest, eligible_agent_types: ["*"], implementation_mapping: rest}'
    >>> _ = Path("skill_registry.yaml").write_text(f"skills: [{rest}]")
    >>> list(load_charter("skill_registry.yaml").skills)
    ['rest']
    """
    linted = lint_charter(path)
    if linted.registry is None:
        first = next(problem for problem in linted.problems if problem.severity == "error")
        more = sum(problem.severity == "error" for problem in linted.problems) - 1
        rest = f" (and {more} more: vade govern lint {path})" if more else ""
        raise CharterRefused(f"{path}, line {first.line}: {first.message}{rest}")
    return Charter(linted.registry, linted.roles)


def lint_charter(path: str | Path) -> Linted:
    """Read a charter file and say everything that is wrong with it.

    >>> _ = Path("skill_registry.yaml").write_text("skills: [{skill_id: rest, colour: blue}]")
    >>> [(problem.code, problem.line) for problem in lint_charter("skill_registry.yaml").problems]
    [('unknown-key', 1), ('missing-key', 1), ('missing-key', 1)]
    """
    path = Path(path)
    file = path / CHARTER_FILE if path.is_dir() else path
    try:
        text = read_capped(file, cap=MAX_CHARTER_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise CharterRefused(
            f"There is no charter at {file}: name a {CHARTER_FILE}.", code="no-charter"
        ) from error
    except (OSError, FileRefused, UnicodeDecodeError) as error:
        raise CharterRefused(f"The charter {file} cannot be read ({error}): make it a text file.") from error
    return lint_text(text)


def lint_text(text: str) -> Linted:
    """The same for a charter's text."""
    draft = read_draft(text)
    lint(draft)
    if any(problem.severity == "error" for problem in draft.problems):
        return Linted(None, None, tuple(draft.problems), len(draft.skills))
    roles = None if draft.roles is None else RoleEnforcer(draft.roles)
    return Linted(_registry(draft), roles, tuple(draft.problems), len(draft.skills))


def charter_of(text: str) -> Charter:
    """The charter of a file's text."""
    linted = lint_text(text)
    if linted.registry is None:
        raise CharterRefused(f"This text is no charter: {linted.problems[0].message}")
    return Charter(linted.registry, linted.roles)


def _registry(draft: Draft) -> SkillRegistry:
    skills = (placed.definition for placed in draft.skills)
    return SkillRegistry(skills, default_skill=draft.default_skill, compat=draft.compat)
