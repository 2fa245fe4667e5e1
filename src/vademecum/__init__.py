"""Vademecum: the Agent Skills runtime.

It finds, checks, searches, loads, runs, records, packs, signs, evaluates and governs skills, and limits each
to the permissions it has.

>>> import vademecum as vm
>>> index = vm.build_index([vm.BUILTIN_ROOT])
>>> [skill.name for skill in index.skills]
['csv-summary', 'file-diff', 'skill-author']
"""

from __future__ import annotations

from importlib import import_module

from vademecum.version import VERSION

TYPE_CHECKING = False  # as in `typing`; importing that module would take 10 ms

if TYPE_CHECKING:
    from vademecum import models as models
    from vademecum.agent.agent import Agent as Agent
    from vademecum.agent.loop import Outcome as Outcome
    from vademecum.agent.plan import Budget as Budget
    from vademecum.config import Config as Config
    from vademecum.config import load_config as load_config
    from vademecum.context import Context as Context
    from vademecum.errors import ConfigError as ConfigError
    from vademecum.errors import Denied as Denied
    from vademecum.errors import LoadRefused as LoadRefused
    from vademecum.errors import PathRefused as PathRefused
    from vademecum.errors import SkillNotFound as SkillNotFound
    from vademecum.errors import SkillRefused as SkillRefused
    from vademecum.errors import VademecumError as VademecumError
    from vademecum.integrations.manager import SkillsManager as SkillsManager
    from vademecum.integrations.toolkit import Toolkit as Toolkit
    from vademecum.policy.engine import Policy as Policy
    from vademecum.registry.build import build_index as build_index
    from vademecum.registry.build import refresh_index as refresh_index
    from vademecum.registry.index import IndexOptions as IndexOptions
    from vademecum.registry.index import LeftOut as LeftOut
    from vademecum.registry.index import Report as Report
    from vademecum.registry.index import SkillIndex as SkillIndex
    from vademecum.registry.roots import BUILTIN_ROOT as BUILTIN_ROOT
    from vademecum.registry.roots import Root as Root
    from vademecum.search.finder import Finder as Finder
    from vademecum.search.finder import Findings as Findings
    from vademecum.search.finder import Hit as Hit
    from vademecum.skill.skill import Problem as Problem
    from vademecum.skill.skill import Reading as Reading
    from vademecum.skill.skill import Skill as Skill
    from vademecum.skill.validate import Validation as Validation
    from vademecum.skill.validate import validate_skill as validate_skill

__version__ = VERSION

# The module of each public name. Each is imported when first used, so that `import vademecum` is fast.
_HOMES = {
    "agent.agent": ["Agent"],
    "agent.loop": ["Outcome"],
    "agent.plan": ["Budget"],
    "config": ["Config", "load_config"],
    "context": ["Context"],
    "errors": [
        *("ConfigError", "Denied", "LoadRefused", "PathRefused"),
        *("SkillNotFound", "SkillRefused", "VademecumError"),
    ],
    "integrations.manager": ["SkillsManager"],
    "integrations.toolkit": ["Toolkit"],
    "models": ["models"],
    "policy.engine": ["Policy"],
    "registry.build": ["build_index", "refresh_index"],
    "registry.index": ["IndexOptions", "LeftOut", "Report", "SkillIndex"],
    "registry.roots": ["BUILTIN_ROOT", "Root"],
    "search.finder": ["Finder", "Findings", "Hit"],
    "skill.skill": ["Problem", "Reading", "Skill"],
    "skill.validate": ["Validation", "validate_skill"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*sorted(_HOME_OF), "__version__"]  # noqa: PLE0604 - the names above


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{home}")
    value: object = module if name == home else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
