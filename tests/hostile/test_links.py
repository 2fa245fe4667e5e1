"""A link swapped between the look and the read never leads out."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.errors import FileRefused, PathRefused
from vademecum.files import read_up_to
from vademecum.paths import open_contained


def content(base: Path, relative: str) -> bytes:
    descriptor = open_contained(base, relative)
    try:
        return read_up_to(descriptor, 100)
    finally:
        os.close(descriptor)


def test_plain_files_and_links_inside(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_text("f")
    (root / "link").symlink_to("a/b")
    (root / "a" / "back").symlink_to("../a/b/../b/f")
    (root / "chain").symlink_to("link/f")
    for relative in ("a/b/f", "link/f", "a/back", "chain", "a//b/./f", "./a/b/f"):
        assert content(root, relative) == b"f"


def test_links_out_loops_and_other_things(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "d").mkdir()
    for name, target in (
        ("abs", "/etc/passwd"),
        ("up", "../secret"),
        ("d/up", "../../secret"),
        ("loop", "loop"),
        ("self", str(root)),
    ):
        (root / name).symlink_to(target)
        with pytest.raises(PathRefused, match="leads out"):
            content(root, name)
    os.mkfifo(root / "pipe")
    for name in ("pipe", "d", "."):
        with pytest.raises(FileRefused):
            content(root, name)
    with pytest.raises(FileNotFoundError):
        content(root, "gone")
    (root / "file").write_text("x")
    with pytest.raises(FileRefused):
        content(root, "file/below")


def test_swapped_links_never_lead_out(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    (root / "real").mkdir()
    (root / "real" / "f").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for target in ("real", str(outside), "../outside"):
                os.symlink(target, root / f"new{number}")
                os.rename(root / f"new{number}", root / "link")
            # and a directory that becomes a link
            os.rename(root / "real", root / "away")
            os.symlink(str(outside), root / "real")
            os.unlink(root / "real")
            os.rename(root / "away", root / "real")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(4000):
            for relative in ("link/f", "real/f"):
                try:
                    seen.add(content(root, relative))
                except (PathRefused, FileRefused, OSError):
                    continue
    finally:
        stop.set()
        thread.join()
    assert seen == {b"inside"}


STEPS = st.sampled_from(["a", "b", "f", "in", "out", "up", "..", ".", "", "loop", "/", "a/b"])


@given(st.lists(STEPS, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_against_a_model_of_what_is_allowed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    # The model: resolve everything as the system does, and allow what ends inside at a plain file.
    base = _tree(tmp_path_factory)
    relative = "/".join(steps)
    real = os.path.realpath(base / relative)
    plain_text = not relative.startswith("/") and ".." not in relative.split("/") and relative.strip() != ""
    inside = real.startswith(f"{os.path.realpath(base)}/")
    try:
        found: bytes | None = content(base, relative)
    except (PathRefused, FileRefused, OSError):
        found = None
    if found is not None:
        assert plain_text
        assert inside
        assert found == Path(real).read_bytes()
    elif plain_text and inside and os.path.isfile(real) and "loop" not in steps:
        assert "/f/" in f"/{relative}/" or relative.endswith("/")  # something below a file


def _tree(factory: pytest.TempPathFactory) -> Path:
    top = factory.getbasetemp() / "model"
    base = top / "base"
    if not base.exists():
        (base / "a" / "b" / "a").mkdir(parents=True)
        for place in (base, base / "a", base / "a" / "b", top):
            (place / "f").write_text(place.name)
        for place in (base, base / "a", base / "a" / "b"):
            (place / "in").symlink_to("f")
            (place / "out").symlink_to(top / "f")
            (place / "up").symlink_to("..")
            (place / "loop").symlink_to("loop")
    return base
