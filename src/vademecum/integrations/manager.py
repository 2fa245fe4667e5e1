"""Define ``SkillsManager``: skills for an agent in six plain functions, which return errors as text."""

from __future__ import annotations

import json
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import SkillNotFound, VademecumError
from vademecum.files import write_atomic
from vademecum.integrations.toolkit import index_here
from vademecum.policy.approval import Consent
from vademecum.registry.build import build_index
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.roots import Root
from vademecum.session.base import Place
from vademecum.session.session import Session
from vademecum.tools import calls

ROOT_VARIABLE = "DOCUMENT_ROOT"
README = """# Skills

Each directory here with a `SKILL.md` is a skill as specified by Agent Skills (agentskills.io):
YAML frontmatter with `name` (the directory's name) and `description`, then instructions in Markdown.
Its files are in `references/`, `assets/` and `scripts/`. `vade new NAME --dir .` creates a skill.
"""


class SkillsManager:
    """The skills below one directory, of an existing index, or of this directory.

    Without an argument these are the skills below ``DOCUMENT_ROOT/skills`` if that environment variable is
    set, else those that ``build_index()`` finds. Every call looks at the disk, so that it finds a new skill
    at once. Functions return the result, or a sentence that says why there is none. ``create`` creates a
    missing directory, with a README.

    >>> from vademecum import BUILTIN_ROOT
    >>> manager = SkillsManager(BUILTIN_ROOT)
    >>> manager.list_skills()
    ['csv-summary', 'file-diff', 'skill-author']
    >>> manager.search_skills("compare two files", n=1)[0]["name"]
    'file-diff'
    """

    def __init__(
        self,
        skills: Path | str | SkillIndex | None = None,
        *,
        create: bool = False,
        context: Context | None = None,
    ) -> None:
        self._place = Place.at(context)
        root = self._place.context.env.get(ROOT_VARIABLE)
        self._given = Path(root, "skills") if skills is None and root else skills
        if create and isinstance(self._given, Path | str) and not Path(self._given).exists():
            write_atomic(Path(self._given) / "README.md", README.encode())

    def list_skills(self) -> list[str]:
        """Return the names of all skills; empty if the directory does not exist."""
        return [skill.name for skill in self._session().view.offered]

    def get_skill_content(self, name: str) -> str:
        """Return the whole SKILL.md of a skill; upper and lower case of the name do not matter."""
        try:
            return self._session().show(name, whole=True).text
        except SkillNotFound as error:
            return self._not_found(name, error)
        except VademecumError as error:
            return str(error)

    def search_skills(self, query: str, n: int = 5) -> list[dict[str, str]]:
        """Return the ``n`` skills that fit a query best, as ``{"name", "description"}``."""
        hits = self._session().view.finder.search(query, max(0, n))
        return [{"name": hit.name, "description": hit.description} for hit in hits]

    def get_skill_asset(self, skill_name: str, relative_path: str) -> str:
        """Return the text of a file below ``references/``, ``assets/`` or ``scripts/`` of a skill."""
        return self._text(calls.LoadSkillAsset(skill_name, relative_path), skill_name)

    def get_skill_script_path(self, skill_name: str, script_name: str) -> str:
        """Return the absolute path of ``scripts/<script_name>`` of a skill."""
        return self._text(calls.GetSkillScriptPath(skill_name, script_name), skill_name)

    def list_skill_assets(self, skill_name: str) -> list[str]:
        """Return the relative paths of a skill's files; empty for an unknown skill."""
        result = self._session().call(calls.ListSkillAssets(skill_name))
        return [] if result.code else list(json.loads(result.text.partition("\n")[0]))

    def _text(self, call: calls.Call, name: str) -> str:
        result = self._session().call(call)
        return self._not_found(name, result.text) if result.code == "skill-not-found" else result.text

    def _session(self) -> Session:
        """Return a session with the current skills, in which questions are approved and denials stay."""
        index = self._given
        if index is None:
            index = index_here(self._place.context)
        elif not isinstance(index, SkillIndex):
            options = IndexOptions(cache=self._place.context.cache_directory())
            index = build_index([Root(index, explicit=False)], options)
        return Session(index, place=self._place, origin="user", approver=Consent(), recording=False)

    def _not_found(self, name: str, reason: object) -> str:
        said = "未找到技能" if self._place.context.speaks_chinese else "Skill not found"
        return f"{said}: {name} ({reason})"
