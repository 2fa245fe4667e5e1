"""``vade link`` and ``vade unlink`` as a person types them: answers, JSON, refusals and exit codes."""

from __future__ import annotations

import json
import os

import pytest

from tests.support import Place, write_skill


def test_answers_and_json(place: Place) -> None:
    source = write_skill(place.cwd, ".agent/skills/文件比较")
    (place.cwd / "below").mkdir()
    done = place.vade("link", "文件比较", "--to", "claude", "--to", "codex", cwd=place.cwd / "below")
    assert (done.code, done.err, done.out.splitlines()) == (
        0,
        "",
        [f"Linked: {place.cwd}/{agent}/skills/文件比较" for agent in (".claude", ".codex")],
    )
    assert place.vade("link", "文件比较", "--to", "claude").out == "Already there: .claude/skills/文件比较\n"
    found = place.vade("link", "./.claude/skills/文件比较", "--to", "github", "--json")
    assert (found.code, found.json) == (
        0,
        {
            "scope": "project",
            "links": [
                {
                    "name": "文件比较",
                    "agent": "github",
                    "place": str(place.cwd / ".github/skills/文件比较"),
                    "source": str(source),
                    "action": "linked",
                }
            ],
            "left_out": [],
        },
    )
    (place.cwd / ".codex/skills/文件比较").unlink()
    (place.cwd / ".github/skills/文件比较").unlink()
    (place.cwd / ".github/skills/文件比较").write_text("edited\n")
    assert place.vade("unlink", "--all").out.splitlines() == [
        "Removed: .claude/skills/文件比较",
        "Forgotten: .codex/skills/文件比较 does not exist any more",
        "Forgotten: .github/skills/文件比较 is not our link any more, and stays",
    ]
    assert place.vade("unlink", "--all").out == "Nothing is linked here\n"
    assert place.vade("unlink", "--all", "--json").json == {"scope": "project", "links": []}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("link --to claude", 2, "Name the skills, or use --all."),
        ("link file-diff --all --to claude", 2, "Name the skills, or use --all."),
        ("link file-diff", 2, "Missing option '--to'"),
        ("link file-diff --to cursor", 2, "'cursor' is not one of"),
        ("link file-dif --to claude", 4, "did you mean 'file-diff'?"),
        ("unlink", 2, "Name the skills, or use --all."),
        ("unlink file-diff", 4, "No link of 'file-diff' is recorded in"),
    ],
)
def test_wrong_words(place: Place, words: str, code: int, said: str) -> None:
    done = place.vade(*words.split())
    assert (done.code, done.out, said in done.err, done.err.count("\n")) == (code, "", True, 1), done.err
    assert os.listdir(place.cwd) == [".git"]


def test_what_is_not_remembered_for_one_agent_is_said(place: Place) -> None:
    place.vade("link", "file-diff", "--to", "claude")
    done = place.vade("unlink", "file-diff", "--to", "codex")
    assert (done.code, "No link of 'file-diff'" in done.err) == (4, True)
    assert (place.cwd / ".claude/skills/file-diff").exists()


def test_all_of_them_are_those_for_people(place: Place) -> None:
    hidden = "---\nname: hidden\ndescription: Not for people.\nuser-invocable: false\n---\n"
    write_skill(place.cwd, ".agent/skills/hidden", hidden)
    found = place.vade("link", "--all", "--to", "agents", "--json").json
    listed = [skill["name"] for skill in place.vade("list", "--json").json["skills"]]
    assert [one["name"] for one in found["links"]] == listed
    assert "hidden" not in listed


def test_rules_hold_for_what_is_handed_to_others(place: Place) -> None:
    rules = [
        {"permission": "skill", "pattern": "secret-*", "effect": "deny"},
        {"permission": "skill", "pattern": "asked", "effect": "ask"},
        {"permission": "resource", "pattern": "file-diff/scripts/*", "effect": "deny"},
    ]
    for name in ("secret-plans", "asked", "open"):
        write_skill(place.cwd, f".agent/skills/{name}")
    (place.cwd / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    for name, rule in (
        ("secret-plans", "rule 1 of the project's configuration: deny skill 'secret-*'"),
        ("file-diff", "rule 3 of the project's configuration: deny resource 'file-diff/scripts/*'"),
        ("asked", "rule 2 of the project's configuration: ask skill 'asked'"),
    ):
        done = place.vade("link", "open", name, "--to", "claude")
        assert (done.code, done.out) == (3, ""), name
        assert f"because {rule}" in done.err, done.err
    assert not (place.cwd / ".claude").exists()
    assert place.vade("link", "asked", "--to", "claude", "--yes").code == 0
    found = place.vade("link", "--all", "--to", "codex", "--json").json
    assert sorted(one["name"] for one in found["left_out"]) == ["asked", "file-diff", "secret-plans"]
    assert "open" in [one["name"] for one in found["links"]]
    said = place.vade("link", "--all", "--to", "codex").out
    assert "Left out: secret-plans (deny skill 'secret-plans', because" in said
    # What was linked before a rule came can still be taken away.
    assert place.vade("unlink", "asked").code == 0
