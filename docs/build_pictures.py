"""Makes the pictures of the tutorial and of the evaluation page: ``python -m docs.build_pictures``.

Each is followed in a home of its own, and the pages that it leads to are photographed by Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.browser import FLAGS
from tests.e2e.documents import TOP, perform, steps
from tests.support import Place


def main() -> None:
    """Follow the pages, and take the pictures that they lead to."""
    with _followed("docs/tutorial.md") as home:
        _photograph(home / "project" / "report.html", TOP / "docs" / "tutorial-report.png", "1000,1000")
        _photograph(home / "other" / "run.html", TOP / "docs" / "tutorial-run.png", "900,960")
    with _followed("docs/evals.md") as home:
        _photograph(home / "project" / "report.html", TOP / "docs" / "eval-report.png", "1000,1100")


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


def _photograph(page: Path, picture: Path, size: str) -> None:
    chromium = shutil.which("chromium") or "chromium-browser"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium,
                *FLAGS,
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={size}",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    print(f"Wrote {picture.relative_to(TOP)}")


if __name__ == "__main__":
    main()
