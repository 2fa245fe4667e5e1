"""F1: many resources decided at once are decided as one by one."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vademecum.policy.base import Effect, Request, Rule
from vademecum.policy.engine import DEFAULTS, USER, Policy, Rules

PIECES = st.sampled_from(["a", "b", "/", ".env", "*", "?", "é", "e\u0301"])
PATTERNS = st.lists(PIECES, min_size=1, max_size=5).map("".join)
RESOURCES = st.lists(PATTERNS, min_size=1, max_size=6)
EFFECTS = st.sampled_from(list(Effect))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(PATTERNS, EFFECTS), max_size=5), RESOURCES, st.booleans())
def test_nothing_restricted_is_missed(
    written: list[tuple[str, Effect]], resources: list[str], allowed: bool
) -> None:
    defaults = [Rule("read", "*", Effect.ALLOW if allowed else Effect.ASK, DEFAULTS, 1)]
    rules = [Rule("read", pattern, effect, USER, n) for n, (pattern, effect) in enumerate(written, 1)]
    policy = Policy(defaults, user=Rules(rules))
    found = [policy.decide(Request("read", (each,))).effect for each in resources]
    if not policy.could_restrict("read", "default", "\n".join(resources)):
        assert set(found) == {Effect.ALLOW}
