"""`vademecum` is its public names, and importing it does nothing else."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import vademecum
from vademecum import governance, models

MODULES = [vademecum, models, governance]
CONSTANTS = {"BUILTIN_ROOT", "__version__"}


def test_names() -> None:
    assert vademecum.__all__ == [
        "Agent",
        "BUILTIN_ROOT",
        "Budget",
        "Config",
        "ConfigError",
        "Context",
        "Denied",
        "Finder",
        "Findings",
        "Hit",
        "IndexOptions",
        "LeftOut",
        "LoadRefused",
        "Outcome",
        "PathRefused",
        "Policy",
        "Problem",
        "Reading",
        "Report",
        "Root",
        "Skill",
        "SkillIndex",
        "SkillNotFound",
        "SkillRefused",
        "SkillsManager",
        "Toolkit",
        "VademecumError",
        "Validation",
        "build_index",
        "load_config",
        "models",
        "refresh_index",
        "validate_skill",
        "__version__",
    ]
    assert all(getattr(vademecum, name) is not None for name in vademecum.__all__)
    assert dir(vademecum) == sorted(vademecum.__all__)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        vademecum.nope  # noqa: B018


def test_import_loads_nothing() -> None:
    code = "import sys, vademecum; print([m for m in sys.modules if m.split('.')[0] in {'vademecum', 'yaml', 'click', 'rich', 'pydantic', 'msgspec'}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['vademecum.version', 'vademecum']"


def test_a_start_needs_neither_pydantic_nor_yaml_for_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "skills" / "x").mkdir(parents=True)
    (tmp_path / "skills" / "x" / "SKILL.md").write_text("---\nname: x\ndescription: >\n  y\n---\n")
    code = (
        "import sys, vademecum as vm; from pathlib import Path\n"
        "options = vm.IndexOptions(cache=Path(sys.argv[1]))\n"
        "vm.build_index(sys.argv[2:], options)\n"
        "print(sorted({'yaml', 'pydantic', 'click', 'rich'} & set(sys.modules)))"
    )
    builtin, folded = str(vademecum.BUILTIN_ROOT), str(tmp_path / "skills")
    for root, expected in ((builtin, "[]"), (builtin, "[]"), (folded, "['yaml']")):
        words = [sys.executable, "-c", code, str(tmp_path / "cache"), root]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_errors_are_one_tree() -> None:
    errors = [
        vademecum.ConfigError,
        vademecum.Denied,
        vademecum.LoadRefused,
        vademecum.PathRefused,
        vademecum.SkillNotFound,
        vademecum.SkillRefused,
    ]
    assert all(issubclass(error, vademecum.VademecumError) for error in errors)
    assert len({error.code for error in errors}) == len(errors)


def collected(module: str) -> set[str]:
    """The names in a module whose docstrings have examples that doctest finds."""
    return {test.name for test in doctest.DocTestFinder().find(sys.modules[module]) if test.examples}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_each_has_a_docstring_with_an_example_that_runs(module: ModuleType) -> None:
    for name in set(module.__all__) - CONSTANTS:
        value = getattr(module, name)
        assert (inspect.getdoc(value) or "").strip(), name
        if inspect.ismodule(value):
            assert value.__name__ in collected(value.__name__), name
        elif not issubclass(value, Exception) if inspect.isclass(value) else True:
            assert f"{value.__module__}.{name}" in collected(value.__module__), name


def test_each_error_says_when_it_is_raised() -> None:
    errors = [getattr(module, name) for module in MODULES for name in module.__all__]
    for error in (each for each in errors if inspect.isclass(each) and issubclass(each, Exception)):
        text = inspect.getdoc(error) or ""
        assert "Raised " in text or error is vademecum.VademecumError, error


def test_the_typed_program_uses_them_all() -> None:
    text = (Path(__file__).parent / "e2e/user_program.py").read_text()
    for module, prefix in zip(MODULES, (r"vm", r"vm\.models", r"gov"), strict=True):
        assert set(module.__all__) <= set(re.findall(rf"\b{prefix}\.(\w+)", text)), module
