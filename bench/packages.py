"""Scripts with packages: `python -m bench.packages`. The baseline is the same script without packages.

`--registry` also installs about thirty packages from the user's own package index, which takes a while.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.tools.package_index import package_index

from bench.measure import best, print_table
from vademecum.context import Context
from vademecum.errors import ToolRefused
from vademecum.sandbox.available import choose_sandbox
from vademecum.sandbox.base import Jail, Sandbox, own_python
from vademecum.sandbox.process import Streams, run_command
from vademecum.tools.packages.environments import Environments

REPEAT = 20
AT_MOST_MS = 50
MANY = (
    "numpy matplotlib pandas scipy requests rich jinja2 pyyaml httpx pydantic beautifulsoup4 openpyxl"
    " python-docx tabulate networkx"
)


def run(sandbox: Sandbox, place: Path, words: list[str], readable: tuple[Path, ...]) -> None:
    jail = Jail(place / "work", {}, readable=(place / "script.py", *readable), writable=(place / "work",))
    streams = Streams(place / "out", place / "err")
    ended = run_command(sandbox, [*words, str(place / "script.py")], jail, streams=streams)
    assert ended.exit_code == 0, streams.err.read_text()


def with_packages(sandbox: Sandbox, place: Path, environments: Environments, wanted: tuple[str, ...]) -> None:
    """Everything that a second run does: find the environment and start its interpreter."""
    found = environments.get(wanted)
    run(sandbox, place, [str(found.python), "-B", "-s"], found.readable)


def measured(place: Path, context: Context, *wanted: str) -> list[str]:
    sandbox = choose_sandbox("auto")
    environments, requirements = Environments(context), tuple(sorted(wanted))
    built = best(partial(environments.get, requirements), 1)
    number = sum("==" in line for line in environments.get(requirements).lock.splitlines())
    own = own_python()
    floor = best(partial(run, sandbox, place, list(own.words), own.readable), REPEAT) * 1000
    found = best(partial(environments.find, requirements), REPEAT) * 1000
    taken = best(partial(with_packages, sandbox, place, environments, requirements), REPEAT) * 1000
    cells = (f"{built:.2f}", f"{found:.2f}", f"{floor:.1f}", f"{taken:.1f}", f"{taken - floor:+.1f}")
    return [f"{number} packages", *cells, str(AT_MOST_MS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--registry", action="store_true", help="Also install packages from the user's index."
    )
    registry = parser.parse_args().registry
    rows = []
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as directory, package_index() as index:
        place = Path(directory)
        (place / "work").mkdir()
        (place / "script.py").write_text("print(1)\n")
        env = {**os.environ, "VADE_CACHE_DIR": str(place / "cache")}
        context = Context(cwd=place, home=Path.home(), env=env)
        for name in ("one", "two", "three"):
            index.add(name)
        local = {**env, "UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(place / "uv")}
        rows.append(measured(place, replace(context, env=local), "one", "two", "three"))
        if registry:
            try:
                rows.append(measured(place, context, *MANY.split()))
            except ToolRefused as error:
                print(f"not measured: {error}")
    columns = ["", "s to build", "ms to find", "ms without", "ms with", "more", "at most"]
    print_table("A script with packages, from start to end, the second time", columns, rows)


if __name__ == "__main__":
    main()
