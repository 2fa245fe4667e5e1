"""F8, F9: ways round a rule that were tried, each of which must not lead anywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import Place, write_skill
from tests.tools.support import Bench
from tests.tools.test_inputs_outputs import denying, write
from vademecum.errors import Declined
from vademecum.policy.approval import Answer, Question
from vademecum.policy.base import Effect, Rule
from vademecum.policy.engine import USER, Policy, Rules, allowing, default_rules, reaching
from vademecum.sandbox.available import Real


class Meanwhile:
    """Says yes, after something happened."""

    def __init__(self, happens: Callable[[], object] = int, answer: str = "once") -> None:
        self._happens = happens
        self._answer: Any = answer
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        self._happens()
        return Answer(self._answer, scope="run")


def test_what_is_hidden_stays_hidden_in_what_may_be_changed(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("read", "d/private")), approver=Meanwhile())
    write(bench.project, **{"d/private": "hidden", "d/.env": "KEY=1", "d/open": "open", "other/x": "x"})
    call = {"argv": ["sh", "-c", "cat d/private d/.env d/open; echo y > d/open"], "writes": ["d"]}
    for reads in ([], ["other"]):
        seen = bench.call("run_command", call | {"reads": reads})
        assert Path(seen.files[0]).read_text().strip() in {"open", "y"}, reads
    assert (bench.project / "d/open").read_text() == "y\n"


@pytest.mark.parametrize("permission", ["network", "private-network"])
def test_the_whole_network_is_not_a_way_to_a_denied_host(tmp_path: Path, permission: str) -> None:
    deny = Rule(permission, "evil.example.org", Effect.DENY, USER, 1)
    bench = Bench(tmp_path, policy=Policy(default_rules(), user=Rules([deny])), approver=Meanwhile())
    bench.script("print(1)")
    seen = bench.call("run_script", {"skill": "tried", "relative_path": "x.py", "network": ["*"]})
    assert (seen.code, seen.text) == (
        "denied",
        "The whole network cannot be given, because rules deny some hosts: name the hosts.",
    )
    assert bench.call("run_command", {"argv": ["true"], "network": ["*"]}).code == "denied"


def test_an_answer_for_one_host_is_not_one_for_all(tmp_path: Path) -> None:
    reader = Meanwhile(answer="reject")
    rules = [*allowing(["run_command"]), *reaching(["api.example.org"])]
    bench = Bench(tmp_path, policy=Policy(default_rules(), run=rules), approver=reader)
    with pytest.raises(Declined):
        bench.call("run_command", {"argv": ["true"], "network": ["*"]})
    assert reader.asked[0].wanted == "network *"


def test_an_edit_says_nothing_of_a_file_that_must_be_asked_for(tmp_path: Path) -> None:
    for answer, code in (("reject", "declined"), ("once", "not-unique")):
        reader = Meanwhile(answer=answer)
        bench = Bench(tmp_path / answer, policy=Policy(default_rules()), approver=reader)
        write(bench.project, **{".env": "KEY=1"})
        try:
            found = bench.call("edit_file", {"path": ".env", "old": "KEY=2", "new": "x"}).code
        except Declined as error:
            found = error.code
        assert found == code
        assert "KEY=1" not in reader.asked[0].about


def test_standard_input_is_shown_and_part_of_an_answer(tmp_path: Path) -> None:
    reader = Meanwhile(answer="always")
    bench = Bench(tmp_path, policy=Policy(default_rules()), approver=reader)
    for text in ("echo one", "echo one", "echo other"):
        assert bench.call("run_command", {"argv": ["sh"], "stdin": text}).ok
    assert [question.about.splitlines()[-1] for question in reader.asked] == ["| echo one", "| echo other"]


def test_a_program_is_not_a_way_to_a_hidden_file(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("read", "hidden/*")), approver=Meanwhile())
    (bench.project / "hidden").mkdir()
    shutil.copy("/bin/echo", bench.project / "hidden/tool")
    for word in ("hidden/tool", "./hidden/tool", str(bench.project / "hidden/tool")):
        assert bench.call("run_command", {"argv": [word, "ran"]}).code == "missing"
    outside = tmp_path / "outside"
    shutil.copy("/bin/echo", outside)
    assert bench.call("run_command", {"argv": [str(outside)]}).code == "missing"
    shutil.copy("/bin/echo", bench.project / "tool")
    assert "ran" in bench.call("run_command", {"argv": ["./tool", "ran"]}).text


def test_a_path_that_becomes_a_link_while_a_person_is_asked(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("read", "closed/*"), ("skill", "none")))
    write(bench.project, **{"d/x": "x", ".git/config": "old", "closed/k": "KEY", ".env": "KEY=1"})

    def swapped(name: str, target: str) -> Callable[[], None]:
        def swap() -> None:
            path = bench.project / name
            path.rename(bench.project / f"{name}-aside")
            path.symlink_to(target)

        return swap

    def undo(name: str) -> None:
        (bench.project / name).unlink()
        (bench.project / f"{name}-aside").rename(bench.project / name)

    calls: list[tuple[str, dict[str, Any], str, str]] = [
        ("run_command", {"argv": ["sh", "-c", "echo new > d/config"], "writes": ["d"]}, "d", ".git"),
        ("run_command", {"argv": ["cat", "d/k"], "reads": ["d"]}, "d", "closed"),
        ("read_file", {"path": ".env"}, ".env", "closed/k"),
        ("write_file", {"path": "d/config", "content": "new"}, "d", ".git"),
    ]
    for name, arguments, path, target in calls:
        seen = bench.session.call_named(name, arguments, approver=Meanwhile(swapped(path, target)))
        assert seen.code == "changed", (name, seen.text)
        undo(path)
    assert (bench.project / ".git/config").read_text() == "old"


def test_a_glob_names_nothing_that_may_not_be_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("read", "*.key")), approver=Meanwhile())
    write(bench.project, **{"a.key": "K", "a.txt": "A"})
    bench.script("import os; print(sorted(os.listdir('.')))")
    seen = bench.run(files=("a.*",))
    assert "['a.txt']" in seen.text
    assert bench.run(files=("*.key",)).text == bench.run(files=("*.none",)).text.replace("none", "key")
    assert bench.call("run_command", {"argv": ["ls"], "reads": ["*.key"]}).code == "missing"


def test_a_script_that_is_denied_is_not_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("script", "tried/scripts/no.py")), approver=Meanwhile())
    bench.script("print('SOURCE')", "no.py")
    (bench.skill / "scripts/alias.py").symlink_to("no.py")
    os.link(bench.skill / "scripts/no.py", bench.project / "linked.py")
    for name in ("no.py", "alias.py"):
        assert bench.run(name=name).code == "missing"
        call = {"skill": "tried", "relative_path": f"scripts/{name}"}
        assert bench.call("load_skill_asset", call).code == "missing"
        assert bench.call("get_skill_script_path", call).code == "missing"
    assert bench.call("read_file", {"path": "linked.py"}).code == "missing"
    assert "SOURCE" not in bench.call("grep", {"pattern": "SOURCE"}).text
    assert "linked" not in bench.call("list_dir", {}).text


def test_a_hard_link_in_a_directory_does_not_show_a_denied_file_of_a_skill(tmp_path: Path) -> None:  # F9
    for permission, file in (("resource", "references/no.md"), ("script", "scripts/no.py")):
        rule = (permission, f"tried/{file}")
        bench = Bench(tmp_path / permission, policy=denying(rule), approver=Meanwhile())
        write(bench.skill, **{file: "SOURCE"})
        write(bench.project, **{"d/open": "open"})
        os.link(bench.skill / file, bench.project / "d/innocent")
        bench.script("import pathlib; print([(f.name, f.read_text()) for f in pathlib.Path('d').iterdir()])")
        assert "SOURCE" not in bench.run("d").text
        bench.call("run_command", {"argv": ["cat", "d/innocent"], "reads": ["d"]})
        assert all("SOURCE" not in str(each.result) for each in bench.records)


def test_a_script_runs_without_a_directory_of_its_skill_that_is_denied(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("resource", "tried/references")), approver=Meanwhile())
    write(bench.skill, **{"references/no.md": "SOURCE"})
    bench.script("import os, sys; print(sorted(os.listdir(os.path.dirname(sys.path[0]))))")
    seen = bench.run()
    assert "['SKILL.md', 'scripts']" in seen.text


def test_what_may_not_be_deleted_is_not_removed_by_a_command(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("delete", "d/keep")), approver=Meanwhile())
    write(bench.project, **{"d/keep": "x", "d/y": "y"})
    assert bench.call("run_command", {"argv": ["rm", "d/keep"], "writes": ["d"]}).code == "denied"
    assert bench.call("run_command", {"argv": ["rm", "d/keep"], "writes": ["d/keep"]}).code == "denied"
    assert (bench.project / "d/keep").exists()


def test_a_tool_that_writes_is_denied_with_writing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("tool", "write_file")), approver=Meanwhile())
    write(bench.project, **{"a.txt": "old"})
    bench.script("open('o.txt', 'w').write('x')")
    assert bench.run().ok
    for name, arguments in (
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("edit_file", {"path": "a.txt", "old": "old", "new": "x"}),
        ("save_output", {"output": "output:1/o.txt"}),
        ("run_command", {"argv": ["true"], "writes": ["a.txt"]}),
    ):
        assert bench.call(name, arguments).code == "denied", name
    assert bench.call("run_command", {"argv": ["true"]}).ok


def test_many_files_beside_a_hidden_one(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, approver=Meanwhile(), policy=Policy(default_rules()))
    write(bench.project, **{".env": "KEY=1", **{f"f{number}.txt": "x" for number in range(200)}})
    seen = bench.call("run_command", {"argv": ["sh", "-c", "cat .env f1.txt"]})
    assert Path(seen.files[0]).read_text() == "x"


def test_what_may_be_changed_is_read_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("read", "secret.txt")), approver=Meanwhile())
    write(bench.project, **{"secret.txt": "x"})
    assert (
        bench.call("run_command", {"argv": ["cat", "secret.txt"], "writes": ["secret.txt"]}).code == "missing"
    )
    written = bench.call("write_file", {"path": "secret.txt", "content": "y"})
    assert (written.code, "diff" in written.facts) == ("", False)


def test_an_answer_is_for_the_program_as_it_is(tmp_path: Path, sandbox: Real) -> None:
    reader = Meanwhile(answer="always")
    bench = Bench(tmp_path, sandbox, policy=Policy(default_rules()), approver=reader)
    program = bench.project / "run.sh"
    for text in ("echo one", "echo one", "echo other"):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        assert bench.call("run_command", {"argv": ["./run.sh"]}).ok
    assert len(reader.asked) == 2


def test_the_words_of_a_command_are_not_ambiguous(tmp_path: Path) -> None:
    reader = Meanwhile(answer="always")
    deny = Rule("command", "cat *", Effect.DENY, USER, 1)
    bench = Bench(tmp_path, policy=Policy(default_rules(), user=Rules([deny])), approver=reader)
    for words in (["echo", "a b"], ["echo", "a", "b"]):
        assert bench.call("run_command", {"argv": words}).ok
    assert [question.wanted for question in reader.asked] == ["command echo 'a b'", "command echo a b"]
    assert bench.call("run_command", {"argv": ["/bin/cat", "x"]}).code == "denied"


def test_hard_links_do_not_change_what_is_elsewhere(tmp_path: Path) -> None:
    bench = Bench(tmp_path, approver=Meanwhile())
    write(bench.project, **{".git/config": "old", "d/x": "x"})
    os.link(bench.project / ".git/config", bench.project / "d/config")
    assert bench.call("run_command", {"argv": ["true"], "writes": ["d"]}).code == "linked"


def test_a_repository_that_a_command_made_is_taken_away_whole(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, approver=Meanwhile())
    write(bench.project, **{"d/x": "x"})
    script = "mkdir -p d/sub/.git/hooks; echo x > d/sub/.git/config; echo y > d/sub/.git/hooks/z"
    seen = bench.call("run_command", {"argv": ["sh", "-c", script], "writes": ["d"]})
    assert (seen.code, seen.facts["taken_away"]) == ("denied", ["d/sub/.git"])
    assert not (bench.project / "d/sub/.git").exists()


def test_a_list_of_tools_bounds_what_a_command_changes_and_reaches(tmp_path: Path) -> None:
    bench = Bench(tmp_path, approver=Meanwhile())
    document = "---\nname: tried\ndescription: x\nallowed-tools: Bash(git:*)\n---\n"
    (bench.skill / "SKILL.md").write_text(document)
    write(bench.project, **{"a.txt": "x"})
    git = {"argv": ["git", "--version"]}
    assert bench.call("run_command", git).ok
    for more in ({"writes": ["a.txt"]}, {"network": ["example.org"]}):
        assert bench.call("run_command", git | more).code == "denied"


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "::ffff:127.0.0.1"])
def test_an_address_has_one_spelling(tmp_path: Path, host: str) -> None:
    deny = Rule("network", "127.0.0.1", Effect.DENY, USER, 1)
    bench = Bench(tmp_path, policy=Policy(default_rules(), user=Rules([deny])), approver=Meanwhile())
    written = f"[{host}]" if ":" in host else host
    assert bench.call("network_request", {"url": f"http://{written}/"}).code == "denied"
    assert bench.call("run_command", {"argv": ["true"], "network": [written]}).code == "denied"


def test_an_edit_says_nothing_of_a_file_that_a_list_of_tools_excludes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, approver=Meanwhile())
    document = "---\nname: tried\ndescription: x\nallowed-tools: Read(docs/*)\n---\n"
    (bench.skill / "SKILL.md").write_text(document)
    write(bench.project, **{"a.txt": "one two two"})
    found = {
        bench.call("edit_file", {"path": "a.txt", "old": old, "new": "x"}).code
        for old in ("one", "two", "no")
    }
    assert found == {"denied"}


def test_a_secret_in_the_name_of_an_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path, env={"MY_TOKEN": "hunter2hunter2"})
    bench.script("open('hunter2hunter2.txt', 'w').write('x')")
    seen = bench.run()
    assert [output.name for output in seen.outputs] == ["[secret].txt"]
    assert "hunter2" not in repr((seen.facts, seen.text, seen.outputs))


def test_the_rules_that_a_refusal_advises_lead_to_a_yes(place: Place) -> None:  # F7
    """Also for a host with a port and a package with versions."""
    (place.cwd / ".git").mkdir(exist_ok=True)
    skill = write_skill(place.cwd / ".agent/skills", "tried")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text('# /// script\n# dependencies = ["nowhere-to-be-had>=2"]\n# ///\n')
    words = ("exec", "--network", "localhost:8765", "tried", "x.py")
    refused = place.vade(*words, UV_OFFLINE="1", PATH=os.environ["PATH"])
    assert refused.code == 3
    advised = [json.loads(rule) for rule in re.findall(r"add (\{.*?\})", refused.err)]
    (place.home / ".agent").mkdir(parents=True, exist_ok=True)
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": advised}))
    now = place.vade(*words, UV_OFFLINE="1", PATH=os.environ["PATH"])
    assert "The packages cannot be installed" in now.err, now.err
