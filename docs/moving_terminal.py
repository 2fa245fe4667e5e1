"""A session at a terminal → one SVG that plays it: typed letter by letter, shown, scrolled, and again.

No script and nothing from elsewhere, so that it plays wherever an image is shown. Times come from the text
alone: the same session gives the same bytes. Where nothing moves, the last screen is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style

COLUMNS, ROWS = 100, 27
CELL, LINE, FONT = 8.4, 20.0, 14.0
MARGIN, BAR = 22.0, 42.0

TYPING, BEFORE_TYPING, BEFORE_ANSWER = 0.036, 0.5, 0.3
READING, READING_A_LINE, AT_THE_END = 0.7, 0.1, 3.0

# In the order of a terminal's numbers for them.
_PALETTE = {
    "black": "#414868",
    "red": "#f7768e",
    "green": "#9ece6a",
    "yellow": "#e0af68",
    "blue": "#7aa2f7",
    "magenta": "#bb9af7",
    "cyan": "#7dcfff",
    "white": "#c0caf5",
}
_GROUND, _INK, _DIM, _EDGE = "#1a1b26", "#c0caf5", "#7f86ad", "#2f334d"
_FONTS = (
    "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',"
    "'PingFang SC','Microsoft YaHei','Noto Sans Mono CJK SC','Noto Sans CJK SC',monospace"
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what a terminal was sent for it."""

    command: str
    output: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters of one style and one width, at a column."""

    column: int
    text: str
    style: str

    @property
    def cells(self) -> int:
        """How many columns it takes."""
        return cell_len(self.text)


@dataclass(frozen=True, slots=True)
class Row:
    """One line on the screen, from when on it is there, and when each typed letter is."""

    pieces: tuple[Piece, ...]
    since: float
    typed: tuple[tuple[float, int], ...] = ()
    until: float = 0.0


def picture(steps: list[Step], *, title: str) -> str:
    """The session as an SVG."""
    rows, scrolls, end = _laid_out(steps)
    width, height = 2 * MARGIN + COLUMNS * CELL, BAR + ROWS * LINE + MARGIN
    styles = [_STYLE, *_moves(rows, scrolls, end)]
    body = [_drawn(number, row) for number, row in enumerate(rows)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" xml:space="preserve">',
            f"<title>{escape(title)}</title>",
            f"<style>{''.join(styles)}</style>",
            f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="10" class="w"/>',
            *(
                f'<circle cx="{24 + 20 * n}" cy="21" r="6" fill="{_PALETTE[colour]}"/>'
                for n, colour in _LIGHTS
            ),
            f'<text x="{width / 2:g}" y="26" text-anchor="middle" class="d">{escape(title)}</text>',
            # A picture in the picture, so that nothing is drawn outside of the screen.
            f'<svg x="{MARGIN:g}" y="{BAR:g}" width="{COLUMNS * CELL:g}" height="{ROWS * LINE:g}">',
            '<g class="s">',
            *body,
            "</g>",
            "</svg>",
            "</svg>",
            "",
        ]
    )


_LIGHTS = ((0, "red"), (1, "yellow"), (2, "green"))
_STYLE = (
    f"text{{font:{FONT:g}px {_FONTS};fill:{_INK}}}"
    f".w{{fill:{_GROUND};stroke:{_EDGE}}}.g{{fill:{_GROUND}}}.k{{fill:{_INK}}}"
    f"text.d{{fill:{_DIM}}}text.b{{font-weight:700}}text.z{{font-size:{FONT * 1.1:g}px}}"
    + "".join(f"text.{name}{{fill:{colour}}}" for name, colour in _PALETTE.items())
    + ".m{opacity:0}.k{animation:k 1.1s infinite step-end}@keyframes k{50%{opacity:0}}"
    "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"
)


def _laid_out(steps: list[Step]) -> tuple[list[Row], list[tuple[float, int]], float]:
    """All rows with their times, when the screen scrolls by how many rows in all, and when it is over."""
    rows: list[Row] = []
    scrolls: list[tuple[float, int]] = []
    now = 0.0
    prompt = Piece(0, "$", "green b")

    def add(row: Row) -> None:
        rows.append(row)
        if len(rows) > ROWS:
            scrolls.append((row.since, len(rows) - ROWS))

    for number, step in enumerate(steps):
        if number:
            add(Row((), now))
        since, now = now, now + BEFORE_TYPING
        typed: list[tuple[float, int]] = []
        column = 2
        for letter in step.command:
            now += TYPING
            column += cell_len(letter)
            typed.append((now, column))
        answered = now + BEFORE_ANSWER
        add(Row((prompt, *_pieces(step.command, "b", 2)), since, ((since, 2), *typed), answered))
        shown = list(_screen_lines(step.output))
        for pieces in shown:
            add(Row(tuple(pieces), answered))
        now = answered + READING + READING_A_LINE * len(shown)
    end = now + AT_THE_END
    add(Row((), now))
    add(Row((prompt,), now, ((now, 2),), end))
    return rows, scrolls, end


def _screen_lines(output: str) -> Iterator[list[Piece]]:
    """What was sent to a terminal as the lines that are seen at the end, wrapped at its width."""
    console = Console(color_system="standard", force_terminal=True)
    decoder = AnsiDecoder()
    for line in output.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        seen = line.rpartition("\r\x1b[K")[2]
        column, row = 0, list[Piece]()
        for segment in decoder.decode_line(seen).render(console, end=""):
            for letter in segment.text:
                if column + cell_len(letter) > COLUMNS:
                    yield _joined(row)
                    column, row = 0, []
                row.append(Piece(column, letter, _classes(segment.style)))
                column += cell_len(letter)
        yield _joined(row)


def _classes(style: Style | None) -> str:
    if style is None:
        return ""
    number = style.color.number if style.color else None
    colour = "" if number is None else [*_PALETTE][number % len(_PALETTE)]
    names = [colour, "d" if style.dim else "", "b" if style.bold else ""]
    return " ".join(filter(None, names))


def _pieces(text: str, style: str, column: int) -> list[Piece]:
    letters = []
    for letter in text:
        letters.append(Piece(column, letter, style))
        column += cell_len(letter)
    return _joined(letters)


def _joined(letters: list[Piece]) -> list[Piece]:
    """Letters that are drawn as one: of one style and width, all of them in the font itself, or none."""
    joined = []
    for (style, _, _), group in groupby(letters, key=lambda p: (p.style, p.text.isascii(), p.cells)):
        run = list(group)
        text = "".join(piece.text for piece in run)
        if text.strip():
            skipped = len(text) - len(text.lstrip(" "))
            joined.append(Piece(run[skipped].column, text.strip(" "), style))
    return joined


def _drawn(number: int, row: Row) -> str:
    """A row: its texts, in their columns whatever the font, and a lid that slides off while it is typed."""
    y = number * LINE
    texts = "".join(_text(piece, y) for piece in row.pieces)
    lid = ""
    if row.typed:
        lid = (
            f'<g class="m m{number}">'
            f'<rect y="{y:g}" width="{COLUMNS * CELL:g}" height="{LINE:g}" class="g"/>'
            f'<rect y="{y + 2:g}" width="{CELL:g}" height="{LINE - 3:g}" class="k"/></g>'
        )
    return f'<g class="r{_stamp(row.since)}">{texts}</g>{lid}'


def _text(piece: Piece, y: float) -> str:
    """A piece in its columns, whatever the font: stretched, or letter by letter where that bends them."""
    width = CELL * piece.cells / len(piece.text)
    classes = " ".join(filter(None, [piece.style, "z" if width > CELL else ""]))
    place = f'x="{piece.column * CELL:g}" textLength="{piece.cells * CELL:g}" lengthAdjust="spacingAndGlyphs"'
    if not piece.text.isascii():
        starts = (f"{piece.column * CELL + number * width:g}" for number in range(len(piece.text)))
        place = f'x="{" ".join(starts)}"'
    style = f' class="{classes}"' if classes else ""
    return f'<text {place} y="{y + 15:g}"{style}>{escape(piece.text, quote=False)}</text>'


def _stamp(moment: float) -> int:
    return round(moment * 1000)


def _moves(rows: list[Row], scrolls: list[tuple[float, int]], end: float) -> Iterator[str]:
    """The style sheet that moves everything; each rule is for the whole length, in steps."""

    def at(moment: float) -> str:
        return f"{100 * moment / end:.3f}%"

    def played(name: str) -> str:
        return f".{name}{{animation:{name} {end:.2f}s infinite step-end}}"

    for since in sorted({row.since for row in rows if row.since}):
        name = f"r{_stamp(since)}"
        yield f"{played(name)}@keyframes {name}{{0%{{opacity:0}}{at(since)}{{opacity:1}}}}"
    for number, row in enumerate(rows):
        if row.typed:
            steps = "".join(
                f"{at(moment)}{{opacity:1;transform:translateX({column * CELL:g}px)}}"
                for moment, column in row.typed
            )
            before = "0%{opacity:0}" if row.since else ""
            yield f"{played(f'm{number}')}@keyframes m{number}{{{before}{steps}{at(row.until)}{{opacity:0}}}}"
    last = dict(scrolls)
    final = max(last.values(), default=0)
    steps = "".join(
        f"{at(moment)}{{transform:translateY({-rows_ * LINE:g}px)}}" for moment, rows_ in last.items()
    )
    yield f".s{{transform:translateY({-final * LINE:g}px);animation:s {end:.2f}s infinite step-end}}"
    yield f"@keyframes s{{0%{{transform:none}}{steps}}}"
