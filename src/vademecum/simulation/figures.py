"""Write two runs of a simulation as one page: the effect of the charter, a table, and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from vademecum.pages import charts
from vademecum.pages.render import both, render, said
from vademecum.simulation.setting import Chart, Simulated

# Up to this many lines, both runs are drawn in one plot.
MAX_TOGETHER = 2
MAX_NAMED = 3


def report_of(title: str, about: str, runs: Mapping[str, Simulated]) -> str:
    """Return the page; the same runs give the same bytes."""
    names = list(runs)
    groups = zip(*(run.charts for run in runs.values()), strict=True)
    words = {key: value for run in runs.values() for key, value in run.chinese.items()}

    def named(text: str) -> Markup | str:
        return both(text, words[text]) if text in words else said(text)

    return render(
        "simulation",
        named=named,
        title=title,
        about=about,
        lead=what_changed(list(runs.values()), words),
        names=names,
        rows=rows_of(runs),
        sections=[_section(names, group, words) for group in groups],
    )


def rows_of(runs: Mapping[str, Simulated]) -> list[tuple[str, list[str]]]:
    """Return the name of each figure, and its value in each run."""
    keys = dict.fromkeys(key for run in runs.values() for key in run.figures)
    return [(key, [figure(run.figures.get(key)) for run in runs.values()]) for key in keys]


def what_changed(runs: Sequence[Simulated], words: Mapping[str, str]) -> tuple[str, str]:
    """Return a sentence in English and Chinese about the figures that differ between both runs."""
    enforced, without = runs[0].figures, runs[-1].figures
    keys = dict.fromkeys((*enforced, *without))
    differing = [
        (key, without.get(key), enforced.get(key)) for key in keys if enforced.get(key) != without.get(key)
    ]
    if not differing:
        return ("The charter changed none of the figures.", "章程没有改变任何数据。")
    differing.sort(key=lambda each: -_size(each[1], each[2]))
    told = [(key, f"{figure(old)} → {figure(new)}") for key, old, new in differing[:MAX_NAMED]]
    english = "; ".join(f"{key} {values}" for key, values in told)
    chinese = "；".join(f"{words.get(key, key)} {values}" for key, values in told)
    of = f"{len(differing)} of {len(keys)} figures"
    return (
        f"The charter changed {of} (without → with): {english}.",
        f"章程改变了 {len(keys)} 项数据中的 {len(differing)} 项（无章程 → 有章程）：{chinese}。",
    )


def _size(old: object, new: object) -> float:
    """Return the size of a difference, as a share of the larger value."""
    if isinstance(old, int | float) and isinstance(new, int | float):
        return abs(new - old) / (max(abs(old), abs(new)) or 1)
    return 0.0


def figure(value: object) -> str:
    """Return a figure for people.

    >>> figure(1234567), figure(0.25), figure("12 m"), figure(None)
    ('1,234,567', '0.25', '12 m', '–')
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case None:
            return "–"
    return str(value)


def _section(names: Sequence[str], group: Sequence[Chart], words: Mapping[str, str]) -> dict[str, Any]:
    """Return the plots of one chart: both runs in one if they have few lines, else side by side."""
    drawn_names = dict.fromkeys(key for chart in group for key, line in chart.lines.items() if any(line))
    kept = [{key: line for key, line in chart.lines.items() if key in drawn_names} for chart in group]
    colours = {name: charts.COLOURS[n % len(charts.COLOURS)] for n, name in enumerate(drawn_names)}
    top = max((value for one in kept for line in one.values() for value in line), default=0) or 1
    title = group[0].title
    label = (f"{title} by step", f"{words.get(title, title)}（按步）")
    together = len(colours) <= MAX_TOGETHER
    drawn = [
        [(colours[key], line, together and number > 0) for key, line in one.items()]
        for number, one in enumerate(kept)
    ]
    if together:
        plots = {"": [line for lines in drawn for line in lines]}
        legend = [
            (colours[key], [key, name] if len(colours) > 1 else [name], number > 0)
            for number, (name, one) in enumerate(zip(names, kept, strict=True))
            for key in one
        ]
    else:
        plots = dict(zip(names, drawn, strict=True))
        legend = [(colour, [name], False) for name, colour in colours.items()]
    pictures = [(name, charts.lines(lines, top=top, label=label)) for name, lines in plots.items()]
    return {"title": title, "unit": group[0].unit, "legend": legend, "plots": pictures}
