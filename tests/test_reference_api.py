"""The page of the Python API has every public name, and its examples run as they stand there."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

import vademecum
from vademecum import governance, models

TOP = Path(__file__).parents[1]
PAGE: str = runpy.run_path(str(TOP / "docs/reference_api.py"))["api_page"]()
SECTIONS: dict[ModuleType, str] = dict(
    zip((vademecum, models, governance), re.split(r"^## .*\n", PAGE, flags=re.MULTILINE)[1:], strict=True)
)


def test_every_public_name_has_its_place() -> None:
    for module, section in SECTIONS.items():
        assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == module.__all__


def test_nothing_of_this_process_is_in_it() -> None:
    assert re.findall(r"0x[0-9a-f]{6}|<factory>|<class|/src/vademecum|\b_\w+:", PAGE) == []
    assert re.findall(r"``(?!`)", PAGE.replace("```", "")) == []


@pytest.mark.parametrize("module", SECTIONS, ids=lambda module: module.__name__)
def test_examples_run_as_they_are_shown(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, str(tmp_path))
    names = {name: getattr(module, name) for name in module.__all__} | {"Path": Path}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for number, block in enumerate(
        re.findall(r"^```pycon\n(.*?)^```$", SECTIONS[module], re.MULTILINE | re.DOTALL)
    ):
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        runner.run(doctest.DocTestParser().get_doctest(block, dict(names), f"example {number}", None, None))
    assert (runner.failures, runner.tries > 20 or module is models) == (0, True)
