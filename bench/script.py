"""Running scripts: `python -m bench.script`. The baseline is the same command without a sandbox."""

from __future__ import annotations

import subprocess
import tempfile
from functools import partial
from pathlib import Path

from bench.measure import best, in_process, print_table
from vademecum.sandbox.base import Jail, Sandbox
from vademecum.sandbox.choose import probe
from vademecum.sandbox.process import Streams, run_command
from vademecum.sandbox.supervised import Unconfined

REPEAT = 30
OUTPUT_MB = 100

# In a process of its own, so that its peak of memory is this work's alone.
OUTPUT = """
import json, resource, sys, time
from dataclasses import replace
from pathlib import Path
from vademecum import Context, IndexOptions, Root, build_index
from vademecum.config import Config, ExecutionSettings
from vademecum.masking import Secrets
from vademecum.policy.approval import Consent
from vademecum.policy.base import AllowAll
from vademecum.sandbox.choose import choose_sandbox
from vademecum.session.place import Place
from vademecum.session.session import Session
from vademecum.tools.calls import RunScript
from vademecum.tools.workspace import Workspace

place, sandbox = Path(sys.argv[1]), sys.argv[2]
index = build_index([Root(place / "root", "extra")], IndexOptions())
config = replace(Config(), execution=ExecutionSettings(memory_mb=64))
here = Place(Context(place, place / "home", {}), config, place, Workspace(place), Secrets({}))
def run(n, script):
    session = Session(
        index, place=here, policy=AllowAll(), approver=Consent(), runs=place / f"{sandbox}{n}",
        sandbox=lambda _: choose_sandbox(sandbox),
    )
    session.activate("loud")
    seen = session.call(RunScript("loud", script))
    assert seen.ok and seen.facts["exit_code"] == 0, seen.text
    return seen
run(0, "quiet.sh")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for n in range(1, 4):
    started = time.perf_counter()
    seen = run(n, "loud.sh")
    times.append(time.perf_counter() - started)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
json.dump({"seconds": min(times), "kb": grown, "bytes": seen.facts["stdout_bytes"]}, sys.stdout)
"""


def sandboxes() -> list[Sandbox]:
    found = [probe(name) for name in ("bubblewrap", "landlock")]
    for one in found:
        if one.sandbox is None:
            print(f"not measured: {one.problem}")
    return [*(one.sandbox for one in found if one.sandbox is not None), Unconfined()]


def start(place: Path) -> list[list[str]]:
    streams = Streams(place / "out", place / "err")
    jail = Jail(place / "work", {}, readable=(), writable=(place / "work",))

    def bare() -> None:
        with open(streams.out, "wb") as out, open(streams.err, "wb") as err:
            subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=True)

    floor = best(bare, REPEAT) * 1000
    rows = [["bare subprocess", f"{floor:.1f}", "", ""]]
    for sandbox in sandboxes():
        run = partial(run_command, sandbox, ["/bin/true"], jail, streams=streams)
        taken = best(run, REPEAT) * 1000
        rows.append([sandbox.name, f"{taken:.1f}", f"+{taken - floor:.1f}", "15"])
    return rows


def output(place: Path) -> list[list[str]]:
    scripts = place / "root" / "loud" / "scripts"
    scripts.mkdir(parents=True)
    (scripts.parent / "SKILL.md").write_text("---\nname: loud\ndescription: Prints a lot.\n---\n")
    (scripts / "loud.sh").write_text(f"exec head -c {OUTPUT_MB}000000 /dev/zero\n")
    (scripts / "quiet.sh").write_text("exit 0\n")

    def bare() -> None:
        with open(place / "bare", "wb") as out:
            subprocess.run(["sh", str(scripts / "loud.sh")], stdout=out, check=True)

    floor = best(bare, 3)
    rows = [["bare subprocess", f"{OUTPUT_MB / floor:,.0f}", "1.00", "", ""]]
    for sandbox in sandboxes():
        found = in_process(OUTPUT, str(place), sandbox.name)
        rate = found["bytes"] / 1e6 / found["seconds"]
        rows.append(
            [
                sandbox.name,
                f"{rate:,.0f}",
                f"{found['seconds'] / floor:.2f}",
                "200",
                f"{found['kb'] / 1024:.1f}",
            ]
        )
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as directory:
        place = Path(directory)
        (place / "work").mkdir()
        print_table("`true`, from start to end", ["", "ms", "more", "at most"], start(place))
        print_table(
            f"A script that prints {OUTPUT_MB} MB: kept, hashed, on the record",
            ["", "MB/s", "x time", "at least", "MB of memory (at most 20)"],
            output(place),
        )


if __name__ == "__main__":
    main()
