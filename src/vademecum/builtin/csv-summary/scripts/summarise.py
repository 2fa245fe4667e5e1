#!/usr/bin/env python3
"""Summarise a CSV file as Markdown: type, range and missing values of every column.

    summarise.py FILE [--separator C] [--encoding E] [--no-header]

Exit code 0: done. 2: the file could not be read. The file is read row by row, so its size does not matter.
"""

import argparse
import csv
import sys
import unicodedata
from collections import Counter
from datetime import date, datetime
from pathlib import Path

SAMPLE_BYTES = 64 * 1024
SEPARATORS = ",;\t|"
# At most this many different values are counted; a column with more has no typical value.
MAX_DISTINCT = 10_000
MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "无", "空"}
TRUTH = {"true", "false", "yes", "no", "是", "否"}


class Column:
    """Collect the statistics of one column, row by row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.filled = 0
        self.missing = 0
        self.types: Counter[str] = Counter()
        self.values: Counter[str] = Counter()
        self.least: dict[str, object] = {}
        self.most: dict[str, object] = {}
        self.total = 0.0

    def add(self, text: str) -> None:
        text = text.strip()
        if text.lower() in MISSING:
            self.missing += 1
            return
        self.filled += 1
        kind, value = typed(text)
        self.types[kind] += 1
        if kind in {"integer", "number"}:
            self.total += float(value)
        family = "number" if kind == "integer" else kind
        if family not in self.least or value < self.least[family]:
            self.least[family] = value
        if family not in self.most or value > self.most[family]:
            self.most[family] = value
        if len(self.values) < MAX_DISTINCT or text in self.values:
            self.values[text] += 1

    @property
    def kind(self) -> str:
        kinds = set(self.types)
        if not kinds:
            return "empty"
        if kinds == {"integer", "number"}:
            return "number"
        if len(kinds) == 1:
            return next(iter(kinds))
        main, count = self.types.most_common(1)[0]
        return f"mixed ({main} {count / self.filled:.0%})"

    def row(self) -> list[str]:
        family = "number" if self.kind == "integer" else self.kind
        rows = self.filled + self.missing
        share = f"{self.missing} ({self.missing / rows:.0%})" if rows and self.missing else "0"
        distinct = f"{len(self.values)}" + ("+" if len(self.values) >= MAX_DISTINCT else "")
        common, times = self.values.most_common(1)[0] if self.values else ("", 0)
        mean = f"{self.total / self.filled:.6g}" if family == "number" else ""
        least = shown(self.least.get(family)) if family in self.least else ""
        most = shown(self.most.get(family)) if family in self.most else ""
        typical = f"{clipped(common)} ({times}×)" if times > 1 else ""
        return [clipped(self.name), self.kind, least, most, mean, share, distinct, typical]


def typed(text: str) -> tuple[str, object]:
    """Return the narrowest type that a cell can be read as, and its value."""
    try:
        value = float(text.replace(",", "") if grouped(text) else text)
    except ValueError:
        pass
    else:
        if value == value and abs(value) != float("inf"):
            return (
                "integer" if value.is_integer() and "." not in text and "e" not in text.lower() else "number"
            ), value
    if text.lower() in TRUTH:
        return "boolean", text.lower()
    for parse, kind in ((date.fromisoformat, "date"), (datetime.fromisoformat, "time")):
        try:
            return kind, parse(text).isoformat()
        except ValueError:
            continue
    return "text", text


def grouped(text: str) -> bool:
    """Return whether commas in a number only group its digits, as in 1,234,567.8."""
    head, *groups = text.lstrip("+-").split(".")[0].split(",")
    return (
        bool(groups)
        and 1 <= len(head) <= 3
        and all(len(g) == 3 and g.isdigit() for g in [*groups])
        and head.isdigit()
    )


def shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else clipped(str(value))


def clipped(text: str, width: int = 24) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def main() -> int:
    options = parse_arguments()
    path = Path(options.file)
    try:
        if not path.is_file():
            raise ValueError("not a file" if path.exists() else "no such file")
        with path.open("rb") as raw:
            sample = raw.read(SAMPLE_BYTES)
        encoding = options.encoding or find_encoding(sample)
        separator = options.separator or find_separator(sample.decode(encoding, "ignore"))
        with path.open(encoding=encoding, newline="") as text:
            report(path, csv.reader(text, delimiter=separator), header=not options.no_header)
    except (OSError, ValueError, LookupError, TypeError, csv.Error) as error:
        print(f"summarise: {options.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 2
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Summarise a CSV file as a Markdown table.")
    parser.add_argument("file")
    parser.add_argument("--separator", metavar="C", help="one character (default: detected)")
    parser.add_argument("--encoding", metavar="E", help="such as utf-8 or gb18030 (default: detected)")
    parser.add_argument("--no-header", action="store_true", help="the first line is data")
    return parser.parse_args()


def find_encoding(sample: bytes) -> str:
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in sample:
        raise ValueError("not a text file")
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            # The sample may end inside a character.
            sample[: sample.rfind(b"\n") + 1 or None].decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def find_separator(sample: str) -> str:
    first = sample.split("\n", 1)[0]
    return max(SEPARATORS, key=lambda separator: (first.count(separator), -SEPARATORS.index(separator)))


def report(path: Path, rows, *, header: bool) -> None:
    first = next(rows, None)
    if first is None:
        raise ValueError("the file is empty")
    names = [name.strip() or f"column {n}" for n, name in enumerate(first, 1)]
    columns = [Column(name if header else f"column {n}") for n, name in enumerate(names, 1)]
    count = uneven = 0
    for cells in rows if header else (row for part in ([first], rows) for row in part):
        if not cells:
            continue
        count += 1
        uneven += len(cells) != len(columns)
        for column, cell in zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=False):
            column.add(cell)
    size = f"{count:,} row{'s' * (count != 1)}, {len(columns)} column{'s' * (len(columns) != 1)}"
    print(f"**{path.name}**: {size}\n")
    titles = ["column", "type", "least", "most", "mean", "missing", "different", "most frequent"]
    print_table([titles, *(column.row() for column in columns)])
    if uneven:
        print(f"\n{uneven:,} rows do not have {len(columns)} cells.")


def print_table(rows: list[list[str]]) -> None:
    widths = [max(map(display_width, cells)) for cells in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = (cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True))
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            print(f"|{'|'.join('-' * (width + 2) for width in widths)}|")


def display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


if __name__ == "__main__":
    sys.exit(main())
