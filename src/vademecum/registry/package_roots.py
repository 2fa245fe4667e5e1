"""Find the roots in installed Python packages, without importing a package.

A package names a directory by an entry point of the group ``agent_skills``, such as ``acme.skills`` or
``acme:agent/skills``, or simply ships ``<package>/.agents/skills``.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Collection, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from vademecum.errors import PathRefused
from vademecum.paths import contained

GROUP = "agent_skills"
CONVENTION = ".agents/skills"


def package_roots(wanted: Collection[str] | None) -> list[tuple[str, Path]]:
    """Return the skill directories of the named distributions (``None``: of all), by distribution name."""
    names = None if wanted is None else set(map(canonicalize_name, wanted))
    found: set[tuple[str, Path]] = set()
    for distribution in distributions():
        # The metadata of a broken installation can contain anything; such a package has no skills.
        with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError, OSError):
            name = distribution.name
            if names is None or canonicalize_name(name) in names:
                found |= {(name, place) for place in _directories(distribution) if place.is_dir()}
    return sorted(found)


def _directories(distribution: Distribution) -> Iterator[Path]:
    for entry in distribution.entry_points:
        if entry.group == GROUP:  # `acme.skills` and `acme:agent/skills` lead to a directory inside `acme`
            module, _, directory = entry.value.partition(":")
            package, *rest = module.strip().split(".")
            yield from _below(package, "/".join([*rest, *directory.strip().split("/")]).strip("/") or ".")
    for package in _top_level(distribution):
        yield from _below(package, CONVENTION)


def _below(package: str, relative: str) -> Iterator[Path]:
    try:
        # For a top-level name, the import system finds the package without running its code.
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return
    for location in (spec.submodule_search_locations or ()) if spec else ():
        with contextlib.suppress(PathRefused):
            yield contained(Path(location), relative)


def _top_level(distribution: Distribution) -> list[str]:
    declared = distribution.read_text("top_level.txt")
    names = set(declared.split()) if declared else set()
    for file in distribution.files or ():
        if len(file.parts) > 1 and file.parts[0].isidentifier():
            names.add(file.parts[0])
        elif file.name.startswith("__editable__") or file.suffix == ".pth":
            plain = distribution.name.replace("-", "_")
            names |= {plain, plain.lower()}
    return sorted(name for name in names if name.isidentifier())
