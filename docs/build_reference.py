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
    return found


def main() -> None:
    """Write what changed."""
    PLACE.mkdir(exist_ok=True)
    for name, text in generated().items():
        file = PLACE / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(f"Wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
