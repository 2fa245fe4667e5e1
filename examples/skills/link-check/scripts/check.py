"""Check the relative links of all Markdown files below some directories."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")


def broken_links(file):
    """Yield the line and the target of each broken link, and ``None`` for each that is fine."""
    fenced = False
    for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        for target in [] if fenced else LINK.findall(line):
            path = unquote(target.partition("#")[0])
            elsewhere = "://" in target or target.startswith(("#", "mailto:")) or not path
            if elsewhere or (file.parent / path).exists():
                yield None
            else:
                yield number, target


def main():
    if len(sys.argv) < 2:
        sys.exit("Name a directory, such as docs.")
    files = sorted(file for word in sys.argv[1:] for file in Path(word).rglob("*.md"))
    if not files:
        sys.exit(f"There is no Markdown file below {', '.join(sys.argv[1:])}.")
    links = broken = 0
    for file in files:
        for found in broken_links(file):
            links += 1
            if found:
                broken += 1
                print(f"{file}:{found[0]}: {found[1]} does not exist")
    print(f"{len(files)} files, {links} links, {broken} broken")
    sys.exit(1 if broken else 0)


main()
