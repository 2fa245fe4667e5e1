"""P7, P8: programs by their words in the sandbox, and exact edits of a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import Bench
from tests.tools.test_inputs_outputs import denying, write
from vademecum.policy.approval import Answer, Question
from vademecum.policy.base import Effect, Rule
from vademecum.policy.engine import USER, Policy, Rules, default_rules
from vademecum.sandbox.available import Real


class Reader:
    """Says yes, and keeps what it was asked."""

    def __init__(self, answer: str = "once") -> None:
        self.asked: list[Question] = []
        self._answer: Any = answer

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return Answer(self._answer, scope="run")


def command(bench: Bench, *argv: str, **more: Any) -> Any:
    return bench.call("run_command", {"argv": list(argv), **more})


def printed(seen: Any) -> str:
    assert seen.ok, seen.text
    return (Path(seen.files[0]).read_text() + Path(seen.files[1]).read_text()).strip()


def test_it_runs_in_the_project_and_can_read_it(bench: Bench) -> None:
    write(bench.project, **{"a.txt": "one\ntwo\n", "sub/b.txt": "three\n"})
    assert printed(command(bench, "wc", "-l", "a.txt", "sub/b.txt")).splitlines()[-1].split() == [
        "3",
        "total",
    ]
    assert printed(command(bench, "cat", stdin="from the call")) == "from the call"
    seen = command(bench, "sh", "-c", "echo x > a.txt; echo y > new; cd /; ls; exit 3")
    assert seen.facts["exit_code"] == 3
    assert (bench.project / "a.txt").read_text() == "one\ntwo\n"
    assert sorted(path.name for path in bench.project.iterdir()) == ["a.txt", "sub"]


def test_a_program_that_is_not_there_is_a_sentence(bench: Bench) -> None:
    seen = command(bench, "no-such-program", "x")
    assert (seen.code, seen.text) == (
        "no-program",
        "The program 'no-such-program' is not installed here: use another.",
    )
    write(bench.project, **{"plain.txt": "x"})
    assert command(bench, "./plain.txt").code == "no-program"
    assert command(bench, "../x").code in {"path-refused", "missing"}


def test_it_leaves_its_directory_for_nothing(bench: Bench) -> None:
    secret = bench.place / "home" / ".ssh" / "id"
    secret.parent.mkdir(parents=True)
    secret.write_text("KEY")
    (bench.place / "beside.txt").write_text("beside")
    for path in (secret, bench.place / "beside.txt", Path("/etc/shadow")):
        seen = command(bench, "cat", str(path))
        assert seen.facts["exit_code"] != 0
    seen = command(bench, "sh", "-c", f"cd .. && cat beside.txt; echo x > {bench.place}/new")
    assert "beside\n" not in Path(seen.files[0]).read_text()
    assert not (bench.place / "new").exists()


def test_what_rules_hide_it_does_not_read(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("read", "private/*")), approver=Reader())
    write(bench.project, **{"a.txt": "open", ".env": "KEY=1", "private/x": "hidden"})
    seen = command(bench, "sh", "-c", "cat a.txt .env private/x")
    assert Path(seen.files[0]).read_text() == "open"
    assert seen.facts["left_out"] == 2
    only = command(bench, "sh", "-c", "cat sub/b.txt a.txt", reads=["sub"])
    assert only.code == "missing"
    write(bench.project, **{"sub/b.txt": "b"})
    only = command(bench, "sh", "-c", "cat sub/b.txt; cat a.txt", reads=["sub"])
    assert Path(only.files[0]).read_text() == "b"


def test_it_changes_what_is_named_and_the_old_content_is_kept(bench: Bench) -> None:
    write(bench.project, **{"a.txt": "old", "b.txt": "old", "dir/c.txt": "old", "dir/d.txt": "same"})
    script = "echo new > a.txt; echo made > fresh.txt; rm dir/c.txt; echo made > dir/e.txt; echo x > b.txt"
    seen = command(bench, "sh", "-c", script, writes=["a.txt", "dir", "fresh.txt"])
    assert seen.facts["changed"] == ["a.txt", "dir/c.txt", "dir/e.txt", "fresh.txt"]
    assert (bench.project / "a.txt").read_text() == "new\n"
    assert (bench.project / "b.txt").read_text() == "old"
    assert "It changed dir/c.txt." in seen.text
    kept = {path.name: path.read_text() for path in bench.place.glob("runs/*/trash/**/*.txt")}
    assert kept == {"a.txt": "old", "c.txt": "old"}
    untouched = command(bench, "true", writes=["never.txt"])
    assert (untouched.facts.get("changed"), (bench.project / "never.txt").exists()) == (None, False)


def test_what_may_never_be_changed(tmp_path: Path, sandbox: Real) -> None:
    bench = Bench(tmp_path, sandbox, policy=denying(("write", "dir/closed.txt")), approver=Reader())
    write(bench.project, **{"dir/closed.txt": "x", "dir/open.txt": "x", "free/x": "x", ".git/config": "x"})
    for writes in ([".git"], ["."], ["dir"], [".git/config"], ["../x"], ["dir/closed.txt"]):
        seen = command(bench, "true", writes=writes)
        assert seen.code in {"denied", "path-refused"}, writes
    seen = command(bench, "sh", "-c", "mkdir free/sub; echo 'gitdir: g' > free/sub/.git", writes=["free"])
    assert (seen.code, seen.facts["taken_away"]) == ("denied", ["free/sub/.git"])
    assert not (bench.project / "free/sub/.git").exists()
    assert (bench.project / ".git/config").read_text() == "x"


def test_rules_are_patterns_over_the_words(tmp_path: Path) -> None:
    allow = Rule("command", "echo *", Effect.ALLOW, USER, 1)
    deny = Rule("command", "* --force*", Effect.DENY, USER, 2)
    reader = Reader("reject")
    bench = Bench(tmp_path, policy=Policy(default_rules(), user=Rules([allow, deny])), approver=reader)
    assert printed(command(bench, "echo", "a", "b c")) == "a b c"
    assert command(bench, "echo", "--force").code == "denied"
    with pytest.raises(Exception, match="declined"):
        command(bench, "ls")
    assert [question.wanted for question in reader.asked] == ["command ls"]


def test_the_whole_text_of_a_shell_is_shown(tmp_path: Path) -> None:
    reader = Reader()
    bench = Bench(tmp_path, policy=Policy(default_rules()), approver=reader)
    text = "echo begin\n" + "# padding that nobody reads\n" * 20 + "rm -rf important\x1b[2K"
    assert command(bench, "bash", "-c", text, writes=["out.txt"]).ok
    about = reader.asked[0].about.splitlines()
    assert about[-1] == r"| rm -rf important\x1b[2K"
    assert "changes: out.txt" in about
    assert "write out.txt" in reader.asked[0].wanted


def test_answers_are_exact(tmp_path: Path) -> None:
    reader = Reader("always")
    bench = Bench(tmp_path, policy=Policy(default_rules()), approver=reader)
    for words in (["echo", "*"], ["echo", "*"], ["echo", "other"]):
        assert command(bench, *words).ok
    assert [question.wanted for question in reader.asked] == ["command echo '*'", "command echo other"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_in_a_subdirectory(bench: Bench) -> None:
    git = ["git", "-C", str(bench.project), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "First words"]):
        subprocess.run([*git, *words], check=True)
    assert printed(command(bench, "git", "log", "--format=%s")) == "First words"
    assert command(bench, "git", "commit", "--allow-empty", "-m", "x").facts["exit_code"] != 0


def test_an_edit_is_exact_and_unique(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write(bench.project, **{"a.txt": "one\ntwo\ntwo\n", "dos.txt": "a\r\nb\r\n"})

    def edit(path: str, old: str, new: str) -> tuple[str, str]:
        seen = bench.call("edit_file", {"path": path, "old": old, "new": new})
        return seen.code, seen.text

    assert edit("a.txt", "none", "x") == (
        "not-unique",
        "The text to replace is not in 'a.txt': read the file again.",
    )
    assert edit("a.txt", "two", "x") == (
        "not-unique",
        "The text to replace is 2 times in 'a.txt': name a longer text.",
    )
    assert edit("a.txt", "one\ntwo", "1\n2")[0] == ""
    assert (bench.project / "a.txt").read_text() == "1\n2\ntwo\n"
    assert edit("dos.txt", "a\nb", "A\nB")[0] == ""
    assert (bench.project / "dos.txt").read_bytes() == b"A\r\nB\r\n"
    assert edit("gone.txt", "a", "b")[0] == "missing"
    assert edit(".git/config", "a", "b")[0] == "denied"
    assert bench.records[2].result["diff"].splitlines()[2:4] == ["@@ -1,3 +1,3 @@", "-one"]
    trash = next(bench.place.glob("runs/*/trash/*/a.txt"))
    assert trash.read_text() == "one\ntwo\ntwo\n"


def test_an_edit_asks_for_reading_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy=denying(("read", "secret.txt")), approver=Reader())
    write(bench.project, **{"secret.txt": "the word"})
    seen = bench.call("edit_file", {"path": "secret.txt", "old": "the word", "new": "x"})
    assert (seen.code, seen.text) == ("missing", "There is no 'secret.txt' here.")
