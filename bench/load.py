"""Handing skills over: `python -m bench.load`. Loading is a ratio to reading the same file plainly."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bench.measure import best, print_table
from bench.trees import plain_tree
from vademecum import IndexOptions, build_index
from vademecum.loader.catalogue import Form, render_catalogue
from vademecum.loader.loading import load_body, load_resource

ROUNDS = 500
FORMS: tuple[Form, ...] = ("list", "xml")


def loading(directory: Path) -> None:
    plain_tree(directory / "one", 1)
    skill = build_index(directory / "one", IndexOptions()).skills[0]
    document = skill.path / "SKILL.md"

    def repeated(run: object) -> float:
        def all_rounds() -> None:
            for _ in range(ROUNDS):
                run()  # type: ignore[operator]

        return best(all_rounds, 7) / ROUNDS

    plain = repeated(lambda: document.read_text("utf-8"))
    bare = repeated(lambda: load_body(skill))
    (skill.path / "references").mkdir()
    guide = skill.path / "references" / "guide.md"
    guide.write_text("# Guide\n" + "A line of a guide that somebody wrote.\n" * 200)
    plain_guide = repeated(lambda: guide.read_text("utf-8"))
    body = repeated(lambda: load_body(skill))
    resource = repeated(lambda: load_resource(skill, "references/guide.md"))
    section = repeated(lambda: load_resource(skill, "references/guide.md", section_hint="Guide"))
    rows = [
        ["reading SKILL.md plainly", f"{plain * 1e6:.1f}", "1.00", ""],
        ["load_body: checked, cleaned, hashed, framed", f"{bare * 1e6:.1f}", f"{bare / plain:.2f}", "3"],
        ["load_body of a skill with files, which are listed", f"{body * 1e6:.1f}", f"{body / plain:.2f}", ""],
        ["reading a reference plainly", f"{plain_guide * 1e6:.1f}", "1.00", ""],
        ["load_resource", f"{resource * 1e6:.1f}", f"{resource / plain_guide:.2f}", ""],
        ["load_resource, one section", f"{section * 1e6:.1f}", f"{section / plain_guide:.2f}", ""],
    ]
    print_table("Loading", ["", "us", "x plain", "at most"], rows)


def catalogues(directory: Path) -> None:
    plain_tree(directory / "many", 10_000)
    skills = build_index(directory / "many", IndexOptions()).skills
    rows = []
    for form in FORMS:
        for budget in (80_000, 10**9):
            found = render_catalogue(skills, form=form, budget=budget)
            seconds = best(partial(render_catalogue, skills, form=form, budget=budget), 7)
            rows.append([form, f"{budget:,}", f"{len(found.text):,}", f"{seconds * 1000:.1f}", "20"])
    print_table("Catalogue of 10,000 skills", ["form", "budget", "characters", "ms", "at most"], rows)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vade-load-") as name:
        loading(Path(name))
        catalogues(Path(name))


if __name__ == "__main__":
    main()
