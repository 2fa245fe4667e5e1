"""Definitions in skill directories ↔ one charter file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from msgspec import Struct

from vademecum.errors import CharterRefused, FileRefused
from vademecum.files import read_capped, write_atomic
from vademecum.governance.charter import Charter
from vademecum.governance.lint import SCRIPT
from vademecum.governance.model import SkillDefinition
from vademecum.governance.reading import read_definition
from vademecum.governance.yaml_tree import typed
from vademecum.paths import contained
from vademecum.skill.skill import Skill

DEFINITION_FILE = "governance.yaml"
MAX_DEFINITION_BYTES = 256 * 1024
WIDTH = 110


class Exported(Struct, frozen=True):
    """What became of each skill: those that came along, and those that did not, with the reason.

    ``wrong`` is whether something was left out that somebody should correct.
    """

    skills: tuple[str, ...]
    left_out: Mapping[str, str]
    wrong: bool = False

    def to_json(self) -> dict[str, Any]:
        """As ``vade govern export`` prints it."""
        return {"skills": list(self.skills), "left_out": dict(self.left_out)}


def as_yaml(document: Mapping[str, Any]) -> str:
    """A charter's content as its file."""
    text: str = yaml.dump(dict(document), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=WIDTH)
    return text


class _Dumper(yaml.SafeDumper):
    """Puts into quotes what our reader would take for something else than a text."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if isinstance(typed(data), str) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def collect(skills: Iterable[Skill]) -> tuple[list[SkillDefinition], Exported]:
    """The definitions of skills that carry one; a wrong one is left out with what is wrong with it."""
    found: dict[str, SkillDefinition] = {}
    left_out: dict[str, str] = {}
    wrong = False
    for skill in skills:
        try:
            definition = definition_of(skill)
        except CharterRefused as error:
            left_out[skill.name], wrong = str(error), True
            continue
        if definition is None:
            left_out[skill.name] = f"it has no {DEFINITION_FILE}"
        elif definition.skill_id in found:
            left_out[skill.name] = f"the skill_id {definition.skill_id!r} is taken already"
        else:
            found[definition.skill_id] = definition
    lost = _without_others(found)
    report = Exported(tuple(found), left_out | lost, wrong or bool(lost))
    return list(found.values()), report


def _without_others(found: dict[str, SkillDefinition]) -> dict[str, str]:
    """Take out what names a skill that is not there, until nothing does."""
    lost: dict[str, str] = {}
    while True:
        named = {
            name: next((other for other in (*d.depends_on, *d.conflicts_with) if other not in found), None)
            for name, d in found.items()
        }
        unknown = {name: other for name, other in named.items() if other is not None}
        if not unknown:
            return lost
        for name, other in unknown.items():
            del found[name]
            lost[name] = f"it names {other!r}, which no skill here defines"


def definition_of(skill: Skill) -> SkillDefinition | None:
    """The definition that a skill directory carries, if it carries one."""
    file = contained(skill.path, DEFINITION_FILE)
    try:
        text = read_capped(file, cap=MAX_DEFINITION_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, FileRefused, UnicodeDecodeError) as error:
        raise CharterRefused(f"{file} cannot be read ({error}): make it a text file.") from error
    placed, problems = read_definition(text)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if wrong or placed is None:
        first = f"line {wrong[0].line}: {wrong[0].message}" if wrong else "it is empty"
        raise CharterRefused(f"{file}, {first}")
    return placed.definition


def spread(charter: Charter, skills: Mapping[str, Skill]) -> Exported:
    """Write each definition into the directory of the skill whose script it names, one for each skill."""
    done: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, definition in charter.skills.items():
        found = SCRIPT.fullmatch(definition.implementation_mapping)
        skill = skills.get(found["skill"]) if found else None
        if found is None:
            left_out[name] = "it is carried out by a function, not by a script of a skill"
        elif skill is None:
            left_out[name] = f"there is no skill {found['skill']!r} here"
        elif skill.name in done.values():
            left_out[name] = f"{skill.name!r} has a definition already"
        else:
            text = as_yaml(definition.to_json())
            write_atomic(contained(skill.path, DEFINITION_FILE), text.encode("utf-8"))
            done[name] = skill.name
    whole = charter.to_json()
    for key in ("default_skill", "compat", "roles"):
        if key in whole:
            left_out[f"{key}:"] = "it belongs to no single skill: keep it in the charter"
    return Exported(tuple(done), left_out)
