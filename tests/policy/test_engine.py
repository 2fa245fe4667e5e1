"""F1, F4: one engine decides, and says why."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import Place, write_skill
from tests.test_config import write
from vademecum import Policy, Toolkit
from vademecum.config import TOOLS, PermissionRule
from vademecum.errors import ConfigError
from vademecum.policy.base import Decision, Effect, Request, Rule
from vademecum.policy.engine import PROJECT, RUN, USER, Rules, allowing, default_rules, rules_of
from vademecum.wildcards import matches

ALLOW, ASK, DENY = Effect


def rules(layer: str, *written: tuple[str, str, Effect]) -> list[Rule]:
    named: dict[Effect, Literal["allow", "ask", "deny"]] = {ALLOW: "allow", ASK: "ask", DENY: "deny"}
    return rules_of([PermissionRule(p, pattern, named[effect]) for p, pattern, effect in written], layer)


def effect(policy: Policy, permission: str, *resources: str) -> Effect:
    return policy.decide(Request(permission, resources)).effect


@pytest.mark.parametrize(
    ("permission", "resource", "expected"),
    [
        ("skill", "pdf", ALLOW),
        ("resource", "pdf/references/a.md", ALLOW),
        ("script", "pdf/scripts/a.py", ASK),
        ("tool", "read_file", ALLOW),
        ("tool", "grep", ALLOW),
        ("tool", "run_script", ALLOW),
        ("tool", "write_file", ASK),
        ("network", "example.org", ASK),
        ("teleport", "moon", ASK),
    ],
)
def test_defaults(permission: str, resource: str, expected: Effect) -> None:
    assert effect(Policy(default_rules()), permission, resource) is expected


def test_the_last_match_wins() -> None:
    policy = Policy(
        rules(USER, ("skill", "*", DENY), ("skill", "pdf-*", ALLOW), ("skill", "pdf-secret", ASK))
    )
    assert [effect(policy, "skill", name) for name in ("x", "pdf-forms", "pdf-secret")] == [DENY, ALLOW, ASK]


def test_no_match_asks_and_nothing_named_is_denied() -> None:
    decision = Policy([]).decide(Request("skill", ("pdf",)))
    assert decision == Decision(ASK, None, "skill", "pdf")
    assert decision.reason == "no rule matches skill 'pdf'"
    assert decision.remedy == (
        'add {"permission": "skill", "pattern": "pdf", "effect": "allow"} at the end of the permissions in ~/.agent/config.json'
    )
    assert effect(Policy([]), "skill") is DENY


def test_of_several_resources_the_strictest_counts() -> None:
    policy = Policy(rules(USER, ("skill", "a", ALLOW), ("skill", "c", DENY)))
    assert effect(policy, "skill", "a") is ALLOW
    assert effect(policy, "skill", "a", "b") is ASK
    assert effect(policy, "skill", "a", "b", "c") is DENY


def test_permissions_may_have_wildcards_too() -> None:
    policy = Policy(rules(USER, ("*", "*", DENY), ("skill", "*", ALLOW)))
    assert (effect(policy, "skill", "x"), effect(policy, "tool", "x")) == (ALLOW, DENY)


def test_a_project_tightens_and_never_loosens() -> None:
    base = rules(USER, ("skill", "*", ALLOW), ("skill", "no", DENY), ("skill", "maybe", ASK))
    project = rules(PROJECT, ("skill", "*", ASK), ("skill", "worst", DENY), ("skill", "no", ALLOW))
    policy = Policy(base, project=Rules(project))
    assert [effect(policy, "skill", name) for name in ("any", "worst", "no", "maybe")] == [
        ASK,
        DENY,
        DENY,
        ASK,
    ]


def test_a_run_answers_what_would_be_asked_and_lifts_no_deny() -> None:  # F8
    policy = Policy(
        default_rules(),
        project=Rules(rules(PROJECT, ("script", "*", DENY))),
        run=rules(RUN, ("script", "pdf/*", ALLOW), ("skill", "secret", DENY)),
    )
    assert effect(policy, "script", "pdf/scripts/a.py") is DENY
    assert effect(policy, "skill", "secret") is DENY
    asking = Policy(default_rules(), run=allowing(["run_script(pdf/*)"]))
    assert effect(asking, "script", "pdf/scripts/a.py") is ALLOW
    assert effect(asking, "script", "other/scripts/a.py") is ASK
    with pytest.raises(ConfigError, match="did you mean 'write_file'"):
        allowing(["write_fil"])


@pytest.mark.parametrize("trusted", [True, False])
def test_a_deny_is_final(trusted: bool) -> None:  # F8
    everything = rules(PROJECT, ("*", "*", ALLOW))
    policy = Policy(
        default_rules(),
        user=Rules(rules(USER, ("write", "a/*", DENY), ("write", "b/*", DENY), ("write", "b/c", ALLOW))),
        project=Rules(everything),
        trusted=trusted,
        run=allowing(TOOLS),
    )
    assert effect(policy, "write", "a/x") is DENY
    assert effect(policy, "write", "b/c") is ALLOW  # inside the user's rules the last match wins
    for path in (".git", ".git/config", "sub/.git", "sub/.git/x", ".agent/config.json", "x/.agent/skills/y",
                 ".GIT/config", "sub/.claude/skills/x/SKILL.md", ".codex/skills"):  # fmt: skip
        assert effect(policy, "write", path) is DENY
        assert effect(policy, "delete", path) is DENY
    for path in (".envrc", "sub/.bashrc", ".vscode/tasks.json", ".claude/settings.json", "sub/HEAD", "x.pth"):
        assert effect(policy, "write", path) is DENY
    assert effect(policy, "private-network", "127.0.0.1") is DENY
    lifted = Rules(rules(USER, ("*", "*", ALLOW)))
    own = Policy(default_rules(), user=lifted)
    assert effect(own, "write", ".envrc") is ALLOW  # which only the user's configuration lifts
    assert effect(own, "private-network", "127.0.0.1") is ALLOW
    assert effect(own, "write", "sub/.git") is DENY  # which nothing lifts


def test_names_are_compared_in_one_spelling() -> None:  # F1
    for written, named in (
        ("nai\u0308ve", "naïve"),
        ("naïve", "nai\u0308ve"),
        ("ｓｅｃｒｅｔ*", "secret.txt"),
    ):
        policy = Policy(default_rules(), user=Rules(rules(USER, ("read", written, DENY))))
        assert effect(policy, "read", named) is DENY


@pytest.mark.parametrize(
    "path", [".env", "x/.env.local", "id_rsa", "keys/server.pem", "a/.ssh/config", "x.key"]
)
def test_credentials_are_asked_about(path: str) -> None:
    assert effect(Policy(default_rules()), "read", path) is ASK


def test_names_are_no_patterns() -> None:
    # A skill called `*` would be a pattern if names were ever matched against names.
    policy = Policy(rules(USER, ("skill", "*", ALLOW), ("skill", "abc", DENY)))
    assert effect(policy, "skill", "*") is ALLOW
    assert effect(policy, "skill", "ab?") is ALLOW


def test_every_refusal_names_its_rule_and_its_remedy() -> None:
    policy = Policy(
        rules(USER, ("skill", "*", ALLOW), ("skill", "pdf*", DENY)),
        project=Rules(rules(PROJECT, ("skill", "a", ALLOW), ("skill", "csv", DENY))),
    )
    found = {
        resource: policy.decide(Request(permission, (resource,)))
        for permission, resource in (("skill", "pdf-x"), ("skill", "csv"))
    }
    assert found["pdf-x"].reason == "rule 2 of the user's configuration: deny skill 'pdf*'"
    assert found["csv"].reason == "rule 2 of the project's configuration: deny skill 'csv'"
    assert found["csv"].remedy == "change rule 2 of the permissions in the project's .agent/config.json"
    assert found["pdf-x"].to_json() == {
        "effect": "deny",
        "reason": "rule 2 of the user's configuration: deny skill 'pdf*'",
        "rule": "skill pdf* deny",
        "layer": "the user's configuration",
        "number": 2,
        "remedy": found["pdf-x"].remedy,
    }


PATTERNS = st.text("ab*? /", min_size=1, max_size=6)
PERMISSIONS = st.sampled_from(["skill", "read", "*", "s*", "re?d"])
WRITTEN = st.lists(st.tuples(PERMISSIONS, PATTERNS, st.sampled_from(Effect)), max_size=12)


AGENTS = ("default", "reviewer")
Written = list[tuple[str, str, Effect]]


def naive(
    own: list[Rule], project: list[Rule], run: list[Rule], request: Request, *, trusted: bool
) -> Effect:
    """The whole engine in ten lines, trying every rule."""

    def last(layer: list[Rule], resource: str) -> Effect | None:
        found = [
            r.effect
            for r in layer
            if matches(r.permission, request.permission) and matches(r.pattern, resource)
        ]
        return found[-1] if found else None

    answers = []
    for resource in request.resources:
        answer = last(own, resource)
        answer = ASK if answer is None else answer
        said = last(project, resource)
        if answer is not DENY and said is not None and (trusted or said > answer):
            answer = said
        said = last(run, resource)
        if answer is not DENY and said is not None and (answer is ASK or said > answer):
            answer = said
        answers.append(answer)
    return max(answers, default=DENY)


@given(
    st.lists(WRITTEN, min_size=5, max_size=5),
    st.booleans(),
    st.sampled_from(AGENTS),
    st.sampled_from(["skill", "read", "other"]),
    st.lists(st.text("ab /", max_size=6), max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_equal_to_a_naive_engine(
    written: list[Written], trusted: bool, agent: str, permission: str, resources: list[str]
) -> None:
    """In each layer the last match wins; a deny is final, and each later layer can do less."""
    user, project, users_agent, projects_agent, run = (rules(f"layer {n}", *w) for n, w in enumerate(written))
    policy = Policy(
        [],
        user=Rules(user, {"reviewer": users_agent}),
        project=Rules(project, {"reviewer": projects_agent}),
        trusted=trusted,
        run=run,
    )
    request = Request(permission, tuple(resources), agent=agent)
    mine, theirs = (users_agent, projects_agent) if agent == "reviewer" else ([], [])
    expected = naive([*user, *mine], [*project, *theirs], run, request, trusted=trusted)
    decision = policy.decide(request)
    assert decision.effect is expected
    assert decision.reason
    assert bool(decision.remedy) == (decision.effect is not ALLOW)


@pytest.mark.parametrize(
    ("permission", "broad", "exact", "others"),
    [
        ("network", "a.example", "a.example:8080", ("b.a.example:8080", "a.example.org")),
        ("network", "*.example", "a.example:8080", ("a.example.org:1",)),
        ("private-network", "localhost", "localhost:8000", ("localhost2",)),
        ("private-network", "::1", "[::1]:8000", ("[::1:2]", "[::2]:8000")),
        ("packages", "s/numpy", "s/numpy>=2", ("s/numpy-financial", "t/numpy>=2")),
        ("packages", "s/rich", "s/rich[jupyter]==13.*", ("s/richer",)),
    ],
)
def test_a_rule_for_a_host_or_package_holds_for_each_port_or_version(
    permission: str, broad: str, exact: str, others: tuple[str, ...]
) -> None:
    def by(*written: tuple[str, Effect]) -> Policy:
        found = rules(USER, *((permission, pattern, each) for pattern, each in written))
        return Policy(default_rules(), user=Rules(found))

    before = effect(by(), permission, exact)
    for answer in (ALLOW, DENY):
        assert effect(by((broad, answer)), permission, exact) is answer
        assert effect(by((exact, answer)), permission, exact) is answer
        for other in others:
            assert effect(by((broad, answer)), permission, other) is before
    # The last one wins, whichever is the broader.
    assert effect(by((broad, DENY), (exact, ALLOW)), permission, exact) is ALLOW
    assert effect(by((exact, ALLOW), (broad, DENY)), permission, exact) is DENY


def test_loaded_from_the_files_of_a_place(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    write(place.home, {"permissions": [{"permission": "skill", "pattern": "csv-*", "effect": "deny"}]})
    write(
        place.cwd,
        {
            "permissions": [
                {"permission": "skill", "pattern": "csv-summary", "effect": "allow"},
                {"permission": "skill", "pattern": "mine", "effect": "deny"},
            ]
        },
    )
    kit = Toolkit(place.build(), policy=Policy.load(place.context), context=place.context)
    assert [skill.name for skill in kit.skills] == ["file-diff", "skill-author"]
    assert Policy.load(place.context).decide(Request("skill", ("mine",))).reason == (
        "rule 2 of the project's configuration: deny skill 'mine'"
    )
