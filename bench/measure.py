"""Timing on a noisy machine: repeat, take the best, print a table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def best(run: Callable[[], object], repeat: int = 5) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def in_process(code: str, *arguments: str, python: str = sys.executable) -> Any:
    """What a new interpreter prints as JSON when it runs ``code``."""
    words = [python, "-c", code, *arguments]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def whole_process(*words: str) -> Callable[[], object]:
    """A run of a whole command, from start to exit."""
    return lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as Markdown, first column left, the others right."""
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    print(f"\n{title}\n")
    for number, row in enumerate([columns, *rows]):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
        ]
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
            print(f"| {' | '.join(rule)} |")
