"""The sdist and the wheel: the same bytes wherever and whenever they are built, and everything in them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import vademecum
from tests.e2e.building import TOP, build, copy_tree
from tests.e2e.interpreters import VERSIONS

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("built")
    return build(copy_tree(place / "tree"), place / "dist")


def digests(*files: Path) -> list[str]:
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def unpacked(sdist: Path, place: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (tree,) = place.iterdir()
    return tree


def tracked() -> set[str]:
    """The files under version control, as they are now."""
    if not (TOP / ".git").exists():
        pytest.skip("this is no checkout: what belongs to it cannot be asked")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (TOP / name).exists()}


def test_another_place_day_and_user_give_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "a much longer way" / "to the tree")
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (number * 86_400, number * 86_400))
    assert digests(*build(tree, tmp_path / "dist", umask=0o077)) == digests(*built)


def test_the_sdist_builds_itself_and_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    tree = unpacked(built[0], tmp_path / "sdist")
    assert digests(*build(tree, tmp_path / "dist")) == digests(*built)


def test_the_sdist_has_all_that_its_tests_need(built: tuple[Path, Path], tmp_path: Path) -> None:
    tree = unpacked(built[0], tmp_path)
    names = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert names == tracked() | {"PKG-INFO"}


def test_the_wheel_is_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = message_from_string(
            next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
        )
    assert names == {name.removeprefix("src/") for name in tracked() if name.startswith("src/vademecum/")}
    assert about["Version"] == vademecum.__version__
    done = "finds, checks, searches, loads, runs, records, packs, signs, evaluates and governs skills"
    assert done in about["Summary"]
    assert done in " ".join((vademecum.__doc__ or "").split())
    assert about["Requires-Python"] == f">={VERSIONS[0]}"
