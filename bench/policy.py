"""Deciding: `python -m bench.policy`. The baseline tries every rule in turn."""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.measure import best, print_table
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


def main() -> None:
    asked = requests()
    rows = []
    for count in (10, 100, 1000):
        written = rules(count)

        def naive(request: Request, written: list[Rule] = written) -> Rule:
            return [rule for rule in written if matches(rule.pattern, request.resources[0])][-1]

        plain = rate(naive, asked[: 200_000 // count // 10])
        ours = rate(Policy(written).decide, asked)
        least = "300,000" if count == 100 else ""
        rows.append([f"{count:,} rules", f"{plain:,.0f}", f"{ours:,.0f}", f"{ours / plain:,.0f}", least])
    print_table(
        "Decisions a second, each for another resource",
        ["", "plain loop", "vademecum", "x", "at least"],
        rows,
    )


if __name__ == "__main__":
    main()
