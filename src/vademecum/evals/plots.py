"""Numbers → pictures as SVG: rates with their intervals, who took whose request, cost against success."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from vademecum.evals.markdown import confusion
from vademecum.evals.summary import Column, Summary
from vademecum.evals.triggers import Triggers, is_right

MAX_NAMES = 24
WIDTH = 640
_LABEL, _RIGHT = 190, 60
_COLOURS = ("var(--blue)", "var(--warn)", "var(--ok)", "var(--asked)", "var(--bad)")


def rates(columns: Sequence[Column]) -> str:
    """One line for each configuration: the rate as a dot, its interval as a bar."""
    height = 34 * len(columns) + 34
    room = WIDTH - _LABEL - _RIGHT
    parts = []
    for share in (0, 25, 50, 75, 100):
        x = _LABEL + room * share / 100
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="6" x2="{x:.1f}" y2="{height - 24}"/>')
        parts.append(_text(x, height - 8, f"{share} %", kind="tick", anchor="middle"))
    for number, column in enumerate(columns):
        y = 24 + 34 * number
        low, high = (_LABEL + room * each for each in (column.rate.interval.low, column.rate.interval.high))
        dot = _LABEL + room * column.rate.rate
        colour = _COLOURS[number % len(_COLOURS)]
        parts += [
            _text(_LABEL - 12, y + 5, _short(column.configuration, 24), anchor="end"),
            f'<line x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}" stroke="{colour}" stroke-width="10" '
            'stroke-linecap="round" opacity=".3"/>',
            f'<circle cx="{dot:.1f}" cy="{y}" r="6" fill="{colour}"/>',
            _text(WIDTH - _RIGHT + 12, y + 5, f"{column.rate.rate:.0%}", kind="value"),
        ]
    return _svg(height, "Pass rate with 95 % intervals", parts)


def heat_map(found: Triggers) -> str:
    """Rows want, columns take; the darker, the more. Of many skills, those with the most requests."""
    wanted, taken, counts = confusion(found)
    weight = {row: sum(counts.get((row, column), 0) for column in taken) for row in wanted}
    rows = sorted(wanted, key=lambda row: -weight[row])[:MAX_NAMES]
    load = {column: sum(counts.get((row, column), 0) for row in rows) for column in taken}
    places = {row: number for number, row in enumerate(rows)}
    columns = sorted(taken, key=lambda name: (places.get(name, MAX_NAMES), -load[name]))[:MAX_NAMES]
    size = min(44.0, (WIDTH - _LABEL - 10) / max(1, len(columns)))
    top = 120
    parts = []
    for x, name in enumerate(columns):
        place = _LABEL + size * (x + 0.5)
        turned = f' transform="rotate(-45 {place:.1f} {top - 8})"'
        parts.append(_text(place, top - 8, _short(name, 20), kind="tick", more=turned))
    for y, row in enumerate(rows):
        parts.append(
            _text(_LABEL - 8, top + size * (y + 0.5) + 4, _short(row, 26), kind="tick", anchor="end")
        )
        for x, column in enumerate(columns):
            count = counts.get((row, column), 0)
            share = count / weight[row] if weight[row] else 0.0
            box = _Box(_LABEL + size * x, top + size * y, size)
            parts += _cell(box, count, share, right=is_right(row, column))
    return _svg(round(top + size * len(rows) + 10), "Which skill took whose request", parts)


class _Box(NamedTuple):
    x: float
    y: float
    size: float


def _cell(box: _Box, count: int, share: float, *, right: bool) -> list[str]:
    colour = ("var(--ok)" if right else "var(--bad)") if count else "var(--soft)"
    opacity = 0.12 + 0.8 * share if count else 0.04
    side = f'width="{box.size - 2:.1f}" height="{box.size - 2:.1f}" rx="3"'
    found = [f'<rect x="{box.x:.1f}" y="{box.y:.1f}" {side} fill="{colour}" opacity="{opacity:.2f}"/>']
    if count and box.size > 16:
        x, y = box.x + box.size / 2 - 1, box.y + box.size / 2 + 4
        found.append(_text(x, y, str(count), kind="tick cell", anchor="middle"))
    return found


def cost_against_success(summary: Summary) -> str:
    """One dot for each case in each configuration: what it costs, and how often it passes."""
    rows = [row for row in summary.rows if row.judged]
    if not rows:
        return ""
    by_tokens = any(row.cost.tokens for row in rows)
    unit = "tokens a run" if by_tokens else "turns a run"
    costs = [row.cost.tokens if by_tokens else row.cost.turns for row in rows]
    most = max([*costs, 1.0])
    places = 1 if most < 10 else 0
    height, left, bottom = 240, 60, 40
    names = [column.configuration for column in summary.columns]
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = 20 + (height - bottom - 20) * (1 - share)
        x = left + (WIDTH - 20 - left) * share
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, f"{share:.0%}", kind="tick", anchor="end"))
        parts.append(_text(x, height - 18, f"{most * share:,.{places}f}", kind="tick", anchor="middle"))
    there: Counter[tuple[float, float]] = Counter()
    for row, cost in zip(rows, costs, strict=True):
        # Dots at one place lie side by side, to the left.
        x = left + (WIDTH - 20 - left) * cost / most - 13 * (there[cost, row.passed / row.judged] % 12)
        there[cost, row.passed / row.judged] += 1
        y = 20 + (height - bottom - 20) * (1 - row.passed / row.judged)
        colour = _COLOURS[names.index(row.configuration) % len(_COLOURS)]
        said = escape(f"{row.case}, {row.configuration}: {row.passed} of {row.judged}, {cost:,.0f} {unit}")
        dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}" opacity=".45">'
        parts.append(f"{dot}<title>{said}</title></circle>")
    parts.append(_text(WIDTH - 20, height - 2, unit, kind="tick", anchor="end"))
    return _svg(height, "Cost against success", parts)


def _text(  # noqa: PLR0913 - a place and how it looks
    x: float, y: float, words: str, *, kind: str = "", anchor: str = "start", more: str = ""
) -> str:
    """Words at a place; they were made safe before."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}{more}>{words}</text>'


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def _short(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")
