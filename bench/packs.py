"""Packs: `python -m bench.packs`. Installing is a ratio to plain unpacking, verifying to plain hashing."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import best, print_table
from vademecum.packs.content import files_of
from vademecum.packs.install import Options, install
from vademecum.packs.install_root import InstallRoot, verify
from vademecum.packs.packing import PackedSkill, pack_of
from vademecum.packs.sources.fetching import local_source

FILES = 5


def write_skills(place: Path, count: int) -> list[PackedSkill]:
    """Skills of five files of a few kilobytes, as real ones are."""
    skills = []
    for number in range(count):
        name = f"skill-{number:04}"
        skill = place / name
        (skill / "scripts").mkdir(parents=True)
        (skill / "references").mkdir()
        head = f"---\nname: {name}\ndescription: What skill {number} does, and when to use it.\n---\n"
        (skill / "SKILL.md").write_text(head + f"Line {number} of a manual.\n" * 100)
        for other in range(FILES - 1):
            folder = "scripts" if other % 2 else "references"
            (skill / folder / f"file{other}.py").write_text(f"print({number}, {other})\n" * 100)
        skills.append(PackedSkill(name, None, skill, files_of(skill)))
    return skills


def unpack_plainly(pack: Path, target: Path, *, synced: bool) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(pack), str(target)], check=True)
    if synced:
        subprocess.run(["sync", "-f", str(target)], check=True)


def hash_plainly(root: Path) -> None:
    for place, _, names in os.walk(root):
        for name in names:
            with open(f"{place}/{name}", "rb") as file:
                hashlib.file_digest(file, "sha256")


def pack_all(skills: list[PackedSkill], pack: Path) -> None:
    pack.write_bytes(pack_of(skills))


def install_afresh(pack: Path, root: Path) -> None:
    shutil.rmtree(root.parent, ignore_errors=True)
    install(local_source(pack), InstallRoot(root), Options())


def timed(run: object, clean: Path, repeat: int) -> float:
    """The best time of a run, without the time to clean up before it."""
    import time

    times = []
    for _ in range(repeat):
        shutil.rmtree(clean, ignore_errors=True)
        started = time.perf_counter()
        run()  # type: ignore[operator]
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--skills", type=int, default=1000)
    count = parser.parse_args().skills
    with tempfile.TemporaryDirectory(prefix="vade-packs-") as name:
        place = Path(name)
        skills = write_skills(place / "src", count)
        pack = place / "all.zip"
        packing = best(lambda: pack_all(skills, pack), 1)
        plain = timed(lambda: unpack_plainly(pack, place / "plain", synced=False), place / "plain", 3)
        plain_synced = timed(lambda: unpack_plainly(pack, place / "plain", synced=True), place / "plain", 3)
        root = place / "project/.agent/skills"
        synced = timed(lambda: install_afresh(pack, root), root.parent, 3)
        hashed = best(lambda: hash_plainly(root), 5)
        verified = best(lambda: verify(InstallRoot(root))[0], 5)
        rows = [
            ["python -m zipfile -e", f"{plain * 1000:,.0f}", "1.00", ""],
            ["python -m zipfile -e, then sync -f", f"{plain_synced * 1000:,.0f}", "1.00", ""],
            [
                "install, synced to disk",
                f"{synced * 1000:,.0f}",
                f"{synced / plain_synced:.2f}",
                "2",
            ],
            ["hashing every file plainly", f"{hashed * 1000:,.0f}", "1.00", ""],
            [
                "verify: every file against the lock",
                f"{verified * 1000:,.0f}",
                f"{verified / hashed:.2f}",
                "2",
            ],
            ["packing", f"{packing * 1000:,.0f}", "", ""],
        ]
        print_table(f"{count:,} skills of {FILES} files", ["", "ms", "x plain", "at most"], rows)


if __name__ == "__main__":
    main()
