"""An action → what came of it: loaded by the loader or done by the tools, all at one gate."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, assert_never

from vademecum.agent import actions
from vademecum.agent.base import Charter
from vademecum.agent.prompt import State, untrusted
from vademecum.errors import Declined, SkillNotFound, VademecumError
from vademecum.loader.body import BodyLimits, load_body
from vademecum.loader.resource import load_resource
from vademecum.policy.base import Effect, Origin, Request
from vademecum.policy.gate import Gate
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Record
from vademecum.skill.assets import asset_path, script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools.runtime import Tools
from vademecum.tools.workspace import Workspace

MAX_BODIES_A_TURN = 2

_ENTRY = re.compile(r"[\w./-]{1,200}")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an action: text for the model, a code where it failed, what it was about.

    ``kind`` names material from outside, which the prompt marks as untrusted; our own words have none.
    """

    text: str
    code: str = ""
    about: str = ""
    kind: Literal["", "skill", "resource", "tool", "error"] = ""

    @property
    def identity(self) -> str:
        """What makes two failures the same."""
        return f"{self.about} {self.code} {self.text}"


# Runs a skill in a child agent, and gives what came of it.
Child = Callable[[Skill, State], Done]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a doer works with; ``offered`` are the skills that the model may know of."""

    index: SkillIndex
    offered: SkillIndex
    gate: Gate
    tools: Tools
    record: Record
    workspace: Workspace
    child: Child
    known: dict[str, Skill]
    agent: str = "default"
    charter: Charter | None = None
    limits: BodyLimits = BodyLimits()
    bodies: int = MAX_BODIES_A_TURN


class Doer:
    """Does one action at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._skills: dict[str, Skill] = {}

    def do(self, turn: actions.Turn, state: State) -> Done:
        """Do it; what goes wrong is said to the model, except a person's no."""
        about = _about(turn.payload)
        try:
            done = self._do(turn.payload, state)
        except Declined as error:
            if not error.told:
                raise
            # The person said why: the model may hear it and go on with something else.
            return Done(str(error), code=error.code, about=about, kind="error")
        except VademecumError as error:
            return Done(str(error), code=error.code, about=about, kind="error")
        return Done(done.text, done.code, about, done.kind)

    def load_for_user(self, name: str, state: State) -> Done:
        """Load a skill that the person named; it passes the same gate, and is not chosen by a model."""
        skill = self._parts.index.get(name)
        if not skill.controls.user_invocable:
            raise SkillNotFound(f"The skill {skill.name!r} is not meant to be called by people.")
        return self._loaded(skill, state, origin="user")

    def _do(self, action: actions.Action, state: State) -> Done:
        match action:
            case actions.SelectSkills():
                return self._select(action, state)
            case actions.LoadResource():
                return self._resource(action)
            case actions.RunScript():
                state.spent.tool_calls += 1
                state.spent.script_runs += 1
                return self._script(action)
            case actions.CallTool(tool=tool, arguments=arguments, skill=named):
                state.spent.tool_calls += 1
                return self._tool(tool, arguments, None if named is None else self._chosen(named))
            case actions.FinalAnswer():
                raise AssertionError("an answer ends the run before it gets here")
            case _:
                assert_never(action)

    def _select(self, action: actions.SelectSkills, state: State) -> Done:
        skills = [self._offered(named) for named in action.skills]
        # Skills that coordinate come before those they coordinate.
        skills.sort(key=lambda skill: skill.meta.metadata.get("kind") != "coordinator")
        found = [self._loaded(skill, state, origin="model") for skill in skills[: self._parts.bodies]]
        later = [skill.name for skill in skills[self._parts.bodies :]]
        lines = [done.text for done in found]
        if later:
            lines.append(
                f"Only {self._parts.bodies} skills a turn are loaded; ask again for: {', '.join(later)}."
            )
        code = next((done.code for done in found if done.code), "")
        return Done("\n".join(lines), code, kind="tool" if any(done.kind for done in found) else "")

    def _loaded(self, skill: Skill, state: State, *, origin: Origin) -> Done:
        if skill.name in self._skills:
            again = "ran already" if skill.name not in state.loaded else "is loaded already"
            other = self._skills[skill.name].skill_id != skill.skill_id
            raise VademecumError(
                f"{'Another skill called ' if other else ''}{skill.name} {again}.", code="loaded-already"
            )
        request = Request("skill", (skill.name,), origin, self._parts.agent, skill.name)
        passage = self._parts.gate.require(request, digest=partial(skill_digest, skill))
        if self._parts.charter is not None:
            self._parts.charter.act("skill", skill.name, {}, lambda: None)
        if skill.controls.run_mode == "subagent":
            done = self._parts.child(skill, state)
            self._remember(skill)
            return done
        loaded = load_body(skill, limits=self._parts.limits, sees=partial(self._sees, skill))
        if not state.has_room_for(loaded.text):
            raise VademecumError(f"The instructions of {skill.name} do not fit any more.", code="max-context")
        self.keep(skill, loaded.text, state)
        report = loaded.report.to_json()
        self._parts.record.add(
            "skill_loaded",
            skill=skill.skill_id,
            origin=origin,
            effect=passage.decision.effect.name.lower(),
            report=report,
        )
        return Done(f"{skill.name} is loaded; its instructions are among the loaded skills.")

    def _sees(self, skill: Skill, relative: str) -> bool:
        """Whether the model may know of a file: what a rule denies is not named."""
        permissions = ["resource", "script"] if relative.startswith("scripts/") else ["resource"]
        name, agent = (f"{skill.name}/{relative}",), self._parts.agent
        return not any(
            self._parts.gate.decide(Request(permission, name, "model", agent, skill.name)).effect
            is Effect.DENY
            for permission in permissions
        )

    def keep(self, skill: Skill, text: str, state: State) -> None:
        """Put a skill's instructions into the prompt, where they stay."""
        entry = skill.meta.metadata.get("entry", "")
        entry = entry if _ENTRY.fullmatch(entry) else ""
        head = f"skill {skill.name} (source {skill.source})" + (f", entry {entry}" if entry else "")
        state.loaded[skill.name] = f"{head}\n{untrusted(text, kind='skill')}"
        self._remember(skill)

    def _remember(self, skill: Skill) -> None:
        self._skills[skill.name] = skill
        self._parts.known[skill.location] = skill

    def _resource(self, action: actions.LoadResource) -> Done:
        skill = self._chosen(action.skill)
        sees = partial(self._sees, skill)
        relative = asset_path(skill, action.relative_path, sees=sees)
        real = os.path.relpath(
            os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location)
        )
        names = tuple(dict.fromkeys(f"{skill.name}/{path}" for path in (relative, real)))
        request = Request("resource", names, "model", self._parts.agent, skill.name)
        self._parts.gate.require(request, digest=partial(skill_digest, skill))
        loaded = load_resource(skill, relative, section_hint=action.section_hint or None, sees=sees)
        report = loaded.report.to_json()
        self._parts.record.add("resource_loaded", skill=skill.skill_id, path=relative, report=report)
        return Done(loaded.text, kind="resource")

    def _script(self, action: actions.RunScript) -> Done:
        skill = self._chosen(action.skill)
        named = [word for word in action.args if self._is_file(word)]
        call = {
            "skill": skill.location,
            "script": script_name(skill, action.relative_path),
            "arguments": action.args,
            "files": list(dict.fromkeys([*action.files, *named])),
            "network": action.network,
        }
        return self._tool("run_script", call, skill)

    def _tool(self, tool: str, arguments: dict[str, object], skill: Skill | None) -> Done:
        def call() -> Done:
            seen = self._parts.tools.call(tool, arguments, skill=skill)
            return Done(seen.text, code=seen.code, kind="error" if seen.code else "tool")

        charter = self._parts.charter
        if charter is None:
            return call()
        if tool == "run_script":
            return charter.act("script", self._script_named(arguments), arguments, call)
        return charter.act("tool", tool, arguments, call)

    def _script_named(self, arguments: dict[str, object]) -> str:
        """The skill and the script that a call means; what is not loaded is named as it came."""
        skill = self._parts.known.get(str(arguments.get("skill")))
        if skill is None:
            return f"{arguments.get('skill')}/{arguments.get('script')}"
        return f"{skill.name}/{script_name(skill, str(arguments.get('script')))}"

    def _is_file(self, word: str) -> bool:
        try:
            return self._parts.workspace.locate(word).path.is_file()
        except (VademecumError, OSError, ValueError):
            return False

    def _offered(self, named: actions.SkillReference) -> Skill:
        return self._parts.offered.get(named.name, source=named.source)

    def _chosen(self, named: actions.SkillReference) -> Skill:
        """A skill that was loaded: its files and scripts are for those who read its instructions."""
        skill = self._skills.get(named.name)
        if skill is None or (named.source is not None and named.source != skill.source):
            offered = self._offered(named)
            raise VademecumError(
                f"The skill {offered.name!r} is not loaded: select it first.", code="not-loaded"
            )
        return skill


def _about(action: actions.Action) -> str:
    match action:
        case actions.SelectSkills(skills=skills):
            return ", ".join(named.name for named in skills)
        case actions.LoadResource(skill=skill, relative_path=path):
            return f"{skill.name}/{path}"
        case actions.RunScript(skill=skill, relative_path=path, args=args):
            return f"{skill.name}/{path} {json.dumps(args, ensure_ascii=False)[:200]}"
        case actions.CallTool(tool=tool, arguments=arguments):
            return f"{tool} {json.dumps(arguments, ensure_ascii=False)[:200]}"
        case actions.FinalAnswer():
            return ""
        case _:
            assert_never(action)
