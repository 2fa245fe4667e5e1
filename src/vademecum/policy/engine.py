"""The permission engine: layers of rules → one decision, with the rule that made it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from vademecum.config import TOOLS, AgentSettings, LoadedConfig, PermissionRule, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError
from vademecum.nearest import there_is_no
from vademecum.policy.base import Decider, Decision, Effect, Request, Rule
from vademecum.policy.grants import Trust, grants_file
from vademecum.wildcards import comparable, matches, matches_exactly

# Writing here changes what is allowed or what runs next, and stored secrets must never be read. No rule, flag
# or answer allows these. Case is ignored, because some file systems ignore it.
_SKILL_ROOTS = tuple(
    f".{tool}/skills" for tool in ("agents", "claude", "codex", "gemini", "github", "opencode")
)
_CLOSED = (
    *(
        (permission, f"{prefix}{name}{rest}")
        for permission in ("write", "delete")
        for name in (".git", ".agent", *_SKILL_ROOTS)
        for prefix in ("", "*/")
        for rest in ("", "/*")
    ),
    ("read", ".agent/secrets.*"),
    ("read", "*/.agent/secrets.*"),
)
# Files that a shell, an editor, an agent or a package manager runs automatically. A file HEAD makes a
# directory a repository, with settings that git obeys.
_STARTUP = (
    ".envrc", ".direnvrc", ".bashrc", ".bash_*", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
    ".zlogout", ".xprofile", ".xinitrc", ".pam_environment", ".tmux.conf", ".config/autostart/*",
    ".config/fish/*", ".config/git/*", ".config/mise/*", ".config/nvim/*", ".config/systemd/*", ".ssh/*",
    ".vscode/*", "*.code-workspace", ".idea/*", ".zed/*", ".fleet/*", ".theia/*", ".devcontainer/*",
    ".devcontainer.json", ".exrc", ".vimrc", ".vim/*", ".nvimrc", ".nvim.lua", ".emacs", ".emacs.d/*",
    ".dir-locals.el", ".gdbinit", ".lldbinit", ".Rprofile", ".ipython/*", ".jupyter/*", "sitecustomize.py",
    "usercustomize.py", "*.pth", "pip.conf", ".condarc", ".npmrc", ".pypirc", ".yarnrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".cargo/config", ".cargo/config.toml", "mise.toml", ".mise.toml", ".husky/*",
    ".githooks/*", ".pre-commit-config.yaml", ".gitconfig", "HEAD", ".mcp.json", ".cursor/mcp.json",
    ".cursor/hooks*", ".claude/settings*.json", ".claude/hooks/*", ".codex/config.toml",
    ".gemini/settings.json", ".opencode/*", "opencode.json",
)  # fmt: skip
# Keys and passwords: reading them needs approval.
_CREDENTIALS = (
    ".env", ".env.*", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", "*.pem", "*.key", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials",
    "credentials.json", ".aws/*", ".ssh/*", ".gnupg/*", ".docker/config.json", ".kube/config",
)  # fmt: skip


def _anywhere(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        yield from (pattern, f"*/{pattern}")


# The rules without any configuration: reading is allowed, acting needs approval.
_DEFAULTS = (
    ("skill", "*", Effect.ALLOW),
    ("resource", "*", Effect.ALLOW),
    ("script", "*", Effect.ASK),
    ("tool", "*", Effect.ASK),
    ("tool", "read_file", Effect.ALLOW),
    ("tool", "list_dir", Effect.ALLOW),
    ("tool", "grep", Effect.ALLOW),
    ("tool", "run_script", Effect.ALLOW),  # each script needs its own approval
    ("tool", "run_command", Effect.ALLOW),  # and each command
    ("command", "*", Effect.ASK),
    ("packages", "*", Effect.ASK),
    ("read", "*", Effect.ALLOW),
    *(("read", pattern, Effect.ASK) for pattern in _anywhere(_CREDENTIALS)),
    ("read", "*.agent/runs/*", Effect.DENY),  # content of other conversations
    ("write", "*", Effect.ASK),
    ("delete", "*", Effect.ASK),
    *((each, pattern, Effect.DENY) for each in ("write", "delete") for pattern in _anywhere(_STARTUP)),
    ("network", "*", Effect.ASK),
    ("private-network", "*", Effect.DENY),
    ("script-network", "*", Effect.ASK),
    ("secret", "*", Effect.ASK),
)
# A rule for a host applies to all its ports, and a rule for a package to all its versions.
_FURTHER = {
    "network": ("{}:*", "[{}]", "[{}]:*"),
    "private-network": ("{}:*", "[{}]", "[{}]:*"),
    "packages": ("{}[*", "{}<*", "{}>*", "{}=*", "{}!*", "{}~*"),
}
FIXED = "the fixed rules"
DEFAULTS = "the defaults"
USER = "the user's configuration"
PROJECT = "the project's configuration"
RUN = "this run"
MAX_TABLES = 1000
PATIENCE_SECONDS = 10.0
_FIXED_RULES = [
    Rule(*rule, Effect.DENY, FIXED, number, "no rule, flag or answer allows it")
    for number, rule in enumerate(_CLOSED, 1)
]


def default_rules() -> list[Rule]:
    """Return the built-in rules, which apply if no other rule matches."""
    return [Rule(*rule, layer=DEFAULTS, number=n) for n, rule in enumerate(_DEFAULTS, 1)]


def rules_of(written: Iterable[PermissionRule], layer: str) -> list[Rule]:
    """Return the rules of a configuration file, with their numbers there."""
    in_project = "change rule {} of the permissions in the project's .agent/config.json"
    remedy = in_project if layer.startswith(PROJECT) else ""
    return [
        Rule(rule.permission, rule.pattern, Effect[rule.effect.upper()], layer, number, remedy.format(number))
        for number, rule in enumerate(written, 1)
    ]


_ALLOWED = re.compile(r"(?P<tool>\w+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
APPROVAL = "approval"


def allowing(words: Iterable[str]) -> list[Rule]:
    """Return the rules of a run with ``--allow``: each turns ask into allow, but never deny.

    >>> [str(rule) for rule in allowing(["write_file(reports/*)"])][1]
    "rule 2 of this run: allow write 'reports/*'"
    """
    wanted: list[tuple[str, str]] = []
    for word in words:
        found = _ALLOWED.fullmatch(word)
        tool, pattern = (found["tool"], found["pattern"] or "*") if found else (word, "*")
        if tool not in TOOLS:
            raise ConfigError(f"--allow {word}: {there_is_no('tool', tool, TOOLS)}")
        wanted += [("tool", tool), (TOOLS[tool][1], pattern), (APPROVAL, f"{tool} {pattern}")]
    return [Rule(*rule, Effect.ALLOW, RUN, number) for number, rule in enumerate(wanted, 1)]


def reaching(hosts: Sequence[str]) -> list[Rule]:
    """Return the rules of a run with ``--network``: these hosts may be reached without asking."""
    wanted = [("script-network", "*"), *(("network", host) for host in hosts)] if hosts else []
    return [Rule(*rule, Effect.ALLOW, RUN, number) for number, rule in enumerate(wanted, 1)]


class _Test(NamedTuple):
    """One pattern, and what a matching text must have: a beginning, an end and a minimum length."""

    place: int
    beginning: str
    ending: str
    least: int
    pattern: str | None


_EDGE = 3  # the number of characters at either end that tell patterns apart


class RuleTable:
    """The rules for one permission, in their order.

    Patterns without wildcards are looked up. The others are stored by their first characters, or else by
    their last ones, last rule first, so that few are tried, and none that precedes a match.
    """

    def __init__(self, rules: Sequence[Rule], further: Sequence[str] = ()) -> None:
        """Take the rules, and the endings that patterns without a final ``*`` also match."""
        self._rules = tuple(rules)
        self._plain: dict[str, int] = {}
        self._by_start: dict[str, list[_Test]] = {}
        self._by_end: dict[str, list[_Test]] = {}
        self._short: list[_Test] = []
        for place, rule in enumerate(rules):
            pattern = comparable(rule.pattern)
            self._add(pattern, place)
            for form in () if pattern.endswith("*") else further:
                self._add(form.format(pattern), place)
        for start, tests in self._by_start.items():
            tests += [test for test in self._short if start.startswith(test.beginning)]
        for tests in (self._short, *self._by_start.values(), *self._by_end.values()):
            tests.sort(key=attrgetter("place"), reverse=True)

    def last_match(self, resource: str) -> Rule | None:
        """Return the last rule whose pattern matches, or ``None``."""
        found, length = self._plain.get(resource, -1), len(resource)
        starting = self._by_start.get(resource[:_EDGE], self._short)
        for tests in (starting, self._by_end.get(resource[-_EDGE:], ())):
            for place, beginning, ending, least, pattern in tests:
                if place < found:
                    break
                if (
                    length >= least
                    and resource.startswith(beginning)
                    and resource.endswith(ending)
                    and (pattern is None or matches_exactly(pattern, resource))
                ):
                    found = place
                    break
        return self._rules[found] if found >= 0 else None

    def _add(self, pattern: str, place: int, *, whole: bool = True) -> None:
        if "*" not in pattern and "?" not in pattern:
            self._plain[pattern] = place
            return
        if whole and pattern.endswith(" *"):  # a final ` *` is optional
            self._add(pattern[:-2], place, whole=False)
        beginning, *_, ending = pattern.split("*") if "*" in pattern else ("", "")
        beginning, ending = beginning.partition("?")[0], ending.rpartition("?")[2]
        simple = pattern.count("*") == 1 and "?" not in pattern
        least = len(pattern) - pattern.count("*")
        test = _Test(place, beginning, ending, least, None if simple else pattern)
        if len(beginning) >= _EDGE:
            self._by_start.setdefault(beginning[:_EDGE], []).append(test)
        elif len(ending) >= _EDGE:
            self._by_end.setdefault(ending[-_EDGE:], []).append(test)
        else:
            self._short.append(test)


# The tables of `Policy._layers`; ``None`` if a layer has no rule for a permission.
Tables = tuple[RuleTable | None, ...]
_effect_of = attrgetter("effect")


class Rules(NamedTuple):
    """The rules of one file: for all agents, and for single agents by name."""

    everybody: Sequence[Rule] = ()
    agents: Mapping[str, Sequence[Rule]] = {}

    @classmethod
    def of(cls, written: Iterable[PermissionRule], agents: Mapping[str, AgentSettings], layer: str) -> Rules:
        """Return the rules of a configuration file."""
        by_agent = {
            name: rules_of(agent.permissions, f"{layer} for agent {name!r}") for name, agent in agents.items()
        }
        return cls(rules_of(written, layer), by_agent)


class Policy:
    """Decides by rules: the last match wins, no match means ask; of several resources, the strictest counts.

    The fixed rules come first, then the ``user``'s rules (on top of the ``defaults``, with those for the
    agent): their denials are final. A ``project`` can make an answer stricter; if it is ``trusted``, it can
    also turn ask into allow. ``run`` turns ask into allow for this run.

    >>> from vademecum.policy.base import Request
    >>> policy = Policy.load()
    >>> [policy.decide(Request(permission, ("x",))).effect.name for permission in ("skill", "script")]
    ['ALLOW', 'ASK']
    """

    def __init__(
        self,
        defaults: Sequence[Rule],
        *,
        user: Rules = Rules(),  # noqa: B008 - it is immutable
        project: Rules = Rules(),  # noqa: B008
        trusted: bool = False,
        run: Sequence[Rule] = (),
    ) -> None:
        self._defaults = defaults
        self._user = user
        self._project = project
        self._trusted = trusted
        self._run = run
        self._tables: dict[tuple[str, str], Tables] = {}

    @classmethod
    def load(
        cls, context: Context | None = None, *, config: LoadedConfig | None = None, run: Sequence[Rule] = ()
    ) -> Policy:
        """Return the policy for a context; ``config`` is its configuration, if already loaded."""
        context = context or Context.current()
        config = config or load_config(context)
        file = config.project_file if config.loosening else None
        trusted = file is not None and Trust(grants_file(context)).holds(file)
        return cls(
            default_rules(),
            user=Rules.of(config.user.permissions, config.user.agents, USER),
            project=Rules.of(config.project.permissions, config.project.agents, PROJECT),
            trusted=trusted,
            run=run,
        )

    @property
    def allow(self) -> tuple[str, ...]:
        """The patterns that ``--allow`` gave this run."""
        words = (rule.pattern.partition(" ") for rule in self._run if rule.permission == APPROVAL)
        return tuple(tool if pattern == "*" else f"{tool}({pattern})" for tool, _, pattern in words)

    def decide(self, request: Request) -> Decision:
        """Return the decision about all resources together."""
        permission = request.permission
        key = (permission, request.agent)
        tables = self._tables.get(key) or self._compiled(key)
        resources = request.resources
        if len(resources) == 1:
            effect, rule = self._effect_on(resources[0], tables)
            return Decision(effect, rule, permission, resources[0])
        decisions = [Decision(*self._effect_on(each, tables), permission, each) for each in resources]
        return max(decisions, key=_effect_of, default=Decision(Effect.DENY, None, permission, ""))

    def could_restrict(self, permission: str, agent: str, text: str | None = None) -> bool:
        """Return whether a rule could ask about or deny any of the resources in a text.

        Without a text, return this for any resource. If false, all of them are allowed: this decides about
        many resources at once.
        """
        layers = self._layers(permission, agent)
        if not any(rule.pattern == "*" and rule.effect is Effect.ALLOW for rule in layers[1]):
            return True
        restricting = [
            comparable(rule.pattern) for layer in layers for rule in layer if rule.effect is not Effect.ALLOW
        ]
        if text is None:
            return bool(restricting)
        text = comparable(text)
        return any(max(pattern.replace("?", "*").split("*"), key=len) in text for pattern in restricting)

    def denies_some(self, permissions: Sequence[str], agent: str) -> bool:
        """Return whether a rule other than the defaults denies a resource of these permissions."""
        return any(
            rule.effect is Effect.DENY and rule.layer != DEFAULTS
            for permission in permissions
            for layer in self._layers(permission, agent)
            for rule in layer
        )

    def _layers(self, permission: str, agent: str) -> tuple[list[Rule], ...]:
        """Return the fixed rules, the user's (with the defaults), the project's, and those of this run.

        Only those for one permission are returned.
        """
        user, project = self._user, self._project
        layers = (
            _FIXED_RULES,
            [*self._defaults, *user.everybody, *user.agents.get(agent, ())],
            [*project.everybody, *project.agents.get(agent, ())],
            self._run,
        )
        return tuple([rule for rule in layer if _is_for(rule, permission)] for layer in layers)

    def _compiled(self, key: tuple[str, str]) -> Tables:
        permission, agent = key
        further, layers = _FURTHER.get(permission, ()), self._layers(permission, agent)
        if len(self._tables) > MAX_TABLES:  # the names of agents come from outside
            self._tables.clear()
        tables = tuple(RuleTable(rules, further) if rules else None for rules in layers)
        return self._tables.setdefault(key, tables)

    def _effect_on(self, resource: str, tables: Tables) -> tuple[Effect, Rule | None]:
        """Decide about one resource: a deny is final, and each later layer can change less."""
        fixed, own, project, run = tables
        resource = comparable(resource)
        if fixed is not None and (rule := fixed.last_match(resource.casefold())) is not None:
            return rule.effect, rule
        rule = own.last_match(resource) if own is not None else None
        effect = Effect.ASK if rule is None else rule.effect
        if effect is not Effect.DENY and project is not None:
            found = project.last_match(resource)
            if found is not None and (self._trusted or found.effect > effect):
                effect, rule = found.effect, found
        if effect is not Effect.DENY and run is not None:
            found = run.last_match(resource)
            if found is not None and (effect is Effect.ASK or found.effect > effect):
                return found.effect, found
        return effect, rule


def _is_for(rule: Rule, permission: str) -> bool:
    written = rule.permission
    return written == permission or (("*" in written or "?" in written) and matches(written, permission))


class AllowAll(Policy):
    """Allows everything except what the fixed rules deny: the policy if the caller sets none.

    >>> from vademecum.policy.base import Request
    >>> [AllowAll().decide(Request("write", (path,))).effect.name for path in ("a.txt", ".git/config")]
    ['ALLOW', 'DENY']
    """

    def __init__(self) -> None:
        super().__init__([Rule("*", "*", Effect.ALLOW, "the policy", 0)])


_FIXED_ALONE = AllowAll()


class OwnPolicy:
    """A policy of the calling program, applied after the fixed rules and with a deadline.

    If it raises, hangs or does not return a decision, the request is not allowed.
    """

    def __init__(self, policy: Decider, patience: float = PATIENCE_SECONDS) -> None:
        self._policy = policy
        self._patience = patience

    def decide(self, request: Request) -> Decision:
        """Return the decision about a request."""
        fixed = _FIXED_ALONE.decide(request)
        if fixed.effect is Effect.DENY:
            return fixed
        answers: list[Decision] = []
        problems = ["did not answer in time"]

        def answer() -> None:
            try:
                answers.append(self._policy.decide(request))
            except Exception as error:  # noqa: BLE001 - whatever a policy raises is a refusal
                problems[:] = [f"failed ({type(error).__name__})"]

        deciding = threading.Thread(target=answer, daemon=True)
        deciding.start()
        deciding.join(self._patience)
        if answers and isinstance(answers[0], Decision):
            return answers[0]
        rule = Rule(request.permission, problems[0], Effect.DENY, "the policy", 0)
        return Decision(Effect.DENY, rule, request.permission, ", ".join(request.resources))

    def could_restrict(self, *_: object) -> bool:
        """Return true, because only its decisions are known."""
        return True

    def denies_some(self, permissions: Sequence[str], agent: str) -> bool:
        """Return whether the policy denies one of these permissions entirely."""
        requests = (Request(each, ("*",), agent=agent) for each in permissions)
        return any(self.decide(each).effect is Effect.DENY for each in requests)
