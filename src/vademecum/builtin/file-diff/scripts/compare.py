#!/usr/bin/env python3
"""Compare two files one to one: a text report, and an exit code.

    compare.py OLD NEW [--context N] [--ignore-space] [--ignore-case]

Exit code 0: the same. 1: different. 2: a file could not be read.
"""

import argparse
import difflib
import hashlib
import sys
from pathlib import Path

# With more lines a full diff takes minutes; the lines are then compared one to one.
MAX_DIFF_LINES = 20_000
MAX_BYTES = 200 * 1024 * 1024
MAX_SHOWN = 200


def main() -> int:
    options = parse_arguments()
    try:
        old, new = read(options.old), read(options.new)
    except OSError as error:
        print(f"compare: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    if old == new:
        print(f"The files are the same ({len(old):,} bytes, sha256 {digest(old)}).")
        return 0
    try:
        old_lines, new_lines = old.decode("utf-8").splitlines(), new.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return report_bytes(old, new)
    return report_text(old_lines, new_lines, options)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare two files one to one.")
    parser.add_argument("old", help="the file to compare with")
    parser.add_argument("new", help="the file that may have changed")
    parser.add_argument(
        "--context", type=int, default=3, metavar="N", help="unchanged lines to show around a change"
    )
    parser.add_argument("--ignore-space", action="store_true", help="treat runs of white space as one space")
    parser.add_argument("--ignore-case", action="store_true", help="treat upper and lower case as the same")
    return parser.parse_args()


def read(name: str) -> bytes:
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"{name}: not a file" if path.exists() else f"{name}: no such file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{name}: larger than {MAX_BYTES:,} bytes")
    return path.read_bytes()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def report_bytes(old: bytes, new: bytes) -> int:
    common = min(len(old), len(new))
    first = next((i for i in range(common) if old[i] != new[i]), common)
    differing = sum(a != b for a, b in zip(old, new, strict=False)) + abs(len(old) - len(new))
    print("The files differ (compared as bytes).")
    print(f"- sizes: {len(old):,} and {len(new):,} bytes")
    print(f"- sha256: {digest(old)} and {digest(new)}")
    print(f"- first difference at byte {first + 1:,}; {differing:,} bytes differ in all")
    return 1


def report_text(old: list[str], new: list[str], options: argparse.Namespace) -> int:
    old_keys = [comparable(line, options) for line in old]
    new_keys = [comparable(line, options) for line in new]
    if old_keys == new_keys:
        print("The files are the same, apart from ignored differences or line endings.")
        return 0
    if max(len(old), len(new)) > MAX_DIFF_LINES:
        return report_line_by_line(old, new, old_keys, new_keys)
    matcher = difflib.SequenceMatcher(None, old_keys, new_keys, autojunk=False)
    operations = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed = sum(code[2] - code[1] for code in operations)
    added = sum(code[4] - code[3] for code in operations)
    print(f"The files differ: {lines(removed)} removed, {lines(added)} added, {matcher.ratio():.1%} alike.")
    print(f"--- {options.old}\n+++ {options.new}")
    for group in matcher.get_grouped_opcodes(max(0, options.context)):
        print_group(group, old, new)
    return 1


def lines(count: int) -> str:
    return f"{count:,} line" if count == 1 else f"{count:,} lines"


def comparable(line: str, options: argparse.Namespace) -> str:
    if options.ignore_space:
        line = " ".join(line.split())
    return line.casefold() if options.ignore_case else line


def print_group(group: list, old: list[str], new: list[str]) -> None:
    print(f"@@ lines {group[0][1] + 1}-{group[-1][2]} -> lines {group[0][3] + 1}-{group[-1][4]} @@")
    for kind, i1, i2, j1, j2 in group:
        if kind == "equal":
            for line in old[i1:i2]:
                print(f" {line}")
            continue
        for line in old[i1:i2]:
            print(f"-{line}")
        for line in new[j1:j2]:
            print(f"+{line}")


def report_line_by_line(old: list[str], new: list[str], old_keys: list[str], new_keys: list[str]) -> int:
    pairs = zip(old_keys, new_keys, strict=False)
    differing = [number for number, (a, b) in enumerate(pairs) if a != b]
    rest = abs(len(old) - len(new))
    print(f"The files differ: {lines(len(differing))} changed in place, {lines(rest)} in one file only.")
    print(f"(over {MAX_DIFF_LINES:,} lines: compared line by line, moved lines are not matched)")
    for number in differing[:MAX_SHOWN]:
        print(f"{number + 1}:\n-{old[number]}\n+{new[number]}")
    if len(differing) > MAX_SHOWN:
        print(f"... and {len(differing) - MAX_SHOWN:,} more")
    return 1


if __name__ == "__main__":
    sys.exit(main())
