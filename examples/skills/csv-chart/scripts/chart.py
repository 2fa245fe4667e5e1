# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib>=3.8"]
# ///
"""Draw the columns of a CSV file as a chart."""

import argparse
import csv
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-o", "--output", default="chart.png")
    parser.add_argument("--kind", choices=["bar", "line"], default="bar")
    parser.add_argument("--x")
    parser.add_argument("--y", action="append")
    options = parser.parse_args()
    with open(options.data, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        sys.exit(f"{options.data} has no rows.")
    x = options.x or next(iter(rows[0]))
    columns = options.y or [
        name for name in rows[0] if name != x and any(number(row[name] or "") for row in rows)
    ]
    if x not in rows[0] or not columns or any(name not in rows[0] for name in columns):
        sys.exit(f"Choose columns of numbers among {', '.join(rows[0])}.")
    labels = [row[x] for row in rows]
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    width = 0.8 / len(columns)
    for place, name in enumerate(columns):
        values = [number(row[name] or "") or 0 for row in rows]
        if options.kind == "bar":
            axes.bar([n + place * width for n in range(len(rows))], values, width, label=name)
        else:
            axes.plot(range(len(rows)), values, marker="o", label=name)
    axes.set_xticks(range(len(rows)), labels, rotation=30, ha="right")
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.output, dpi=120)
    print(f"drew {', '.join(columns)} of {len(rows)} rows by {x}")


main()
