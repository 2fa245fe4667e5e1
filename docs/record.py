"""The first minutes with vade: real commands in a new home, on a real terminal → ``first-minutes.svg``.

``make recording`` writes it anew. What differs between machines (paths, times, ids) is always the same here.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from docs.moving_terminal import COLUMNS, ROWS, Step, picture

OUT = Path(__file__).with_name("first-minutes.svg")
SKILL = "---\nname: notes\ndescription: Use when: taking notes in a meeting\n---\nWrite down who said what.\n"
COMMANDS = [
    "vade validate",
    "sed -i 's/Use.*/\"&\"/' .agent/skills/notes/SKILL.md && vade validate",
    'vade new pdf-forms --description "Fill in a PDF form. 填写 PDF 表格。"',
    "vade list",
    'vade search "complete the tax form" -n 1',
    "vade search 填写申请表格 -n 1",
    'vade run "Compare monday.txt with tuesday.txt" --yes',
]
_SAME_EVERYWHERE = [
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{7}\b"), "20260314-092653-5897932"),
    (re.compile(r"\bafter \d+\.\d\d s\b"), "after 0.05 s"),
    (re.compile(r", \d+\.\d s "), ", 0.2 s "),
]


def main() -> None:
    """Record the session and write the picture, to the file that is named or else beside this one."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    with tempfile.TemporaryDirectory(prefix="vade-recording-") as place:
        steps = record(Path(place))
    out.write_text(picture(steps, title="~/project"), "utf-8")


def record(home: Path) -> list[Step]:
    """Run the commands one after the other in a project of that home."""
    project = home / "project"
    (project / ".git").mkdir(parents=True)
    notes = project / ".agent/skills/notes/SKILL.md"
    notes.parent.mkdir(parents=True)
    notes.write_text(SKILL)
    (project / "monday.txt").write_text("apples 3\npears 5\n")
    (project / "tuesday.txt").write_text("apples 4\npears 5\n")
    return [Step(command, same_everywhere(_run(command, project, home), home)) for command in COMMANDS]


def same_everywhere(text: str, home: Path) -> str:
    """A terminal's text without what is only true of this machine and this moment."""
    text = text.replace(str(home), "~")
    for pattern, replacement in _SAME_EVERYWHERE:
        text = pattern.sub(replacement, text)
    return text


def _run(command: str, project: Path, home: Path) -> str:
    """What a command sends to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    with subprocess.Popen(
        ["/bin/bash", "-c", command], cwd=project, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


if __name__ == "__main__":
    main()
