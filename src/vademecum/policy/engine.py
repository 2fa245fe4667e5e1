"""The permission engine: layers of rules → one decision, with the rule that made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vademecum.config import LoadedConfig, PermissionRule, load_config
from vademecum.context import Context
from vademecum.policy.base import Decision, Effect, Request, Rule
from vademecum.policy.table import RuleTable
from vademecum.wildcards import covers, matches

# What holds where nobody wrote a rule: looking is allowed, doing is asked for.
_DEFAULTS = (
    ("skill", "*", Effect.ALLOW),
    ("resource", "*", Effect.ALLOW),
    ("script", "*", Effect.ASK),
    ("tool", "*", Effect.ASK),
    ("tool", "read_file", Effect.ALLOW),
    ("tool", "list_dir", Effect.ALLOW),
    ("tool", "grep", Effect.ALLOW),
    ("network", "*", Effect.ASK),
)
DEFAULTS = "the defaults"
USER = "the user's configuration"
PROJECT = "the project's configuration"
RUN = "this run"


def default_rules() -> list[Rule]:
    """The rules that hold where nobody wrote any."""
    return [Rule(*rule, layer=DEFAULTS, number=n) for n, rule in enumerate(_DEFAULTS, 1)]


def rules_of(written: Iterable[PermissionRule], layer: str) -> list[Rule]:
    """The rules of a configuration file, numbered as they stand there."""
    return [
        Rule(
            rule.permission, rule.pattern, Effect[rule.effect.upper()], layer, number, _remedy(layer, number)
        )
        for number, rule in enumerate(written, 1)
    ]


def _remedy(layer: str, number: int) -> str:
    if layer == PROJECT:
        return f"change rule {number} of the permissions in the project's .agent/config.json"
    return "leave out the flag that refuses it" if layer == RUN else ""


class Policy:
    """Decides by rules: the last that matches wins, no match asks, of several resources the strictest counts.

    ``base`` are the defaults and the user's rules, in this order. ``tightening`` are a project's: they can
    make an answer stricter, never milder. ``run`` are the words of this very run, and have the last word.

    >>> policy = Policy(default_rules())
    >>> [policy.decide(Request(permission, ("x",))).effect.name for permission in ("skill", "script")]
    ['ALLOW', 'ASK']
    """

    def __init__(
        self, base: Sequence[Rule], *, tightening: Sequence[Rule] = (), run: Sequence[Rule] = ()
    ) -> None:
        self._layers = (tuple(base), tuple(tightening), tuple(run))
        self._tables: dict[str, tuple[RuleTable, ...]] = {}

    @classmethod
    def load(cls, context: Context | None = None) -> Policy:
        """The policy of this place."""
        return cls.of(load_config(context or Context.current()))

    @classmethod
    def of(cls, config: LoadedConfig) -> Policy:
        """The policy that the configuration files ask for."""
        base = [*default_rules(), *rules_of(config.user_rules, USER)]
        return cls(base, tightening=rules_of(config.project_rules, PROJECT))

    def decide(self, request: Request) -> Decision:
        """Say what may happen to all of the resources together."""
        permission = request.permission
        tables = self._tables.get(permission) or self._compiled(permission)
        strictest: Decision | None = None
        for resource in request.resources:
            effect, rule = _effect_on(resource, tables)
            if strictest is None or effect > strictest.effect:
                strictest = Decision(effect, rule, permission, resource)
        return strictest or Decision(Effect.DENY, None, permission, "")

    def unreachable(self) -> list[tuple[Rule, Rule]]:
        """Rules that can never win, each with the later one that always wins over it."""
        found = []
        for layer in self._layers:
            for place, rule in enumerate(layer):
                later = (r for r in layer[place + 1 :] if _overrides(r, rule))
                if (winner := next(later, None)) is not None:
                    found.append((rule, winner))
        return [pair for pair in found if pair[0].layer != DEFAULTS]

    def _compiled(self, permission: str) -> tuple[RuleTable, ...]:
        tables = tuple(
            RuleTable([rule for rule in layer if matches(rule.permission, permission)])
            for layer in self._layers
        )
        self._tables[permission] = tables
        return tables


def _effect_on(resource: str, tables: tuple[RuleTable, ...]) -> tuple[Effect, Rule | None]:
    base, tightening, run = tables
    rule = run.last_match(resource)
    if rule is not None:
        return rule.effect, rule
    rule = base.last_match(resource)
    effect = Effect.ASK if rule is None else rule.effect
    stricter = tightening.last_match(resource)
    if stricter is not None and stricter.effect > effect:
        return stricter.effect, stricter
    return effect, rule


def _overrides(later: Rule, earlier: Rule) -> bool:
    return covers(later.permission, earlier.permission) and covers(later.pattern, earlier.pattern)
