"""Skills → one skill a name: the decision, and its reasons."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct

from vademecum.registry.report import Conflict, Overridden
from vademecum.registry.roots import Root
from vademecum.registry.scan import Signature
from vademecum.skill.skill import Skill

# A skill with what decides between namesakes: its root and the signature of its file. A plain tuple,
# because nearly all of them are decided without being looked at.
Candidate = tuple[Skill, Root, Signature]


class Resolution(Struct, frozen=True):
    """The skills that keep their names, those that lose them, and the conflicts."""

    winners: tuple[Skill, ...]
    shadowed: tuple[Skill, ...]
    conflicts: tuple[Conflict, ...]


def resolve(candidates: Iterable[Candidate]) -> Resolution:
    """Decide each name: the higher root, then the later change, then the directory that bears the name.

    The order is total, so the same candidates always give the same answer, in whatever order they come.
    A link in another tool's root to a skill that is a candidate itself claims nothing: it is that skill.
    """
    first: dict[str, Candidate] = {}
    rivals: dict[str, list[Candidate]] = {}
    links: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        name = candidate[0].name
        if first.setdefault(name, candidate) is not candidate:
            rivals.setdefault(name, [first[name]]).append(candidate)
    for name, claims in rivals.items():
        claims.sort(key=_precedence)
        links[name] = _links_among(claims)
        if links[name]:
            apart = set(map(id, links[name]))
            claims[:] = [claim for claim in claims if id(claim) not in apart]
        first[name] = claims[0]
    contested = sorted(rivals)
    return Resolution(
        winners=tuple(first[name][0] for name in sorted(first)),
        shadowed=tuple(skill for name in contested for skill, *_ in rivals[name][1:]),
        conflicts=tuple(_conflict(rivals[name], links[name]) for name in contested),
    )


def _links_among(claims: list[Candidate]) -> list[Candidate]:
    """Return the claims that are links from another tool's root to the directory of another claim."""
    by_file: dict[Signature, list[Candidate]] = {}
    for claim in claims:
        by_file.setdefault(claim[2], []).append(claim)
    found = []
    for same in by_file.values():
        if len(same) == 1:
            continue
        best = min(same, key=_directness)
        real = os.path.realpath(best[0].location)
        found += [
            claim
            for claim in same
            if _directness(claim) > _directness(best) and os.path.realpath(claim[0].location) == real
        ]
    return found


def _directness(claim: Candidate) -> int:
    """Zero for a native root, one for a directory in another tool's root, two for a link there."""
    skill, root, _ = claim
    return 0 if root.kind == "native" else 1 + os.path.islink(skill.location)


def _precedence(candidate: Candidate) -> tuple[int, int, bool, str, str]:
    skill, root, (modified, *_) = candidate
    misnamed = skill.directory.rpartition("/")[2] != skill.name
    return (-root.priority, -modified, misnamed, skill.directory, skill.root)


def _conflict(claims: list[Candidate], links: list[Candidate]) -> Conflict:
    winner = claims[0][0]
    overridden = [_overridden(claim[0], _reason(claims[0], claim)) for claim in claims[1:]]
    overridden += [_overridden(skill, "same-file") for skill, *_ in links]
    return Conflict(winner.name, winner.source, winner.location, tuple(overridden))


def _overridden(skill: Skill, reason: str) -> Overridden:
    return Overridden(skill.source, skill.location, skill.meta.version, reason)


def _reason(winner: Candidate, loser: Candidate) -> str:
    _, root, signature = winner
    _, other_root, other = loser
    if signature == other:
        return "same-file"
    if root == other_root:
        return "older" if signature[0] > other[0] else "same-age"
    if root.source == other_root.source and root.kind == "native" != other_root.kind:
        return "compatible-root"
    return "lower-root"
