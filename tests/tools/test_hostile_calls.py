"""Ways around that were found and closed, each as it was found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.policy.test_approval import Saying
from tests.support import Place, index_of, write_skill
from tests.tools.support import Bench
from vademecum import ConfigError, Policy
from vademecum.errors import Declined
from vademecum.masking import Secrets
from vademecum.policy.approval import Answer, Desk, Question
from vademecum.policy.base import Decision, Effect, Request, Rule
from vademecum.policy.engine import RuleTable, default_rules
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.runs.record import masked, masked_values, new_run
from vademecum.sandbox.available import Real
from vademecum.session.session import Session
from vademecum.tools.hosts import hop_to, is_private

ALLOW, ASK, DENY = Effect
EVERYTHING = Rule("*", "*", ALLOW, "test", 1)


def denying(*rules: tuple[str, str]) -> Policy:
    return Policy(
        [EVERYTHING, *(Rule(p, pattern, DENY, "test", n) for n, (p, pattern) in enumerate(rules, 2))]
    )


def test_the_kernels_own_settings_are_out_of_reach(bench: Bench) -> None:
    bench.script(
        """
        import os
        for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/vm/swappiness', '/proc/sysrq-trigger'):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
                print('opened', path)
            except OSError:
                print('kept out')
        """
    )
    assert bench.printed().splitlines() == ["kept out"] * 3


def test_a_skill_brings_no_interpreter_of_its_own(bench: Bench) -> None:
    secret = bench.place / "home" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    tool = bench.skill / "scripts" / "tool"
    tool.write_bytes(Path("/bin/cat").read_bytes())
    tool.chmod(0o755)
    (bench.skill / "lib").symlink_to(bench.place)
    bench.script(f"#!{tool}\n", "x.txt")
    seen = bench.run(str(bench.skill / "lib/home/secret"), name="x.txt")
    assert seen.code == "interpreter"


def test_inputs_are_what_was_opened(tmp_path: Path, sandbox: Real) -> None:
    (tmp_path / "outside").write_text("OUTSIDE")

    class Swaps:
        def ask(self, question: Question) -> Answer:
            (bench.project / "in.txt").unlink()
            (bench.project / "in.txt").symlink_to(tmp_path / "outside")
            return Answer("once")

    rules = [EVERYTHING, Rule("script", "*", ASK, "test", 2)]
    bench = Bench(tmp_path, sandbox, policy=Policy(rules), approver=Swaps())
    (bench.project / "in.txt").write_text("inside")
    bench.script("print(open('in.txt').read())")
    assert bench.printed(files=("in.txt",)) == "inside"


@pytest.mark.parametrize("files", [["secrets/key"], ["docs", "docs/.git/hooks/new"], [".env"], ["none*"]])
def test_inputs_are_files_that_may_be_read(tmp_path: Path, files: list[str]) -> None:
    bench = Bench(tmp_path, policy=denying(("read", ".env"), ("read", "secrets/*")))
    for name in (".env", "secrets/key", "docs/a.md"):
        (bench.project / name).parent.mkdir(exist_ok=True)
        (bench.project / name).write_text("SECRET")
    bench.script("print('ran')")
    before = sorted(bench.project.rglob("*"))
    assert not bench.run(files=tuple(files)).ok
    assert sorted(bench.project.rglob("*")) == before


def test_a_denied_skill_is_not_touched(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("skill", "tried")))
    bench.script("print(1)")
    seen = bench.run(name="no-such.py")
    assert (seen.code, "x.py" in seen.text) == ("skill-not-found", False)
    assert list(tmp_path.glob("runs/*/calls")) == list(tmp_path.glob("runs/*/skills")) == []


def test_a_denied_skill_is_not_read_by_another_tool(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", policy=denying(("skill", "hidden")))
    write_skill(bench.project, "hidden")
    (bench.project / "alias").symlink_to("hidden")
    session = Session(
        index_of(bench.project), place=bench.session.place, policy=bench.policy, runs=tmp_path / "runs"
    )
    for path in ("hidden/SKILL.md", "alias/SKILL.md"):
        assert session.call_named("read_file", {"path": path}).code == "missing"
    assert session.call_named("grep", {"pattern": "What"}).text == "no line matches"
    assert session.call_named("list_dir", {"path": "."}).text == ""


def test_copies_and_other_runs_are_not_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=Policy(default_rules()))
    for name in ("skills/001/x/SKILL.md", "observations/a.txt"):
        file = bench.project / ".agent/runs/1" / name
        file.parent.mkdir(parents=True)
        file.write_text("x")
    assert bench.call("read_file", {"path": ".agent/runs/1/skills/001/x/SKILL.md"}).code == "missing"
    assert bench.call("read_file", {"path": ".agent/runs/1/observations/a.txt"}).code == "missing"


def test_every_active_skill_bounds_direct_tools(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_skill(tmp_path / "root", "narrow", "---\nname: narrow\ndescription: y\nallowed-tools: Read\n---\n")
    bench.script("print(1)")
    written = {"path": "x", "content": "y"}
    assert bench.call("write_file", written).ok
    bench.session.activate("narrow")
    for named in (None, "tried", "narrow"):
        assert bench.call("write_file", written, for_skill=named).code == "denied"
    assert bench.call("read_file", {"path": "x"}).ok
    assert bench.run().ok


def test_rules_know_a_file_by_its_real_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("read", "secrets/*")))
    (bench.project / "secrets").mkdir()
    (bench.project / "secrets/k").write_text("KEY=SECRET")
    (bench.project / "docs").symlink_to("secrets")
    assert bench.call("read_file", {"path": "docs/k"}).code == "missing"
    assert bench.call("grep", {"pattern": "KEY", "path": "docs"}).text == "no line matches"
    assert bench.call("list_dir", {"path": "docs"}).text == ""


def test_rules_begin_at_the_project(place: Place) -> None:
    (place.cwd / ".agent").mkdir()
    (place.cwd / ".agent/config.json").write_text(
        json.dumps({"permissions": [{"permission": "read", "pattern": "secrets/*", "effect": "deny"}]})
    )
    (place.cwd / "secrets").mkdir()
    (place.cwd / "secrets/k.csv").write_text("KEY\n1\n")
    done = place.vade("exec", "--yes", "csv-summary", "summarise.py", "k.csv", cwd=place.cwd / "secrets")
    assert (done.code, "deny read 'secrets/k.csv'" in done.err) == (3, True)


def test_our_own_directories_themselves(tmp_path: Path) -> None:
    policy = Policy(default_rules())
    for name in (".git", ".agent", "sub/.git", "sub/.agent", ".git/config"):
        for permission in ("write", "delete"):
            assert policy.decide(Request(permission, (name,))).effect is DENY


def test_a_port_does_not_get_around_a_rule() -> None:
    policy = denying(("network", "evil.test"))
    for url in ("http://evil.test/", "http://evil.test:443/", "https://evil.test:8443/"):
        assert policy.decide(Request("network", (hop_to(url).resource,))).effect is DENY


def test_a_script_with_the_name_of_a_host(tmp_path: Path) -> None:
    rules = [
        *default_rules(),
        Rule("network", "*example.com", ALLOW, "test", 1),
        Rule("script", "*", ALLOW, "test", 2),
    ]
    saying = Saying(Answer("reject"))
    bench = Bench(tmp_path, policy=Policy(rules), approver=saying)
    bench.script("#!/bin/sh\n", "api.example.com")
    with pytest.raises(Declined):
        bench.run(name="api.example.com", network=True)
    assert saying.asked[0].wanted == "script-network tried/scripts/api.example.com; network *"


@pytest.mark.parametrize("address", ["64:ff9b::a00:1", "::7f00:1", "::ffff:0:127.0.0.1", "2001:0:1::1"])
def test_addresses_inside_addresses(address: str) -> None:
    assert is_private(address)


def test_datagrams_and_shared_memory_stay_inside(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(tmp_path / "log"))
    server.setblocking(False)
    bench.script(
        """
        import ctypes, socket, sys
        try:
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            one.sendto(b'out', sys.argv[1])
        except OSError:
            print('kept in')
        one, other = socket.socketpair()
        one.send(b'x')
        print(other.recv(1))
        libc = ctypes.CDLL(None)
        print('made' if libc.shmget(0x5EAF00D, 4096, 0o1666) >= 0 else 'not made')
        """
    )
    lines = bench.printed(str(tmp_path / "log")).splitlines()
    assert lines[:2] == ["kept in", "b'x'"]
    with pytest.raises(BlockingIOError):
        server.recv(10)
    assert "0x05eaf00d" not in Path("/proc/sysvipc/shm").read_text().lower()
    assert " 99544077 " not in Path("/proc/sysvipc/shm").read_text()
    server.close()


def test_memory_and_disk_without_a_name(tmp_path: Path, sandbox: Real) -> None:
    from vademecum.config import ExecutionSettings

    bench = Bench(tmp_path, sandbox, execution=ExecutionSettings(seconds=120, disk_mb=16))
    bench.script(
        """
        import os, time
        held = []
        for n in range(20):
            file = open(f'x{n}', 'wb')
            os.unlink(f'x{n}')
            file.write(b'x' * 4_000_000)
            file.flush()
            held.append(file)
        time.sleep(1000)  # until it is ended
        """
    )
    assert bench.run().facts["reason"] == "disk"
    bench.script(
        "import os\ntry:\n    os.memfd_create('x')\n    print('made')\nexcept OSError:\n    print('none')"
    )
    assert bench.printed() == "none"


def test_a_directory_that_cannot_be_looked_into_is_removed(bench: Bench) -> None:
    bench.script(
        """
        import os
        place = os.environ['TMPDIR']
        os.makedirs(place + '/a/b')
        os.chmod(place + '/a', 0)
        """
    )
    seen = bench.run()
    assert not (Path(seen.files[0]).parent / "tmp").exists()


# What was answered is what counts.


def passing(gate: Gate, *requests: Request, digest: str = "d") -> bool:
    try:
        gate.require(*requests, digest=lambda: digest)
    except Declined:
        return False
    return True


def test_answers_do_not_recombine_and_are_for_one_agent(tmp_path: Path) -> None:
    def bench(name: str, saying: Saying) -> Bench:
        return Bench(tmp_path / name, policy=Policy(default_rules()), approver=saying)

    (tmp_path / "one").mkdir()
    saying = Saying(Answer("always", scope="run"))
    found = bench("one", saying)
    (found.project / "a.txt").write_text("a")
    (found.project / "b.txt").write_text("b")
    assert found.call("write_file", {"path": "a.txt", "content": "x"}).ok
    assert found.call("delete_file", {"path": "b.txt"}).ok
    assert len(saying.asked) == 2
    found.call("delete_file", {"path": "a.txt"})
    assert len(saying.asked) == 3
    grants = Grants(tmp_path / "grants.db")
    grants.add(Request("tool", ("x",), agent="one"), digest="", scope="user", project=tmp_path)
    assert grants.cover(Request("tool", ("x",), agent="one"), digest="", project=tmp_path)
    assert not grants.cover(Request("tool", ("x",), agent="other"), digest="", project=tmp_path)


def test_always_is_for_the_content_that_was_shown() -> None:
    import threading
    import time

    desk = Desk()
    request = Request("script", ("x",))
    answers: dict[str, Answer] = {}

    def ask(digest: str) -> None:
        question = Question(digest, (request,), Decision(ASK, None, "script", "x"), digest=digest)
        answers[digest] = desk.ask(question)

    threads = [threading.Thread(target=ask, args=(digest,)) for digest in ("good", "evil")]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while len(desk.waiting()) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    desk.answer("good", Answer("always"))
    threads[0].join(timeout=60)
    assert [question.id for question in desk.waiting()] == ["evil"]
    desk.close()
    threads[1].join(timeout=60)
    assert (answers["good"].verdict, answers["evil"].verdict) == ("always", "reject")


def test_a_no_outlives_a_change_of_what_it_was_about(tmp_path: Path) -> None:
    saying = Saying(Answer("reject"))
    gate = Gate(Policy(default_rules()), project=tmp_path, approver=saying)
    request = Request("script", ("x",))
    assert not passing(gate, request, digest="one")
    assert not passing(gate, request, digest="two")
    assert not passing(gate, request, Request("network", ("y",)), digest="three")
    assert len(saying.asked) == 1


def test_what_a_person_sees_is_the_whole_skill(tmp_path: Path) -> None:
    saying = Saying(Answer("once"))
    bench = Bench(tmp_path, policy=Policy(default_rules()), approver=saying)
    bench.script("import helper")
    bench.script("print('good')", "helper.py")
    bench.run(*["a"] * 60)
    assert " … and 11 more" in saying.asked[0].about
    bench.script("print('evil')", "helper.py")
    bench.run()
    assert "changed since it was last approved: scripts/helper.py" in saying.asked[1].about
    bench.run()
    assert "nothing of the skill has changed" in saying.asked[2].about
    bench.script(b"#!/bin/sh\n#\0\necho evil\n", "odd.sh")
    bench.run(name="odd.sh")
    assert "[not text: 23 bytes, sha256 " in saying.asked[3].about


def test_a_record_is_not_led_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    runs = tmp_path / "p" / ".agent" / "runs"
    runs.parent.mkdir(parents=True)
    runs.symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="is a link"):
        new_run(runs)
    runs.unlink()
    runs.mkdir()
    (runs / ".gitignore").symlink_to(tmp_path / "victim" / "made")
    new_run(runs)
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"GPG_PASSPHRASE": "correct-horse"}, "correct-horse"),
        ({"DATABASE_URL": "postgres://me:hunter2hunter2@db/x"}, "hunter2hunter2"),
        ({"TLS_KEY": "-----BEGIN\nabcdef\n-----END"}, "-----BEGIN\\nabcdef\\n-----END"),
    ],
)
def test_secrets_of_other_shapes(env: dict[str, str], text: str) -> None:
    assert masked(f"x {text} y", Secrets(env)) == "x [secret] y"


def test_secrets_by_the_name_of_a_header() -> None:
    headers = {"X-Api-Key": "9f8e", "Cookie": "a=b", "Accept": "text/plain"}
    assert masked_values(headers, Secrets({})) == {
        "X-Api-Key": "[secret]",
        "Cookie": "[secret]",
        "Accept": "text/plain",
    }
    assert masked_values({"abcdefghij": 1}, Secrets({"A_TOKEN": "abcdefghij"})) == {"[secret]": 1}


def test_a_secret_at_the_cut_is_not_half_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, env={"A_TOKEN": "correct-horse-battery"})
    bench.call("write_file", {"path": "x", "content": "a" * 1985 + "correct-horse-battery"})
    assert "correct" not in repr(bench.records)


def test_calls_that_are_wrong_are_on_the_record_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    wrong: list[tuple[object, object]] = [("nope", {}), ("read_file", {}), ([], {}), (None, None)]
    wrong += [("run_script", {"skill": "tried", "script": "x.py", "arguments": ["\ud800"]})]
    wrong += [("run_script", {"skill": "tried", "script": "x.py", "arguments": ["a\0b"]})]
    wrong += [("grep", {"pattern": "\ud800"}), ("network_request", {"url": "http://x/", "body": "\ud800"})]
    for tool, arguments in wrong:
        assert not bench.call(tool, arguments).ok
    assert len(bench.records) == len(wrong)


def test_odd_scripts_are_refusals(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.script(b"#!/bin/sh\0\n", "nul")
    assert bench.run(name="nul").code == "interpreter"
    bench.script("# /// script\n# dependencies = " + "[" * 3000 + "\n# ///\n")
    assert bench.run().code == "dependencies"


def test_missing_directories_do_not_cost_descriptors(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.call("delete_file", {"path": "none/x"}).code == "missing"  # the record is open now
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert bench.call("delete_file", {"path": "none/x"}).code == "missing"
        assert bench.run("a", name="none.py").code == "missing"
    assert len(os.listdir("/proc/self/fd")) == before


def test_long_names_and_modes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    name = "长" * 82
    assert bench.call("write_file", {"path": name, "content": "x"}).ok
    (bench.project / "suid").write_text("x")
    (bench.project / "suid").chmod(0o4755)
    bench.call("write_file", {"path": "suid", "content": "y"})
    assert (bench.project / "suid").stat().st_mode & 0o7777 == 0o755
    for path in ("fil", "fil/x"):
        (bench.project / path).parent.mkdir(exist_ok=True)
        (bench.project / path).write_text("x")
        assert bench.call("delete_file", {"path": path}).ok


def test_an_optional_end_is_optional_once() -> None:
    table = RuleTable([Rule("p", "  * *", ALLOW, "test", 1)])
    assert table.last_match(" ") is None
    assert table.last_match("  x") is not None


@pytest.mark.parametrize("typed", ["reject", "refuse it", "never!"])
def test_words_that_mean_no(place: Place, typed: str) -> None:
    from tests.cli.test_commands import answered
    from tests.support import VADE

    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("print('ran')")
    code, shown = answered(
        place, f"absolutely not\nover my dead body\n{typed}\n", VADE, "exec", "mine", "x.py"
    )
    assert (code, "ran\r\n" in shown, shown.count("[o]nce")) == (3, False, 3)


def test_exec_of_files_elsewhere_and_long_words(place: Place, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    done = place.vade("exec", "--yes", "csv-summary", "summarise.py", str(tmp_path / "data.csv"))
    assert (done.code, "2 columns" in done.out) == (0, True)
    assert place.vade("exec", "--yes", "csv-summary", "summarise.py", "x" * 5000).code == 1
    refused = subprocess.run(
        ["vade", "exec", "csv-summary", "summarise.py"],
        cwd=place.cwd,
        env=place.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "to allow it this once: vade exec --yes csv-summary summarise.py." in refused.stderr
