"""Where all extras are installed, commands that need none import none."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name

from tests.support import Place, of_extras, write_skill


def modules_of_extras() -> set[str]:
    """The top-level modules of what only the extras name, as far as it is installed here."""
    names = of_extras()
    return {
        module
        for module, brought_by in packages_distributions().items()
        if names & {canonicalize_name(name) for name in brought_by}
    }


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "search compare",
        "validate mine",
        "install mine",
        "run --yes Summarise_data.csv",
        "eval run skill-author --yes",
    ],
)
def test_no_extra_is_imported(place: Place, words: str) -> None:
    write_skill(place.cwd, "mine")
    (place.cwd / "data.csv").write_text("a\n1\n")
    done = place.vade(*(word.replace("_", " ") for word in words.split()), PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0, done.err
    imported = {
        name.partition(".")[0] for name in re.findall(r"^import time:.*\| +(\S+)$", done.err, re.MULTILINE)
    }
    assert "vademecum" in imported
    assert imported & modules_of_extras() == set()


def test_the_extras_are_here_to_be_left_alone() -> None:
    assert {"openai", "anthropic", "numpy"} <= modules_of_extras()


def test_what_runs_scripts_is_not_imported_to_show_a_skill(place: Place) -> None:
    done = place.vade("show", "file-diff", PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0, done.err
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.err, re.MULTILINE))
    assert "vademecum.session.session" in imported
    heavy = {
        "vademecum.tools.job",
        "vademecum.sandbox.process",
        "importlib.metadata",
        "rich",
        "httpx",
        "pydantic",
    }
    assert imported & heavy == set()
