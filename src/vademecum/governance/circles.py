"""What depends on what → the circles among it, in time linear in the number of references."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

Needs = Mapping[str, Sequence[str]]


def circles(needs: Needs) -> Iterator[list[str]]:
    """One circle for each group of names that all lead to each other, from the first of them on.

    >>> list(circles({"a": ["x", "b"], "b": ["x", "a"], "x": []}))
    [['a', 'b']]
    """
    for group in _groups(needs):
        if len(group) > 1:
            yield _circle(group[-1], group, needs)


def _circle(start: str, group: list[str], needs: Needs) -> list[str]:
    """The shortest way from a name back to itself."""
    inside, came = set(group), {start: ""}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for other in needs[here]:
            if other == start:
                way = [here]
                while came[way[-1]]:
                    way.append(came[way[-1]])
                return way[::-1]
            if other in inside and other not in came:
                came[other] = here
                waiting.append(other)
    raise AssertionError  # every name of a group leads back


def _groups(needs: Needs) -> Iterator[list[str]]:
    """Names that lead to each other, by Tarjan's algorithm, without recursion."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: dict[str, None] = {}
    for root in needs:
        if root in number:
            continue
        waiting = [(root, iter(needs[root]))]
        number[root] = lowest[root] = len(number)
        open_[root] = None
        while waiting:
            here, others = waiting[-1]
            for other in others:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    open_[other] = None
                    waiting.append((other, iter(needs[other])))
                    break
                if other in open_:
                    lowest[here] = min(lowest[here], number[other])
            else:
                waiting.pop()
                if waiting:
                    above = waiting[-1][0]
                    lowest[above] = min(lowest[above], lowest[here])
                if lowest[here] == number[here]:
                    group = []
                    while (name := open_.popitem()[0]) != here:
                        group.append(name)
                    yield [*group, here]
