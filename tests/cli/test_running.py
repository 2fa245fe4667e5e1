"""`vade run`, `vade runs`, `vade chat`: as a person uses them, and when something goes wrong in the middle."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import final, run_script, select
from tests.cli.test_commands import answered
from tests.models.server import Answering, Handler, _chunk, serving
from tests.support import VADE, Place, write_skill
from vademecum.masking import Secrets
from vademecum.runs.record import Record, new_run
from vademecum.runs.stored import read_run, run_ids


@pytest.fixture
def files(place: Place) -> Place:
    (place.cwd / "a.txt").write_text("a\nb\n")
    (place.cwd / "b.txt").write_text("a\nc\n")
    return place


def test_run(files: Place) -> None:
    done = files.vade("run", "Compare a.txt with b.txt", "--yes")
    assert (done.code, "The files differ: 1 line removed, 1 line added" in done.out) == (0, True)
    assert "… wants to run file-diff/scripts/compare.py" in done.err
    assert "vade: done · 3 turns, 1 tool call" in done.err
    quiet = files.vade("run", "Compare a.txt with b.txt", "--yes", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    found = files.vade("run", "比较 a.txt 和 b.txt", "--allow", "run_script", "--json")
    assert found.err == ""
    assert list(found.json) == ["run_id", "status", "answer", "stop_reason", "outputs", "stats"]
    assert (found.json["status"], found.json["stats"]["script_runs"]) == ("done", 1)


@pytest.fixture
def making(place: Place) -> Place:
    """A skill whose script leaves as many files as it is told."""
    skill = write_skill(place.cwd, ".agent/skills/make-files")
    (skill / "scripts").mkdir()
    text = "import sys\nfor n in range(int(sys.argv[1])): open(f'{n:04}.txt', 'w').write(sys.argv[2])\n"
    (skill / "scripts/make.py").write_text(text)
    return place


def turns(place: Place, *words: str) -> str:
    """A model that lets the script run with these words."""
    return scripted(place, select("make-files"), run_script("make-files", "scripts/make.py", *words), final())


def runs_of(place: Place) -> list[str]:
    return run_ids(place.cwd / ".agent/runs")


def test_what_is_saved_after_a_run_belongs_to_that_run(making: Place) -> None:
    model = turns(making, "1", "new")
    run = making.vade("run", "make one", "--model", model, "--yes", "--json", "--out", ".").json
    assert runs_of(making) == [run["run_id"]]
    past = read_run(making.cwd / ".agent/runs", run["run_id"])
    saved = [event.data for event in past.events if event.type == "tool_called"][-1]
    assert (saved["tool"], saved["ok"], saved["call"]) == ("save_output", True, 2)
    assert (past.status, making.vade("runs", "show").out.count("make one")) == ("done", 1)
    # The same file again is no conflict, and no other run.
    for target in (".", "kept"):
        again = making.vade("runs", "outputs", "--out", target, "--json")
        assert (again.code, again.json["outputs"][0]["saved"]) == (0, str(Path(target, "0000.txt")))
    assert runs_of(making) == [run["run_id"]]
    assert len([*(making.cwd / ".agent/runs/.saved").glob("*/events.jsonl")]) == 2
    # What was there before is kept, and the person is told where.
    (making.cwd / "0000.txt").write_text("mine")
    os.utime(making.cwd / "0000.txt", (1, 1))
    done = making.vade("run", "make one", "--model", turns(making, "1", "newer"), "--yes", "--out", ".")
    (kept,) = (making.cwd / ".agent/runs" / runs_of(making)[-1] / "trash").rglob("0000.txt")
    assert (done.code, kept.read_text()) == (0, "mine")
    assert f"saved 0000.txt (5 bytes); the previous file is now {kept.relative_to(making.cwd)}" in done.err


def test_a_planted_record_leads_nowhere(making: Place) -> None:
    making.vade("run", "make one", "--model", turns(making, "1", "new"), "--yes")
    (run,) = (making.cwd / ".agent/runs").glob("2*")
    (making.home / "else").mkdir()
    (run / "trash").mkdir()
    events = len((run / "events.jsonl").read_text().splitlines())
    for number in range(1, events + 5):
        (run / "trash" / f"{number:04}").symlink_to(making.home / "else")
    (making.cwd / "0000.txt").write_text("mine")
    os.utime(making.cwd / "0000.txt", (1, 1))
    making.vade("runs", "outputs", "--out", ".")
    assert [*(making.home / "else").iterdir()] == []
    if (saved := making.cwd / ".agent/runs/.saved").exists():
        saved.rename(making.cwd / "aside")
    saved.symlink_to(making.home / "else")
    done = making.vade("runs", "outputs", "--out", "kept")
    assert (done.code, "is a link" in done.err) == (2, True)
    assert [*(making.home / "else").iterdir()] == []


def test_a_run_that_goes_on_is_not_pruned(making: Place) -> None:
    record = Record(new_run(making.cwd / ".agent/runs"), secrets=Secrets({}))
    record.add("run_started", request="x")
    assert making.vade("runs", "prune", "--keep", "0", "--json").json == {"deleted": []}
    record.close()
    assert making.vade("runs", "prune", "--keep", "0", "--json").json == {"deleted": [record.run_id]}


def test_a_person_is_told_of_a_rule_that_hides_something_from_the_model(files: Place) -> None:
    (files.home / ".agent").mkdir(exist_ok=True)
    rules = [{"permission": "script", "pattern": "*", "effect": "deny"}]
    (files.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    done = files.vade("run", "Compare a.txt with b.txt", "--yes")
    assert (done.code, "deny" in done.out) == (1, False)
    assert "vade: it was refused: deny script 'file-diff/scripts/compare.py', because rule 1 of" in done.err


def test_what_is_not_saved_is_not_success(making: Place) -> None:
    (making.cwd / "0000.txt").mkdir()
    words = ("--model", turns(making, "1", "x"), "--yes", "--out", ".")
    done = making.vade("run", "make one", *words)
    assert (done.code, "0000.txt was not saved" in done.err) == (1, True)
    assert making.vade("run", "make one", *words, "--json").code == 1


def test_files_beyond_the_limit_are_named(making: Place) -> None:
    done = making.vade("exec", "--yes", "--out", "many", "make-files", "make.py", "1005", "x")
    assert done.code == 0
    assert "vade: 5 more files not kept: the limit is 1,000" in done.err
    assert "vade: saved many/0000.txt (1 byte)" in done.err
    assert "vade: … and 980 more files" in done.err
    assert len(list((making.cwd / "many").iterdir())) == 1000


def test_a_file_that_is_named_must_be_there(files: Place) -> None:
    done = files.vade("run", "Compare them", "--file", "a.txt", "--file", "nope.txt", "--yes")
    assert (done.code, done.err) == (4, "vade: There is no 'nope.txt' here.\n")
    assert runs_of(files) == []


def test_a_misspelt_file_gets_a_suggestion(files: Place) -> None:
    (files.cwd / "cities.csv").write_text("city\nOslo\n")
    done = files.vade("run", "Summarise citys.csv", "--yes")
    assert (done.code, "'citys.csv'" in done.out, "Did you mean 'cities.csv'?" in done.out) == (1, True, True)
    assert "是不是 'cities.csv'？" in files.vade("run", "汇总 citys.csv 的数据", "--yes").out
    # Nothing outside the project is suggested through a link.
    (files.cwd / "link").symlink_to(files.home)
    (files.home / "diary.txt").write_text("x")
    assert "diary" not in files.vade("run", "Summarise link/dairy.txt", "--yes").out
    # What a rule hides is not suggested, and an address is no file.
    rules = [{"permission": "read", "pattern": "cities.csv", "effect": "deny"}]
    (files.home / ".agent").mkdir(exist_ok=True)
    (files.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    assert "cities" not in files.vade("run", "Summarise citys.csv", "--yes").out.replace("citys", "")
    assert "//example" not in files.vade("run", "Summarise https://example.org/x.csv", "--yes").out


def test_an_option_after_the_script_is_the_scripts(making: Place) -> None:
    done = making.vade("exec", "--yes", "make-files", "make.py", "x", "--out", ".")
    assert "vade: --out was passed to the script; options of vade come before make-files" in done.err


def test_limits_from_the_command_line_and_the_configuration(files: Place) -> None:
    (files.home / ".agent").mkdir(exist_ok=True)
    prices = {"scripted": {"input": 1000.0, "output": 1.0}}
    settings = {"budget": {"turns": 5, "tool_calls": 4}, "model": {"prices": prices}}
    (files.home / ".agent/config.json").write_text(json.dumps(settings))
    model = scripted(files, final())
    words = ["--max-tool-calls", "2", "--max-script-runs", "1", "--max-context", "50000", "--model", model]
    done = files.vade("run", "x", *words)
    last = read_run(files.cwd / ".agent/runs", run_ids(files.cwd / ".agent/runs")[-1])
    limits = {"turns": 5, "tool_calls": 2, "script_runs": 1, "context_tokens": 50_000}
    assert (done.code, last.events[0].data["budget"]) == (0, limits)
    assert re.search(r"tokens, \d+\.\d{4} USD · vade runs show", done.err), done.err


def test_run_without_anybody_to_ask(files: Place) -> None:
    done = files.vade("run", "Compare a.txt with b.txt")
    assert done.code == 3
    assert "to allow it this once: vade run 'Compare a.txt with b.txt' --yes" in done.err
    assert "--yes" not in done.out  # which a model may have read


def test_run_asks_at_the_terminal(files: Place) -> None:
    code, shown = answered(files, "\no\n", VADE, "run", "Compare a.txt with b.txt")
    assert (code, "risk: medium" in shown, "The files differ" in shown) == (0, True, True)
    code, shown = answered(files, "n\n", VADE, "run", "Compare a.txt with b.txt")
    assert (code, "The files differ" in shown) == (3, False)


def test_run_with_what_is_wrong(files: Place) -> None:
    assert files.vade("run", "").code == 2
    assert files.vade("run", "/no-such-skill").code == 4
    assert files.vade("run", "what is the weather?").code == 1
    assert files.vade("run", "x", "--model", "nonsense").code == 2
    assert files.vade("run", "x", "--skill", "no-such").code == 4
    assert files.vade("run", "x", "--allow", "everything").code == 2


def scripted(place: Place, *turns: dict[str, Any]) -> str:
    file = place.cwd / "turns.json"
    file.write_text(json.dumps(list(turns)))
    return f"scripted:{file}"


def test_giving_up_is_exit_code_one(files: Place) -> None:
    turn = {"action": {"type": "call_tool", "payload": {"tool": "list_dir"}}}
    done = files.vade("run", "x", "--model", scripted(files, turn), "--max-turns", "2")
    assert (done.code, "stopped before it was finished (max turns)" in done.out) == (1, True)


def test_runs(files: Place) -> None:
    assert "No runs yet" in files.vade("runs", "list").out
    assert files.vade("runs", "show").code == 4
    assert files.vade("runs", "show", "nope").code == 4
    assert files.vade("runs").out.startswith("Usage: vade runs")
    files.vade("run", "Compare a.txt with b.txt", "--yes")
    (run,) = files.vade("runs", "list", "--json").json["runs"]
    assert (run["status"], run["request"]) == ("done", "Compare a.txt with b.txt")
    assert "done" in files.vade("runs", "list").out
    shown = files.vade("runs", "show", run["run_id"]).out
    for part in (
        "▶ asked: Compare a.txt with b.txt",
        "✓ loaded skill builtin:file-diff",
        "? asked for approval",
        "■ done",
    ):
        assert part in shown
    events = files.vade("runs", "show", "--json").json["events"]
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert files.vade("runs", "show", "--html", "page.html").out == "Wrote page.html\n"
    assert files.vade("runs", "show", "--html", "no/page.html").code == 2
    assert "<h1>Compare a.txt with b.txt</h1>" in (files.cwd / "page.html").read_text()
    assert files.vade("runs", "show", "../../x").code == 3
    assert files.vade("runs", "prune", "--keep", "1").out == "Deleted 0 runs\n"
    assert files.vade("runs", "prune", "--keep", "0", "--json").json["deleted"] == [run["run_id"]]


def test_replay_says_what_would_differ_now(files: Place) -> None:
    skill = write_skill(files.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("print(1)")
    model = scripted(files, select("mine"), run_script("mine", "scripts/x.py"), final())
    assert files.vade("run", "x", "--model", model, "--yes").code == 0
    same = files.vade("runs", "replay")
    assert (same.code, "none would differ now" in same.out) == (0, True)
    (skill / "scripts/x.py").write_text("print(2)")
    (files.cwd / ".agent/config.json").write_text(
        '{"permissions": [{"permission": "script", "pattern": "mine/*", "effect": "deny"}]}'
    )
    found = files.vade("runs", "replay", "--json")
    assert found.code == 1
    assert [difference["what"] for difference in found.json["differences"]] == [
        "script mine/scripts/x.py",
        "the files of mine",
    ]
    (skill / "SKILL.md").unlink()
    assert "No skill is called" in files.vade("runs", "replay").out or files.vade("runs", "replay").code == 1


def chatting(place: Place, text: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [VADE, "chat", *words],
        cwd=place.cwd,
        env=place.env,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_chat(files: Place) -> None:
    code, out, err = chatting(
        files, "/help\n/skills\nCompare a.txt with b.txt\n/nope\n\n/quit\nnever\n", "--yes"
    )
    assert code == 0
    assert "/skills    list the skills" in out
    assert "/file-diff  Compare two files" in out
    assert "The files differ" in out
    assert "offline · 3 skills" in err
    assert len(run_ids(files.cwd / ".agent/runs")) == 1  # "never" was after the end
    assert "there is no /nope: /help lists the commands." in err


def test_a_chat_remembers_and_survives_mistakes(files: Place) -> None:
    model = scripted(files, final("first answer"), final("second answer"))
    code, out, _ = chatting(
        files, "/no-such-skill at all\nfirst question\nsecond question\n", "--model", model
    )
    assert (code, "second answer" in out) == (0, True)
    last = read_run(files.cwd / ".agent/runs", run_ids(files.cwd / ".agent/runs")[-1])
    assert last.request == "second question"


def test_commands_of_a_chat(files: Place) -> None:
    model = scripted(files, final("later"))
    said = f"/file-diff a.txt b.txt\n/unload file-diff\n/unload\n/outputs\n/modl\n/model\n/model {model}\nand now\n/clear\n"
    code, out, err = chatting(files, said, "--yes")
    assert code == 0
    for line in (
        "file-diff is not loaded any more.",
        "There are no outputs yet.",
        "The model is offline.",
        "The model is scripted.",
        "later",
        "The conversation is forgotten; active skills and outputs stay.",
    ):
        assert line in out.splitlines(), (line, out)
    assert "Which skill? Write /unload NAME." in err
    assert "there is no /modl: did you mean /model?" in err
    assert "is configured: add it to `agents` in" in chatting(files, "", "--agent", "nobody")[2]


def test_an_approved_write_says_that_it_was_done(files: Place) -> None:
    write = {"tool": "write_file", "arguments": {"path": "new.txt", "content": "x"}}
    model = scripted(files, {"action": {"type": "call_tool", "payload": write}}, final("written"))
    _, out, err = chatting(files, "write it\n", "--model", model, "--yes")
    assert ("written" in out, "✓ wrote new.txt" in err) == (True, True), err


def test_what_tab_offers_in_a_chat(files: Place) -> None:
    from vademecum import Agent
    from vademecum.cli.chat import Chat, completions

    chat = Chat(Agent("offline", files.build(), context=files.context).conversation(), files.context)
    assert completions(chat, "/un", is_first=True) == ["/unload"]
    assert completions(chat, "/file", is_first=True) == ["/file-diff"]
    assert completions(chat, "$csv", is_first=False) == ["$csv-summary"]
    assert completions(chat, "a.", is_first=False) == ["a.txt"]
    assert completions(chat, "no/where", is_first=False) == []


def test_the_editor_of_a_chat(files: Place) -> None:
    """On a real terminal: several lines, history of an earlier session, Markdown."""
    model = scripted(files, final("**bold** answer"))
    shown = typed_in_chat(files, model, ["first line\x1b\rsecond line\r", "/help\r", "\x04"])
    assert "bold answer" in shown
    assert "**bold**" not in shown
    assert "show the commands" in shown
    last = read_run(files.cwd / ".agent/runs", run_ids(files.cwd / ".agent/runs")[-1])
    assert last.request == "first line\nsecond line"
    history = files.home / ".agent/chat-history"
    assert "+second line" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    typed_in_chat(files, model, ["\x1b[A\x1b[A\r", "\x04"])  # the message before the last command
    assert len(run_ids(files.cwd / ".agent/runs")) == 2


def test_the_first_words_of_an_answer_are_shown_while_the_rest_is_missing(files: Place) -> None:
    import pty

    with serving(half_of("# Head\n\nThe **first words")) as found:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(files.cwd)
            env = {**files.env, "OLLAMA_BASE_URL": f"{found.url}/v1", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
            os.execve(VADE, [VADE, "chat", "--model", "ollama:m"], env)
        shown = ""
        try:
            while "first words" not in shown:
                shown += os.read(terminal, 65536).decode("utf-8", "replace")
                if shown.endswith("\x1b[6n"):
                    os.write(terminal, b"\x1b[1;1R")
                if "\x1b[?2004h" in shown and not found.asked:
                    os.write(terminal, b"hello\r")
                    time.sleep(0.2)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)
    assert "# Head" not in shown


def half_of(text: str) -> Answering:
    """A reply of which only the beginning comes."""

    def begin(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(_chunk({"content": text}).encode())
        server: Any = handler.server
        server.over.wait(60)

    return begin


def typed_in_chat(place: Place, model: str, keys: list[str]) -> str:
    """What a terminal shows of a chat in which these keys are pressed, each after the prompt came back."""
    import pty
    import select as waiting

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(place.cwd)
        os.execve(
            VADE,
            [VADE, "chat", "--model", model, "--yes"],
            {**place.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
        )
    shown = ""
    wanted = 1
    for pressed in [*keys, ""]:
        while True:
            ready, _, _ = waiting.select([terminal], [], [], 60)
            try:
                data = os.read(terminal, 65536) if ready else b""
            except OSError:
                data = b""
            shown += data.decode("utf-8", "replace")
            if "\x1b[6n" in data.decode("utf-8", "replace"):
                os.write(terminal, b"\x1b[1;1R")
            if not data or shown.count("\x1b[?2004h") >= wanted:  # the editor waits for keys
                break
        if pressed:
            wanted += 1
            os.write(terminal, pressed.removesuffix("\x03").encode())
        if pressed.endswith("\x03"):
            beating(place)
            os.write(terminal, b"\x03")
    os.close(terminal)
    os.waitpid(child, 0)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


SLOW = "import sys, time\nwhile True:\n    open('heartbeat', 'a').write('x')\n    time.sleep(0.01)\n"


def slow_run(place: Place) -> subprocess.Popen[bytes]:
    skill = write_skill(place.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir(exist_ok=True)
    (skill / "scripts/x.py").write_text(SLOW)
    model = scripted(place, select("mine"), run_script("mine", "scripts/x.py"), final())
    return subprocess.Popen(
        [VADE, "run", "x", "--model", model, "--yes"],
        cwd=place.cwd,
        env=place.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def beating(place: Place) -> Path:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for found in place.cwd.glob(".agent/runs/*/calls/*/work/heartbeat"):
            return found
        time.sleep(0.01)
    raise AssertionError("the script never ran")


def test_ctrl_c_ends_it_cleanly(files: Place) -> None:
    started = slow_run(files)
    beating(files)
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=60) == 130
    assert processes_of(files) == []
    (run_id,) = run_ids(files.cwd / ".agent/runs")
    assert read_run(files.cwd / ".agent/runs", run_id).status == "interrupted"


def processes_of(place: Place) -> list[str]:
    """Processes that have to do with this place, whoever started them."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        if str(place.cwd).encode() in words and int(number) != os.getpid():
            found.append(words.decode(errors="replace"))
    return found


@pytest.mark.extras  # nine seconds
def test_killed_at_any_moment(files: Place) -> None:
    chance = random.Random(7)
    runs = files.cwd / ".agent/runs"
    for number in range(50):
        known = run_ids(runs)
        started = slow_run(files)
        # How long a start takes depends on what else the machine does: every other kill waits for the record.
        deadline = time.monotonic() + 60
        while number % 2 and run_ids(runs) == known and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.25))
        started.kill()
        started.wait(timeout=60)
    deadline = time.monotonic() + 60
    while processes_of(files) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(files) == []
    known = run_ids(runs)
    assert len(known) >= 25
    for run_id in known:
        run = read_run(runs, run_id)
        assert [event.number for event in run.events] == list(range(1, len(run.events) + 1))
        assert run.status == "unfinished"
    assert files.vade("runs", "list").code == 0


def test_two_runs_at_once_do_not_disturb_each_other(files: Place) -> None:
    words = [VADE, "run", "Compare a.txt with b.txt", "--yes", "--json"]
    both = [
        subprocess.Popen(words, cwd=files.cwd, env=files.env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    found = [json.loads(one.communicate(timeout=60)[0]) for one in both]
    assert [one["status"] for one in found] == ["done"] * 4
    assert len({one["run_id"] for one in found}) == 4


def test_ctrl_c_stops_a_turn_of_a_chat_and_not_the_chat(files: Place) -> None:
    skill = write_skill(files.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text(SLOW)
    model = scripted(files, select("mine"), run_script("mine", "scripts/x.py"), final("after all"))
    started = subprocess.Popen(
        [VADE, "chat", "--model", model, "--yes"],
        cwd=files.cwd,
        env=files.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdin is not None
    started.stdin.write("first\n")
    started.stdin.flush()
    beating(files)
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate("second\n/quit\n", timeout=60)
    assert (started.returncode, "The run was interrupted." in out, "after all" in out) == (0, True, True)


def test_what_a_terminal_shows_of_a_chat(files: Place) -> None:
    """A script's output keeps its lines, and the end after Ctrl-C is shown once."""
    skill = write_skill(files.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text(SLOW)
    shown = typed_in_chat(files, "offline", ["Compare a.txt with b.txt\r", "\x04"])
    assert not re.search(r"lines 1-2 @@ +a", shown)
    model = scripted(files, select("mine"), run_script("mine", "scripts/x.py"), final())
    shown = typed_in_chat(files, model, ["go\r\x03", "\x04"])
    assert "The run was interrupted." in shown
    assert not re.search(r"\^C *\w", shown)  # a shifted line is wrapped, and then not replaced


def test_outputs_of_a_chat_are_saved(making: Place) -> None:
    said = "go\n/outputs\n/outputs --out x\n/outputs new\n/clear all\n"
    _, _, err = chatting(making, said, "--yes", "--model", turns(making, "1", "text"))
    assert "Write /outputs DIR to save the files." in err
    assert "vade: saved new/0000.txt (4 bytes)" in err
    assert err.count("saved new/0000.txt") == 1
    assert "/clear takes no words: write /clear alone." in err
    assert (making.cwd / "new/0000.txt").read_text() == "text"
    assert not (making.cwd / "x").exists()


def test_a_refused_script_is_a_call_and_no_run_of_a_script(files: Place) -> None:
    stats = files.vade("run", "Compare a.txt with b.txt", "--json").json["stats"]
    assert (stats["tool_calls"], stats["script_runs"]) == (1, 0)
    code, shown = answered(files, "n\n", VADE, "run", "Compare a.txt with b.txt")
    assert (code, "was declined" in shown) == (3, True)
    last = read_run(files.cwd / ".agent/runs", run_ids(files.cwd / ".agent/runs")[-1])
    finished = last.first("run_finished")
    assert finished is not None
    assert finished.data["stats"]["script_runs"] == 0


def test_calls_of_another_program_among_the_runs(files: Place) -> None:
    from vademecum.session.base import Place as SessionPlace
    from vademecum.session.session import Session
    from vademecum.tools.calls import ListDir

    session = Session(files.build(), place=SessionPlace.at(files.context), client="mcp")
    session.call(ListDir("."))
    session.close()
    assert files.vade("runs", "list").out.endswith("s (calls through mcp)\n")
    (run,) = files.vade("runs", "list", "--json").json["runs"]
    assert run["request"] == "(calls through mcp)"


def test_what_the_model_wrote_may_stay_out_of_the_record(files: Place) -> None:
    (files.home / ".agent").mkdir()
    (files.home / ".agent/config.json").write_text('{"runs": {"keep_model_text": false}}')
    files.vade("run", "Compare a.txt with b.txt", "--yes")
    events = files.vade("runs", "show", "--json").json["events"]
    assert all("text" not in event for event in events if event["type"] == "model_replied")


def test_a_chat_goes_on_with_the_offline_model(files: Place) -> None:
    (files.cwd / "x.csv").write_text("a,b\n1,2\n")
    code, out, _ = chatting(
        files, "Compare a.txt with b.txt\nCompare a.txt with b.txt\n/csv-summary x.csv\n", "--yes"
    )
    assert (code, out.count("The files differ"), "2 columns" in out) == (0, 2, True)


def test_a_long_line_of_a_question_stays_in_the_gutter(files: Place) -> None:
    skill = write_skill(files.cwd, ".agent/skills/mine")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text(f"print('{'long ' * 60}')\n")
    _, shown = answered(files, "n\n", VADE, "exec", "mine", "x.py")
    lines = [line for line in shown.splitlines() if "long" in line]
    assert [line[:4] for line in lines] == ["  | ", "  ↳ ", "  ↳ ", "  ↳ "]
    assert max(map(len, lines)) <= 100


def test_what_is_not_saved_has_one_sentence(making: Place) -> None:
    done = making.vade("run", "go", "--yes", "--model", turns(making, "1", "x"), "--out", ".git")
    assert "was not saved: deny write '.git/0000.txt', because rule " in done.err


def test_ctrl_c_at_a_question(files: Place) -> None:
    code, _ = answered(files, "\x04", VADE, "run", "Compare a.txt with b.txt")
    assert code == 130
    (run,) = files.vade("runs", "list", "--json").json["runs"]
    assert run["status"] == "interrupted"


def test_damaged_and_hostile_records(files: Place) -> None:
    files.vade("run", "Compare a.txt with b.txt", "--yes")
    runs = files.cwd / ".agent/runs"
    lines = {
        "20260101-000000-0000001": "not json\n",
        "20260101-000000-0000002": "[1]\n",
        "20260101-000000-0000003": '{"n": 1, "time": "x", "type": "run_started"}\n',
        "20260101-000000-0000004": '{"n": 1, "time": 1, "type": "plan", "plan": {"steps": [{}]}}\n{"n": 2, "time": 1, "type": "run_finished", "stats": []}\n',
        "9\x1b]0;PWN\x07": '{"n": 1, "time": 1, "type": "run_started"}\n',
    }
    for name, text in lines.items():
        (runs / name).mkdir()
        (runs / name / "events.jsonl").write_text(text)
    done = files.vade("runs", "list")
    assert (done.code, done.out.count("  damaged "), "PWN" in done.out) == (0, 3, False)
    assert "is damaged" in files.vade("runs", "show", "20260101-000000-0000004").out
    assert files.vade("runs", "show", "20260101-000000-0000004", "--html", "x.html").code == 0


def test_runs_that_are_links_are_left_alone(files: Place) -> None:
    precious = files.home / "precious"
    (precious / "20260101-000000-0000001").mkdir(parents=True)
    (precious / "20260101-000000-0000001/events.jsonl").write_text("")
    (files.cwd / ".agent").mkdir()
    (files.cwd / ".agent/runs").symlink_to(precious)
    assert files.vade("runs", "prune", "--keep", "0").code == 2
    assert (precious / "20260101-000000-0000001").is_dir()


def test_replay_asks_everything_again(files: Place) -> None:
    read = {"action": {"type": "call_tool", "payload": {"tool": "read_file", "arguments": {"path": "a.txt"}}}}
    write = {
        "action": {
            "type": "call_tool",
            "payload": {"tool": "write_file", "arguments": {"path": ".git/x", "content": "y"}},
        }
    }
    assert files.vade("run", "x", "--model", scripted(files, read, write, final()), "--yes").code == 0
    assert files.vade("runs", "replay").code == 0
    (files.cwd / ".agent/config.json").write_text(
        '{"permissions": [{"permission": "read", "pattern": "a.txt", "effect": "deny"}]}'
    )
    found = files.vade("runs", "replay", "--json")
    assert [one["what"] for one in found.json["differences"]] == ["read a.txt"]


def test_exec_is_among_the_runs(files: Place) -> None:
    files.vade("exec", "--yes", "file-diff", "compare.py", "a.txt", "b.txt")
    files.vade("exec", "file-diff", "compare.py", "a.txt", "b.txt")
    assert [run["status"] for run in files.vade("runs", "list", "--json").json["runs"]] == ["done", "refused"]
    assert (
        "run_script ran"
        in files.vade("runs", "show", files.vade("runs", "list", "--json").json["runs"][0]["run_id"]).out
    )


def test_explain_knows_what_is_remembered(files: Place) -> None:
    assert answered(files, "a\n", VADE, "exec", "file-diff", "compare.py", "a.txt", "b.txt")[0] == 1
    done = files.vade("permissions", "explain", "script", "file-diff/scripts/compare.py")
    assert (done.code, "answer 1 is remembered for it" in done.out) == (3, True)
