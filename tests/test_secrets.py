"""The store of secrets: who may have which value, where it is kept, and what is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import VADE, Place
from vademecum import ConfigError
from vademecum.secret_store import SERVICE, SecretStore, StoredSecret, name_problem


class MemoryKeyring:
    """A keyring in memory; a locked one fails, a forgetful one loses what it is given."""

    def __init__(self, *, locked: bool = False, forgetful: bool = False) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = locked
        self._forgetful = forgetful

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise RuntimeError("locked")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.locked:
            raise RuntimeError("locked")
        if not self._forgetful:
            self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


def store_of(place: Place, keyring: MemoryKeyring | None = None) -> SecretStore:
    return SecretStore(place.context, keyring=lambda: keyring)


@pytest.mark.parametrize("keyring", [None, MemoryKeyring(), MemoryKeyring(locked=True)])
def test_a_value_is_for_those_it_was_set_for(place: Place, keyring: MemoryKeyring | None) -> None:
    store = store_of(place, keyring)
    store.set("A_TOKEN", "value-for-pdf", skill="pdf")
    store.set("A_TOKEN", "value-for-csv", skill="csv")
    store.set("A_TOKEN", "value-of-models", skill=None)
    store.set("B_TOKEN", "wert für später", skill="pdf")
    store.set("A_TOKEN", "newer-for-pdf", skill="pdf")
    assert store.get("A_TOKEN", skill="pdf") == "newer-for-pdf"
    assert store.get("A_TOKEN", skill=None) == "value-of-models"
    assert store.get("A_TOKEN", skill="other") is None
    asked = ["A_TOKEN", "B_TOKEN", "C_TOKEN"]
    assert store.for_skill("pdf", asked) == {"A_TOKEN": "newer-for-pdf", "B_TOKEN": "wert für später"}
    assert store.for_skill("pdf", []) == {}
    assert [(each.name, each.skill) for each in store.list()] == [
        ("A_TOKEN", None),
        ("A_TOKEN", "csv"),
        ("A_TOKEN", "pdf"),
        ("B_TOKEN", "pdf"),
    ]
    first = store.list()[0]
    assert (store.remove(first), store.remove(first), len(store.list())) == (True, False, 3)


def test_a_keyring_keeps_the_values_and_the_file_only_names(place: Place) -> None:
    keyring = MemoryKeyring()
    store = store_of(place, keyring)
    assert store.set("A_TOKEN", "correct-horse", skill="pdf") == StoredSecret("A_TOKEN", "pdf", "keyring")
    assert "correct-horse" not in store.path.read_text()
    assert keyring.kept == {(SERVICE, "skill/pdf/A_TOKEN"): "correct-horse"}
    with pytest.raises(ConfigError, match=r"cannot be read from the keyring .*: set it again"):
        store_of(place).get("A_TOKEN", skill="pdf")
    keyring.locked = True
    with pytest.raises(ConfigError, match="RuntimeError: locked"):
        store.get("A_TOKEN", skill="pdf")
    keyring.locked = False
    store.remove(store.list()[0])
    assert keyring.kept == {}


@pytest.mark.parametrize("keyring", [MemoryKeyring(locked=True), MemoryKeyring(forgetful=True)])
def test_a_keyring_that_does_not_work(place: Place, keyring: MemoryKeyring) -> None:
    store = store_of(place, keyring)
    assert store.set("A_TOKEN", "correct-horse", skill="pdf").place == "file"
    assert store.get("A_TOKEN", skill="pdf") == "correct-horse"


def test_the_file_is_private(place: Place) -> None:
    store = store_of(place)
    store.set("A_TOKEN", "correct-horse", skill="pdf")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o620):
        store.path.chmod(mode)
        for use in (store.list, lambda: store.get("A_TOKEN", skill="pdf")):
            with pytest.raises(
                ConfigError, match=r"others can read or change it: run chmod 600 .*secrets\.json"
            ):
                use()
    store.path.chmod(0o600)
    store.path.write_text('{"secrets": "correct-horse"}')
    with pytest.raises(ConfigError, match="is not a file of secrets: repair or remove it") as raised:
        store.list()
    assert "correct-horse" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(place: Place) -> None:
    store = store_of(place)
    store.set("A_TOKEN", "correct-horse", skill="pdf")
    os.chown(store.path, 12345, 12345)
    with pytest.raises(ConfigError, match="it belongs to another user"):
        store.list()


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "path", "HOME", "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "https_proxy"),
        *("GIT_SSH_COMMAND", "A-B", "1A", "", "A B", "Ä", "A\n"),
    ],
)
def test_names_that_are_refused(place: Place, name: str) -> None:
    assert name_problem(name)
    with pytest.raises(ConfigError, match="cannot be the name of a secret"):
        store_of(place).set(name, "correct-horse", skill="pdf")
    assert not (place.home / ".agent").exists()


def test_names_that_are_usual() -> None:
    names = [
        "OPENAI_API_KEY",
        "NODE_AUTH_TOKEN",
        "RUBYGEMS_API_KEY",
        "GIT_TOKEN",
        "NAS_USER",
        "_x",
        "HOMEPAGE",
    ]
    assert [name for name in names if name_problem(name)] == []


@pytest.mark.parametrize(
    "value", ["", "short12", "       x       ", "nul\0inside-it", "half \ud800 char", "x" * 70_000]
)
def test_values_that_are_refused(place: Place, value: str) -> None:
    with pytest.raises(ConfigError, match="The value of A_TOKEN is not kept: it ") as raised:
        store_of(place).set("A_TOKEN", value, skill="pdf")
    assert not value.strip() or value not in str(raised.value)
    assert store_of(place).list() == ()


def test_processes_at_once_lose_nothing(place: Place) -> None:
    code = (
        "import sys; from pathlib import Path; from vademecum import Context;"
        "from vademecum.secret_store import SecretStore;"
        "store = SecretStore(Context(Path('/'), Path(sys.argv[1]), {}), keyring=lambda: None);"
        "[store.set(f'T{sys.argv[2]}_{n}', 'correct-horse', skill='pdf') for n in range(20)]"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(place.home), str(number)]) for number in range(4)
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    assert len(store_of(place).list()) == 80


def run(place: Place, *words: str, given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VADE, "secrets", *words],
        cwd=place.cwd,
        env=place.env,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command(place: Place) -> None:
    done = run(place, "set", "CANVA_TOKEN", "--skill", "canva", given="correct-horse\n")
    assert (done.returncode, done.stdout) == (
        0,
        "Stored CANVA_TOKEN for the skill canva in ~/.agent/secrets.json\n",
    )
    done = run(place, "set", "OPENAI_API_KEY", "--models", "--json", given="battery-staple")
    kept = {"name": "OPENAI_API_KEY", "skill": None, "models": True, "place": "file"}
    assert json.loads(done.stdout) == kept
    assert store_of(place).get("CANVA_TOKEN", skill="canva") == "correct-horse"
    shown = place.vade("secrets", "list")
    assert shown.out == (
        "CANVA_TOKEN  for the skill canva, in the file\n"
        "OPENAI_API_KEY  for the models, in the file\n"
        "2 secrets\n"
    )
    assert place.vade("secrets", "list", "--json").json["secrets"][1] == kept
    done = run(place, "remove", "CANVA_TOKEN", "--models", given="")
    assert (done.returncode, done.stderr) == (
        4,
        "vade: There is no such secret 'CANVA_TOKEN': `vade secrets list` shows them.\n",
    )
    assert place.vade("secrets", "remove", "CANVA_TOKEN").out == "Removed CANVA_TOKEN for the skill canva\n"
    assert [each.name for each in store_of(place).list()] == ["OPENAI_API_KEY"]


@pytest.mark.parametrize(
    ("words", "given", "code", "says"),
    [
        (("A_TOKEN", "hunter2hunter2", "--models"), "", 2, "The value is not an argument"),
        (("A_TOKEN",), "correct-horse", 2, "Say what it is for: --skill SKILL or --models."),
        (("A_TOKEN", "--models", "--skill", "pdf"), "correct-horse", 2, "Say what it is for"),
        (("A_TOKEN", "--skill", "No Skill"), "correct-horse", 2, "is not the name of a skill"),
        (("PATH", "--skill", "pdf"), "correct-horse", 2, "it would change how programs start"),
        (("A_TOKEN", "--skill", "pdf"), "hunter2", 2, "fewer than 8 characters"),
    ],
)
def test_what_the_command_refuses(
    place: Place, words: tuple[str, ...], given: str, code: int, says: str
) -> None:
    done = run(place, "set", *words, given=given)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert store_of(place).list() == ()


def test_typed_values_are_not_echoed(place: Place, tmp_path: Path) -> None:
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [VADE, "secrets", "set", "A_TOKEN", "--skill", "pdf"],
        cwd=place.cwd,
        env=place.env,
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    shown = os.read(parent, 1000)
    while b"Value of A_TOKEN" not in shown:
        shown += os.read(parent, 1000)
    os.write(parent, b"correct-horse\n")
    assert process.wait(60) == 0
    while b"Stored" not in shown:
        shown += os.read(parent, 1000)
    os.close(parent)
    assert b"correct-horse" not in shown
    assert store_of(place).get("A_TOKEN", skill="pdf") == "correct-horse"
