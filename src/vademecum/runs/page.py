"""A run → one page that needs nothing else: its timeline, its plan, its decisions, its outputs folded."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

from vademecum.errors import FileRefused
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.runs.reading import PastRun
from vademecum.runs.timeline import Entry, timeline

MAX_SHOWN_BYTES = 200_000
MAX_PAGE_BYTES = 8_000_000

_SIGNS = {
    "start": "▶",
    "model": "·",
    "action": "→",
    "ok": "✓",
    "refused": "✗",
    "failed": "!",
    "asked": "?",
    "plan": "≡",
    "end": "■",
    "note": "·",
}


def page_of(run: PastRun) -> str:
    """The page."""
    started, ended = run.first("run_started"), run.first("run_finished")
    stats = ended.data.get("stats") if ended else None
    stats = stats if isinstance(stats, dict) else {}
    facts = {
        "model": started.data.get("model", "") if started else "",
        "agent": started.data.get("agent", "") if started else "",
        "turns": stats.get("turns", ""),
        "tool calls": stats.get("tool_calls", ""),
        "tokens": sum(n for n in map(stats.get, ("input_tokens", "output_tokens")) if isinstance(n, int))
        or "",
        "seconds": f"{run.seconds:.1f}",
        "run": run.run_id,
    }
    shown = "".join(_fact(key, value) for key, value in facts.items() if value)
    answer = f'<section class="answer"><pre>{escape(run.answer)}</pre></section>' if run.answer else ""
    badge = f'<span class="badge {escape(run.status)}">{escape(run.status)}</span>'
    left = [MAX_PAGE_BYTES]
    rows = "\n".join(_row(entry, run, left) for entry in timeline(run))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run.request[:80])}</title>\n<style>{_style()}</style></head>\n<body>\n"
        f"<h1>{escape(run.request)}</h1>\n"
        f'<div class="facts">{badge}{shown}</div>\n'
        f"{answer}\n<ol>\n{rows}\n</ol>\n</body></html>\n"
    )


def _fact(key: str, value: object) -> str:
    return f"<span>{escape(key)} <b>{escape(str(value))}</b></span>"


@cache
def _style() -> str:
    return (Path(__file__).parent / "page.css").read_text("utf-8")


def _row(entry: Entry, run: PastRun, left: list[int]) -> str:
    when = f'<span class="when">{entry.seconds:.2f} s</span>'
    title = escape(entry.title)
    detail = entry.detail if entry.mark != "end" else ""
    kept = _kept(entry, run, left)
    body = "".join(f"<pre>{escape(text)}</pre>" for text in (detail, kept) if text)
    opened = " open" if entry.mark in {"refused", "failed"} else ""
    inside = (
        f"<details{opened}><summary>{when}{title}</summary>{body}</details>"
        if body
        else f'<div class="plain">{when}{title}</div>'
    )
    return f'<li class="{entry.mark}"><span class="sign">{_SIGNS[entry.mark]}</span>{inside}</li>'


def _kept(entry: Entry, run: PastRun, left: list[int]) -> str:
    """The whole text that was kept for an entry, as far as the page has room."""
    if not entry.kept or left[0] <= 0:
        return ""
    try:
        data = read_capped(contained(Path(run.place), entry.kept), cap=MAX_SHOWN_BYTES)
    except (OSError, FileRefused):
        return ""
    left[0] -= len(data)
    return data.decode("utf-8", "replace")
