"""Offer skills to Microsoft Agent Framework as its own skills, which it loads, reads and runs."""

from __future__ import annotations

from typing import Any

from vademecum.integrations.toolkit import Toolkit, extra, in_thread, told
from vademecum.policy.approval import Consent
from vademecum.skill.names import is_plain
from vademecum.skill.skill import Skill

with extra("agent-framework"):
    from agent_framework import (
        Content,
        InlineSkillResource,
        SkillFrontmatter,
        SkillResource,
        SkillScript,
        SkillsProvider,
    )
    from agent_framework import Skill as FrameworkSkill


def skills_provider(kit: Toolkit | None = None) -> SkillsProvider:
    """Return a provider for ``Agent(client, context_providers=[skills_provider()])``.

    The framework asks for approval before every script. If the toolkit has an approver, it is asked as well.
    Skills and files that need an approval are refused. Skills whose names are not ASCII are left out.
    """
    kit = kit or Toolkit(client="agent-framework")
    skills = [_KitSkill(kit, skill) for skill in kit.skills if is_plain(skill.name)]
    return SkillsProvider(skills, disable_load_skill_approval=True, disable_read_skill_resource_approval=True)


class _KitSkill(FrameworkSkill):
    def __init__(self, kit: Toolkit, skill: Skill) -> None:
        self._kit = kit
        self._frontmatter = SkillFrontmatter(name=skill.name, description=skill.description)

    @property
    def frontmatter(self) -> SkillFrontmatter:
        return self._frontmatter

    async def get_content(self) -> str:
        return told(await self._kit.call_async("skill", {"name": self.frontmatter.name}))

    async def get_resource(self, name: str) -> SkillResource:
        async def read() -> str:
            arguments = {"skill": self.frontmatter.name, "relative_path": name}
            return told(await self._kit.call_async("load_skill_asset", arguments))

        return InlineSkillResource(name=name, function=read)

    async def get_script(self, name: str) -> SkillScript:
        return _KitScript(self._kit, name)


class _KitScript(SkillScript):
    def __init__(self, kit: Toolkit, name: str) -> None:
        super().__init__(name=name)
        self._kit = kit

    async def run(self, skill: FrameworkSkill, args: Any = None, **_: Any) -> Any:
        """Run the script in the sandbox; the framework has already asked for approval."""
        words = args if isinstance(args, list) else _options(args or {})
        call = {"skill": skill.frontmatter.name, "relative_path": self.name, "args": list(map(str, words))}
        approver = None if self._kit.has_approver else Consent()
        result = await in_thread(self._kit.call, "run_script", call, approver=approver)
        seen = [Content.from_data(each.data, each.media_type) for each in result.content]
        return [told(result), *seen] if seen else told(result)


def _options(named: dict[str, Any]) -> list[str]:
    return [word for name, value in named.items() for word in (f"--{name}", str(value))]
