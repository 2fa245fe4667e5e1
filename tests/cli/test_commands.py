"""What a person types, what comes back, and with which exit code."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support import VADE, Place, write_skill
from vademecum import BUILTIN_ROOT
from vademecum.cli.main import vade

BAD = "---\nname: bad\ndescription: Use when: asked\n---\n"


def test_list(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    done = place.vade("list")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "mine          project  What mine does." in lines
    assert lines[-1] == "4 skills"
    assert all(line == line.rstrip() for line in lines)


def test_list_json_has_the_agreed_shape(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    found = place.vade("list", "--json").json
    assert list(found) == ["skills", "report", "hash"]
    assert list(found["skills"][0]) == [
        "skill_id",
        "name",
        "description",
        "source",
        "path",
        "controls",
        "meta",
        "diagnostics",
    ]
    assert list(found["report"]) == [
        "roots",
        "found",
        "valid",
        "ignored",
        "conflicts",
        "diagnostics",
        "hash",
        "read",
        "seconds",
    ]
    assert found["hash"] == found["report"]["hash"]


def test_list_says_what_was_left_out(place: Place) -> None:
    for name in ("one", "two", "three"):
        write_skill(place.cwd, f".agent/skills/{name}", "x")
    assert place.vade("list").out.splitlines()[-1] == "3 skills were left out: vade doctor"
    done = place.vade("list", "--root", "my dir", "--no-default-roots")
    hint = done.out.splitlines()[-1]
    assert hint == "1 root was not searched: vade doctor --root 'my dir' --no-default-roots"
    assert place.vade(*shlex.split(hint.partition("vade ")[2])).code == 1


def test_list_is_byte_identical_each_time(place: Place) -> None:
    for number in range(20):
        write_skill(
            place.cwd,
            f".agent/skills/g{number % 3}/s{number}",
            f"---\nname: s{number}\ndescription: x\nzeta: {{a: b}}\nalpha: {{a: b}}\n---\n",
        )
    write_skill(place.cwd, ".agent/skills/bad", "x")
    outputs = set()
    for seed in ("1", "2", "3"):
        found = place.vade("list", "--json", PYTHONHASHSEED=seed, VADE_CACHE_DIR=str(place.home / seed)).json
        found["report"]["seconds"] = 0
        outputs.add(json.dumps(found))
    assert len(outputs) == 1


def test_list_of_one_source_and_of_named_roots(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/file-diff", name="file-diff")
    write_skill(place.cwd, "elsewhere/other")
    names = [s["name"] for s in place.vade("list", "--source", "builtin", "--json").json["skills"]]
    assert names == ["csv-summary", "file-diff", "skill-author"]
    found = place.vade("list", "--root", "elsewhere", "--no-default-roots", "--json").json["skills"]
    assert [(s["name"], s["source"]) for s in found] == [("other", "extra")]
    by_variable = place.vade("list", "--no-default-roots", "--json", VADE_SKILL_ROOTS="elsewhere").json[
        "skills"
    ]
    assert by_variable == found


def test_list_hides_what_is_not_for_people(place: Place) -> None:
    # B10
    write_skill(
        place.cwd, ".agent/skills/inner", "---\nname: inner\ndescription: x\nuser-invocable: false\n---\n"
    )
    done = place.vade("list")
    assert "inner" not in done.out
    assert done.out.splitlines()[-1] == "3 skills (1 only for models: vade list --all)"
    assert "inner" in place.vade("list", "--all").out
    assert "inner" not in [s["name"] for s in place.vade("list", "--json").json["skills"]]


@pytest.mark.parametrize("word", ["ж" * 1000, "长" * 500, f"Make {'ж' * 900}"])
def test_list_cuts_descriptions_without_blanks(place: Place, word: str) -> None:
    write_skill(place.cwd, ".agent/skills/long", f"---\nname: long\ndescription: {word}\n---\n")
    out = place.vade("list").out
    assert "…" in out
    assert max(out.count("ж"), out.count("长") * 2) in range(100, 181)


def test_list_of_nothing_says_how_to_begin(place: Place) -> None:
    out = place.vade("list", "--no-default-roots").out
    assert out == "0 skills\nPut one in .agent/skills/, or create one: vade new my-skill\n"
    out = place.vade("list", "--source", "user").out
    assert out == "0 skills\nPut one in ~/.agent/skills/, or create one: vade new my-skill --scope user\n"
    assert place.vade("list", "--source", "extra").out == "0 skills\n"


def test_exit_codes_of_paths_and_sections(place: Place) -> None:
    # C3: 4 for what is not there, 3 for what leads out
    made = write_skill(place.cwd, ".agent/skills/x")
    (made / "references").mkdir()
    (made / "references" / "a.md").write_text("# A\n")
    for words, code in (
        (["--asset", "references/a.md"], 0),
        (["--asset", "references/b.md"], 4),
        (["--asset", "references/a.md", "--section", "B"], 4),
        (["--section", "B"], 4),
        (["--asset", "../y/SKILL.md"], 3),
        (["--asset", "/etc/passwd"], 3),
    ):
        assert place.vade("show", "x", *words).code == code, words


def test_lenient_list(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/bad", BAD)
    assert "bad" not in [s["name"] for s in place.vade("list", "--json").json["skills"]]
    assert "bad" in [s["name"] for s in place.vade("list", "--lenient", "--json").json["skills"]]


def test_inspect(place: Place) -> None:
    text = "---\nname: x\ndescription: y\nversion: 2\n---\n# Title\n\n1. step\n\tkeep   spaces\n"
    skill = write_skill(place.cwd, ".agent/skills/x", text)
    (skill / "scripts").mkdir()
    (skill / "scripts" / "run.py").write_text("print()")
    write_skill(place.home, ".agent/skills/x", "---\nname: x\ndescription: y\nversion: 1\n---\n")
    found = place.vade("inspect", "X", "--json").json
    assert found["skill_id"] == "project:x@2"
    assert found["files"] == [{"path": "SKILL.md", "size": len(text)}, {"path": "scripts/run.py", "size": 7}]
    assert found["shadowed"] == [
        {"source": "user", "path": f"{place.home}/.agent/skills/x", "version": "1", "reason": "lower-root"}
    ]
    assert "body" not in found
    assert (
        place.vade("inspect", "x", "--show-body", "--json").json["body"]
        == "# Title\n\n1. step\n\tkeep   spaces\n"
    )
    shown = place.vade("inspect", "x", "--show-body").out
    assert all(
        words in shown
        for words in ("project:x@2", "scripts/run.py (7 bytes)", "can choose it", "    keep   spaces")
    )
    other = place.vade("inspect", "x", "--source", "user", "--json").json
    assert (other["skill_id"], other["shadowed"]) == ("user:x@1", [])


def test_inspect_what_is_not_there(place: Place) -> None:
    done = place.vade("inspect", "file-dif")
    assert (done.code, done.out, done.err) == (
        4,
        "",
        "vade: No skill is called 'file-dif': did you mean 'file-diff'?\n",
    )
    done = place.vade("inspect", "file-diff", "--source", "user")
    assert (done.code, done.err) == (
        4,
        "vade: No skill is called 'file-diff' in source 'user': there is 'file-diff' in source 'builtin'.\n",
    )


def test_inspect_an_exact_name_before_a_folded_one(place: Place) -> None:
    for name in ("strasse", "straße"):
        write_skill(place.cwd, f".agent/skills/{name}")
    for name in ("strasse", "straße"):
        assert place.vade("inspect", name, "--json").json["name"] == name


def test_validate(place: Place) -> None:
    write_skill(place.cwd, "good")
    write_skill(place.cwd, "bad", BAD)
    done = place.vade("validate", "good")
    assert (done.code, done.out) == (0, f"✓ {place.cwd}/good valid\n")
    done = place.vade("validate", "good", "bad/SKILL.md")
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        f"✓ {place.cwd}/good valid",
        f"✗ {place.cwd}/bad",
        '  error line 3: Invalid YAML in frontmatter: mapping values are not allowed in this context. Put the value in quotes: description: "…"',
        "2 skills checked, 1 not valid",
    ]
    found = place.vade("validate", "good", "bad", "--json").json
    assert [list(verdict) for verdict in found] == [["path", "valid", "name", "description", "problems"]] * 2
    assert list(found[1]["problems"][0]) == ["code", "severity", "field", "line", "message"]
    assert place.vade("validate", "bad", "--lenient").code == 0
    assert place.vade("validate", "good", "nope").code == 4


def test_validate_a_directory_of_skills_misses_none(place: Place) -> None:
    write_skill(place.cwd, "all/good")
    write_skill(place.cwd, "all/group/bad", "x")
    for name in ("pipe", "folder", "nowhere"):
        (place.cwd / "all" / name).mkdir()
    os.mkfifo(place.cwd / "all/pipe/SKILL.md")
    (place.cwd / "all/folder/SKILL.md").mkdir()
    (place.cwd / "all/nowhere/SKILL.md").symlink_to("gone")
    done = place.vade("validate", "all", "--json")
    assert done.code == 1
    assert {(os.path.relpath(v["path"], place.cwd / "all"), v["valid"]) for v in done.json} == {
        ("good", True),
        ("group/bad", False),
        ("pipe/SKILL.md", False),
        ("folder/SKILL.md", False),
        ("nowhere/SKILL.md", False),
    }
    (place.cwd / "empty").mkdir()
    assert "Missing required file: SKILL.md" in place.vade("validate", "empty").out


def test_new_makes_a_skill_that_validates(place: Place) -> None:
    done = place.vade("new", "pdf-forms", "--description", 'Fill in forms: "all" of them. 填表')
    assert (
        done.out
        == "Made .agent/skills/pdf-forms/SKILL.md\nFill it in, then: vade validate .agent/skills/pdf-forms\n"
    )
    verdict = place.vade("validate", ".agent/skills/pdf-forms", "--json").json[0]
    assert (verdict["valid"], verdict["description"]) == (True, 'Fill in forms: "all" of them. 填表')
    assert "pdf-forms" in place.vade("list").out
    again = place.vade("new", "pdf-forms")
    assert (again.code, again.err) == (
        2,
        f"vade: {place.cwd}/.agent/skills/pdf-forms exists already: choose another name, or edit it.\n",
    )
    assert os.listdir(place.cwd / ".agent/skills") == ["pdf-forms"]


def test_validate_warns_of_a_template_that_was_not_filled_in(place: Place) -> None:
    place.vade("new", "mine")
    file = place.cwd / ".agent/skills/mine/SKILL.md"
    done = place.vade("validate")
    assert (done.code, done.out.splitlines()[1:]) == (
        0,
        [
            "  warning The description is still that of the template: say what the skill does and when to use it",
            "  warning line 10: The body still has 6 of the template's TODO lines: write what each asks for",
        ],
    )
    filled = re.sub(r"TODO: ", "", file.read_text())
    file.write_text(f"{filled}\nLook for `TODO: x`, and for TODO: in comments.\n\n    TODO: code\n")
    assert place.vade("validate").out == f"✓ {file.parent} valid\n"


def test_new_asks_on_a_terminal_for_what_is_missing(place: Place) -> None:
    shown = on_a_terminal(place, VADE, "new", typed="Bad Name\npdf-forms\nFill in PDF forms.\n")
    assert "must be lowercase. Type: bad-name." in shown
    assert "Made .agent/skills/pdf-forms/SKILL.md" in shown
    text = (place.cwd / ".agent/skills/pdf-forms/SKILL.md").read_text()
    assert text.splitlines()[1:3] == ["name: pdf-forms", 'description: "Fill in PDF forms."']
    shown = on_a_terminal(place, VADE, "new", "later", typed="\n")
    assert "What does it do, and when is it used?" in shown
    assert 'description: "TODO: ' in (place.cwd / ".agent/skills/later/SKILL.md").read_text()
    done = place.vade("new")
    assert (done.code, done.err) == (
        2,
        "vade: Missing argument 'NAME', such as pdf-forms. (vade new --help)\n",
    )


def test_new_elsewhere(place: Place) -> None:
    below = place.cwd / "a" / "b"
    below.mkdir(parents=True)
    (place.cwd / ".agent").mkdir()
    assert place.vade("new", "one", cwd=below).code == 0
    assert place.vade("new", "two", "--scope", "user").code == 0
    assert place.vade("new", "three", "--dir", "x y", "--json").json == {
        "path": f"{place.cwd}/x y/three",
        "name": "three",
        "valid": True,
    }
    for made in (place.cwd / ".agent/skills/one", place.home / ".agent/skills/two", place.cwd / "x y/three"):
        assert (made / "SKILL.md").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "Bad Name"], "Skill name 'Bad Name' must be lowercase. Run: vade new bad-name."),
        (["new", "../x"], "contains invalid characters"),
        (["new", ""], "A skill needs a name such as pdf-forms."),
        (["new", "x", "--description", "a <b>"], "contains an angle bracket"),
        (["new", "x", "--description", "y" * 1100], "exceeds 1024 character limit"),
        (["lits"], "There is no command 'lits': did you mean 'vade list'?"),
        (["zzz"], "'vade --help' lists the commands."),
        (["list", "--nope"], "No such option"),
        (["list", "--source", "moon"], "'moon' is not one of"),
        (["list", "--root", ""], "name a directory"),
        (["inspect"], "Missing argument 'NAME'"),
        (["validate"], "There are no skills in this project: name a PATH."),
        (["search", "?!"], "The query has no words"),
        (["search", "x", "-n", "0"], "0 is not in the range 1<=x<=1000"),
        (["schema", "moon"], "'moon' is not one of"),
    ],
)
def test_wrong_words(place: Place, words: list[str], message: str) -> None:
    done = place.vade(*words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("vade: ")
    assert done.err.count("\n") == 1
    assert not (place.cwd / ".agent").exists()


def test_wrong_configuration(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.json").write_text('{"lenent": true}')
    for words in (["list"], ["inspect", "x"], ["roots"], ["refresh"], ["validate", "x"]):
        done = place.vade(*words)
        assert (done.code, done.out) == (2, "")
        assert "unknown key 'lenent', did you mean 'lenient'?" in done.err
    doctor = place.vade("doctor", "--json")
    assert (doctor.code, doctor.json["healthy"], doctor.json["checks"][1]["status"]) == (1, False, "problem")
    assert "✗ configuration: " in place.vade("doctor").out


def test_roots(place: Place) -> None:
    write_skill(place.cwd, ".claude/skills/x")
    found = place.vade("roots", "--json").json["roots"]
    assert len(found) == 20
    assert {root["status"] for root in found} == {"searched", "absent"}
    lines = place.vade("roots").out.splitlines()
    assert lines[0].split() == ["170", "project", "(claude)", "1", "skill", f"{place.cwd}/.claude/skills"]
    assert lines[-1] == "18 default roots missing: vade roots --all"
    assert len(place.vade("roots", "--all").out.splitlines()) == 20


def test_refresh_reads_everything_again(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/x")
    assert place.vade("list").code == 0
    found = place.vade("refresh", "--json").json
    assert list(found) == ["report", "hash", "changed"]
    assert (found["report"]["read"], found["changed"]) == (4, False)
    assert place.vade("refresh").out.startswith("Read 4 documents again in ")


def test_doctor_of_a_healthy_place(place: Place) -> None:
    done = place.vade("doctor")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "Nothing was left out."
    found = place.vade("doctor", "--json").json
    assert list(found) == ["healthy", "checks", "left_out", "conflicts", "remarks", "report", "environments"]
    assert found["healthy"]


def test_doctor_explains_each_document_that_was_left_out(place: Place) -> None:
    write_skill(place.cwd, "only/bad", BAD)
    write_skill(place.cwd, "only/worse", "---\nname: Worse\ndescription: <x>\n---\n")
    done = place.vade("doctor", "--root", "only", "--no-default-roots")
    assert done.code == 1
    assert done.out.splitlines()[-6:] == [
        f"left out {place.cwd}/only/bad/SKILL.md",
        '  line 3: Invalid YAML in frontmatter: mapping values are not allowed in this context. Put the value in quotes: description: "…"',
        "",
        f"left out {place.cwd}/only/worse/SKILL.md",
        "  line 2: Skill name 'Worse' must be lowercase. Write: name: worse",
        "  line 3: Field 'description' contains an angle bracket (< or >), which could look like markup. Use other words",
    ]
    found = place.vade("doctor", "--root", "only", "--no-default-roots", "--json")
    assert (found.code, found.json["healthy"], len(found.json["left_out"])) == (1, False, 2)


def test_doctor_explains_conflicts_and_counts_remarks(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/file-diff", name="file-diff")
    write_skill(place.cwd, ".agent/skills/other", name="misnamed")
    out = place.vade("doctor").out
    assert f"file-diff: {place.cwd}/.agent/skills/file-diff is used, not" in out
    assert "because its root has a lower priority" in out
    assert (
        "1 skill with remarks (vade inspect NAME shows all of them):\n  misnamed: line 2: Directory name"
        in out
    )


def test_as_a_module(place: Place) -> None:
    words = [sys.executable, "-m", "vademecum", "--version"]
    assert (
        subprocess.run(words, env=place.env, capture_output=True, text=True, check=True).stdout
        == "vade 0.1.0\n"
    )


def test_version(place: Place) -> None:
    assert place.vade("--version").out == "vade 0.1.0\n"


def test_help_has_six_groups_and_cuts_no_line(place: Place) -> None:
    shown = place.vade("--help")
    assert (shown.code, shown.out) == (0, place.vade("-h").out)
    assert shown.out == place.vade("help").out == place.vade().out
    wrong = place.vade("--json", "list")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("vade: --json comes after the command: vade list … --json")
    groups = re.findall(r"^(\S.*):$", shown.out, re.MULTILINE)
    assert groups == ["Options", "Skills", "Run", "Share", "Measure", "Govern", "Set up"]
    assert "..." not in shown.out.partition("Skills:")[2]
    assert max(map(len, shown.out.splitlines())) <= 80


def _groups(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    yield path, group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _groups(command, (*path, name))


@pytest.mark.parametrize(("path", "group"), list(_groups(vade, ())))
def test_every_command_is_listed_and_has_help(
    place: Place, path: tuple[str, ...], group: click.Group
) -> None:
    shown = place.vade("help", *path).out
    listed = set(re.findall(r"^  ([a-z-]+)  +\S", shown, re.MULTILINE))
    assert set(group.list_commands(click.Context(group))) <= listed
    assert not re.search(r"\w\.\.\.$", shown, re.MULTILINE)


def test_help_of_one_command(place: Place) -> None:
    for words in (["run"], ["eval", "run"]):
        assert place.vade("help", *words).out == place.vade(*words, "--help").out
    assert place.vade("help", "run", "--json").json == {"help": place.vade("run", "-h").out.rstrip("\n")}
    assert place.vade("help", "rnu").err == "vade: There is no command 'rnu': did you mean 'vade run'?\n"
    assert place.vade("help", "run", "x").code == 2


@pytest.mark.parametrize(
    ("one", "other"), [("show", "inspect"), ("pack", "export"), ("verify", "verify-pack")]
)
def test_near_twins_differ_in_their_first_words(place: Place, one: str, other: str) -> None:
    lines = dict(re.findall(r"^  ([a-z-]+)  +(\S.*)$", place.vade("--help").out, re.MULTILINE))
    assert lines[one].split()[:3] != lines[other].split()[:3]


def test_output_that_nobody_reads_and_streams_that_cannot_show_it(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/中文")
    for number in range(400):
        write_skill(place.cwd, f".agent/skills/s{number}")
    for command in ("list", "list --json", "doctor", "roots --all"):
        script = f"'{VADE}' {command} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=place.cwd, env=place.env, capture_output=True, text=True, check=True
        )
        assert (done.stdout.splitlines()[-1], done.stderr) == ("0", ""), command
    closed = subprocess.run(
        ["sh", "-c", f"'{VADE}' list >&-"],
        cwd=place.cwd,
        env=place.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
    for env in (
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done2 = place.vade("list", cwd=None, **env)
        assert (done2.code, done2.err) == (0, "")
        assert "\\u4e2d\\u6587" in done2.out
    assert place.vade("list", COLUMNS="20").code == 0


def on_a_terminal(place: Place, *words: str, typed: str = "", **env: str) -> str:
    """What a command shows when it runs on a terminal, where a person types ahead."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    environment = place.env | {"TERM": "xterm-256color"} | env
    with subprocess.Popen(words, cwd=place.cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)
    return shown.decode()


def test_colour_only_on_a_terminal(place: Place) -> None:
    assert "\x1b[" not in place.vade("list").out
    assert "\x1b[1;36m" in on_a_terminal(place, VADE, "list")
    assert "\x1b[1;36m" not in on_a_terminal(place, VADE, "list", NO_COLOR="1")


def test_progress_is_shown_on_a_terminal_once_it_takes_a_second(place: Place) -> None:
    code = (
        "from vademecum.cli.output.printing import ProgressBar\n"
        "progress = ProgressBar('reading skills', clock=iter([0, 0.5, 1.5]).__next__)\n"
        "progress(500); progress(12000); progress.done()"
    )
    shown = on_a_terminal(place, sys.executable, "-c", code)
    assert shown == "\r\x1b[Kreading skills … 12,000\r\x1b[K"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_errors_cannot_steer_a_terminal(place: Place) -> None:
    odd = place.cwd / "e\x1b]0;PWN\x07"
    (odd / ".agent").mkdir(parents=True)
    (odd / ".git").mkdir()
    (odd / ".agent/config.json").write_text('{"lenient": "\x7f\\u009b2J"}')
    done = place.vade("list", cwd=odd)
    assert done.code == 2
    assert done.err.rstrip("\n").isprintable()


def test_debug_shows_the_traceback(place: Place) -> None:
    assert "Traceback" not in place.vade("inspect", "nope").err
    assert "SkillNotFound" in place.vade("--debug", "inspect", "nope").err


def test_interrupt(place: Place, tmp_path: Path) -> None:
    # A tree large enough to be interrupted in.
    for number in range(3000):
        write_skill(place.cwd, f".agent/skills/s{number}")
    started = subprocess.Popen(
        [VADE, "refresh"],
        cwd=place.cwd,
        env=place.env,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    cache = place.home / "cache"
    while not cache.exists() and started.poll() is None:  # the first of its two scans is done
        time.sleep(0.001)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode in {0, 130}
    assert "Traceback" not in err
    assert err.strip() == ("vade: interrupted" if started.returncode == 130 else "")
    assert place.vade("list").code == 0


def test_piped_list_has_one_whole_line_a_skill(place: Place) -> None:
    words = [VADE, "list"]
    env = {key: value for key, value in place.env.items() if key != "COLUMNS"}
    done = subprocess.run(words, cwd=place.cwd, env=env, capture_output=True, text=True, check=True)
    row = done.stdout.splitlines()[0].split("\t")
    assert row[:2] == ["csv-summary", "builtin"]
    assert row[2].endswith("数据概览。")


def test_inspect_explains_a_skill_that_was_left_out_or_lies_under_another_name(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/nodesc", "---\nname: nodesc\n---\n")
    write_skill(place.cwd, ".agent/skills/folder", name="other")
    assert "nodesc/SKILL.md was left out (Missing required field" in place.vade("inspect", "nodesc").err
    assert (
        f"the skill in {place.cwd}/.agent/skills/folder is called 'other'"
        in place.vade("inspect", "folder").err
    )


def test_a_skill_by_the_path_of_its_directory(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/acme/pdf")
    write_skill(place.cwd, "acme/pdf")
    for typed in (".agent/skills/acme/pdf", "./.agent/skills/acme/pdf/", "acme/pdf"):
        found = place.vade("inspect", typed, "--json").json
        assert found["path"] == f"{place.cwd}/.agent/skills/acme/pdf"
    outside = write_skill(place.home, "other skills/mine")
    done = place.vade("inspect", str(outside))
    assert (done.code, f"is not searched: add --root '{place.home}/other skills'." in done.err) == (4, True)
    assert place.vade("inspect", str(outside), "--root", f"{place.home}/other skills").code == 0


def test_every_namesake_can_be_reached(place: Place) -> None:
    for where in (".agent/skills/pdf", ".agent/skills/acme/pdf", ".claude/skills/pdf"):
        write_skill(place.cwd, where)
        found = place.vade("inspect", f"./{where}", "--json").json
        assert found["path"] == f"{place.cwd}/{where}"
    winner = place.vade("inspect", "pdf", "--json").json
    assert winner["overridden_by"] is None
    assert place.vade("inspect", winner["skill_id"], "--json").json["path"] == winner["path"]
    loser = place.vade("inspect", "./.claude/skills/pdf", "--json").json
    assert loser["overridden_by"] == {"source": "project", "path": winner["path"]}
    assert f"overridden    by {winner['path']}" in place.vade("inspect", "./.claude/skills/pdf").out


def test_validate_a_whole_project(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/a")
    write_skill(place.cwd, ".claude/skills/b", "x")
    done = place.vade("validate", "--json")
    assert (done.code, [verdict["valid"] for verdict in done.json]) == (1, [True, False])
    assert place.vade("validate", ".").out == f"✓ {place.cwd}/.agent/skills/a valid\n"


def test_new_says_what_one_would_want_to_know(place: Place) -> None:
    assert f"It overrides {BUILTIN_ROOT}/file-diff" in place.vade("new", "file-diff").out
    assert "vade does not search this directory" in place.vade("new", "x", "--dir", "elsewhere").out
    inside = place.cwd / ".agent" / "skills"
    assert place.vade("new", "y", cwd=inside).code == 0
    assert (inside / "y" / "SKILL.md").is_file()


def test_misspelt_control_is_refused_not_ignored(place: Place) -> None:
    for name, field in (
        ("a", "allowed_tools: Read"),
        ("b", "alowed-tools: Read"),
        ("c", "disable_model_invocation: true"),
    ):
        write_skill(place.cwd, f".agent/skills/{name}", f"---\nname: {name}\ndescription: x\n{field}\n---\n")
    found = place.vade("list", "--lenient", "--json").json["report"]["ignored"]
    assert [entry["code"] for entry in found] == ["misspelt-field"] * 3
    assert "Did you mean 'allowed-tools'?" in found[0]["message"]


def test_names_and_paths_are_completed(place: Place) -> None:
    def completed(words: str, position: int) -> str:
        return place.vade(_VADE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(position)).out

    assert completed("vade inspect fi", 2) == "plain,file-diff\n"
    assert completed("vade validate ex", 2) == "file,ex\n"
    assert completed("vade list --root ex", 3) == "dir,ex\n"


def test_configuration_in_yaml_is_not_silently_ignored(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.yaml").write_text("lenient: true\n")
    assert "config.yaml is not read: write config.json or config.toml" in place.vade("list").err


def test_ten_thousand_skills_are_listed_at_a_terminal_s_width(place: Place) -> None:
    # Laid out by hand: a table of the library took seconds for this.
    for number in range(2000):
        write_skill(place.cwd, f".agent/skills/s{number}")
    lines = place.vade("list", COLUMNS="40").out.splitlines()
    assert len(lines) > 2000
    assert max(map(len, lines)) <= 45


def test_search(place: Place) -> None:
    done = place.vade("search", "compare two documents", "-n", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("file-diff  builtin  Compare two files one to one")
    found = place.vade("search", "比较文件", "--json").json
    assert list(found) == ["results", "fits", "confidence"]
    assert found["fits"] is True
    assert list(found["results"][0]) == ["name", "description", "source", "score"]
    assert found["results"][0]["name"] == "file-diff"
    assert place.vade("search", "zzzz").out == "No skill fits. Try other words; vade list lists all skills.\n"


def test_search_explains(place: Place) -> None:
    shown = place.vade("search", "比较 fiels", "-n", "1", "--explain").out
    assert "fiels (correction: file) in name, description" in shown
    assert "比较 (translation: compar) in description" in shown
    found = place.vade("search", "fiels", "-n", "1", "--explain", "--json").json
    assert found["results"][0]["matches"][0]["kind"] == "correction"


def test_search_says_when_nothing_fits(place: Place) -> None:
    done = place.vade("search", "repair the file of my bicycle and paint the garage", "-n", "1")
    assert done.code == 0
    assert "No skill clearly fits; these are the nearest." in done.err


def test_search_hides_what_is_not_for_people(place: Place) -> None:
    write_skill(
        place.cwd, ".agent/skills/inner", "---\nname: inner\ndescription: zebra\nuser-invocable: false\n---\n"
    )
    assert place.vade("search", "zebra", "--json").json == {"results": [], "fits": False, "confidence": 0.0}


def test_show(place: Place) -> None:
    text = "---\nname: x\ndescription: y\n---\n# Title\n\n## One\nfirst\n\n## Two\nsecond\n"
    skill = write_skill(place.cwd, ".agent/skills/x", text)
    (skill / "references").mkdir()
    (skill / "references" / "r.md").write_text("# R\n\tkeep   this\n")
    assert place.vade("show", "x").out.startswith('<skill_content name="x" source="project">\n# Title\n')
    found = place.vade("show", "x", "--json").json
    assert list(found) == ["text", "report"]
    assert found["report"]["bytes_read"] == len(text)
    assert place.vade("show", "x", "--asset", "references/r.md").out == "# R\n    keep   this\n\n"
    assert place.vade("show", "x", "--section", "one").out == "## One\nfirst\n"
    for words, code in ((["nope"], 4), (["x", "--asset", "../y"], 3), (["x", "--section", "gone"], 4)):
        done = place.vade("show", *words)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)


def test_show_respects_the_limit_on_lines(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/x", "---\nname: x\ndescription: y\n---\n" + "line\n" * 50)
    (place.cwd / ".agent/config.json").write_text('{"security": {"max_skill_body_lines": 10}}')
    refused = place.vade("show", "x")
    assert (refused.code, "50 lines" in refused.err) == (1, True)
    assert place.vade("show", "x", "--truncate", "--json").json["report"]["truncated"]


def test_schema(place: Place) -> None:
    for dialect, key in (("openai", "function"), ("anthropic", "input_schema"), ("mcp", "inputSchema")):
        tools = place.vade("schema", dialect, "--json").json
        assert len(tools) == 7
        assert key in tools[0]
        assert place.vade("schema", dialect).json == tools


def test_permissions_explain(place: Place) -> None:
    (place.home / ".agent").mkdir()
    rule = {
        "permission": "skill",
        "pattern": "csv-*",
        "effect": "deny",
        "match": ["csv-x"],
        "not_match": ["x"],
    }
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": [rule]}))
    done = place.vade("permissions", "explain", "skill", "csv-summary")
    assert done.code == 3
    assert done.out == (
        "deny skill 'csv-summary', because rule 1 of the user's configuration: deny skill 'csv-*'; to allow it, add "
        '{"permission": "skill", "pattern": "csv-summary", "effect": "allow"} at the end of the permissions in ~/.agent/config.json\n'
    )
    assert place.vade("permissions", "explain", "skill", "file-diff").code == 0
    found = place.vade("permissions", "explain", "script", "x", "--json")
    assert (found.code, found.json["effect"], found.json["layer"]) == (3, "ask", "the defaults")


def test_a_denied_skill_is_not_shown_to_its_user_either(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    rules = [
        {"permission": "skill", "pattern": "csv-*", "effect": "deny"},
        {"permission": "resource", "pattern": "file-diff/scripts/*", "effect": "ask"},
    ]
    (place.cwd / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    for words in (["show", "csv-summary"], ["show", "file-diff", "--asset", "./scripts//compare.py"]):
        done = place.vade(*words)
        assert (done.code, done.out) == (3, "")
        assert "of the project's configuration" in done.err
    assert place.vade("show", "file-diff").code == 0


def test_rules_whose_examples_do_not_hold_are_refused(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    for examples, words in (
        ({"match": ["y"]}, "does not match its example 'y'"),
        ({"not_match": ["x1"]}, "matches 'x1', which it should not"),
    ):
        rule = {"permission": "skill", "pattern": "x*", "effect": "deny", **examples}
        (place.cwd / ".agent/config.json").write_text(json.dumps({"permissions": [rule]}))
        done = place.vade("list")
        assert (done.code, words in done.err) == (2, True)


def answered(place: Place, typed: str, *words: str) -> tuple[int, str]:
    """Run a command on a terminal and type at it; gives its exit code and what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=place.cwd, env=place.env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as started:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)
    return started.returncode, shown.decode()


def test_asking_at_the_terminal_and_remembering(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(
        '{"permissions": [{"permission": "skill", "pattern": "mine", "effect": "ask"}]}'
    )
    refused = place.vade("show", "mine")
    assert (refused.code, "nobody is there to ask" in refused.err) == (3, True)
    code, shown = answered(place, "\n\nn\n", VADE, "show", "mine")
    assert (code, shown.count("[o]nce"), "was declined" in shown) == (
        3,
        3,
        True,
    )  # Enter approves nothing
    assert answered(place, "o\n", VADE, "show", "mine")[0] == 0
    assert place.vade("show", "mine").code == 3
    assert answered(place, "a\n", VADE, "show", "mine")[0] == 0
    assert place.vade("show", "mine").code == 0
    (grant,) = place.vade("permissions", "list", "--json").json["grants"]
    assert (grant["permission"], grant["resource"], grant["project"]) == ("skill", "mine", str(place.cwd))
    with (place.cwd / ".agent/skills/mine/SKILL.md").open("a") as out:
        out.write("changed\n")
    assert place.vade("show", "mine").code == 3  # a changed skill asks again
    assert "1 remembered answer" in place.vade("permissions", "list").out
    assert place.vade("permissions", "revoke", str(grant["id"])).out == f"Forgotten: {grant['id']}\n"
    assert place.vade("permissions", "revoke", "77").code == 4


def test_exec_asks_and_runs_and_keeps_its_record(place: Place) -> None:
    (place.cwd / "a.txt").write_text("a\n")
    (place.cwd / "b.txt").write_text("b\n")
    words = ("file-diff", "compare.py", "a.txt", "b.txt")
    refused = place.vade("exec", *words)
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.endswith("to allow it this once: vade exec --yes file-diff compare.py a.txt b.txt.\n")
    done = place.vade("exec", "--yes", *words)
    assert (done.code, "The files differ" in done.out) == (1, True)
    found = place.vade("exec", "--yes", "--json", *words).json
    assert (found["exit_code"], found["reason"]) == (1, "exited")
    events = place.vade("runs", "show", found["run_id"], "--json").json["events"]
    record = next(event for event in events if event["type"] == "tool_called")
    assert (record["tool"], record["approved_by"], record["ok"]) == ("run_script", "once", True)
    assert (place.cwd / ".agent/runs/.gitignore").read_text() == "*\n"
    assert place.vade("exec", "--yes", "file-diff", "missing.py").code == 4
    assert place.vade("exec", "--yes", "no-such-skill", "x.py").code == 4


def test_exec_shows_what_will_run_and_what_changed(place: Place) -> None:
    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("print('first')\n\x1b]0;evil\x07# steer\n")
    code, shown = answered(place, "\nn too early\n", VADE, "exec", "mine", "x.py")
    assert code == 3
    assert "| run mine/scripts/x.py" in shown
    assert "| risk: medium · sandbox: " in shown
    assert "| print('first')" in shown
    assert "\x1b]0;" not in shown
    assert "too early" in shown
    (skill / "scripts/x.py").write_text("print('first')\n")
    assert answered(place, "a\n", VADE, "exec", "mine", "x.py")[0] == 0
    assert place.vade("exec", "mine", "x.py").out == "first\n"
    (skill / "scripts/x.py").write_text("print('second')\n")
    assert place.vade("exec", "mine", "x.py").code == 3  # a changed skill asks again
    code, shown = answered(place, "o\n", VADE, "exec", "mine", "x.py")
    assert (code, "second" in shown) == (0, True)
    assert "| changed since it was last approved:" in shown
    assert "| -print('first')" in shown


def test_what_of_a_project_has_no_effect_is_said(place: Place) -> None:  # N1
    (place.cwd / ".agent").mkdir()
    config = place.cwd / ".agent/config.json"
    execution = {"seconds": 30, "memory_mb": 4096, "sandbox": "none", "require_approval_for": ["grep"]}
    security = {"max_skill_body_lines": 9000}
    settings = {"model": {"provider": "mock"}, "execution": execution, "security": security}
    config.write_text(json.dumps(settings))
    keys = "model, execution.memory_mb, execution.sandbox, security.max_skill_body_lines"
    said = f"{config} has no effect on {keys}: only ~/.agent/config.json can set or raise it."
    assert place.vade("list").err == f"vade: {said}\n"
    assert place.vade("run", "hello").err.startswith(f"vade: {said}\n")
    checks = {check["name"]: check for check in place.vade("doctor", "--json").json["checks"]}
    assert checks["configuration"]["message"] == said
    config.write_text(json.dumps({"execution": {"seconds": 30}, "security": {"max_skill_body_lines": 100}}))
    assert place.vade("list").err == ""


def test_trust_is_for_the_file_as_it_is(place: Place) -> None:
    assert place.vade("trust").code == 2
    (place.cwd / ".agent").mkdir()
    config = place.cwd / ".agent/config.json"
    rule = {"permission": "script", "pattern": "*", "effect": "allow"}
    config.write_text(json.dumps({"permissions": [rule]}))
    explain = ("permissions", "explain", "script", "x/scripts/y.py")
    assert place.vade(*explain).code == 3
    waits = "has 1 rule that would allow something, and is not trusted: read it, then run vade trust."
    assert waits in place.vade("doctor").out
    assert waits in place.vade("list").err
    assert place.vade("trust").out == f"Trusted: {config}\n  allow script *\n"
    assert place.vade(*explain).code == 0
    config.write_text(json.dumps({"permissions": [rule, {**rule, "permission": "tool"}]}))
    assert place.vade(*explain).code == 3
    assert place.vade("trust", "--json").json["trusted"] is True
    assert place.vade(*explain).code == 0
    place.vade("trust", "--remove")
    assert place.vade(*explain).code == 3


def test_explain_a_skill_or_a_path_that_is_not_here(place: Place) -> None:
    done = place.vade("permissions", "explain", "skill", "file-dif")
    assert done.code == 0
    assert done.out.splitlines()[1] == "No skill is called 'file-dif': did you mean 'file-diff'?"
    for words in (("read", "/etc/passwd"), ("write", "../x")):
        assert place.vade("permissions", "explain", *words).code == 3


def test_rules_for_one_agent(place: Place) -> None:
    (place.home / ".agent").mkdir()
    rule = {"permission": "skill", "pattern": "csv-*", "effect": "deny"}
    (place.home / ".agent/config.json").write_text(
        json.dumps({"agents": {"reviewer": {"permissions": [rule]}}})
    )
    explain = ("permissions", "explain", "skill", "csv-summary")
    assert place.vade(*explain).code == 0
    done = place.vade(*explain, "--agent", "reviewer")
    assert (done.code, "rule 1 of the user's configuration for agent 'reviewer'" in done.out) == (3, True)


def test_inspect_names_tools_that_mean_nothing_here(place: Place) -> None:
    write_skill(
        place.cwd,
        ".agent/skills/mine",
        "---\nname: mine\ndescription: x\nallowed-tools: Read mcp__git\n---\n",
    )
    out = place.vade("inspect", "mine").out
    assert "line 4: 'allowed-tools' names 'mcp__git', which is not a tool here and allows nothing\n" in out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["list", "--sorce", "x"], "did you mean '--source'?"),
        (["new", "x", "--to", "y"], "(vade new --help)"),
        (["eval", "run", "x", "--sizes", "1"], "(vade eval run --help)"),
    ],
)
def test_an_option_is_suggested_only_if_it_is_near(place: Place, words: list[str], hint: str) -> None:
    done = place.vade(*words)
    assert (done.code, "did you mean" in done.err) == (2, "mean" in hint), done.err
    assert hint in done.err


def test_a_page_that_cannot_be_written_is_a_sentence(place: Place) -> None:
    place.vade("run", "hello")
    done = place.vade("runs", "show", "--html", "/proc/x.html")
    assert (done.code, "/proc/x.html cannot be written" in done.err) == (2, True), done.err
