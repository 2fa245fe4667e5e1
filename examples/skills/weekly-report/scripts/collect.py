#!/usr/bin/env python3
"""Print the open and the done items of all notes in a directory: `collect.py DIRECTORY`."""

import re
import sys
from pathlib import Path

ITEM = re.compile(r"\s*[-*] \[([ xX])\] (.+)")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: collect.py DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    notes = sorted(directory.glob("*.md"))
    if not notes:
        print(f"collect: no notes (*.md) in {directory}", file=sys.stderr)
        return 2
    for note in notes:
        for line in note.read_text("utf-8").splitlines():
            if item := ITEM.match(line):
                state = "open" if item[1] == " " else "done"
                print(f"{state}\t{note.stem}\t{item[2].strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
