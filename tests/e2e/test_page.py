"""J1: the page of a run in a real browser: it shows everything, fits the window, and runs nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.browser import FLAGS, without_policy
from tests.support import Place

pytestmark = pytest.mark.extras


def test_the_page_of_a_run(place: Place, chromium: str, tmp_path: Path) -> None:
    (place.cwd / "a.txt").write_text("a\n")
    (place.cwd / "<b>.txt").write_text("<script>document.title='pwned'</script>\n" * 50)
    assert place.vade("run", 'Compare a.txt with "<b>.txt"', "--yes").code == 0
    page = tmp_path / "page.html"
    place.vade("runs", "show", "--html", str(page))
    words = [chromium, *FLAGS, f"--user-data-dir={tmp_path}/profile"]
    probe = without_policy(page).replace(
        "</body>",
        "<script>document.title = ['wide', document.documentElement.scrollWidth <= innerWidth, "
        "document.querySelectorAll('li').length, document.title].join('|')</script></body>",
    )
    (tmp_path / "probe.html").write_text(probe)
    shown = subprocess.run(
        [*words, "--window-size=500,900", "--dump-dom", f"file://{tmp_path}/probe.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    title = shown.partition("<title>")[2].partition("</title>")[0]
    wide, fits, entries, own = title.split("|", 3)
    assert (wide, fits, own) == ("wide", "true", 'Compare a.txt with "&lt;b&gt;.txt"')
    assert int(entries) > 8
    picture = tmp_path / "page.png"
    subprocess.run(
        [*words, "--window-size=900,1200", f"--screenshot={picture}", f"file://{page}"],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert picture.stat().st_size > 20_000
