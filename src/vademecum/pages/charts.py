"""Draw numbers as SVG: rates with their intervals, a heat map, dots, lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from vademecum.pages.render import chinese, drawn

# About the width of a card on a phone, or of two on a desktop, so that texts keep their size.
WIDTH = 420
CHAR_WIDTH = 7.2
MAX_NAMES = 24
COLOURS = ("var(--blue)", "var(--warn)", "var(--ok)", "var(--asked)", "var(--bad)", "var(--soft)")


def rates(bars: Sequence[tuple[str, float | None, float, float]]) -> Markup:
    """Draw one line for each name with its rate and the ends of its interval, all as shares of 1."""
    step, top, left = 56, 8, 8.0
    height, wide = step * len(bars) + 34, WIDTH - 2 * left
    parts = []
    for share in (0, 25, 50, 75, 100):
        x = left + wide * share / 100
        anchor = "start" if share == 0 else "end" if share == 100 else "middle"
        parts += [_grid(x, top, x, height - 24), _text(x, height - 6, f"{share} %", "tick", anchor=anchor)]
    for number, (name, rate, low, high) in enumerate(bars):
        y = top + step * number + 36
        colour = COLOURS[number % len(COLOURS)]
        value = "–" if rate is None else f"{rate:.1%}"
        ends = {"x1": left + wide * low, "y1": y, "x2": left + wide * high, "y2": y}
        look = {"stroke": colour, "stroke-width": "12", "stroke-linecap": "round", "opacity": ".35"}
        parts += [
            _text(left, y - 16, _short(name, 44)),
            _text(left + wide, y - 16, value, "value", anchor="end"),
            _tag("line", {**ends, **look}),
        ]
        if rate is not None:
            parts.append(_circle(left + wide * rate, y, 7, fill=colour))
    return _svg(height, "Pass rate with 95 % intervals", parts)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Mapping[tuple[str, str], int],
    right: set[tuple[str, str]],
) -> Markup:
    """Draw wanted skills as rows, taken ones as columns; a stronger colour is a larger share of its row."""
    label = 136
    width = (WIDTH - label) / max(1, len(columns))
    room = int(width / CHAR_WIDTH)
    is_turned = any(len(name) > room for name in columns)
    top, height = (96, min(34.0, width)) if is_turned else (24, 34.0)
    parts = []
    for x, name in enumerate(columns):
        place = label + width * (x + 0.5)
        turned = {"transform": f"rotate(45 {place:.1f} {top - 8})"} if is_turned else {}
        anchor = "end" if is_turned else "middle"
        parts.append(_text(place, top - 8, _short(name, 16), "tick", anchor=anchor, **turned))
    for y, row in enumerate(rows):
        middle = top + height * (y + 0.5) + 4
        parts.append(_text(label - 8, middle, _short(row, 17), "tick", anchor="end"))
        total = sum(counts.get((row, column), 0) for column in columns) or 1
        for x, column in enumerate(columns):
            count = counts.get((row, column), 0)
            colour = "var(--soft)" if not count else "var(--ok)" if (row, column) in right else "var(--bad)"
            opacity = 0.12 + 0.38 * count / total if count else 0.05
            left = label + width * x
            box = {"x": left, "y": top + height * y, "width": width - 2, "height": height - 2, "rx": 3}
            parts.append(_tag("rect", {**box, "fill": colour, "opacity": f"{opacity:.2f}"}))
            if count and len(str(count)) <= room:
                parts.append(_text(left + width / 2 - 1, middle, str(count), anchor="middle"))
    return _svg(round(top + height * len(rows) + 4), "Which skill took whose request", parts)


def dots(points: Sequence[tuple[float, float, int, str]], *, unit: str) -> Markup:
    """Draw points: a cost, a share, the number of the series, and a label.

    Several points at one place become one larger dot with their number.
    """
    ticks = nice_ticks(max([*(cost for cost, *_ in points), 1.0]))
    height, right = 220, WIDTH - 20
    shares = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    place, parts = _axes(ticks, ticks[-1], shares, (48, 30, right, height - 46))
    labels: dict[tuple[float, float, int], list[str]] = {}
    for cost, share, series, label in points:
        labels.setdefault((cost, share, series), []).append(label)
    for (cost, share, series), said in labels.items():
        x, y = place(cost, share)
        radius = min(6 + 2.2 * math.sqrt(len(said) - 1), 18)
        look = {"fill": COLOURS[series % len(COLOURS)], "opacity": "0.55"}
        parts.append(_circle(x, y, radius, "; ".join(said[:10]), **look))
        if len(said) > 1:
            parts.append(_text(x, y - radius - 3, str(len(said)), "tick", anchor="middle"))
    parts.append(_text(right, height - 5, unit, "tick", anchor="end"))
    return _svg(height, "Cost against success", parts)


def lines(
    series: Sequence[tuple[str, Sequence[float], bool]], *, top: float, label: tuple[str, str]
) -> Markup:
    """Draw lines over steps: each with its colour, its values, and whether it is dashed."""
    height = 220
    last = max([1, *(len(values) - 1 for _, values, _ in series)])
    steps = [tick for tick in nice_ticks(last, whole=True) if tick <= last]
    values_at = [(tick, _figure(tick)) for tick in nice_ticks(top)]
    place, parts = _axes(steps, last, values_at, (52, 14, WIDTH - 10, height - 30))
    for colour, values, dashed in series:
        places = (place(step, max(value, 0.0)) for step, value in enumerate(values))
        look = {"fill": "none", "stroke": colour, "stroke-width": "2.5"}
        dash = {"stroke-dasharray": "7 5"} if dashed else {}
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(_tag("polyline", {"points": points, **look, **dash}))
    return _svg(height, label[0], parts, label[1])


def _axes(
    xs: Sequence[float], most: float, ys: Sequence[tuple[float, Markup | str]], box: tuple[int, int, int, int]
) -> tuple[Callable[[float, float], tuple[float, float]], list[Markup]]:
    """Draw both axes in a box of left, top, right and bottom; return the function that places points.

    ``most`` is the value at the right end of the horizontal axis, and the last of ``ys`` the one at the top.
    """
    left, top, right, bottom = box

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * x / most, bottom - (bottom - top) * y / ys[-1][0]

    parts = []
    for value, label in ys:
        _, y = place(0, value)
        parts += [_grid(left, y, right, y), _text(left - 8, y + 4, label, "tick", anchor="end")]
    for x in xs:
        parts.append(_text(place(x, 0)[0], bottom + 20, _figure(x), "tick", anchor="middle"))
    return place, parts


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


def _tag(name: str, attributes: Mapping[str, str | float], inside: Markup | str = "") -> Markup:
    """Return an element with its attributes and content escaped."""
    written = (
        Markup(' {}="{}"').format(key, f"{value:.1f}" if isinstance(value, float) else value)
        for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(name, Markup("").join(written), inside, name)


def _text(
    x: float, y: float, words: Markup | str, kind: str = "", *, anchor: str = "start", **more: str
) -> Markup:
    shown = words if isinstance(words, Markup) else drawn(words)
    return _tag("text", {"x": x, "y": y, "text-anchor": anchor, "class": kind, **more}, shown)


def _grid(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _tag("line", {"class": "grid", "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _circle(x: float, y: float, radius: float, said: str = "", **look: str | float) -> Markup:
    return _tag("circle", {"cx": x, "cy": y, "r": radius, **look}, _tag("title", {}, said))


def _svg(height: float, title: str, parts: Sequence[Markup], shown: str = "") -> Markup:
    named = {"role": "img", "aria-label": title, "data-zh": shown or chinese(title) or title}
    return _tag("svg", {"viewBox": f"0 0 {WIDTH} {height}", **named}, Markup("").join(parts))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
