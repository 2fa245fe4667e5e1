"""P1, P2: files, directories, globs and standard input reach a script; what it leaves is an output."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import VADE, Place, write_skill
from tests.tools.support import Bench
from vademecum.policy.approval import Answer, Question
from vademecum.policy.base import Effect, Rule
from vademecum.policy.engine import USER, Policy, Rules, default_rules
from vademecum.sandbox.available import Real, probe
from vademecum.sandbox.process import CATCH_UP_SECONDS
from vademecum.skill.text import counted
from vademecum.tools.calls import RunScript, SaveOutput

SHOWS = """
    import os, sys
    for word in sys.argv[1:]:
        path = word.split('=')[-1]
        if os.path.isdir(path):
            found = sorted(os.path.relpath(f'{place}/{name}', path) for place, _, names in os.walk(path) for name in names)
            print('directory', found)
        elif os.path.exists(path):
            print('file', open(path).read().strip())
        else:
            print('word', word)
"""


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        path = project / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def denying(*rules: tuple[str, str]) -> Policy:
    written = [Rule(*rule, Effect.DENY, USER, n) for n, rule in enumerate(rules, 1)]
    return Policy(default_rules(), user=Rules(written))


def test_what_words_name_reaches_the_script(bench: Bench) -> None:  # P1
    write(bench.project, **{"a.txt": "A", "docs/x.md": "X", "docs/sub/y.md": "Y", "out.d/z": "Z"})
    bench.script(SHOWS)
    lines = bench.printed("a.txt", "--data=a.txt", "docs", "where=docs/sub", "none.txt", "plain").splitlines()
    assert lines == [
        "file A",
        "file A",
        "directory ['sub/y.md', 'x.md']",
        "directory ['y.md']",
        "word none.txt",
        "word plain",
    ]
    assert bench.printed(".").startswith("directory ['a.txt', 'docs/sub/y.md'")


def test_globs_and_several_spellings(bench: Bench) -> None:  # P1
    write(bench.project, **{"a.csv": "1", "b.csv": "2", "data/c.csv": "3", "[odd].csv": "4"})
    bench.script("import os; print(sorted(os.listdir('.')), os.path.exists('data/c.csv'))")
    assert bench.printed(files=("*.csv",)) == "['[odd].csv', 'a.csv', 'b.csv'] False"
    assert bench.printed(files=("**/*.csv",)).endswith("True")
    assert bench.printed(files=("[odd].csv",)) == "['[odd].csv'] False"
    assert (
        bench.printed("a.csv", "./a.csv", str(bench.project / "a.csv"), files=("a.csv",)) == "['a.csv'] False"
    )
    seen = bench.run(files=("*.none",))
    assert (seen.code, seen.text) == ("missing", "No file matches '*.none' here.")


def test_a_directory_in_several_spellings(bench: Bench) -> None:  # P1
    write(bench.project, **{"docs/x.md": "X"})
    bench.script(SHOWS)
    words = ("docs", "docs/", "./docs", str(bench.project / "docs"))
    assert bench.printed(*words, files=("docs/",)).splitlines() == ["directory ['x.md']"] * 4
    for copied in ("docs", "docs/"):
        call = RunScript("tried", "x.py", ["docs", "docs/"], copy=[copied])
        seen = bench.session.call(call)
        assert seen.ok, seen.text
        assert Path(seen.files[0]).read_text().splitlines() == ["directory ['x.md']"] * 2


def test_a_directory_is_read_only_and_a_copy_is_not(bench: Bench) -> None:  # P1
    write(bench.project, **{"docs/x.md": "X", "docs/y.md": "Y"})
    bench.script("import sys; open('docs/x.md', 'w').write('changed'); open('docs/new.md', 'w').write('new')")
    assert bench.run("docs").facts["exit_code"] == 1
    call = {"skill": "tried", "relative_path": "x.py", "copy": ["docs"]}
    seen = bench.call("run_script", call)
    assert [(output.name, output.file.read_text()) for output in seen.outputs] == [
        ("docs/new.md", "new"),
        ("docs/x.md", "changed"),
    ]
    assert sorted(os.listdir(bench.project / "docs")) == ["x.md", "y.md"]
    assert (bench.project / "docs/x.md").read_text() == "X"


def test_what_rules_hide_is_left_out_and_counted(tmp_path: Path, sandbox: Real) -> None:  # P1, F9
    bench = Bench(tmp_path, sandbox, policy=denying(("read", "docs/private/*")))
    write(
        bench.project, **{"docs/x.md": "X", "docs/.env": "KEY=1", "docs/private/k": "K", "docs/deep/a/b": "B"}
    )
    os.link(bench.project / "docs/.env", bench.project / "docs/innocent")
    os.mkfifo(bench.project / "docs/fifo")
    bench.script(
        """
        import os, sys
        for place, _, names in sorted(os.walk(sys.argv[1])):
            for name in sorted(names):
                try:
                    print(name, os.read(os.open(f'{place}/{name}', os.O_RDONLY | os.O_NONBLOCK), 99).decode())
                except OSError:
                    print(name, 'kept out')
        """
    )
    seen = bench.run("docs")
    printed = Path(seen.files[0]).read_text().splitlines()
    assert [line for line in printed if "kept out" not in line] == ["x.md X", "b B"]
    assert seen.facts["left_out"] == 4
    assert "private" not in seen.text.partition("It printed:")[0]


def test_a_hidden_file_stays_hidden_when_it_is_replaced(tmp_path: Path, sandbox: Real) -> None:  # P1
    if sandbox != "bubblewrap":
        pytest.skip("in other sandboxes the directory is a copy; tests/sandbox has commands in place")
    bench = Bench(tmp_path, sandbox)
    bench.policy = denying(("read", "docs/secret.txt"))
    write(bench.project, **{"docs/x.md": "X", "docs/secret.txt": "old"})
    bench.script(
        """
        import os, sys, time
        print(open('docs/x.md').read(), flush=True)
        while not os.path.exists('docs/x.md') or open('docs/x.md').read() == 'X':
            time.sleep(0.02)
        for name in ('secret.txt', 'new.txt'):
            try:
                print(open(f'docs/{name}').read())
            except OSError:
                print('kept out')
        """
    )
    started = threading.Event()

    def replaced() -> None:
        started.wait(60)
        (bench.project / "docs/other").write_text("replaced")
        os.rename(bench.project / "docs/other", bench.project / "docs/secret.txt")
        (bench.project / "docs/new.txt").write_text("new")
        (bench.project / "docs/x.md").write_text("changed")

    heard = bench.session.listener

    def listen(event: object) -> None:
        if getattr(event, "type", "") == "output_piece":
            started.set()
        assert heard is not None
        heard(event)  # type: ignore[arg-type]

    bench.session.listener = listen
    other = threading.Thread(target=replaced)
    other.start()
    printed = bench.printed("docs").splitlines()
    other.join()
    assert printed[0] == "X"
    assert "replaced" not in printed


def test_standard_input(bench: Bench) -> None:  # P1
    bench.script("import sys; print(sys.stdin.read().upper())")
    seen = bench.call("run_script", {"skill": "tried", "relative_path": "x.py", "stdin": "some words"})
    assert Path(seen.files[0]).read_text() == "SOME WORDS\n"
    reader, writer = os.pipe()
    os.write(writer, b"from a pipe")
    os.close(writer)
    result = bench.session.call(RunScript("tried", "x.py"), stdin=reader)
    os.close(reader)
    assert Path(result.files[0]).read_text() == "FROM A PIPE\n"


def test_a_path_that_is_not_passed_is_not_dropped_in_silence(bench: Bench) -> None:  # P1
    outside = bench.place / "outside.txt"
    outside.write_text("x")
    os.mkfifo(bench.project / "fifo")
    (bench.project / "way-out").symlink_to(outside)
    bench.script("print('ran')")
    seen = bench.run(str(outside), "../outside.txt")
    assert "Only passed as words, because they are outside the project:" in seen.text
    result = bench.session.call(RunScript("tried", "x.py", [str(outside)]), origin="user")
    assert result.code == "outside"
    for word in ("fifo", "way-out"):
        assert bench.session.call(RunScript("tried", "x.py", [word]), origin="user").code


def test_outputs_have_size_and_digest_and_a_name(bench: Bench) -> None:  # P2
    write(bench.project, **{"in.txt": "in", "same.txt": "same"})
    bench.script(
        """
        import os, pathlib
        pathlib.Path('out').mkdir()
        pathlib.Path('out/made.bin').write_bytes(b'12345')
        pathlib.Path('in.txt').write_text('changed')
        pathlib.Path('__pycache__').mkdir()
        pathlib.Path('__pycache__/x.pyc').write_bytes(b'x')
        os.symlink('/etc/passwd', 'link')
        os.mkfifo('fifo')
        """
    )
    seen = bench.run("in.txt", "same.txt")
    listed = [(o["path"], o["bytes"], o["output"]) for o in seen.facts["outputs"]]
    assert listed == [("in.txt", 7, "output:1/in.txt"), ("out/made.bin", 5, "output:1/out/made.bin")]
    assert seen.facts["outputs"][1]["sha256"] == (
        "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    )
    assert "It left output:1/out/made.bin (5 bytes)." in seen.text
    (record,) = bench.records
    assert record.result["outputs"] == seen.facts["outputs"]


def test_a_later_call_reads_and_checks_an_output(bench: Bench) -> None:  # P2
    bench.script("open('report.txt', 'w').write('total 12')", "make.py")
    bench.script("import sys; print(sys.argv[1], open(sys.argv[1]).read())", "check.py")
    assert bench.run(name="make.py").ok
    assert bench.printed("output:1/report.txt", name="check.py") == "output-1/report.txt total 12"
    assert bench.call("read_file", {"path": "output:1/report.txt"}).text == "total 12"
    assert bench.call("grep", {"path": "output:1/report.txt", "pattern": "12"}).ok
    seen = bench.call("read_file", {"path": "output:1/repor.txt"})
    assert (seen.code, seen.text) == (
        "missing",
        "There is no output 'output:1/repor.txt': did you mean 'output:1/report.txt'?",
    )
    other = Bench(bench.place / "other", bench.sandbox)
    assert other.call("read_file", {"path": "output:1/report.txt"}).code == "missing"


def test_a_run_of_an_agent_checks_what_it_made(place: Place) -> None:  # P2
    """Its outputs lie in the project, in a directory that the rules close to other conversations."""
    (place.cwd / ".git").mkdir(exist_ok=True)
    skill = write_skill(place.cwd / ".agent/skills", "tried")
    (skill / "scripts").mkdir()
    (skill / "scripts/make.py").write_text("open('report.txt', 'w').write('total 12')")
    (skill / "scripts/check.py").write_text("import sys; print(open(sys.argv[1].split('=')[-1]).read())")

    def script(name: str, *args: str) -> dict[str, Any]:
        payload = {"skill": "tried", "relative_path": name, "args": list(args)}
        return {"action": {"type": "run_script", "payload": payload}}

    def command(*argv: str) -> dict[str, Any]:
        payload = {"tool": "run_command", "arguments": {"argv": list(argv)}}
        return {"action": {"type": "call_tool", "payload": payload}}

    answer = {"action": {"type": "final_answer", "payload": {"text": "done"}}}
    turns = [
        script("make.py"),
        script("check.py", "output:1/report.txt"),
        script("check.py", "--in=output:1/report.txt"),
        command("cat", "output:1/report.txt"),
        command("dd", "if=output:1/report.txt", "status=none"),
        command("cat", "output:1/repor.txt"),
        answer,
    ]
    (place.cwd / "turns.json").write_text(json.dumps(turns))
    ran = place.vade("run", "go", "--model", "scripted:turns.json", "--skill", "tried", "--yes")
    assert ran.out == "done\n", ran
    events = place.vade("runs", "show", "--json").json["events"]
    texts = [event["result"]["text"] for event in events if event["type"] == "tool_called"]
    assert ["total 12" in text for text in texts] == [False, True, True, True, True, False], texts
    assert texts[-1] == "There is no output 'output:1/repor.txt': did you mean 'output:1/report.txt'?"


def test_saving_an_output(bench: Bench) -> None:  # P2
    bench.script(
        "import os; os.makedirs('out', exist_ok=True); open('out/a.txt', 'w').write(str(os.getpid()))"
    )
    for number in range(1, 11):  # the tenth time as the first
        seen = bench.run("-o", "out/a.txt")
        (output,) = seen.outputs
        saved = bench.call("save_output", {"output": f"output:{number}/out/a.txt"})
        assert (saved.code, saved.text) == (
            "",
            f"Saved output:{number}/out/a.txt as out/a.txt ({counted(output.bytes, 'byte')}).",
        )
        assert (bench.project / "out/a.txt").read_bytes() == output.file.read_bytes()
    assert bench.call("save_output", {"output": "output:1/out/a.txt", "path": "b/c.txt"}).ok
    assert bench.call("save_output", {"output": "output:1/out/a.txt", "path": ".git/x"}).ok is False
    assert bench.call("save_output", {"output": "output:1/out/a.txt", "path": "../x"}).code == "path-refused"
    (bench.project / "b/c.txt").write_text("mine")
    seen = bench.call("save_output", {"output": "output:1/out/a.txt", "path": "b/c.txt"})
    assert (seen.code, (bench.project / "b/c.txt").read_text()) == ("changed", "mine")


def test_saving_tells_no_model_what_a_file_contains(bench: Bench) -> None:  # P2, F1
    bench.script("open('guess.txt', 'w').write('PIN=4711')")
    write(bench.project, **{".env": "PIN=4711", "a.txt": "PIN=4711"})
    (bench.project / "link").symlink_to("a.txt")
    assert bench.run().ok

    class Refusing:
        def ask(self, question: Question) -> Answer:
            return Answer("reject", "no", absent=True)

    for path in (".env", "a.txt"):
        seen = bench.session.call(SaveOutput("output:1/guess.txt", path), approver=Refusing())
        assert seen.code in {"denied", "changed"}, seen
    assert bench.session.call(SaveOutput("output:1/guess.txt", "link"), origin="user").code == "not-a-file"


def test_the_same_content_again_is_an_output(bench: Bench) -> None:  # P2
    write(bench.project, **{"out/a.txt": "always the same"})
    bench.script("open('out/a.txt', 'w').write('always the same')")
    assert [output.name for output in bench.run("-o", "out/a.txt").outputs] == ["out/a.txt"]


def test_too_much_is_refused_with_its_cap(tmp_path: Path) -> None:  # P1
    bench = Bench(tmp_path)
    bench.script("print(1)")
    (bench.project / "many").mkdir()
    for number in range(1001):
        (bench.project / "many" / f"{number}").touch()
    seen = bench.run(files=("many/*",))
    assert (seen.code, seen.text) == (
        "too-many",
        "'many/*' matches more than 1,000 files: name the directory.",
    )
    with open(bench.project / "huge", "wb") as file:
        file.truncate(1024**3 + 1)
    assert bench.run("huge").text == "The inputs are larger than 1,073,741,824 bytes together: name fewer."


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_programs_that_walk_go_into_a_shown_directory(tmp_path: Path, name: Real) -> None:  # P1
    if probe(name).sandbox is None:
        pytest.skip(f"{name} does not work here")
    bench = Bench(tmp_path, name)
    write(bench.project, **{"docs/x.md": "X", "docs/sub/y.md": "Y"})
    bench.script(
        '#!/bin/sh\nfind "$1" -type f | sort\ngrep -rl Y "$1"\ntar -cf - "$1" | tar -tf - | wc -l\n', "x.sh"
    )
    lines = bench.printed("docs", name="x.sh").splitlines()
    assert lines[:3] == ["docs/sub/y.md", "docs/x.md", "docs/sub/y.md"]
    assert int(lines[3]) == (4 if name == "bubblewrap" else 1)  # in the other, tar sees a link


def test_what_a_script_prints_is_heard_while_it_runs(bench: Bench) -> None:  # P6
    bench.script("import sys, time\nprint('first', flush=True)\nsys.stderr.write('wrong\\n')\nprint('last')")
    heard: list[tuple[str, bytes]] = []
    before = bench.session.listener

    def listen(event: object) -> None:
        data = getattr(event, "data", {})
        if getattr(event, "type", "") == "output_piece":
            heard.append((data["stream"], data["data"]))
        else:
            json.dumps(data)  # everything else can be written down
        assert before is not None
        before(event)  # type: ignore[arg-type]

    bench.session.listener = listen
    assert bench.run().ok
    assert b"".join(data for stream, data in heard if stream == "out") == b"first\nlast\n"
    assert b"".join(data for stream, data in heard if stream == "err") == b"wrong\n"


def test_a_slow_reader_gets_all_that_was_printed(place: Place) -> None:  # P6
    skill = write_skill(place.cwd, ".agent/skills/much")
    (skill / "scripts").mkdir()
    (skill / "scripts/much.py").write_text("print('x' * 1_000_000)")
    words = [VADE, "exec", "--yes", "much", "much.py"]
    with subprocess.Popen(words, cwd=place.cwd, env=place.env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not list((place.cwd / ".agent/runs").glob("*/calls/0001/stdout")):
            time.sleep(0.01)
        time.sleep(2 * CATCH_UP_SECONDS)  # longer than the script is waited for
        assert process.stdout.read() == b"x" * 1_000_000 + b"\n"
        assert process.wait(60) == 0
