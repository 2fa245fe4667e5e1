"""Every command that the documentation shows is run, and its output is the real one."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path

import click
import pytest

from tests.e2e.documents import (
    TOP,
    as_shown,
    chinese,
    fences,
    headings,
    language_model,
    links,
    pages,
    perform,
    prose_of,
    python_blocks,
    rows,
    steps,
    text_of,
)
from tests.packs.support import serving
from tests.support import PYTHON, UNDER_TEST, VADE, Place
from vademecum.cli.main import vade

# Where the documentation says that a folder is handed out; here it is, on another port.
SITE = "http://localhost:8000"
PAGES = pages()
# What a page names in passing: it would wait for somebody, or there is nothing here for it to work on.
MENTIONED = re.compile(
    r"[A-Z]{2}|acme|validate|claude|^chat|^trust|^new$|^runs (show|replay)|^(un)?link|^sync|^mcp|"
    r"^eval (report|compare)|…"
)


# Other Chinese pages have the blocks of the English ones, so they are not followed again.
@pytest.mark.parametrize("page", [*(page for page in PAGES if steps(page)), "README.zh-CN.md"])
def test_console_blocks(page: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    project = home / "project"
    (project / ".git").mkdir(parents=True)
    env = {**Place(project, home).env, "XDG_CACHE_HOME": str(home / ".cache")}
    del env["VADE_CACHE_DIR"]
    # The README is followed with the installed command, to the letter, and so is a wheel.
    forked = not page.startswith("README") and not UNDER_TEST
    with serving(project / "site") as web:
        for step in steps(page):
            step.command = step.command.replace(SITE, web.url)
            printed = perform(step, cwd=project, env=env, forked=forked).replace(web.url, SITE)
            assert as_shown(printed, home) == as_shown(step.shown, home), step.command


# One process for a page; its blocks know nothing of each other.
_RUNNER = "import json, sys\nfor block in json.loads(sys.argv[1]):\n    exec(block, {'__name__': '__main__'})"


# What the reference shows of Python are examples of docstrings, which run as doctests.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page) and "/reference/" not in page]
)
def test_python_blocks(page: str, place: Place) -> None:
    with language_model() as model:
        done = subprocess.run(
            [PYTHON, "-c", _RUNNER, json.dumps(python_blocks(page))],
            cwd=place.cwd,
            env=place.env | model,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert page != "README.md" or done.stdout.count("file-diff") > 1


@pytest.mark.parametrize("page", [*PAGES, "README.zh-CN.md"])
def test_commands_in_the_text(page: str, place: Place) -> None:
    (place.cwd / "examples").symlink_to(TOP / "examples")
    place.vade("run", "hello")  # so that there is a run to look at
    for words in sorted(set(re.findall(r"`vade ([^`]+)`", prose_of(page)))):
        if complete(words.split()) and (not MENTIONED.search(words) or "--root examples" in words):
            done = place.vade(*words.split())
            assert done.code == 0, (words, done.err)


def complete(words: list[str]) -> bool:
    """Whether a command can be run as it stands; it must exist, with the options that it is shown with."""
    command: click.Command = vade
    context = click.Context(vade)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if re.match(r"-[-a-z]", word)} <= known | {"--help"}, words
    required = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    given = [word for word in words if not word.startswith("-")]
    return not isinstance(command, click.Group) and len(given) >= len(required)


def test_make_targets_in_the_documentation_exist_and_ci_runs_them() -> None:
    ci = (TOP / ".ci" / "run").read_text()
    makefile = (TOP / "Makefile").read_text()
    for page in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md"):
        for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE)) - {"format"}:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
            assert f"make {target}" in ci or target in {"test"}, target


def test_a_checkout_is_installed_into_an_environment_that_the_makefile_does_not_use() -> None:
    """Debian refuses an installation into the system's Python, and `make` has its own environment."""
    ours = re.findall(r"^VENV +:= (.+)$", text_of("Makefile"), re.MULTILINE)
    assert len(ours) == 1
    installing = [
        (page, fence.text.splitlines())
        for page in (*PAGES, *map(chinese, PAGES))
        for fence in fences(page)
        if fence.kind == "sh" and "pip install .\n" in fence.text
    ]
    assert {"README.md", "README.zh-CN.md", "docs/index.md"} <= {page for page, _ in installing}
    for page, lines in installing:
        made = re.fullmatch(r"python3 -m venv (\S+) && \. (\S+)/bin/activate", lines[0])
        assert made is not None, page
        assert (made[2], lines[1]) == (made[1], "pip install ."), page
        assert made[1] not in ours, page


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_show_the_same(page: str) -> None:
    """The Chinese page has the blocks of the English one, its headings, tables and links: so it is not run again."""
    other = chinese(page)
    assert (TOP / other).exists(), f"{page} has no Chinese counterpart: write {other}"
    assert headings(page) == headings(other)
    ours = links(page) - {"README.zh-CN.md"}
    theirs = {link.replace(".zh.md", ".md") for link in links(other)} - {"README.md"}
    if page == "README.md":  # the Chinese one is shorter, and its commands are in Chinese
        assert theirs <= ours
        assert len(rows(other)) <= len(rows(page)) <= 8
    else:
        assert [fence.without_comments for fence in fences(page)] == [
            fence.without_comments for fence in fences(other)
        ]
        assert (rows(page), ours) == (rows(other), theirs)


def test_the_chinese_readme_leads_to_chinese_pages() -> None:
    """The site finds the page in the reader's language by itself; where a README is read, nothing does."""
    for link in links("README.zh-CN.md") - {"README.md"}:
        assert not (TOP / chinese(link)).exists(), f"link to {chinese(link)} instead"


def test_a_readme_is_a_first_page() -> None:
    text = text_of("README.md")
    assert len(text.encode()) <= 6 * 1024, "move what is not for the first page into docs/"
    assert len(text.split()) <= 900
    assert len(text_of("README.zh-CN.md")) <= 2800


@pytest.mark.parametrize(
    "page", [p.relative_to(TOP).as_posix() for p in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")]]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose_of(page)):
        assert ((TOP / page).parent / target).exists(), target


def test_the_architecture_fits_on_two_screens_and_names_what_exists() -> None:
    text = text_of("ARCHITECTURE.md")
    for name in re.findall(r"`([a-z_/]+\.py)`", text):
        assert (TOP / "src/vademecum" / name).exists() or (TOP / name).exists(), name
    for package in re.findall(r"^([a-z]+) {2,}", text.partition("```\n")[2], re.MULTILINE):
        assert (TOP / "src/vademecum" / package).is_dir(), package
    walks = text.partition("## Six walks")[2].strip().split("\n\n")
    assert len(walks) == 6
    assert all(len(re.findall(r"^\d\. ", walk, re.MULTILINE)) <= 6 for walk in walks)
    assert len(text.splitlines()) <= 120


def test_every_problem_code_is_documented() -> None:
    documented = set(re.findall(r"`([a-z0-9-]+)`", text_of("docs/documents.md")))
    source = "".join(path.read_text("utf-8") for path in (TOP / "src/vademecum").rglob("*.py"))
    used = set(re.findall(r'Problem\(\s*"([a-z0-9-]+)"', source))
    used |= set(re.findall(r'(?:_add|_note|_object|_fail)\(\s*(?:\w+, )?"([a-z0-9-]+)"', source))
    used |= set(re.findall(r'\("(name-[a-z-]+)", ', source))
    assert len(used) > 40
    assert used - documented == set()


def test_version_is_one() -> None:
    import tomllib

    import vademecum

    declared = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert declared == vademecum.__version__
    assert f"## {declared}" in text_of("CHANGELOG.md")
    assert platform.python_version_tuple() >= ("3", "11")
    assert Path(VADE).exists()
