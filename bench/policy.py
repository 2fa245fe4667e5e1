"""Deciding: `python -m bench.policy [--peers PYTHON]`. The baseline tries every rule in turn."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable

from bench.measure import best, in_process, print_table
from bench.trees import WORDS
from vademecum.policy.base import Effect, Request, Rule
from vademecum.policy.engine import Policy
from vademecum.wildcards import matches

ROUNDS = 20_000


def rules(count: int) -> list[Rule]:
    """Rules as people write them: mostly names and beginnings, some with stars inside."""
    chance = random.Random(1)
    written = []
    for number in range(1, count + 1):
        name = f"{chance.choice(WORDS)}-{chance.choice(WORDS)}"
        pattern = chance.choices(
            [name, f"{name}-*", f"{name[:5]}*", f"*-{name}", f"{name[:3]}*{name[-3:]}"], [4, 3, 2, 1, 1]
        )[0]
        written.append(Rule("skill", pattern, chance.choice(list(Effect)), "bench", number))
    return [Rule("skill", "*", Effect.ALLOW, "bench", 0), *written]


def requests() -> list[Request]:
    chance = random.Random(2)
    names = [f"{chance.choice(WORDS)}-{chance.choice(WORDS)}-{n}" for n in range(ROUNDS)]
    return [Request("skill", (name,)) for name in names]


def rate(run: Callable[[Request], object], asked: list[Request]) -> float:
    def all_of_them() -> None:
        for request in asked:
            run(request)

    return len(asked) / best(all_of_them, 5)


# The same rules as its policy, the same wildcards by its own matcher: for scale, not for a race.
CASBIN = """
import json, sys, tempfile, time
import casbin
rules, names = json.load(open(sys.argv[1]))
place = tempfile.mkdtemp()
open(place + "/model.conf", "w").write(
    "[request_definition]\\nr = obj\\n[policy_definition]\\np = obj, eft\\n"
    "[policy_effect]\\ne = some(where (p.eft == allow)) && !some(where (p.eft == deny))\\n"
    "[matchers]\\nm = globMatch(r.obj, p.obj)\\n"
)
open(place + "/policy.csv", "w").write("".join(f"p, {pattern}, {effect}\\n" for pattern, effect in rules))
enforcer = casbin.Enforcer(place + "/model.conf", place + "/policy.csv")
enforcer.enforce(names[0])
started = time.perf_counter()
for name in names:
    enforcer.enforce(name)
json.dump(len(names) / (time.perf_counter() - started), sys.stdout)
"""


def casbin_rate(written: list[Rule], asked: list[Request], python: str) -> float:
    known = [(rule.pattern, "deny" if rule.effect is Effect.DENY else "allow") for rule in written]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([known, [request.resources[0] for request in asked]], file)
        file.flush()
        found: float = in_process(CASBIN, file.name, python=python)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pycasbin")
    peers = parser.parse_args().peers
    asked = requests()
    rows = []
    for count in (10, 100, 1000):
        written = rules(count)

        def naive(request: Request, written: list[Rule] = written) -> Rule:
            return [rule for rule in written if matches(rule.pattern, request.resources[0])][-1]

        plain = rate(naive, asked[: 200_000 // count // 10])
        ours = rate(Policy(written).decide, asked)
        least = "300,000" if count == 100 else ""
        row = [f"{count:,} rules", f"{plain:,.0f}", f"{ours:,.0f}", f"{ours / plain:,.0f}", least]
        if peers:
            row.append(f"{casbin_rate(written, asked[: 20_000 // count], peers):,.0f}")
        rows.append(row)
    print_table(
        "Decisions a second, each for another resource",
        ["", "plain loop", "vademecum", "x", "at least", *(["pycasbin"] if peers else [])],
        rows,
    )


if __name__ == "__main__":
    main()
