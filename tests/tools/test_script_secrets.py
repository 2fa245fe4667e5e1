"""P4: what scripts are given is asked for, reaches the script, and leaves in no form."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import final, run_script, select
from tests.support import Place, write_skill
from vademecum.policy.approval import Answer, Question
from vademecum.secret_store import SecretStore
from vademecum.session.base import Place as SessionPlace
from vademecum.session.session import Session
from vademecum.tools.calls import ListDir, ReadFile, RunScript, UseSkill

VALUE = "correct-horse-battery"
PRINTING = """
import base64, os, sys
value = os.environ.get("PLAIN_VALUE", "")
sys.stdout.write("plain " + value[:9])
sys.stdout.flush()
sys.stdout.write(value[9:] + "\\n")
print("base64", base64.b64encode(b"user:" + value.encode()).decode())
print("hex", value.encode().hex(), file=sys.stderr)
print("given", bool(value))
"""


def configure(place: Place, **settings: Any) -> None:
    (place.home / ".agent").mkdir(exist_ok=True)
    execution = {"sandbox": "none", **settings.pop("execution", {})}
    (place.home / ".agent/config.json").write_text(json.dumps({"execution": execution, **settings}))


def skill_of(place: Place, fields: str = "metadata:\n  secrets: PLAIN_VALUE OTHER_VALUE\n") -> Path:
    text = f"---\nname: mine\ndescription: Prints.\n{fields}---\n# Mine\n"
    skill = write_skill(place.cwd / ".agent/skills", "mine", text)
    (skill / "scripts").mkdir(exist_ok=True)
    (skill / "scripts/x.py").write_text(PRINTING)
    return skill


def store_of(place: Place) -> SecretStore:
    return SecretStore(place.context, keyring=lambda: None)


def forms() -> list[bytes]:
    inside = base64.b64encode(f"user:{VALUE}".encode())[8:-4]
    return [VALUE.encode(), VALUE.encode().hex().encode(), inside]


def left_in(place: Place) -> list[str]:
    """Which files of the records contain a form of the value."""
    runs = place.cwd / ".agent/runs"
    files = [file for file in runs.rglob("*") if file.is_file() and "/skills/" not in str(file)]
    assert any(file.name == "stdout" for file in files)
    return [str(file) for file in files if any(form in file.read_bytes() for form in forms())]


def check_masked(place: Place) -> None:
    assert left_in(place) == []
    (stdout,) = (place.cwd / ".agent/runs").rglob("stdout")
    plain, encoded, given = stdout.read_text().splitlines()
    assert (plain, given) == ("plain [secret]", "given True")
    assert encoded.startswith("base64 ")
    assert "[secret]" in encoded
    (stderr,) = (place.cwd / ".agent/runs").rglob("stderr")
    assert stderr.read_text() == "hex [secret]\n"


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("command", ["exec", "run"])
def test_nothing_given_to_a_script_leaves(place: Place, command: str, kept: bool) -> None:
    skill_of(place)
    env: dict[str, Any] = {}
    if kept:
        configure(place)
        store_of(place).set("PLAIN_VALUE", VALUE, skill="mine")
    else:
        configure(place, execution={"environment": ["PLAIN_VALUE"]})
        env = {"PLAIN_VALUE": VALUE}
    words = ["exec", "--yes", "mine", "x.py"]
    if command == "run":
        turns = place.home / "turns.json"
        turns.write_text(json.dumps([select("mine"), run_script("mine", "scripts/x.py"), final()]))
        words = ["run", "x", "--yes", "--model", f"scripted:{turns}"]
    done = place.vade(*words, **env)
    assert done.code == 0, done.err
    check_masked(place)
    shown = done.out + done.err + place.vade("runs", "show", "--json").out
    assert not any(form.decode() in shown for form in forms())
    page = place.cwd / "page.html"
    place.vade("runs", "show", "--html", str(page))
    assert not any(form in page.read_bytes() for form in forms())


class Asked:
    """Answers every question in the same way, and remembers what was asked."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.wanted: list[str] = []

    def ask(self, question: Question) -> Answer:
        self.wanted.append(question.wanted)
        return Answer(self.verdict, scope="user")


def session_of(place: Place, approver: Asked | None = None) -> Session:
    session = Session(place.build(), place=SessionPlace.at(place.context), approver=approver)
    session.call(UseSkill("mine"))
    return session


def test_a_secret_is_asked_for_by_name_and_remembered_for_this_content(place: Place) -> None:
    skill = skill_of(place)
    configure(place)
    store = store_of(place)
    store.set("PLAIN_VALUE", VALUE, skill="mine")
    store.set("UNASKED_VALUE", "another-value-of-mine", skill="mine")
    call, approver = RunScript("mine", "x.py"), Asked("always")
    seen = session_of(place, approver).call(call)
    assert "plain [secret]" in seen.text
    assert len(approver.wanted) == 1
    assert "secret mine/PLAIN_VALUE" in approver.wanted[0]
    assert "OTHER_VALUE" not in approver.wanted[0]  # nothing is kept for it
    assert "UNASKED_VALUE" not in approver.wanted[0]  # the skill does not want it
    assert session_of(place).call(call).ok  # remembered
    (skill / "scripts/other.py").write_text("print(1)")
    again = Asked("always")
    assert session_of(place, again).call(call).ok
    assert len(again.wanted) == 1


def test_a_secret_that_is_not_allowed_is_not_given(place: Place) -> None:
    skill_of(place)
    rules = [
        {"permission": "script", "pattern": "*", "effect": "allow"},
        {"permission": "secret", "pattern": "mine/*", "effect": "deny"},
    ]
    configure(place, permissions=rules[:1])
    store_of(place).set("PLAIN_VALUE", VALUE, skill="mine")
    refused = session_of(place).call(RunScript("mine", "x.py"))
    assert (refused.code, refused.text) == (
        "denied",
        "ask secret 'mine/PLAIN_VALUE' (nobody is there to ask).",
    )
    configure(place, permissions=rules)
    refused = session_of(place, Asked("once")).call(RunScript("mine", "x.py"))
    assert (refused.code, refused.text) == ("denied", "deny secret 'mine/PLAIN_VALUE'.")
    explained = place.vade("permissions", "explain", "secret", "mine/PLAIN_VALUE")
    assert (explained.code, "rule 2 of the user's configuration" in explained.out) == (3, True)


def test_a_skill_gets_only_what_is_kept_for_it(place: Place) -> None:
    skill_of(place)
    configure(place, permissions=[{"permission": "script", "pattern": "*", "effect": "allow"}])
    store_of(place).set("PLAIN_VALUE", VALUE, skill="another")
    store_of(place).set("PLAIN_VALUE", VALUE, skill=None)
    seen = session_of(place).call(RunScript("mine", "x.py"))
    assert "given False" in seen.text


def test_a_secret_that_is_not_set_is_named_for_people(place: Place) -> None:
    skill_of(place)
    configure(place, permissions=[{"permission": "script", "pattern": "*", "effect": "allow"}])
    said = "vade: PLAIN_VALUE is not set for mine: vade secrets set PLAIN_VALUE --skill mine\n"
    assert said in place.vade("exec", "--yes", "mine", "x.py").err
    turns = place.home / "turns.json"
    turns.write_text(json.dumps([select("mine"), run_script("mine", "scripts/x.py"), final()]))
    assert said in place.vade("run", "x", "--yes", "--model", f"scripted:{turns}").err
    assert "vade secrets" not in session_of(place, Asked("once")).call(RunScript("mine", "x.py")).text
    configure(place, execution={"environment": ["PLAIN_VALUE"]})
    assert said not in place.vade("exec", "--yes", "mine", "x.py", PLAIN_VALUE=VALUE).err


def test_what_was_given_stays_masked_when_the_place_changes(place: Place) -> None:
    skill_of(place)
    configure(place)
    store_of(place).set("PLAIN_VALUE", VALUE, skill="mine")
    session = session_of(place, Asked("once"))
    session.call(RunScript("mine", "x.py"))
    (place.cwd / "note.txt").write_text(f"it is {VALUE}\n")
    assert session.call(ReadFile("note.txt")).text == "it is [secret]\n"
    other = session_of(place)
    session.adopt(other.gate.policy, other.view, other.place)
    assert session.call(ReadFile("note.txt")).text == "it is [secret]\n"


def test_the_store_cannot_be_read_by_a_tool(place: Place) -> None:
    configure(place, permissions=[{"permission": "*", "pattern": "*", "effect": "allow"}])
    store_of(place).set("PLAIN_VALUE", VALUE, skill="mine")
    at_home = Place(place.home, place.home)
    write_skill(place.home / ".agent/skills", "mine")
    session = session_of(at_home)
    assert session.call(ReadFile(".agent/config.json")).ok
    assert session.call(ReadFile(".agent/secrets.json")).code == "missing"
    assert "secrets" not in session.call(ListDir(".agent")).text
