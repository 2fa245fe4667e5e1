"""A program that links, refreshes and unlinks, and is killed at every single change that it makes to the disk.

Run by a test in a process of its own, because it forks. Afterwards no edit and no foreign file may be gone, and
the next command must find its way from whatever the last one left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.packs.support import make
from tests.support import index_of
from vademecum.packs.links import Base, link, unlink

CHANGING = ("mkdir", "rename", "replace", "rmdir", "symlink", "unlink")
Tree = dict[str, str]


def tree(place: Path) -> Tree:
    """Every entry below a place: a file with its text, a link with where it leads."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(place))] = f"-> {os.readlink(path)}"
        else:
            found[str(path.relative_to(place))] = (
                path.read_text(errors="surrogateescape") if path.is_file() else "/"
            )
    return found


class Scene:
    """A project with two skills in two roots, and a file of somebody else's where one agent looks."""

    def __init__(self, project: Path) -> None:
        shutil.rmtree(project, ignore_errors=True)
        self.base = Base(project)
        self.roots = [project / ".agent/skills", project / "skills"]
        for root in self.roots:
            for name in ("a", "文件"):
                make(root, name)
        (project / ".claude/skills/theirs").mkdir(parents=True)
        (project / ".claude/skills/theirs/SKILL.md").write_text("mine\n")
        self.bare = tree(project)

    def link(self, root: int = 0) -> None:
        link(index_of(self.roots[root]).skills, self.base, agents=["claude", "gemini"])


def first(scene: Scene) -> Callable[[], object]:
    return scene.link


def refreshed(scene: Scene) -> Callable[[], object]:
    scene.link()
    return lambda: scene.link(1)


def away(scene: Scene) -> Callable[[], object]:
    scene.link()
    return lambda: unlink(None, scene.base)


def killed_at(point: int, work: Callable[[], object]) -> bool:
    """Do it in a child that kills itself at its change of that number; says whether it came so far."""
    child = os.fork()
    if child == 0:
        left = point

        def dying(really: Callable[..., object]) -> Callable[..., object]:
            def call(*words: Any, **more: Any) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return really(*words, **more)

            return call

        for name in CHANGING:
            setattr(os, name, dying(getattr(os, name)))
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - a child does nothing else any more
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("the change failed by itself")
    return os.WIFSIGNALED(status)


def finished(found: Tree) -> Tree:
    """What is there beside files that a killed process had not finished writing."""
    passed_over = (".agent/..journal.json.", ".agent/.links.json.")
    return {path: text for path, text in found.items() if not path.startswith(passed_over)}


def check(scene: Scene) -> None:
    """What is there is whole, nothing is lost, and the next command leaves nothing behind."""
    found = tree(scene.base.path)
    assert {path: found.get(path) for path in scene.bare} == scene.bare
    for agent in (".claude", ".gemini"):
        for name in ("a", "文件"):
            place = scene.base.path / agent / "skills" / name
            assert not os.path.lexists(place) or (place / "scripts/run.sh").is_file(), place
    unlink(None, scene.base)
    left = tree(scene.base.path)
    assert finished(left) == scene.bare, left


def main() -> None:
    place = Path(sys.argv[1])
    counted: Counter[str] = Counter()
    for way in (first, refreshed, away):
        for point in range(1000):
            scene = Scene(place / "project")
            at_work = killed_at(point, way(scene))
            if point % 2:  # whatever was left, what was wanted can be had
                scene.link()
                assert (scene.base.path / ".gemini/skills/文件/SKILL.md").is_file()
            check(scene)
            counted[way.__name__] += at_work
            if not at_work:
                break
    sys.stdout.write(json.dumps(counted))


if __name__ == "__main__":
    main()
