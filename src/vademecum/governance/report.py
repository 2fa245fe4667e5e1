"""Two runs of a simulation → one page that needs nothing else: a table, and plots side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from vademecum.governance.simulation import Chart, Simulated

WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8d6a9f", "#d4a373", "#555555", "#b5838d", "#2a9d8f")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #ffffff; --line: #d0d0d0; --soft: #6b6b6b }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181a; --line: #3a3d40; --soft: #a0a0a0 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem } p { color: var(--soft); margin-top: .25rem }
table { border-collapse: collapse } td, th { padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right }
td:first-child, th:first-child { text-align: left } th { font-weight: 600 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { color: var(--soft); font-size: .9rem } svg { width: 100%; height: auto }
text { fill: var(--soft); font-size: 11px } .grid { stroke: var(--line); stroke-width: 1 }
.legend span { display: inline-block; margin-right: 1rem; font-size: .9rem } .legend i { display: inline-block; width: .9rem; height: .25rem; margin-right: .35rem; vertical-align: middle }
"""


def report_of(title: str, about: str, runs: Mapping[str, Simulated]) -> str:
    """The page; the same runs give the same bytes."""
    names = list(runs)
    charts = zip(*(run.charts for run in runs.values()), strict=True)
    sections = "\n".join(_section(names, group) for group in charts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n"
        f"{_table(names, list(runs.values()))}\n{sections}\n"
        "</body></html>\n"
    )


def _table(names: Sequence[str], runs: Sequence[Simulated]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *names))
    keys = dict.fromkeys(key for run in runs for key in run.figures)
    rows = "".join(
        f"<tr><td>{escape(key)}</td>{''.join(f'<td>{figure(run.figures.get(key))}</td>' for run in runs)}</tr>\n"
        for key in keys
    )
    return f"<table>\n<tr>{head}</tr>\n{rows}</table>"


def figure(value: object) -> str:
    """A figure as people read it.

    >>> figure(1234567), figure(0.25), figure("12 m"), figure(None)
    ('1,234,567', '0.25', '12 m', '')
    """
    match value:
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case None:
            return ""
    return escape(str(value))


def _section(names: Sequence[str], charts: Sequence[Chart]) -> str:
    """One plot for each run, on the same scale."""
    top = max((value for chart in charts for line in chart.lines.values() for value in line), default=0) or 1
    colours = dict.fromkeys(name for chart in charts for name in chart.lines)
    palette = {name: _COLOURS[n % len(_COLOURS)] for n, name in enumerate(colours)}
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in palette.items()
    )
    figures = "".join(
        f"<figure>{_svg(chart, top, palette)}<figcaption>{escape(name)}</figcaption></figure>\n"
        for name, chart in zip(names, charts, strict=True)
    )
    title = f"{escape(charts[0].title)} <small>({escape(charts[0].unit)})</small>"
    return f'<h2>{title}</h2>\n<div class="legend">{legend}</div>\n<div class="pair">\n{figures}</div>'


def _svg(chart: Chart, top: float, palette: Mapping[str, str]) -> str:
    steps = max((len(line) for line in chart.lines.values()), default=0)
    grid = "".join(_grid_line(top * n / 4, top) for n in range(5))
    ticks = "".join(_tick(step, steps) for step in sorted({0, steps // 2, max(steps - 1, 0)}))
    lines = "".join(_polyline(line, steps, top, palette[name]) for name, line in chart.lines.items())
    label = f"{chart.title} by step"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{grid}{ticks}{lines}</svg>'


def _grid_line(value: float, top: float) -> str:
    y = _y(value, top)
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
    )


def _tick(step: int, steps: int) -> str:
    return f'<text x="{_x(step, steps):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{step}</text>'


def _polyline(line: Sequence[float], steps: int, top: float, colour: str) -> str:
    points = " ".join(f"{_x(step, steps):.1f},{_y(value, top):.1f}" for step, value in enumerate(line))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _x(step: int, steps: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * step / max(steps - 1, 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _short(value: float) -> str:
    for size, name in ((1e9, " bn"), (1e6, " m"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"
