"""Whatever is misspelt, the one sentence of the error says what was probably meant."""

from __future__ import annotations

import pytest

from tests.support import Place, write_skill


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("lits", 2, "There is no command 'lits': did you mean 'vade list'?"),
        ("runs lsit", 2, "There is no command 'lsit': did you mean 'vade runs list'?"),
        ("eval rnu", 2, "There is no command 'rnu': did you mean 'vade eval run'?"),
        ("govern chck", 2, "There is no command 'chck': did you mean 'vade govern check'?"),
        ("permissions lsit", 2, "There is no command 'lsit': did you mean 'vade permissions list'?"),
        ("runs zzz", 2, "There is no command 'zzz': 'vade runs --help' lists the commands."),
        ("remove x", 2, "There is no command 'remove': did you mean 'vade uninstall'?"),
        ("runs ls", 2, "There is no command 'ls': did you mean 'vade runs list'?"),
        ("help lits", 2, "There is no command 'lits': did you mean 'vade list'?"),
        ("--jsn", 2, "No such option '--jsn': did you mean '--json'?"),
        ("install --scop user x", 2, "No such option '--scop': did you mean '--scope'?"),
        ("exec --yse file-diff compare.py", 2, "No such option '--yse': did you mean '--yes'?"),
        ("list --zzz", 2, "No such option '--zzz' (vade list --help)"),
        ("inspect file-dif", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("show FILE-DIF", 4, "No skill is called 'FILE-DIF': did you mean 'file-diff'?"),
        ("exec file-dif compare.py", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("export file-dif -o x", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("run /file-dif", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("eval init file-dif", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("eval run file-dif", 4, "There is neither a file nor a skill 'file-dif': did you mean 'file-diff'?"),
        ("eval run mine --without file-dif", 4, "No skill is called 'file-dif': did you mean 'file-diff'?"),
        ("run x --model opnai:x", 2, "There is no kind of model 'opnai': did you mean 'openai'?"),
        (
            "exec --yes file-diff comapre.py",
            4,
            "Skill 'file-diff' has no script 'comapre.py': did you mean 'scripts/compare.py'?",
        ),
        (
            "exec --yes file-diff zzz",
            4,
            "Skill 'file-diff' has no script 'zzz': there are 'scripts/compare.py'.",
        ),
        (
            "show file-diff --asset scripts/comapre.py",
            4,
            "Skill 'file-diff' has no file 'scripts/comapre.py': did you mean 'scripts/compare.py'?",
        ),
        (
            "show skill-author --asset descriptions.md",
            4,
            "The path 'descriptions.md' is not below references/, assets/ or scripts/: "
            "did you mean 'references/descriptions.md'?",
        ),
        ("permissions explain tool raed_file", 2, "There is no tool 'raed_file': did you mean 'read_file'?"),
        (
            "run x --model openai:x",
            2,
            "The key of openai is missing: set OPENAI_API_KEY, "
            "or run `vade secrets set OPENAI_API_KEY --models`.",
        ),
        ("diff mien", 4, "'mien' was not installed here: did you mean 'mine'?"),
        ("update mien", 4, "'mien' is not in the lock: did you mean 'mine'?"),
    ],
)
def test_suggestions(place: Place, typed: str, code: int, said: str) -> None:
    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "evals").mkdir()
    (skill / "evals/triggers.json").write_text('[{"query": "x", "should_trigger": true}]')
    assert place.vade("lock").code == 0
    done = place.vade(*typed.split())
    assert (done.code, done.out) == (code, "")
    assert done.err.splitlines()[-1] == f"vade: {said}"


def test_a_skill_to_load_first(place: Place) -> None:
    done = place.vade("run", "x", "--skill", "file-dif", "--json")
    assert (done.code, done.json["answer"]) == (
        4,
        "No skill is called 'file-dif': did you mean 'file-diff'?",
    )


def test_names_of_a_root_and_of_its_trash(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    root = place.cwd / ".agent/skills"
    for command in ("uninstall", "lock"):
        done = place.vade(command, "mien")
        assert (done.code, done.err) == (
            4,
            f"vade: There is no skill 'mien' in {root}: did you mean 'mine'?\n",
        )
    assert place.vade("uninstall", "mine", "--force").code == 0
    done = place.vade("restore", "mien")
    assert (done.code, done.err) == (
        4,
        f"vade: Nothing called 'mien' is kept in {root}/.trash: did you mean 'mine'?\n",
    )
    assert place.vade("restore", "zzz").err.endswith(": only uninstalled or replaced skills are.\n")


def test_options_of_a_script_are_its_own(place: Place) -> None:
    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("import sys; print(*sys.argv[1:])\n")
    assert place.vade("exec", "--yes", "mine", "x.py", "--yse", "-q", "--").out == "--yse -q --\n"
