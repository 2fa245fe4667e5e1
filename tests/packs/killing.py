"""A program that changes a root again and again, and kills the process that does it at some point of each.

Run by a test in a process of its own, because it forks: what a child does is as real as a command, without the
start of an interpreter. Afterwards the root must hold the old state or the new one, and the lock must agree.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.packs.support import make
from vademecum import Context
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.install import Options, install, uninstall
from vademecum.packs.install_root import InstallRoot, install_ground, verify
from vademecum.packs.lock import lock_path
from vademecum.packs.sources.fetching import Fetching, local_source
from vademecum.packs.syncing import Sources, sync, update
from vademecum.packs.transaction import tidied
from vademecum.registry.roots import needs_recovery

NAMES = [f"s{number}" for number in range(6)]
State = dict[str, str]


class Scene:
    """A root, two versions of what can be in it, and the locks of both."""

    def __init__(self, place: Path) -> None:
        self.shelf = InstallRoot(place / "project/.agent/skills")
        self.source = place / "project/source"
        self.versions = [place / "one", place / "two"]
        for version in self.versions:
            for name in NAMES:
                make(version, name, version.name)
        self.states: list[State] = [{}]
        self.locks: list[str] = []
        for version in self.versions:
            install(local_source(version, "./source"), self.shelf, Options())
            self.states.append(self.state())
            self.locks.append(lock_path(self.shelf.root).read_text())

    def state(self) -> State:
        root = self.shelf.root
        return {p.name: digest_of(files_of(p)) for p in sorted(root.iterdir()) if p.name[0] != "."}

    def change(self, wanted: int, how: str) -> Callable[[], object]:
        """A way to come to a state: by an install, an update from the source, the lock, or by taking all away."""
        if wanted == 0:
            return lambda: uninstall(NAMES, self.shelf, purge=how == "sync")
        version = self.versions[wanted - 1]
        context = Context(cwd=self.source.parent, home=self.source.parent, env={})
        sources = Sources(self.shelf, Fetching(context))
        self.source.unlink(missing_ok=True)
        self.source.symlink_to(version)
        match how:
            case "update":
                return lambda: update(sources, Options())
            case "sync":
                lock_path(self.shelf.root).write_text(self.locks[wanted - 1])
                return lambda: sync(sources, Options())
        return lambda: install(local_source(version, "./source"), self.shelf, Options())


def killed_after(seconds: float, work: Callable[[], object]) -> bool:
    """Do it in a child of ours, which is killed after a while; says whether it was still at work."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - a child does nothing else any more
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("the change failed by itself")
    return os.WIFSIGNALED(status)


def main() -> None:
    place, kills = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(5)
    scene = Scene(place)
    install(local_source(scene.versions[0], "./source"), scene.shelf, Options())
    longest = 0.05
    counted: Counter[str] = Counter()
    said: set[str] = set()
    current = 1
    for _ in range(kills):
        how = chance.choice(["install", "update", "sync"] if current else ["install"])
        wanted = chance.choice([0, 1, 2] if current else [1, 2])
        at_work = killed_after(chance.uniform(0, longest), scene.change(wanted, how))
        longest *= 1.1 if at_work else 0.8  # on a machine of any speed, most kills come in the middle
        counted["recovered"] += needs_recovery(scene.shelf.root)
        done = tidied(install_ground(scene.shelf.root))
        if done is not None:
            said.add(" ".join(done.split()[:2]))
        found = scene.state()
        assert found in (scene.states[current], scene.states[wanted]), (how, current, wanted, found)
        if wanted != current:
            counted["new" if found == scene.states[wanted] else "old"] += 1
        current = scene.states.index(found)
        if current and how == "sync":  # the lock was written from outside, and leads until it is followed
            lock_path(scene.shelf.root).write_text(scene.locks[current - 1])
        assert not needs_recovery(scene.shelf.root)
        assert all(verdict.status == "ok" for verdict in verify(scene.shelf)[0]), (how, current)
        assert len(verify(scene.shelf)[0]) == len(found), (how, current)
    sys.stdout.write(json.dumps({"kills": kills, **counted, "said": sorted(said)}))


if __name__ == "__main__":
    main()
