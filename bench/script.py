"""Running scripts: `python -m bench.script`. The baseline is the same command without a sandbox.

Network by host is compared with the whole network in the same sandbox, against a server on loopback.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.measure import best, in_process, print_table
from vademecum import Context, IndexOptions, Root, build_index
from vademecum.policy.approval import Consent
from vademecum.sandbox.available import Unconfined, probe
from vademecum.sandbox.base import ByProxy, Jail, Mount, Network, Sandbox, own_python
from vademecum.sandbox.process import Streams, run_command
from vademecum.session.base import Place
from vademecum.session.session import Session
from vademecum.tools.calls import RunScript
from vademecum.tools.proxy import Proxy

REPEAT, FEWER = 30, 7
OUTPUT_MB = 100
SHOWN_DIRECTORIES, SHOWN_FILES = 100, 100
LOADED_MB, CONNECTIONS = 500, 200
EXAMPLES = Path(__file__).parent.parent / "examples" / "skills"
PAGE = "A page of words, and a [link](../0/1.md) to another.\n" * 20
# Prints megabytes a second for one large answer, and milliseconds for a connection with a small one.
LOADS = """
import socket, sys, time
port, size, count, by_proxy = map(int, sys.argv[1:])
def connect():
    sock = socket.create_connection(("127.0.0.1", 3128 if by_proxy else port))
    if by_proxy:
        sock.sendall(b"CONNECT bench.test:%d HTTP/1.1\\r\\n\\r\\n" % port)
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    return sock
buffer = bytearray(1 << 20)
def load(size):
    with connect() as sock:
        sock.sendall(b"%d\\n" % size)
        while size:
            size -= sock.recv_into(buffer)
load(1)
started = time.perf_counter()
load(size)
rate = size / 1e6 / (time.perf_counter() - started)
started = time.perf_counter()
for _ in range(count):
    load(1)
print(rate, (time.perf_counter() - started) / count * 1000)
"""

READS = """
import os, sys
count = 0
for place, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(f"{place}/{name}") as file:
            count += len(file.read().split())
print(count)
"""

# In a process of its own, so that its peak of memory is this work's alone.
OUTPUT = """
import json, resource, sys, time
from dataclasses import replace
from pathlib import Path
from vademecum import Context, IndexOptions, Root, build_index
from vademecum.config import Config, ExecutionSettings
from vademecum.masking import Secrets
from vademecum.policy.approval import Consent
from vademecum.policy.engine import AllowAll
from vademecum.sandbox.available import choose_sandbox
from vademecum.session.base import Place
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


def in_place(place: Path) -> list[list[str]]:
    """Start with a large directory shown in place, without and with a hidden file in it."""
    shown = place / "shown"
    for d in range(SHOWN_DIRECTORIES):
        (shown / f"{d}").mkdir(parents=True)
        for f in range(SHOWN_FILES):
            (shown / f"{d}/{f}").touch()
    (shown / ".env").touch()
    streams = Streams(place / "out", place / "err")
    rows = []
    for sandbox in sandboxes()[:-1]:
        bare = Jail(place / "work", {}, readable=(), writable=(place / "work",))
        mounted = (Mount(shown, place / "work" / "shown"),)
        jails = (
            bare,
            replace(bare, mounted=mounted),
            replace(bare, mounted=mounted, hidden=(shown / ".env",)),
        )
        taken = [
            best(partial(run_command, sandbox, ["/bin/true"], jail, streams=streams), REPEAT) * 1000
            for jail in jails
        ]
        ratios = [f"{one:.1f} (x {one / taken[0]:.2f})" for one in taken]
        rows.append([sandbox.name, *ratios, "x 1.3"])
    return rows


def whole_call(place: Path) -> list[list[str]]:
    """Scripts that read all files of a directory: by themselves, and as a call with its rules."""
    project, reader = place / "project", place / "root" / "reader"
    for d in range(SHOWN_DIRECTORIES):
        (project / f"docs/{d}").mkdir(parents=True)
        for f in range(SHOWN_FILES):
            (project / f"docs/{d}/{f}.md").write_text(PAGE)
    (reader / "scripts").mkdir(parents=True)
    (reader / "SKILL.md").write_text("---\nname: reader\ndescription: Count words.\n---\n")
    (reader / "scripts/count.py").write_text(READS)
    roots = [Root(place / "root", "extra"), Root(EXAMPLES, "extra")]
    context, index = Context(project, place / "home", {}), build_index(roots, IndexOptions())
    rows = []
    for skill, script in (("link-check", "check.py"), ("reader", "count.py")):
        words = [*own_python().words, str(Path(index.get(skill).location, "scripts", script)), "docs"]
        bare = partial(subprocess.run, words, cwd=project, stdout=subprocess.DEVNULL, check=True)
        alone = best(bare, FEWER)
        rows.append([f"{script}, by itself", f"{alone * 1000:.0f}", "", ""])
        for sandbox in sandboxes()[:-1]:
            session = Session(
                index,
                place=Place.at(context),
                approver=Consent(),
                sandbox=partial(_given, sandbox),
                runs=place / "runs",
            )
            session.activate(skill)
            seen = session.call(RunScript(skill, script, ["docs"]))
            assert seen.facts["exit_code"] == 0, seen.text
            taken = best(partial(session.call, RunScript(skill, script, ["docs"])), FEWER)
            row = [f"{script}, {sandbox.name}", f"{taken * 1000:.0f}", f"{taken / alone:.2f}"]
            rows.append([*row, "1.3" if skill == "link-check" else ""])
    return rows


def _given(sandbox: Sandbox, _: str) -> Sandbox:
    return sandbox


def by_host(place: Path) -> list[list[str]]:
    """Start, throughput and latency with the whole network, and through the proxy."""
    streams = Streams(place / "out", place / "err")
    python = own_python()
    rows = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        for sandbox in sandboxes()[:-1]:
            for name in ("all", "by proxy"):
                with Proxy(permit=lambda *_: None, resolve=lambda *_: ["127.0.0.1"]) as proxy:
                    network: Network = "all" if name == "all" else ByProxy(proxy.serve)
                    jail = Jail(place / "work", {}, python.readable, (place / "work",), network=network)
                    start = best(partial(run_command, sandbox, ["/bin/true"], jail, streams=streams), REPEAT)
                    told = (server.getsockname()[1], LOADED_MB * 1_000_000, CONNECTIONS, int(name != "all"))
                    words = [*python.words, "-c", LOADS, *map(str, told)]
                    assert run_command(sandbox, words, jail, streams=streams).exit_code == 0, (
                        streams.err.read_text()
                    )
                rate, latency = map(float, streams.out.read_text().split())
                rows.append(
                    [f"{sandbox.name}, {name}", f"{start * 1000:.1f}", f"{rate:,.0f}", f"{latency:.2f}"]
                )
    return rows


def _serve(server: socket.socket) -> None:
    piece = bytes(1 << 20)

    def answer(client: socket.socket) -> None:
        with client:
            left = int(client.recv(100) or b"0")
            while left:
                left -= client.send(piece[:left])

    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(client,), daemon=True).start()


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
        print_table(
            f"`true` with {SHOWN_DIRECTORIES * SHOWN_FILES:,} files shown in place, ms",
            ["", "nothing shown", "shown", "with a hidden file", "at most"],
            in_place(place),
        )
        print_table(
            f"Scripts over {SHOWN_DIRECTORIES * SHOWN_FILES:,} files: check their links, only read them",
            ["", "ms", "x by itself", "at most"],
            whole_call(place),
        )
        print_table(
            "Network by host, against a server on loopback",
            ["", "`true`, ms", "MB/s", "ms for a connection"],
            by_host(place),
        )


if __name__ == "__main__":
    main()
