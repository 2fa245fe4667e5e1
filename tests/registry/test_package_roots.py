"""B1: skills that installed packages bring along, found without importing them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Place, write_skill

BOMB = "raise SystemExit('this package must not be imported')\n"


def install(site: Path, name: str, *, entry: str | None = None, metadata: str | None = None) -> Path:
    """Lay out an installed package as pip would, with a module that must never run."""
    package = site / name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BOMB)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{package.name}/__init__.py,,\n")
    if entry:
        (info / "entry_points.txt").write_text(f"[agent_skills]\nskills = {entry}\n")
    return package


def listed(place: Place, site: Path, setting: object) -> list[tuple[str, str]]:
    (place.cwd / ".agent").mkdir(exist_ok=True)
    (place.cwd / ".agent/config.json").write_text(json.dumps({"package_skills": setting}))
    # What the test tools themselves bring along is not asked about.
    here = f"s.source != 'builtin' and (s.source != 'package' or s.root.startswith({str(site)!r}))"
    code = f"import vademecum as vm; print([(s.name, s.source) for s in vm.build_index() if {here}])"
    env = place.env | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place.cwd, env=env, capture_output=True, text=True, check=True
    )
    found: list[tuple[str, str]] = eval(done.stdout)
    return found


def test_off_by_default_on_for_all_or_for_some(place: Place, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_skill(install(site, "acme", entry="acme.skills"), "skills/by-entry")
    write_skill(install(site, "glo-bex", entry="glo_bex:agent/skills"), "agent/skills/by-path")
    write_skill(install(site, "plain"), ".agents/skills/by-convention")
    assert listed(place, site, False) == []
    assert listed(place, site, True) == [
        ("by-convention", "package"),
        ("by-entry", "package"),
        ("by-path", "package"),
    ]
    assert listed(place, site, ["Glo.Bex"]) == [("by-path", "package")]


def test_between_user_and_builtin(place: Place, tmp_path: Path) -> None:
    site = tmp_path / "site"
    package = install(site, "acme")
    write_skill(package, ".agents/skills/file-diff", "---\nname: file-diff\ndescription: packaged\n---\n")
    write_skill(package, ".agents/skills/mine")
    write_skill(place.home, ".agent/skills/mine")
    assert listed(place, site, True) == [("file-diff", "package"), ("mine", "user")]


@pytest.mark.parametrize(
    "entry", ["acme:../../elsewhere", "acme:/etc", "gone.skills", "acme.gone", ":", "..", "acme:a\\b"]
)
def test_odd_entry_points_bring_nothing(place: Place, tmp_path: Path, entry: str) -> None:
    site = tmp_path / "site"
    install(site, "acme", entry=entry)
    write_skill(tmp_path, "elsewhere/x")
    assert listed(place, site, True) == []


def test_broken_installations_do_not_stop_the_others(place: Place, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_skill(install(site, "good"), ".agents/skills/x")
    install(site, "no-metadata")
    (site / "no-metadata-1.0.dist-info" / "METADATA").unlink()
    install(site, "bad-entry")
    (site / "bad-entry-1.0.dist-info" / "entry_points.txt").write_text("[agent_skills]\nskills\n")
    install(site, "bad-record")
    (site / "bad-record-1.0.dist-info" / "RECORD").write_bytes(b"\xff\xfe,,\n")
    install(site, "bad-top")
    (site / "bad-top-1.0.dist-info" / "top_level.txt").write_bytes(b"\xff\xfe")
    names = ["good", "bad-top", "bad-record", "bad-entry", "no-metadata"]
    for wanted in (None, names):
        # Straight to the point: pydantic, which checks a configuration, does not survive such a neighbour.
        ours = f"[r for r in package_roots({wanted}) if {str(site)!r} in str(r)]"
        code = f"from vademecum.registry.package_roots import package_roots; print(len({ours}))"
        env = place.env | {"PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout == "1\n"
