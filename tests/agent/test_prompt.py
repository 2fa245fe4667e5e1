"""I3: compaction, as a snapshot: the oldest observations become one line, everything else stays."""

from __future__ import annotations

from vademecum.agent.budget import Budget
from vademecum.agent.plan import Plan
from vademecum.agent.prompt import Observed, State, request_section, rules, shortened, untrusted


def test_a_compacted_prompt() -> None:
    size = 3000
    observed = [
        Observed(
            f"[{n}] call_tool read_file: ok", untrusted(str(n) * size, kind="tool"), f"observations/{n}.txt"
        )
        for n in (1, 2, 3)
    ]
    budget = Budget(context_chars=int((len(rules()) + 2 * size) / 0.8))
    state = State(
        request_section("Do it to a.txt", ["a.txt"], ["b.txt"]),
        "Available Skills:\n- name=mine | source=project | description=x",
        budget,
        plan=Plan(goal="g"),
        loaded={"mine": f"skill mine (source project)\n{untrusted('Do this.', kind='skill')}"},
        observed=observed,
    )
    assert [seen.line for seen in state.compact()] == [
        "[1] call_tool read_file: ok",
        "[2] call_tool read_file: ok",
    ]
    assert state.messages()[1].content.replace("3" * size, "333…") == (
        "=== request ===\n"
        "Do it to a.txt\n"
        'files it names: ["a.txt"]\n'
        'files it names that are not here: ["b.txt"]\n'
        "\n"
        "=== plan and budget ===\n"
        'plan: {"goal":"g","steps":[],"assumptions":[],"constraints":{}}\n'
        "turn 1 of 12; tool calls 0 of 30; script runs 0 of 10\n"
        "\n"
        "=== catalogue ===\n"
        "Available Skills:\n"
        "- name=mine | source=project | description=x\n"
        "\n"
        "=== loaded skills ===\n"
        "skill mine (source project)\n"
        '<untrusted kind="skill">\n'
        "Do this.\n"
        "</untrusted>\n"
        "\n"
        "=== observations ===\n"
        "[1] call_tool read_file: ok (left out; the full text is in observations/1.txt)\n"
        "[2] call_tool read_file: ok (left out; the full text is in observations/2.txt)\n"
        "[3] call_tool read_file: ok\n"
        '<untrusted kind="tool">\n'
        "333…\n"
        "</untrusted>"
    )


def test_a_long_observation_keeps_both_ends() -> None:
    text = shortened("a" * 20_000 + "b" * 20_000, "observations/x.txt")
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "[… 16,000 characters left out, kept in observations/x.txt …]" in text
