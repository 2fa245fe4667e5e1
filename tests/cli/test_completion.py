"""What the shell offers when somebody presses Tab, asked for as the shells do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import VADE, Place, write_skill


def offered(place: Place, line: str, **env: str) -> list[str]:
    """What is offered for the last word of a line, which may be empty."""
    around = {"_VADE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = place.vade(cwd=None, **around, **env)
    assert (done.code, done.err) == (0, ""), line
    return done.out.split()


BUILT_IN = ["plain,csv-summary", "plain,file-diff", "plain,skill-author"]


@pytest.mark.parametrize(
    "line",
    [
        "inspect ",
        "show ",
        "exec ",
        "exec --yes ",
        "export ",
        "eval run ",
        "eval init ",
        "run x --skill ",
        "eval run x --without ",
    ],
)
def test_names_of_skills(place: Place, line: str) -> None:
    assert offered(place, f"vade {line}") == BUILT_IN
    assert offered(place, f"vade {line}fi") == ["plain,file-diff"]


def test_names_of_named_roots_and_each_once(place: Place) -> None:
    write_skill(place.cwd, "elsewhere/other")
    assert offered(place, "vade show --root elsewhere --no-default-roots ") == ["plain,other"]
    assert offered(place, "vade show --root elsewhere o") == ["plain,other"]
    assert offered(place, "vade export file-diff ") == ["plain,csv-summary", "plain,skill-author"]
    assert offered(place, "vade run x --skill file-diff --skill f") == []


def test_scripts_assets_and_files(place: Place) -> None:
    assert offered(place, "vade exec file-diff ") == ["plain,compare.py"]
    assert offered(place, "vade exec --yes file-diff scripts/") == ["plain,scripts/compare.py"]
    assert offered(place, "vade exec file-diff compare.py a") == ["file,a"]
    assert offered(place, "vade exec --file a") == ["file,a"]
    assert offered(place, "vade show file-diff --asset ") == ["plain,scripts/compare.py"]
    assert offered(place, "vade show skill-author --asset r") == ["plain,references/descriptions.md"]


@pytest.mark.parametrize("command", ["uninstall", "update", "verify", "lock", "diff"])
def test_names_of_the_root_that_is_meant(place: Place, command: str) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    write_skill(place.home, ".agent/skills/yours")
    assert offered(place, f"vade {command} ") == ["plain,mine"]
    assert offered(place, f"vade {command} --scope user ") == ["plain,yours"]


def test_names_that_can_be_restored(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    assert offered(place, "vade restore ") == []
    assert place.vade("uninstall", "mine", "--force").code == 0
    assert offered(place, "vade restore ") == ["plain,mine"]


def test_runs_the_latest_first(place: Place) -> None:
    assert offered(place, "vade runs show ") == []
    for _ in range(2):
        place.vade("run", "zzz")
    first, second = (run["run_id"] for run in place.vade("runs", "list", "--json").json["runs"])
    for line in ("runs show ", "runs replay 2", "govern explain charter.yaml --run "):
        assert offered(place, f"vade {line}") == [f"plain,{second}", f"plain,{first}"]
    assert offered(place, f"vade runs show {first}") == [f"plain,{first}"]


def test_quiet_whatever_is_wrong(place: Place) -> None:
    lines = (
        "show ",
        "exec gone ",
        "exec file-diff ",
        "show gone --asset ",
        "lits x",
        "runs lsit x",
        "exec --root '' ",
    )
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.json").write_text("{")
    (place.cwd / ".agent/runs").write_text("a file")
    for line in (*lines, "runs show ", "uninstall ", "restore ", "run x --skill "):
        assert offered(place, f"vade {line}") == [], line
    (place.cwd / ".agent/config.json").unlink()
    for line in ("exec gone ", "show gone --asset ", "show --asset ", "lits x"):
        assert offered(place, f"vade {line}") == [], line


def test_nothing_is_put_in_order_on_the_way(place: Place) -> None:
    write_skill(place.cwd, ".agent/skills/mine")
    journal = place.cwd / ".agent/skills/.journal.json"
    journal.write_text("{}")
    assert "plain,mine" in offered(place, "vade show ")
    assert journal.read_text() == "{}"


def test_in_a_real_shell(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "complete.bash"
    script.write_text(
        'eval "$(_VADE_COMPLETE=bash_source vade)"\n'
        "COMP_WORDS=(vade exec file-diff '') COMP_CWORD=3\n"
        "_vade_completion vade; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", str(script)], cwd=place.cwd, env=place.env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("compare.py\n", "")
    assert Path(VADE).exists()
