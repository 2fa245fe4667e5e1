"""G1: reading, listing, searching, writing, deleting: within the roots, within limits, on the record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.policy.test_approval import Saying
from tests.tools.support import Bench
from vademecum import Policy
from vademecum.errors import Declined
from vademecum.policy.approval import Answer
from vademecum.policy.base import Effect, Rule
from vademecum.policy.engine import allowing, default_rules


@pytest.fixture
def files(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    (bench.project / "notes").mkdir()
    (bench.project / "notes/a.txt").write_text("one\ntwo\nthree\n")
    (bench.project / "b.txt").write_text("zwei\n")
    return bench


def said(bench: Bench, tool: str, **arguments: object) -> str:
    return bench.call(tool, arguments).text


def test_read_file(files: Bench) -> None:
    seen = files.call("read_file", {"path": "notes/a.txt"})
    assert (seen.text, seen.facts["lines"], seen.ok) == ("one\ntwo\nthree\n", 3, True)
    assert said(files, "read_file", path="notes/a.txt", first_line=2, lines=1) == "two\n\n[lines 2 to 2 of 3]"
    assert said(files, "read_file", path=str(files.project / "b.txt")) == "zwei\n"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing.txt", "missing"),
        ("../outside.txt", "path-refused"),
        ("/etc/passwd", "missing"),
        ("notes", "not-a-file"),
        ("out/passwd", "path-refused"),
        ("link.txt", "path-refused"),
        ("binary", "not-text"),
        ("latin", "not-text"),
        ("fifo", "not-a-file"),
        ("large", "too-large"),
        ("a\0b", "arguments"),
        ("", "path-refused"),
    ],
)
def test_read_file_refusals(files: Bench, path: str, code: str) -> None:
    (files.place / "outside.txt").write_text("secret")
    (files.project / "out").symlink_to("/etc")
    (files.project / "link.txt").symlink_to(files.place / "outside.txt")
    (files.project / "binary").write_bytes(b"a\0b")
    (files.project / "latin").write_bytes(b"\xe9")
    os.mkfifo(files.project / "fifo")
    with open(files.project / "large", "wb") as large:
        large.truncate(20 * 1024 * 1024)
    seen = files.call("read_file", {"path": path})
    assert (seen.ok, seen.code) == (False, code)
    assert "secret" not in seen.text


def test_list_dir(files: Bench) -> None:
    assert said(files, "list_dir") == "b.txt (5 bytes)\nnotes/"
    assert files.call("list_dir", {"path": "b.txt"}).code == "not-a-directory"
    assert files.call("list_dir", {"path": "/"}).code == "missing"


def test_grep(files: Bench) -> None:
    assert said(files, "grep", pattern="^t") == "notes/a.txt:2: two\nnotes/a.txt:3: three"
    assert said(files, "grep", pattern="ZWEI", ignore_case=True, path="b.txt") == "b.txt:1: zwei"
    assert said(files, "grep", pattern="nothing") == "no line matches"
    assert files.call("grep", {"pattern": "("}).code == "pattern"
    assert files.call("grep", {"pattern": "(?=x)"}).code == "pattern"


def test_grep_cannot_blow_up(files: Bench) -> None:
    (files.project / "evil.txt").write_text("a" * 100_000 + "!\n")
    assert said(files, "grep", pattern="^(a+)+$") == "no line matches"
    assert files.call("grep", {"pattern": "((a{100}){100}){100}"}).code == "pattern"


def test_grep_does_not_follow_links_out(files: Bench) -> None:
    (files.place / "outside").mkdir()
    (files.place / "outside/s.txt").write_text("secret")
    (files.project / "way").symlink_to(files.place / "outside")
    (files.project / "file").symlink_to(files.place / "outside/s.txt")
    assert said(files, "grep", pattern="secret") == "no line matches"


def test_what_may_not_be_read_is_not_there(tmp_path: Path) -> None:
    rules = [*default_rules(), Rule("read", "*.env", Effect.DENY, "test", 1)]
    bench = Bench(tmp_path, policy=Policy(rules))
    (bench.project / "prod.env").write_text("KEY=secret")
    (bench.project / "plain.txt").write_text("not secret")
    (bench.project / "alias").symlink_to("prod.env")
    assert said(bench, "list_dir") == "plain.txt (10 bytes)"
    assert said(bench, "grep", pattern="secret") == "plain.txt:1: not secret"
    assert bench.call("read_file", {"path": "prod.env"}).code == "missing"
    assert bench.call("read_file", {"path": "./prod.env"}).code == "missing"
    assert bench.call("read_file", {"path": "alias"}).code == "missing"
    assert [record.code for record in bench.records][-3:] == ["denied"] * 3


def test_write_file_is_whole_and_shows_its_difference(files: Bench) -> None:
    (files.project / "b.txt").chmod(0o600)
    seen = files.call("write_file", {"path": "b.txt", "content": "drei\n"})
    assert seen.text == "Wrote b.txt (5 bytes)."
    assert seen.facts["diff"] == "--- b.txt (before)\n+++ b.txt (after)\n@@ -1 +1 @@\n-zwei\n+drei"
    assert (files.project / "b.txt").read_text() == "drei\n"
    assert (files.project / "b.txt").stat().st_mode & 0o777 == 0o600
    files.call("write_file", {"path": "new/deep/c.txt", "content": "x"})
    assert (files.project / "new/deep/c.txt").read_text() == "x"
    assert sorted(p.name for p in files.project.iterdir()) == ["b.txt", "new", "notes"]


@pytest.mark.parametrize("path", ["way/x", "link", "notes", "../x", "/tmp/x", "."])
def test_write_file_refusals(files: Bench, path: str) -> None:
    (files.place / "outside").mkdir()
    (files.place / "outside/x").write_text("before")
    (files.project / "way").symlink_to(files.place / "outside")
    (files.project / "link").symlink_to(files.place / "outside/x")
    assert not files.call("write_file", {"path": path, "content": "after"}).ok
    assert (files.place / "outside/x").read_text() == "before"
    assert (files.project / "link").is_symlink()


def test_delete_file_keeps_it(files: Bench) -> None:
    for content in ("first", "second"):
        (files.project / "b.txt").write_text(content)
        assert files.call("delete_file", {"path": "b.txt"}).ok
    assert not (files.project / "b.txt").exists()
    trash = sorted(files.place.glob("runs/*/trash/*/b.txt"))
    assert [file.read_text() for file in trash] == ["first", "second"]
    assert files.call("delete_file", {"path": "b.txt"}).code == "missing"
    assert files.call("delete_file", {"path": "notes"}).code == "not-a-file"


# F5, F6, O4: what needs approval, and what no approval helps.


def asking(tmp_path: Path, saying: Saying, run: Sequence[Rule] = ()) -> Bench:
    return Bench(tmp_path, policy=Policy(default_rules(), run=run), approver=saying)


@pytest.mark.parametrize(
    ("tool", "words"), [("write_file", {"content": "y"}), ("edit_file", {"old": "zwei", "new": "drei"})]
)
def test_nobody_is_asked_to_change_a_link(tmp_path: Path, tool: str, words: dict[str, str]) -> None:
    bench = asking(tmp_path, saying := Saying(Answer("once")))
    (bench.project / "b.txt").write_text("zwei\n")
    (bench.project / "link").symlink_to("b.txt")
    seen = bench.call(tool, {"path": "link", **words})
    assert (seen.code, "is a link: name the file that it leads to" in seen.text) == ("not-a-file", True)
    assert (saying.asked, (bench.project / "b.txt").read_text()) == ([], "zwei\n")


def test_high_risk_always_needs_approval(tmp_path: Path) -> None:
    rules = [*default_rules(), Rule("*", "*", Effect.ALLOW, "the user's configuration", 1)]
    saying = Saying(Answer("reject", "not now"))
    bench = Bench(tmp_path, policy=Policy(rules), approver=saying)
    with pytest.raises(Declined, match="not now") as caught:
        bench.call("write_file", {"path": "x", "content": "y"})
    assert caught.value.told == "not now"
    assert "the risk of 'write_file' is high, which always needs approval" in saying.asked[0].decision.reason
    assert not (bench.project / "x").exists()
    assert bench.records[-1].code == "declined"


def test_a_no_is_not_asked_again(tmp_path: Path) -> None:
    saying = Saying(Answer("reject"))
    bench = asking(tmp_path, saying)
    for _ in range(3):
        with pytest.raises(Declined):
            bench.call("write_file", {"path": "x", "content": "y"})
    assert len(saying.asked) == 1


def test_always_for_this_run_is_exact(tmp_path: Path) -> None:
    saying = Saying(Answer("always", scope="run"))
    bench = asking(tmp_path, saying)
    for path in ("x", "x", "y"):
        assert bench.call("write_file", {"path": path, "content": "z"}).ok
    assert [question.wanted for question in saying.asked] == [
        "tool write_file; write x",
        "tool write_file; write y",
    ]
    assert "+z" in saying.asked[0].about
    assert [record.approved_by for record in bench.records] == ["always", "remembered", "always"]


def test_a_flag_of_this_run_is_an_approval(tmp_path: Path) -> None:
    saying = Saying(Answer("reject"))
    bench = asking(tmp_path, saying, run=allowing(["write_file"]))
    assert bench.call("write_file", {"path": "x", "content": "y"}).ok
    assert bench.call("read_file", {"path": "x"}).ok
    assert saying.asked == []


def test_our_own_files_are_not_written(tmp_path: Path) -> None:
    bench = asking(tmp_path, Saying(Answer("once")))
    for path in (
        ".agent/config.json",
        "sub/.agent/skills/x/SKILL.md",
        ".git/hooks/pre-commit",
        "sub/.git/config",
    ):
        seen = bench.call("write_file", {"path": path, "content": "y"})
        assert (seen.code, "deny" in seen.text) == ("denied", True)


def test_nothing_goes_unrecorded(tmp_path: Path) -> None:  # G3
    secret = "s3cr3t-value-of-a-key"
    bench = Bench(tmp_path, env={"SOME_API_KEY": secret, "PATH": "/bin"})
    (bench.project / "x").write_text(f"the key is {secret}")
    bench.call("read_file", {"path": "x"})
    bench.call("write_file", {"path": "y", "content": f"Authorization: Bearer abcdefghijkl {secret}"})
    bench.call("grep", {"pattern": "("})
    first, second, third = bench.records
    assert (first.call, first.tool, first.risk, first.ok, first.result["text"]) == (
        1,
        "read_file",
        "low",
        True,
        "the key is [secret]",
    )
    assert second.parameters["content"] == "Authorization: Bearer [secret] [secret]"
    assert set(second.hashes) == {"sha256"}
    assert (third.code, third.ok) == ("pattern", False)
    assert third.decision is not None
    assert secret not in repr(bench.records)


def test_wrong_calls_are_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.call("fly", {}).code == "no-tool"
    wrong: list[object] = [{}, {"path": 1}, {"path": "x", "more": 1}, [], None, "x"]
    for arguments in wrong:
        assert bench.call("read_file", arguments).code == "arguments"
