"""`paths.contained` is the only way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from vademecum import PathRefused
from vademecum.paths import contained


@pytest.mark.parametrize("relative", ["a", "a/b.md", "./a", "a//b", "...", "a/..b", "技能/文.md", "a b"])
def test_below(root: Path, relative: str) -> None:
    assert contained(root, relative) == root / relative


@pytest.mark.parametrize(
    "relative",
    [
        "",
        " ",
        "..",
        "../a",
        "a/../../b",
        "a/..",
        "/etc/passwd",
        "//x",
        "C:/x",
        "c:x",
        "a\\b",
        "..\\a",
        "a\0b",
    ],
)
def test_refused(root: Path, relative: str) -> None:
    with pytest.raises(PathRefused, match="name a file below"):
        contained(root, relative)


def test_links(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "root-evil").mkdir()
    (root / "inside").mkdir()
    (root / "to-inside").symlink_to("inside")
    assert contained(root, "to-inside/new.txt") == root / "to-inside" / "new.txt"
    for name, target in (("out", "../secret"), ("up", ".."), ("far", "/etc"), ("sibling", "../root-evil")):
        (root / name).symlink_to(target)
        with pytest.raises(PathRefused, match="leads out"):
            contained(root, f"{name}/x" if name != "out" else name)
