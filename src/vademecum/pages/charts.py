"""Draw numbers as SVG: rates with their intervals, a heat map, dots, lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vademecum.pages.phrases import chinese
from vademecum.pages.render import drawn

# About as wide as a card on a phone or one of two on a desktop, so that texts have their own size there.
WIDTH = 420
CHAR_WIDTH = 7.2
MAX_NAMES = 24
COLOURS = ("var(--blue)", "var(--warn)", "var(--ok)", "var(--asked)", "var(--bad)", "var(--soft)")


@dataclass(frozen=True, slots=True)
class RateBar:
    """One rate with its interval, as shares of 1."""

    name: str
    rate: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One point: a cost, a share, whose it is, and what is said about it."""

    x: float
    y: float
    series: int
    label: str


def rates(bars: Sequence[RateBar]) -> Markup:
    """Draw one line for each rate: a dot, and its interval as a bar, over the whole width."""
    step, top = 56, 8
    height = step * len(bars) + 34
    left, right = 8.0, WIDTH - 8.0
    parts = []
    for share in (0, 25, 50, 75, 100):
        x = left + (right - left) * share / 100
        anchor = "start" if share == 0 else "end" if share == 100 else "middle"
        parts.append(_line(x, top, x, height - 24))
        parts.append(_text(x, height - 6, f"{share} %", kind="tick", anchor=anchor))
    for number, bar in enumerate(bars):
        y = top + step * number + 36
        low, high = (left + (right - left) * each for each in (bar.low, bar.high))
        colour = COLOURS[number % len(COLOURS)]
        value = "–" if bar.rate is None else f"{bar.rate:.1%}"
        parts += [
            _text(left, y - 16, _short(bar.name, 44)),
            _text(right, y - 16, value, kind="value", anchor="end"),
            Markup(
                '<line x1="{:.1f}" y1="{}" x2="{:.1f}" y2="{}" stroke="{}" stroke-width="12" '
                'stroke-linecap="round" opacity=".35"/>'
            ).format(low, y, high, y, colour),
        ]
        if bar.rate is not None:
            parts.append(_circle(left + (right - left) * bar.rate, y, 7, colour, 1.0, ""))
    return _svg(height, "Pass rate with 95 % intervals", parts)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Mapping[tuple[str, str], int],
    right: set[tuple[str, str]],
) -> Markup:
    """Draw rows that want and columns that take; the stronger the colour, the larger the share of its row."""
    label = 136
    width = (WIDTH - label) / max(1, len(columns))
    room = int(width / CHAR_WIDTH)
    is_turned = any(len(name) > room for name in columns)
    top, height = (96, min(34.0, width)) if is_turned else (24, 34.0)
    parts = []
    for x, name in enumerate(columns):
        place = label + width * (x + 0.5)
        if is_turned:
            turned = Markup(' transform="rotate(45 {:.1f} {})"').format(place, top - 8)
            parts.append(_text(place, top - 8, _short(name, 16), kind="tick", anchor="end", more=turned))
        else:
            parts.append(_text(place, top - 8, name, kind="tick", anchor="middle"))
    for y, row in enumerate(rows):
        middle = top + height * (y + 0.5) + 4
        parts.append(_text(label - 8, middle, _short(row, 17), kind="tick", anchor="end"))
        total = sum(counts.get((row, column), 0) for column in columns) or 1
        for x, column in enumerate(columns):
            count = counts.get((row, column), 0)
            colour = "var(--soft)" if not count else "var(--ok)" if (row, column) in right else "var(--bad)"
            opacity = 0.12 + 0.38 * count / total if count else 0.05
            box = (label + width * x, top + height * y, width - 2, height - 2)
            parts.append(
                Markup(
                    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="3" '
                    'fill="{}" opacity="{:.2f}"/>'
                ).format(*box, colour, opacity)
            )
            if count and len(str(count)) <= room:
                parts.append(_text(box[0] + width / 2 - 1, middle, str(count), anchor="middle"))
    return _svg(round(top + height * len(rows) + 4), "Which skill took whose request", parts)


def dots(points: Sequence[Dot], *, unit: str) -> Markup:
    """Draw points; several at one place are one larger dot with their number."""
    ticks = nice_ticks(max([*(point.x for point in points), 1.0]))
    height, left, right, bottom, top = 220, 48, 20, 46, 30
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = top + (height - bottom - top) * (1 - share)
        parts.append(_line(left, y, WIDTH - right, y))
        parts.append(_text(left - 8, y + 4, f"{share:.0%}", kind="tick", anchor="end"))
    for tick in ticks:
        x = left + (WIDTH - right - left) * tick / ticks[-1]
        parts.append(_text(x, height - 24, _figure(tick), kind="tick", anchor="middle"))
    there = Counter((point.x, point.y, point.series) for point in points)
    labels: dict[tuple[float, float, int], list[str]] = {}
    for point in points:
        labels.setdefault((point.x, point.y, point.series), []).append(point.label)
    for (cost, share, series), count in there.items():
        x = left + (WIDTH - right - left) * cost / ticks[-1]
        y = top + (height - bottom - top) * (1 - share)
        radius = min(6 + 2.2 * math.sqrt(count - 1), 18)
        said = "; ".join(labels[cost, share, series][:10])
        parts.append(_circle(x, y, radius, COLOURS[series % len(COLOURS)], 0.55, said))
        if count > 1:
            parts.append(_text(x, y - radius - 3, str(count), kind="tick", anchor="middle"))
    parts.append(_text(WIDTH - right, height - 5, unit, kind="tick", anchor="end"))
    return _svg(height, "Cost against success", parts)


def lines(
    series: Sequence[tuple[str, Sequence[float], bool]], *, top: float, label: tuple[str, str]
) -> Markup:
    """Draw lines over steps: each with its colour, its values, and whether it is dashed."""
    height, left, right, bottom = 220, 52, 10, 30
    ticks = nice_ticks(top)
    steps = max((len(values) for _, values, _ in series), default=1)
    parts = []
    for tick in ticks:
        y = height - bottom - (height - 14 - bottom) * tick / ticks[-1]
        parts.append(_line(left, y, WIDTH - right, y))
        parts.append(_text(left - 8, y + 4, _figure(tick), kind="tick", anchor="end"))
    for tick in nice_ticks(max(steps - 1, 1), whole=True):
        if tick <= max(steps - 1, 1):
            x = left + (WIDTH - left - right) * tick / max(steps - 1, 1)
            parts.append(_text(x, height - 12, _figure(tick), kind="tick", anchor="middle"))
    for colour, values, dashed in series:
        points = " ".join(
            f"{left + (WIDTH - left - right) * n / max(steps - 1, 1):.1f},"
            f"{height - bottom - (height - 14 - bottom) * max(value, 0.0) / ticks[-1]:.1f}"
            for n, value in enumerate(values)
        )
        dash = Markup(' stroke-dasharray="7 5"') if dashed else ""
        parts.append(
            Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2.5"{}/>').format(
                points, colour, dash
            )
        )
    return _svg(height, label[0], parts, label[1])


def nice_ticks(most: float, *, whole: bool = False) -> list[float]:
    """Return four to six round numbers from 0 to at least ``most``.

    >>> nice_ticks(7), nice_ticks(0.93), nice_ticks(1234)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 500.0, 1000.0, 1500.0])
    """
    rough = max(most, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, 1.0) if whole else step
    count = math.ceil(most / step - 1e-9)
    return [round(step * number, 10) for number in range(count + 1)]


_SIZES = ((1e9, " bn"), (1e6, " m"), (1e3, " k"))
_CHINESE_SIZES = ((1e8, " 亿"), (1e4, " 万"))


def _figure(value: float) -> Markup | str:
    return drawn(figure(value), figure(value, _CHINESE_SIZES))


def figure(value: float, sizes: Sequence[tuple[float, str]] = _SIZES) -> str:
    """Return a number for an axis.

    >>> figure(1500000), figure(2000), figure(0.25), figure(12), figure(1500000, _CHINESE_SIZES)
    ('1.5 m', '2 k', '0.25', '12', '150 万')
    """
    for size, name in sizes:
        if abs(value) >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _text(  # noqa: PLR0913 - a place and how it looks
    x: float, y: float, words: str, *, kind: str = "", anchor: str = "start", more: Markup | str = ""
) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}"{}>{}</text>').format(
        x, y, anchor, kind, more, words if isinstance(words, Markup) else drawn(words)
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        x1, y1, x2, y2
    )


def _circle(  # noqa: PLR0913, PLR0917 - a place and how it looks
    x: float, y: float, radius: float, colour: str, opacity: float, said: str
) -> Markup:
    return Markup(
        '<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" opacity="{}"><title>{}</title></circle>'
    ).format(x, y, radius, colour, opacity, said)


def _svg(height: float, title: str, parts: Sequence[Markup], shown: str = "") -> Markup:
    inside = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" data-zh="{}">{}</svg>').format(
        WIDTH, height, title, shown or chinese(title) or title, inside
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
