"""Long work shows progress on a terminal, and nowhere else."""

from __future__ import annotations

import io
import itertools
import sys

import pytest

from vademecum.cli.output.printing import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    seconds = itertools.count(0.0, 0.6)
    bar = ProgressBar("fetching", bytes_=True, clock=lambda: next(seconds))
    bar(0, 10_000_000)
    assert shown.getvalue() == ""  # not for what takes less than a second
    bar(5_000_000, 10_000_000)
    bar(7_000_000, 0)
    bar.done()
    assert shown.getvalue() == (
        "\r\x1b[Kfetching … ████████████░░░░░░░░░░░░ 50 % (5.0 MB)\r\x1b[Kfetching … 7.0 MB\r\x1b[K"
    )


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    seconds = itertools.count(0.0, 5.0)
    bar = ProgressBar("packing", clock=lambda: next(seconds))
    bar(1, 2)
    bar.done()
    assert shown.getvalue() == ""
