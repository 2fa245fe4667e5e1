"""Every command that the documentation shows is run, and its output is the real one."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packs.support import serving
from tests.support import PYTHON, VADE, Place

TOP = Path(__file__).parents[2]
# Where the documentation says that a folder is handed out; here it is, on another port.
SITE = "http://localhost:8000"
PAGES = [
    "README.md",
    "README.zh-CN.md",
    "docs/configuration.md",
    "docs/permissions.md",
    "docs/tools.md",
    "docs/agent.md",
    "docs/packs.md",
    "docs/linking.md",
    "docs/governance.md",
    "docs/evals.md",
]


@dataclass
class Step:
    """One command and the output that is shown below it."""

    command: str
    shown: str


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (TOP / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def steps(page: str) -> list[Step]:
    found: list[Step] = []
    for line in "".join(blocks(page, "console")).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Step(line[2:].rstrip("\n"), ""))
        else:
            found[-1].shown += line
    return found


# The Chinese page shows what the English one shows, word for word, as another test says.
@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.zh-CN.md"])
def test_console_blocks(page: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    project = home / "project"
    (project / ".git").mkdir(parents=True)
    env = {**Place(project, home).env, "XDG_CACHE_HOME": str(home / ".cache")}
    del env["VADE_CACHE_DIR"]
    assert steps(page)
    with serving(project / "site") as web:
        for step in steps(page):
            done = subprocess.run(
                ["bash", "-c", step.command.replace(SITE, web.url)],
                cwd=project,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            printed = (done.stdout + done.stderr).replace(web.url, SITE)
            assert as_shown(printed, home) == as_shown(step.shown, home), step.command


def as_shown(text: str, home: Path) -> str:
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    text = re.sub(r"(sha256|key):[0-9a-f]{12,}", r"\1:DIGEST", text)
    text = re.sub(r"[^\s'\"]*/vademecum/builtin", "builtin", text.replace(str(home), "~"))
    text = re.sub(r"sandbox: .*", "sandbox: here", text)
    text = re.sub(r"after \d+\.\d\d s\.", "after 0.05 s.", text)
    text = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{7}\b", "RUN", text)
    return re.sub(r"on Python \S+ \(\w+\)", "on Python 3 (here)", text)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_python_blocks(page: str, place: Place) -> None:
    for block in blocks(page, "python"):
        done = subprocess.run(
            [PYTHON, "-c", block],
            cwd=place.cwd,
            env=place.env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "file-diff" in done.stdout


@pytest.mark.parametrize(
    "page", [f"docs/{name}.md" for name in ("for-agents", "tools", "agent", "governance", "evals")]
)
def test_python_blocks_of_the_pages(page: str, place: Place) -> None:
    assert blocks(page, "python")
    for block in blocks(page, "python"):
        words = [PYTHON, "-c", block]
        assert subprocess.run(words, cwd=place.cwd, env=place.env, check=False).returncode == 0


@pytest.mark.parametrize("page", [*PAGES, "docs/documents.md"])
def test_commands_in_the_text(page: str, place: Place) -> None:
    (place.cwd / "examples").symlink_to(TOP / "examples")
    prose = re.sub(r"(?s)```.*?```", "", (TOP / page).read_text("utf-8"))
    commands = set(re.findall(r"`vade ([^`]+)`", prose))
    for words in sorted(
        commands
        - {
            "show",
            "exec",
            "inspect",
            "pack",
            "export",
            "install",
            "publish",
            "sign",
            "update",
            "diff",
            "restore",
            "uninstall",
            "link",
            "unlink",
            "trust",
            "trust --remove",
            "chat",
            "runs show",
            "runs replay",
            "govern simulate",
            "eval compare OLD NEW\n--fail-on regression",
        }
    ):
        if not re.search(r"[A-Z]{4}|acme|validate|claude", words) or "--root examples" in words:
            done = place.vade(*words.split())
            assert done.code == 0, (words, done.err)


def test_make_targets_in_the_documentation_exist_and_ci_runs_them() -> None:
    ci = (TOP / ".ci" / "run").read_text()
    makefile = (TOP / "Makefile").read_text()
    for page in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md"):
        for target in set(
            re.findall(r"(?:^|`)make ([a-z-]+)", (TOP / page).read_text("utf-8"), re.MULTILINE)
        ) - {"format"}:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
            assert f"make {target}" in ci or target in {"test"}, target


def test_both_readmes_show_the_same() -> None:
    english, chinese = steps("README.md"), steps("README.zh-CN.md")
    nowhere = Path("/nonexistent")
    assert [(step.command, as_shown(step.shown, nowhere)) for step in english] == [
        (step.command, as_shown(step.shown, nowhere)) for step in chinese
    ]
    links = [set(re.findall(r"\]\(([\w/.-]+)\)", (TOP / page).read_text("utf-8"))) for page in PAGES[:2]]
    assert links[0] - {"README.zh-CN.md"} == links[1] - {"README.md"}


@pytest.mark.parametrize(
    "page", [p.relative_to(TOP).as_posix() for p in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")]]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (TOP / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"(?s)```.*?```", "", text)):
        assert ((TOP / page).parent / target).exists(), target


def test_every_problem_code_is_documented() -> None:
    documented = set(re.findall(r"`([a-z0-9-]+)`", (TOP / "docs/documents.md").read_text("utf-8")))
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
    assert f"## {declared}" in (TOP / "CHANGELOG.md").read_text("utf-8")
    assert platform.python_version_tuple() >= ("3", "11")
    assert Path(VADE).exists()
