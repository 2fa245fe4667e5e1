"""L2: the page of an evaluation in a real browser: its plots are drawn, it fits the window, its only script is ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.browser import FLAGS, without_policy
from tests.support import Place

pytestmark = pytest.mark.extras


PROBE = """<script>
const bad = [...document.querySelectorAll('svg text, svg circle, svg rect')].filter(e => {
  const own = e.getBoundingClientRect(), all = e.closest('svg').getBoundingClientRect();
  return own.right > all.right + 2 || own.left < all.left - 2 || own.bottom > all.bottom + 2 || own.top < all.top - 2;
}).map(e => e.textContent || e.tagName);
document.title = [document.documentElement.scrollWidth <= innerWidth, document.querySelectorAll('svg').length,
  document.querySelectorAll('#cases details').length, document.querySelectorAll('a[href*="-runs/"]').length, bad.join(';') || 'inside'].join('|');
</script></body>"""


@pytest.mark.parametrize("width", [500, 900, 1400])
def test_the_page_of_an_evaluation(place: Place, chromium: str, tmp_path: Path, width: int) -> None:
    assert place.vade("eval", "run", "file-diff", "--yes", "--without", "file-diff").code == 1
    page = tmp_path / "report.html"
    assert place.vade("eval", "report", "--html", str(page)).code == 0
    (tmp_path / "probe.html").write_text(without_policy(page).replace("</body>", PROBE), "utf-8")
    words = [chromium, *FLAGS, f"--user-data-dir={tmp_path}/profile", f"--window-size={width},1400"]
    shown = subprocess.run(
        [*words, "--dump-dom", f"file://{tmp_path}/probe.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    title = shown.partition("<title>")[2].partition("</title>")[0]
    assert title == "true|4|11|22|inside"
    picture = tmp_path / "page.png"
    subprocess.run(
        [*words, f"--screenshot={picture}", f"file://{page}"], capture_output=True, timeout=120, check=True
    )
    assert picture.stat().st_size > 30_000
