"""Writes the generated pages of the documentation: ``python -m docs.build_reference``.

They are made from the program itself, in both languages, and are committed; a test makes them again and compares.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from docs.reference_cli import cli_page
from docs.reference_configuration import configuration_page
from docs.reference_errors import errors_page
from docs.reference_events import events_page, recorded_events
from docs.reference_words import chinese, english

PLACE = Path(__file__).parent / "reference"
_BLOCK = re.compile(r"^```(?:console|[^\n`]*title=)[^\n`]*\n.*?^```$", re.MULTILINE | re.DOTALL)


def generated() -> dict[str, str]:
    """File name → text, for every generated page."""
    events = recorded_events()
    found: dict[str, str] = {}
    for say, ending in ((english, ".md"), (chinese, ".zh.md")):
        found[f"cli{ending}"] = cli_page(say)
        found[f"configuration{ending}"] = configuration_page(say)
        found[f"events{ending}"] = events_page(say, events)
        found[f"errors{ending}"] = errors_page(say)
    # The headings that a link leads to have other names there.
    found = {
        name: re.sub(r"(\.md)#[\w-]+\)", r"\1)", text) if name.endswith(".zh.md") else text
        for name, text in found.items()
    }
    if find_spec("docs.reference_api") is not None:
        page: str = import_module("docs.reference_api").api_page()
        found["api.md"] = page
        found["api.zh.md"] = re.sub(
            r"\A# .*\n", "# Python 接口\n\n本页由源代码里的文档字符串生成，内容是英文。\n", page
        )
    return found


def with_blocks_of(chinese_page: str, english_page: str) -> str:
    """A Chinese page with the blocks of the English one; where their numbers differ, as it is."""
    blocks = [found[0] for found in _BLOCK.finditer(english_page)]
    if len(blocks) != len(_BLOCK.findall(chinese_page)):
        return chinese_page
    waiting = iter(blocks)
    return _BLOCK.sub(lambda _: next(waiting), chinese_page)


def main() -> None:
    """Write what changed: the generated pages, and what commands print in the Chinese ones."""
    PLACE.mkdir(exist_ok=True)
    for name, text in generated().items():
        _write(PLACE / name, text)
    for page in PLACE.parent.rglob("*.zh.md"):
        english_page = page.with_name(page.name.replace(".zh.md", ".md"))
        if english_page.exists():
            _write(page, with_blocks_of(page.read_text("utf-8"), english_page.read_text("utf-8")))


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text("utf-8") != text:
        file.write_text(text, "utf-8")
        print(f"Wrote {file.relative_to(PLACE.parents[1])}")


if __name__ == "__main__":
    main()
