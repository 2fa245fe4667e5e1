"""`vademecum` is its public names, and importing it does nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vademecum


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


def test_warm_start_needs_neither_yaml_nor_pydantic(tmp_path: object) -> None:
    code = (
        "import sys, vademecum as vm; from pathlib import Path\n"
        "options = vm.IndexOptions(cache=Path(sys.argv[1]))\n"
        "vm.build_index([vm.BUILTIN_ROOT], options)\n"
        "print(sorted({'yaml', 'pydantic', 'click', 'rich'} & set(sys.modules)))"
    )
    for expected in ("['yaml']", "[]"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
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
