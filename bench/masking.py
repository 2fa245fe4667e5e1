"""Removing secrets from what leaves: `python -m bench.masking`. The baseline is one alternation in `re`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

from bench.measure import best, print_table
from vademecum.masking import MASK, Forms, Secrets

CHUNK = 64 * 1024
LINE = "2026-01-02 03:04:05 INFO request 8a7f3c from 10.0.0.7 took 12.5 ms, status 200, 1,024 bytes sent\n"


def secret_values(count: int) -> list[str]:
    draw = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/-_"
    return ["".join(draw.choices(letters, k=40)) for _ in range(count)]


def streamed(secrets: Secrets, data: bytes) -> None:
    stream = secrets.stream()
    for start in range(0, len(data), CHUNK):
        stream.feed(data[start : start + CHUNK])
    stream.feed(b"", last=True)


def speed(run: Callable[[], object], size: int) -> float:
    return size / best(run, 3) / 1e6


def throughput() -> None:
    rows = []
    for count, lines in ((1, 200_000), (10, 200_000), (50, 200_000)):
        values = secret_values(count)
        secrets = Secrets({})
        secrets.add(values)
        pieces = sorted(Forms(values).pieces, key=len, reverse=True)
        data = (LINE * lines).encode()
        few = data[: max(len(data) // (20 * count), 200_000)]
        plain = re.compile(b"|".join(map(re.escape, pieces)))
        baseline = speed(partial(plain.sub, MASK.encode(), few), len(few))
        whole = speed(partial(secrets.mask_bytes, data), len(data))
        chunks = speed(partial(streamed, secrets, data), len(data))
        line = f"{values[0]}\n".encode()
        dense = (LINE.encode() + line) * (lines // 20)
        hits = speed(partial(streamed, secrets, dense), len(dense))
        found = [f"{each:.0f}" for each in (whole, chunks, hits)]
        rows.append([f"{count}", f"{len(pieces)}", f"{baseline:.1f}", *found, f"{whole / baseline:.1f}"])
    columns = ["secrets", "forms", "re", "whole", "in chunks", "a secret each 140 bytes", "x re"]
    print_table("Masking, MB/s", columns, rows)


def awkward() -> None:
    rows = []
    repetitive, several = Secrets({}), Secrets({})
    repetitive.add(["a" * 8])
    several.add(["ab" * 30, "ba" * 30, "aab" * 9])
    for name, secrets, data in (
        ("nothing to mask", Secrets({}), b"x" * 10_000_000),
        ("a value of one letter, repeated", repetitive, b"a" * 10_000_000),
        ("the same, a letter on each line", repetitive, b"a\n" * 5_000_000),
        ("values that overlap", several, b"ab" * 5_000_000),
    ):
        seconds = best(partial(streamed, secrets, data), 1)
        rows.append([name, f"{len(data) / 1e6:.0f}", f"{seconds:.2f}"])
    print_table("Masking, awkward texts", ["", "MB", "seconds"], rows)


if __name__ == "__main__":
    throughput()
    awkward()
