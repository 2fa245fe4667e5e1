"""Starts an evaluation again and again and kills it each time a little later: `python -m tests.evals.killing`."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from vademecum import build_index
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.pool import Processes
from vademecum.evals.suite import read_suite
from vademecum.evals.units import Configuration, EvalSettings
from vademecum.registry.roots import BUILTIN_ROOT


def evaluate(suite: Path, out: Path) -> None:
    workshop = EvalSettings(build_index([BUILTIN_ROOT]), out, None, {"PATH": os.environ["PATH"]})
    Evaluator(Processes(2), workshop).evaluate(read_suite(suite), [Configuration("default")])


def count(out: Path) -> int:
    lines = out / "results.jsonl"
    return lines.read_bytes().count(b"\n") if lines.exists() else 0


def main() -> None:
    suite, out, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(8)
    for kill in range(kills):
        target = count(out) + chance.randint(1, 4)
        child = os.fork()
        if child == 0:
            evaluate(suite, out)
            os._exit(0)
        while count(out) < target:
            time.sleep(chance.random() / 500)
            if os.waitpid(child, os.WNOHANG)[0]:
                sys.exit(f"it was over before kill {kill}")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    evaluate(suite, out)


if __name__ == "__main__":
    main()
