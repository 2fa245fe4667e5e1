"""The documentation as a site: it builds without a warning, needs nothing from elsewhere, and can be searched."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.e2e.browser import browsing
from tests.e2e.documents import TOP, pages

pytestmark = pytest.mark.extras

# What a page shows or runs; an ordinary link may lead anywhere.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(HTMLParser):
    """What a page fetches, where it links to, and which places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag in FETCHED and FETCHED[tag] in found:
            self.fetched.append(found[FETCHED[tag]])
        if tag == "link" and found.get("rel") not in {"alternate", "prev", "next"}:
            self.fetched.append(found["href"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        if os.environ.get("CI"):
            pytest.fail("mkdocs is not installed")
        pytest.skip("mkdocs is not installed: make docs brings it")
    directory = tmp_path_factory.mktemp("built")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    env = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1", "TMPDIR": str(directory)}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory / "site")],
        cwd=TOP,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return directory / "site"


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def is_elsewhere(address: str) -> bool:
    return bool(re.match(r"(https?:)?//", address))


def test_every_page_is_there_in_both_languages(site: Path) -> None:
    for page in pages():
        if page != "README.md":
            name = page.removeprefix("docs/").replace(".md", ".html")
            assert (site / name).exists(), name
            assert (site / "zh" / name).exists(), name
            assert 'lang="zh"' in (site / "zh" / name).read_text("utf-8")
    assert not list(site.rglob("*.py"))


def test_nothing_comes_from_elsewhere(site: Path, read: dict[Path, Page]) -> None:
    for path, page in read.items():
        assert [address for address in page.fetched if is_elsewhere(address)] == [], path
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", sheet.read_text("utf-8"))
        assert found == [], sheet


def test_links_inside_lead_to_a_page_and_a_place(site: Path, read: dict[Path, Page]) -> None:
    count = 0
    for path, page in read.items():
        if path.name == "404.html":  # its links are made for the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            named = unquote(parts.path)
            target = Path(os.path.normpath(path.parent / named)) if named else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), (path, link)
            if parts.fragment and target in read and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in read[target].places, (path, link)
            count += 1
    assert count > 1000


def test_each_language_has_a_search_index_of_its_own(site: Path) -> None:
    indexes = [json.loads((site / top / "search/search_index.json").read_text("utf-8")) for top in ("", "zh")]
    for index, words in zip(indexes, ({"approval", "sandbox"}, {"批准", "沙箱"}), strict=True):
        texts = [f"{doc['title']} {doc['text']}" for doc in index["docs"]]
        assert words <= set(re.split(index["config"]["separator"], "\n".join(texts)))
        assert not [doc for doc in index["docs"] if doc["location"].startswith("zh/")]
    assert not [doc for doc in indexes[0]["docs"] if doc["title"] == "安装"]


@pytest.fixture
def server(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_in_a_browser(site: Path, server: str, chromium: str, tmp_path: Path) -> None:
    """Search finds words of both languages, pages fit a narrow window, and nobody else is asked for anything."""
    with browsing(chromium, tmp_path / "profile", "500,900") as browser:
        for start, word in (("index.html", "approval"), ("zh/index.html", "批准")):
            browser.open(f"{server}/{start}?q={word}")
            count = "document.querySelectorAll('.md-search-result__link').length"
            assert browser.wait(count) > 5
        for page in ("tutorial", "zh/tutorial", "reference/configuration", "zh/explanation/threat-model"):
            browser.open(f"{server}/{page}.html")
            assert browser.value("document.documentElement.scrollWidth <= window.innerWidth"), page
        for start, word in (("", "sandbox"), ("zh/", "沙箱")):
            browser.open(f"{server}/{start}how-to/team.html?q={word}")
            results = "[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"
            browser.wait(f"{results}.length")
            for link in browser.value(results):
                assert ("/zh/" in link) == bool(start), link
                assert (site / link.removeprefix(f"{server}/").partition("?")[0].partition("#")[0]).exists()
        browser.open(f"{server}/how-to/team.html")
        copy = "document.querySelector('.language-console [data-clipboard-target]')"
        browser.wait(f"{copy} !== null")
        browser.value(f"{copy}.click()")
        assert browser.value(f"{copy}.dataset.clipboardText") == "vade keygen team\n"
        browser.open(f"{server}/tutorial.html")
        switch = browser.value("document.querySelector('.md-select__link[hreflang=zh]').href")
        assert switch == f"{server}/zh/tutorial.html"
        asked = [url for url in browser.asked if not url.startswith((server, "data:", "blob:"))]
    assert asked == []
