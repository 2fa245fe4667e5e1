"""``SkillsManager``: skills for an agent in six plain functions that answer with text, come what may."""

from __future__ import annotations

from pathlib import Path

from vademecum.context import Context
from vademecum.errors import SkillNotFound, VademecumError
from vademecum.files import write_atomic
from vademecum.loader.body import load_document
from vademecum.loader.resource import load_resource
from vademecum.registry.build import build_index
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.roots import Root
from vademecum.search.finder import Finder
from vademecum.skill.assets import list_assets, script_path
from vademecum.skill.skill import Skill

README = """# Skills

Each directory here with a `SKILL.md` is a skill, as the Agent Skills specification (agentskills.io) has it:
YAML frontmatter with `name` (the directory's name) and `description`, then instructions in Markdown.
Files a skill needs lie in its `references/`, `assets/` and `scripts/`. `vade new NAME --dir .` writes one.
"""


class SkillsManager:
    """The skills below one directory, or of an index that exists already.

    A directory is looked at anew on every call, so that a skill dropped into it is found at once. Functions
    return what was asked for, or a sentence that says why not.

    >>> from vademecum import BUILTIN_ROOT
    >>> manager = SkillsManager(BUILTIN_ROOT)
    >>> manager.list_skills()
    ['csv-summary', 'file-diff', 'skill-author']
    >>> manager.search_skills("compare two files", n=1)[0]["name"]
    'file-diff'
    """

    def __init__(self, skills: Path | str | SkillIndex, *, create: bool = False) -> None:
        self._given = skills
        if create and not isinstance(skills, SkillIndex) and not Path(skills).exists():
            write_atomic(Path(skills) / "README.md", README.encode())

    def list_skills(self) -> list[str]:
        """The names of all skills; none where the directory does not exist."""
        return [skill.name for skill in self._index().skills]

    def get_skill_content(self, name: str) -> str:
        """The whole SKILL.md of a skill, its name matched whole and in any case."""
        try:
            return load_document(self._skill(name)).text
        except VademecumError as error:
            return str(error)

    def search_skills(self, query: str, n: int = 5) -> list[dict[str, str]]:
        """The ``n`` skills that fit a query best, as ``{"name", "description"}``."""
        hits = Finder(self._index()).search(query, max(0, n))
        return [{"name": hit.name, "description": hit.description} for hit in hits]

    def get_skill_asset(self, skill_name: str, relative_path: str) -> str:
        """The text of a file below ``references/``, ``assets/`` or ``scripts/`` of a skill."""
        try:
            return load_resource(self._skill(skill_name), relative_path).text
        except VademecumError as error:
            return str(error)

    def get_skill_script_path(self, skill_name: str, script_name: str) -> str:
        """The absolute path of ``scripts/<script_name>`` of a skill."""
        try:
            return str(script_path(self._skill(skill_name), script_name))
        except VademecumError as error:
            return str(error)

    def list_skill_assets(self, skill_name: str) -> list[str]:
        """The relative paths of a skill's references, assets and scripts; none for an unknown skill."""
        try:
            return list_assets(self._skill(skill_name))
        except VademecumError:
            return []

    def _skill(self, name: str) -> Skill:
        try:
            return self._index().get(name)
        except SkillNotFound as error:
            raise SkillNotFound(f"未找到技能: {name} ({error})") from error

    def _index(self) -> SkillIndex:
        if isinstance(self._given, SkillIndex):
            return self._given
        options = IndexOptions(cache=Context.current().cache_directory())
        return build_index([Root(self._given, explicit=False)], options)
