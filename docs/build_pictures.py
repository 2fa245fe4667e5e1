"""Makes the pictures of the documentation: ``python -m docs.build_pictures [DIR]``.

Each page of the documentation is followed in a home of its own, and what it leads to is photographed by
Chromium. With DIR, the pages of a run, an evaluation and a simulation are photographed there at three sizes,
light and dark, in English and Chinese, to be looked at.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.browser import Browser, browsing
from tests.e2e.documents import TOP, perform, steps
from tests.support import Place

SIZES = {"phone": (390, 1600), "tablet": (820, 1600), "desktop": (1400, 1600)}


def main() -> None:
    """Follow the pages, and take the pictures that they lead to."""
    docs = TOP / "docs"
    with _followed("docs/tutorial.md") as home:
        run, report = home / "other" / "run.html", home / "project" / "report.html"
        _photograph(report, docs / "tutorial-report.png", (1000, 1000))
        _photograph(run, docs / "tutorial-run.png", (900, 960))
        _photograph(run, docs / "run-page.png", (1000, 1400))
        if sys.argv[1:]:
            _look(run, "run")
    with _followed("docs/evals.md") as home:
        report = home / "project" / "report.html"
        _photograph(report, docs / "eval-report.png", (1000, 1100))
        if sys.argv[1:]:
            _look(report, "evaluation")
            _look_at_the_simulation(home)


def _look_at_the_simulation(home: Path) -> None:
    if importlib.util.find_spec("mesa") is None:
        print("No pictures of a simulation: the example needs mesa.")
        return
    page = home / "flood.html"
    words = ["govern", "simulate", str(TOP / "examples/flood"), "--html", str(page), "--no-record"]
    subprocess.run([Path(sys.executable).with_name("vade"), *words], cwd=home, check=True)
    _look(page, "simulation")


@contextmanager
def _followed(page: str) -> Iterator[Path]:
    """The home of somebody who did what a page says."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        project = home / "project"
        (project / ".git").mkdir(parents=True)
        env = {**Place(project, home).env, "XDG_CACHE_HOME": str(home / ".cache")}
        for step in steps(page):
            perform(step, cwd=project, env=env)
        yield home


def _look(page: Path, name: str) -> None:
    views = itertools.product(SIZES.items(), (False, True), ("en-US", "zh-CN"))
    with _open(page) as browser:
        for (size, window), dark, language in views:
            picture = Path(sys.argv[1], f"{name}-{size}-{'dark' if dark else 'light'}-{language}.png")
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(browser.picture(window, dark=dark, language=language))
            print(f"Wrote {picture}")


def _photograph(page: Path, picture: Path, size: tuple[int, int]) -> None:
    with _open(page) as browser:
        picture.write_bytes(browser.picture(size))
    print(f"Wrote {picture.relative_to(TOP)}")


@contextmanager
def _open(page: Path) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or "chromium-browser"
    # Processes of the browser may still write to its profile when it is over.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browsing(chromium, Path(profile), "800,800") as browser,
    ):
        browser.open(page.as_uri())
        yield browser


if __name__ == "__main__":
    main()
