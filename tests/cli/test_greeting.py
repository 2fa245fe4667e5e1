"""`vade` alone: what it found, and three commands that fit."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.test_commands import on_a_terminal
from tests.support import VADE, Place, write_skill

HEAD = "Vademecum 0.1.0 finds, checks, searches and runs Agent Skills (vade --help: all commands)"
SEARCH = 'vade search "compare two files"'
COMPARE = 'vade run "Compare old.txt with new.txt"'


def offered(place: Place) -> list[str]:
    return [offer["command"] for offer in place.vade("--json").json["next"]]


def test_nothing_but_the_built_in_skills(place: Place) -> None:
    done = place.vade()
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        HEAD,
        "",
        "✓ 3 skills: 3 built in",
        "",
        "  vade new my-skill                        write a skill of your own",
        '  vade run "Compare old.txt with new.txt"  do a task with the skill that fits',
        '  vade search "compare two files"          find the skill that fits',
    ]


def test_skills_of_many_sources(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    write_skill(place.cwd, ".claude/skills/ours")
    write_skill(place.home, ".agent/skills/yours")
    write_skill(place.cwd, "named/extra")
    shown = place.vade(VADE_SKILL_ROOTS="named").out
    assert "✓ 7 skills: 1 named by you, 2 of this project, 1 of yours, 3 built in\n" in shown
    assert offered(place) == [COMPARE, SEARCH, "vade list"]


def test_what_was_left_out_comes_first(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/good")
    write_skill(place.cwd, ".agent/skills/bad", "x")
    assert "✓ 4 skills: 1 of this project, 3 built in\n! 1 left out\n" in place.vade().out
    assert offered(place) == ["vade doctor", COMPARE, SEARCH]


def test_a_run_to_look_at_and_a_table_to_ask_about(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    (place.cwd / "sales.csv").write_text("city,sum\nOslo,3\n")
    (place.cwd / "a b.csv").write_text("a name that would need quotes\n")
    ask = offered(place)[0]
    assert ask == 'vade run "Summarise sales.csv"'
    done = place.vade(*shlex.split(ask)[1:], "--yes")
    assert (done.code, "| city " in done.out) == (0, True)
    assert offered(place) == ["vade runs show", ask, SEARCH]


def test_what_is_offered_works(place: Place) -> None:
    (place.cwd / "sales.csv").write_text("city,sum\nOslo,3\n")
    write_skill(place.cwd, ".agent/skills/bad", "x")
    for command in ("vade list", *offered(place)):
        consent = ["--yes"] if command.startswith("vade run") else []
        done = place.vade(*shlex.split(command)[1:], *consent)
        assert (done.code, "No skill fits" in done.out) == (command == "vade doctor", False), command


def test_json(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/bad", "x")
    found = place.vade("--json").json
    assert {**found, "next": len(found["next"])} == {
        "version": "0.1.0",
        "skills": 3,
        "sources": {"builtin": 3},
        "left_out": 1,
        "problem": None,
        "next": 3,
    }
    assert all(list(offer) == ["command", "why"] for offer in found["next"])
    wrong = place.vade("--json", "list")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("vade: --json goes behind the command: vade list … --json")


def test_a_wrong_configuration_is_said_with_where_to_go(place: Place) -> None:
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text('{"lenent": 1, "\\u001b]0;x": 1}')
    done = place.vade()
    assert (done.code, done.err, "\x1b" in done.out) == (2, "", False)
    assert "unknown key 'lenent', did you mean 'lenient'?" in done.out
    found = place.vade("--json")
    assert (found.code, found.json["problem"].count("lenent")) == (2, 1)
    assert [offer["command"] for offer in found.json["next"]] == ["vade doctor", "vade list", SEARCH]


def test_a_directory_that_is_gone(place: Place, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = on_a_terminal(place, "sh", "-c", f"cd '{gone}' && rmdir '{gone}' && '{VADE}'", NO_COLOR="1")
    assert "✗ The working directory no longer exists: change to another one." in done
    assert "  vade doctor" in done


def test_colour_only_where_it_is_wanted(place: Place) -> None:
    assert "\x1b[" not in place.vade().out
    coloured = on_a_terminal(place, VADE)
    assert "\x1b[1;36mVademecum\x1b[0m 0.1.0" in coloured
    assert "\x1b[32m✓\x1b[0m 3 skills" in coloured
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_a_terminal(place, VADE, **plain).replace("\r\n", "\n") == place.vade().out
