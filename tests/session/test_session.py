"""A session: what is put off and resumed, what conversations do not share, and many threads at once."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import Stage, final, select, tool
from tests.models.server import serving
from tests.support import Place, write_skill
from vademecum import Agent, Policy, Toolkit
from vademecum.errors import ConfigError, Declined, VademecumError
from vademecum.models.scripted_model import Scripted
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.base import Effect
from vademecum.policy.engine import allowing
from vademecum.runs.stored import read_run
from vademecum.session.base import Deferred, Result
from vademecum.session.base import Place as SessionPlace
from vademecum.session.direct import explain
from vademecum.session.schemas import ALL_TOOLS
from vademecum.session.session import Session
from vademecum.tools.calls import (
    DeleteFile,
    GetSkillScriptPath,
    Grep,
    ListDir,
    NetworkRequest,
    ReadFile,
    RunCommand,
    RunScript,
    UnloadSkill,
    UseSkill,
    WriteFile,
)

YES = Answer("once")


class Later:
    """Puts every answer off."""

    def ask(self, question: Question) -> Answer:
        raise Deferred(question)


@pytest.fixture
def place(place: Place) -> Place:
    skill = write_skill(place.cwd / ".agent/skills", "greeter")
    (skill / "scripts").mkdir()
    (skill / "scripts/hello.py").write_text("import sys\nprint('hello', *sys.argv[1:])\n")
    write_skill(place.cwd / ".agent/skills", "other")
    (place.cwd / "a.txt").write_text("one\n")
    return place


def session_of(place: Place, approver: Approver | None = None, **options: Any) -> Session:
    return Session(place.build(), place=SessionPlace.at(place.context), approver=approver, **options)


def deferred(session: Session, call: Any) -> str:
    with pytest.raises(Deferred) as raised:
        session.call(call, approver=Later())
    return raised.value.question.id


WRITE = WriteFile("a.txt", "two\n")


@pytest.mark.parametrize("home", ["/dev/null", "/proc/x"])
def test_a_call_that_cannot_be_kept_is_refused_in_a_sentence(place: Place, home: str) -> None:
    context = replace(place.context, home=Path(home))
    session = Session(place.build(), place=SessionPlace.at(context))
    with pytest.raises(ConfigError, match=r"/\.agent/runs/\.deferred cannot be written"):
        session.call(WRITE, approver=Later())
    assert (place.cwd / "a.txt").read_text() == "one\n"


def test_a_call_that_is_put_off_is_done_once_it_is_answered(place: Place) -> None:
    session = session_of(place)
    number = deferred(session, WRITE)
    assert (place.cwd / "a.txt").read_text() == "one\n"
    assert session.resume(number, YES).ok
    assert (place.cwd / "a.txt").read_text() == "two\n"
    assert session.resume(number, YES).code == "no-question"  # it is done once
    events = read_run(place.cwd / ".agent/runs", session.run_id).events
    verdicts = [event.data["verdict"] for event in events if event.type == "approval_answered"]
    assert verdicts == ["deferred", "once"]


def test_a_no_to_what_was_put_off(place: Place) -> None:
    session = session_of(place)
    number = deferred(session, WRITE)
    with pytest.raises(Declined, match="not now"):
        session.resume(number, Answer("reject", "not now"))
    assert (place.cwd / "a.txt").read_text() == "one\n"


def test_what_changed_meanwhile_is_not_done(place: Place) -> None:
    session = session_of(place)
    session.call(UseSkill("greeter"))
    written, removed = deferred(session, WRITE), deferred(session, DeleteFile("a.txt"))
    (place.cwd / "in.txt").write_text("before")
    ran = deferred(session, RunScript("greeter", "hello.py", ["in.txt"]))
    again = deferred(session, RunScript("greeter", "hello.py"))
    (place.cwd / "a.txt").write_text("changed by somebody else\n")
    (place.cwd / "in.txt").write_text("after")
    assert [session.resume(each, YES).code for each in (written, removed, ran)] == ["changed"] * 3
    (place.cwd / ".agent/skills/greeter/scripts/hello.py").write_text("print('evil')\n")
    assert session.resume(again, YES).code == "changed"
    assert (place.cwd / "a.txt").read_text() == "changed by somebody else\n"


def test_a_script_that_is_put_off(place: Place) -> None:
    session = session_of(place)
    session.call(UseSkill("greeter"))
    number = deferred(session, RunScript("greeter", "hello.py", ["you"]))
    result = session.resume(number, YES)
    assert "hello you" in result.text
    assert result.facts["exit_code"] == 0


def test_a_skill_that_is_put_off(place: Place) -> None:
    rules = [{"permission": "skill", "pattern": "greeter", "effect": "ask"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    session = session_of(place)
    number = deferred(session, UseSkill("greeter"))
    assert not session.active
    assert session.resume(number, YES).text.startswith("<skill_content ")
    assert [skill.name for skill in session.active] == ["greeter"]


def test_a_second_question_of_the_same_call_is_put_off_as_well(place: Place) -> None:
    """A redirect asks again; the first answer still counts when the call comes again."""
    rules = [{"permission": "private-network", "pattern": "*", "effect": "ask"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    with serving(lambda handler: handler.reply(200, b"hello")) as server:
        session = session_of(place)
        first = deferred(session, NetworkRequest(server.url, "POST", body="{}"))
        with pytest.raises(Deferred) as second:
            session.resume(first, YES, approver=Later())
        result = session.resume(second.value.question.id, YES)
    assert result.ok, result.text
    assert "hello" in result.text


def _resume(cwd: str, home: str, number: str, sent: Any) -> None:
    place = Place(Path(cwd), Path(home))
    result = session_of(place).resume(number, YES)
    sent.send((result.code, result.text))


def test_another_process_resumes(place: Place) -> None:
    session = session_of(place)
    session.call(UseSkill("greeter"))
    number = deferred(session, RunScript("greeter", "hello.py", ["over there"]))
    received, sent = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_resume, args=(str(place.cwd), str(place.home), number, sent))
    process.start()
    code, text = received.recv()
    process.join(60)
    assert code == "", text
    assert "hello over there" in text


def test_an_answer_is_for_the_agent_that_asked(place: Place) -> None:
    number = deferred(session_of(place, agent="one"), WRITE)
    assert session_of(place, agent="two").resume(number, YES).code == "no-question"
    for odd in ("nothing", "../" * 5, "*", "0" * 32, ""):
        assert session_of(place).resume(odd, YES).code == "no-question"
    assert session_of(place, agent="one").resume(number, YES).ok


def test_two_answers_at_once_do_it_once(place: Place) -> None:
    session = session_of(place)
    number = deferred(session, DeleteFile("a.txt"))
    ready, codes = threading.Barrier(8), []

    def answer() -> None:
        ready.wait()
        codes.append(session_of(place).resume(number, YES).code)

    threads = [threading.Thread(target=answer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [""] + ["no-question"] * 7


def test_conversations_of_one_toolkit_share_nothing(place: Place) -> None:
    asked: list[str] = []

    class Asked:
        def ask(self, question: Question) -> Answer:
            asked.append(question.wanted)
            return Answer("always", scope="run")

    kit = Toolkit(place.build(), context=place.context, approver=Asked(), tools=ALL_TOOLS)
    other = kit.conversation()
    run = {"skill": "greeter", "relative_path": "hello.py"}
    assert kit.call("skill", {"name": "greeter"}).ok
    assert kit.call("run_script", run).ok
    assert kit.call("run_script", run).ok
    assert len(asked) == 1
    assert other.call("run_script", run).code == "not-loaded"
    assert other.session.active == ()
    assert other.call("skill", {"name": "greeter"}).ok
    assert other.call("run_script", run).ok
    assert len(asked) == 2  # an answer "for this run" is for that conversation
    assert kit.session.run_id != other.session.run_id
    kit.close()
    assert other.call("unload_skill", {"skill": "greeter"}).ok
    other.close()
    statuses = [read_run(place.cwd / ".agent/runs", run_id).status for run_id in _runs(place)]
    assert statuses == ["done", "done"]


def test_a_conversation_of_the_agent_keeps_its_skills_but_not_its_answers(place: Place) -> None:
    asked: list[str] = []

    class Asked:
        def ask(self, question: Question) -> Answer:
            asked.append(question.wanted)
            return Answer("always", scope="run")

    write = tool("write_file", path="x.txt", content="x")
    model = Scripted([select("greeter"), write, write, final(), write, final()])
    agent = Agent(model, place.build(), approver=Asked(), context=place.context)
    conversation = agent.conversation()
    session = conversation.session
    assert conversation.run("first").status == "done"
    assert [skill.name for skill in session.active] == ["greeter"]
    assert len(asked) == 1
    conversation.run("second")
    assert any("skill greeter (source project)" in message.content for message in model.seen[-1])
    assert len(asked) == 2  # each message of a chat is a run of its own
    assert [skill.name for skill in session.active] == ["greeter"]
    assert agent.conversation().session.active == ()


def test_load_again_and_unload(place: Place) -> None:
    session = session_of(place)
    first = session.call(UseSkill("greeter"))
    assert session.call(UseSkill("greeter")).text == first.text
    session.call(UseSkill("other"))
    assert [skill.name for skill in session.active] == ["greeter", "other"]
    assert session.call(UnloadSkill("greeter")).ok
    assert session.call(RunScript("greeter", "hello.py")).code == "not-loaded"
    assert [skill.name for skill in session.active] == ["other"]
    types = [event.type for event in read_run(place.cwd / ".agent/runs", session.run_id).events]
    assert types.count("skill_loaded") == 3
    assert types.count("skill_unloaded") == 1


def test_reading_a_skill_does_not_make_it_active(place: Place) -> None:
    session = session_of(place)
    assert session.show("greeter").text.startswith("<skill_content ")
    assert session.active == ()


def test_sixteen_threads_and_slow_approvers(place: Place) -> None:
    """State is locked, waiting is not: all sixteen wait for their answers at the same time."""
    everybody = threading.Barrier(16)

    class Slow:
        def ask(self, question: Question) -> Answer:
            everybody.wait(60)  # comes back only if all sixteen are here
            return YES

    session = session_of(place, Slow())
    session.call(UseSkill("greeter"))
    results: list[Result] = []

    def work(number: int) -> None:
        for call in (UseSkill("other"), ReadFile("a.txt")):
            results.append(session.call(call))
        results.append(session.call(WriteFile(f"made-{number}.txt", f"{number}")))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.text for result in results if not result.ok] == []
    assert {file.name for file in place.cwd.glob("made-*")} == {f"made-{number}.txt" for number in range(16)}
    run_id = session.run_id
    session.close()
    run = read_run(place.cwd / ".agent/runs", run_id)
    assert [event.number for event in run.events] == list(range(1, len(run.events) + 1))
    calls = [event.data["call"] for event in run.events if event.type == "tool_called"]
    assert sorted(calls) == list(range(1, 33))
    assert [skill.name for skill in session.active] == ["greeter", "other"]


def test_sixteen_threads_run_scripts(place: Place) -> None:
    session = session_of(place, Consent())
    session.call(UseSkill("greeter"))
    said: dict[int, str] = {}

    def work(number: int) -> None:
        said[number] = session.call(RunScript("greeter", "hello.py", [f"n{number}"])).text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"hello n{number}" in said[number] for number in range(16))
    session.close()


def test_a_session_that_is_closed_lets_calls_end(place: Place) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Waits:
        def ask(self, question: Question) -> Answer:
            begun.set()
            go_on.wait(60)
            return YES

    session = session_of(place, Waits())
    thread = threading.Thread(target=session.call, args=(WRITE,))
    thread.start()
    begun.wait(60)
    session.close()
    go_on.set()
    thread.join()
    (run_id,) = _runs(place)
    run = read_run(place.cwd / ".agent/runs", run_id)
    assert run.status == "done"
    assert [event.type for event in run.events][-2:] == ["tool_called", "run_finished"]


def test_a_child_agent_has_a_session_of_its_own(place: Place) -> None:
    write_skill(
        place.cwd / ".agent/skills",
        "apart",
        "---\nname: apart\ndescription: By itself.\nrun-mode: subagent\n---\n# Apart\n",
    )
    stage = Stage(place)
    stage.run(select("greeter"), select("apart"), tool("read_file", path="a.txt"), final("child"), final())
    assert [event.data["skill"] for event in stage.heard if event.type == "skill_loaded"] == [
        "project:greeter",
        "project:apart",
    ]
    # A child may run again: the second time it gives its text again.
    outcome = stage.run(select("apart"), final("one"), select("apart"), final("two"), final())
    assert stage.lines(outcome) == ["[1] select_skills apart: ok", "[2] select_skills apart: ok"]


def _runs(place: Place) -> list[str]:
    return sorted(path.name for path in (place.cwd / ".agent/runs").glob("2*"))


def test_a_no_counts_also_if_nobody_would_ask_any_more(place: Place) -> None:
    session = session_of(place)
    first, second = deferred(session, WRITE), deferred(session, WriteFile("a.txt", "three\n"))
    assert session.resume(first, Answer("always", scope="run")).ok
    with pytest.raises(Declined):
        session.resume(second, Answer("reject", "do not"))
    assert (place.cwd / "a.txt").read_text() == "two\n"


def test_what_changed_is_not_done_also_if_nobody_would_ask_any_more(place: Place) -> None:
    session = session_of(place)
    first, second = deferred(session, WRITE), deferred(session, WriteFile("a.txt", "three\n"))
    assert session.resume(first, Answer("always", scope="run")).ok
    assert (
        session.resume(second, YES).code == "changed"
    )  # the file is not what it was when it was asked about


def test_a_repository_cannot_bring_calls_that_wait(place: Place) -> None:
    """Only what a session of this user wrote, for this project, is done."""
    session = session_of(place)
    number = deferred(session, WRITE)
    (kept,) = (place.home / ".agent/runs/.deferred").glob("*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    forged = json.loads(kept.read_bytes())
    forged["arguments"]["content"] = "evil\n"
    for directory in (".agent/runs/.deferred", f".agent/runs/{session.run_id}/deferred"):
        (place.cwd / directory).mkdir(parents=True)
        for name in (kept.name, f"{number}.json"):
            (place.cwd / directory / name).write_text(json.dumps(forged))
    other = Place(place.cwd.parent / "other", place.home)
    other.cwd.mkdir()
    assert session_of(other).resume(number, YES).code == "no-question"
    text = kept.read_text()
    kept.unlink()
    assert session.resume(number, YES).code == "no-question"
    for damaged in ("{", "[" * 100_000, '{"call": "write_file"}', text[:-1]):
        kept.write_text(damaged)
        assert session.resume(number, YES).code == "no-question"
    assert (place.cwd / "a.txt").read_text() == "one\n"


def test_nothing_is_left_of_a_call_that_was_answered(place: Place) -> None:
    session = session_of(place)
    for answer in (YES, Answer("reject")):
        number = deferred(session, WriteFile("s.txt", "Bearer correct-horse-battery"))
        with contextlib.suppress(Declined):
            session.resume(number, answer)
    assert list((place.home / ".agent/runs/.deferred").iterdir()) == []


def test_resuming_leaves_the_conversation_as_it_is(place: Place) -> None:
    first, second = session_of(place), session_of(place)
    first.call(UseSkill("greeter"))
    number = deferred(first, RunScript("greeter", "hello.py"))
    assert second.resume(number, YES).ok
    assert second.active == ()


def test_an_agent_whose_approver_puts_it_off_says_so(place: Place) -> None:
    model = Scripted([tool("write_file", path="x.txt", content="x"), final()])
    outcome = Agent(model, place.build(), approver=Later(), context=place.context).run("do it")
    assert (outcome.status, outcome.stop_reason) == ("refused", "deferred")
    assert not (place.cwd / "x.txt").exists()


def test_a_no_is_raised_whatever_it_was_about(place: Place) -> None:
    class No:
        def ask(self, question: Question) -> Answer:
            return Answer("reject")

    session = session_of(place, No())
    with pytest.raises(Declined):
        session.call(GetSkillScriptPath("greeter", "hello.py"))


def test_an_approver_that_fails_has_not_said_yes(place: Place) -> None:
    class Broken:
        def ask(self, question: Question) -> Answer:
            raise OSError("the terminal is gone")

    result = session_of(place, Broken()).call(WRITE)
    assert (result.code, "could not be asked" in result.text) == ("denied", True)


def test_one_run_at_a_time(place: Place) -> None:
    session = session_of(place)
    session.begin("one", model="none")
    with pytest.raises(VademecumError, match="A run is in progress"):
        session.begin("two", model="none")
    session.close()
    assert session.call(UseSkill("greeter")).ok
    session.begin("three", model="none")  # the run that began by itself is over then
    session.close()
    runs = [read_run(place.cwd / ".agent/runs", run_id) for run_id in _runs(place)]
    assert [run.status for run in runs] == ["done"] * 3


def test_answers_for_this_run_end_with_it(place: Place) -> None:
    asked: list[str] = []

    class Asked:
        def ask(self, question: Question) -> Answer:
            asked.append(question.wanted)
            return Answer("always", scope="run")

    session = session_of(place, Asked())
    for _ in range(2):
        session.call(WRITE)
        session.call(WRITE)
        session.close()
    assert len(asked) == 2


def test_what_a_skill_excluded_stays_closed_when_the_model_unloads_it(place: Place) -> None:  # F5
    write_skill(
        place.cwd / ".agent/skills", "narrow", "---\nname: narrow\ndescription: x\nallowed-tools: Read\n---\n"
    )
    session = session_of(place, Consent())
    session.call(UseSkill("narrow"))
    assert session.call(WRITE).code == "denied"
    assert session.call(WriteFile("b.txt", "x"), for_skill="narrow").code == "denied"
    session.call(UnloadSkill("narrow"))
    nobody = Nobody()
    assert session.call(WRITE, approver=nobody).code == "denied"  # it is asked, and a person may allow it
    assert session.call(ReadFile("a.txt")).ok
    assert session.call(WRITE).ok
    session.call(UseSkill("narrow"))
    session.call(UnloadSkill("narrow"), origin="user")
    assert session.call(WRITE).ok


def test_another_skill_that_excludes_scripts_is_asked_about(place: Place) -> None:  # F5
    write_skill(
        place.cwd / ".agent/skills", "narrow", "---\nname: narrow\ndescription: x\nallowed-tools: Read\n---\n"
    )
    rules = [{"permission": "script", "pattern": "*", "effect": "allow"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    session = session_of(place)
    session.call(UseSkill("greeter"))
    assert session.call(RunScript("greeter", "hello.py")).ok
    session.call(UseSkill("narrow"))
    refused = session.call(RunScript("greeter", "hello.py"))
    assert (refused.code, "'allowed-tools' of skill 'narrow'" in refused.text) == ("denied", True)
    assert session.call(RunScript("greeter", "hello.py"), approver=Consent()).ok


def test_a_file_of_a_skill_is_the_skills_by_whatever_name(place: Place) -> None:  # F9
    guide = place.cwd / ".agent/skills/greeter/references/secret.md"
    guide.parent.mkdir()
    guide.write_text("hush\n")
    (place.cwd / "linked.md").hardlink_to(guide)
    (place.cwd / "soft.md").symlink_to(guide)
    rules = [{"permission": "resource", "pattern": "greeter/references/secret.md", "effect": "deny"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    session = session_of(place, Consent())
    missing = session.call(ReadFile("nothing.md")).text
    for name in ("linked.md", "soft.md", ".agent/skills/greeter/references/secret.md"):
        result = session.call(ReadFile(name))
        assert (result.code, result.text) == ("missing", missing.replace("nothing.md", name))
    assert session.call(Grep("hush")).text == "no line matches"
    assert "secret.md" not in session.call(ListDir(".agent/skills/greeter/references")).text
    session.call(UseSkill("greeter"))
    assert session.call(RunScript("greeter", "hello.py", files=["linked.md"])).code == "missing"


def test_what_other_conversations_saw_is_not_readable(place: Place) -> None:  # F9
    stage = Stage(place)
    outcome = stage.run(tool("read_file", path="a.txt"), final())
    (kept,) = (stage.runs / outcome.run_id / "observations").glob("*")
    path = str(kept.relative_to(place.cwd))
    assert session_of(place).call(ReadFile(path)).code == "missing"
    assert "a.txt" in session_of(place).call(Grep("one")).text
    assert ".agent/runs" not in session_of(place).call(Grep("one")).text
    again = stage.run(tool("read_file", path="a.txt"), tool("read_file", path=path), final())
    assert stage.lines(again)[1].endswith(": missing")


def test_the_roots_of_skills_are_closed_to_writing(place: Place) -> None:  # F8
    write_skill(place.cwd / ".claude/skills", "theirs")
    session = session_of(
        place, Consent(), policy=Policy.load(place.context, run=allowing(["write_file", "delete_file"]))
    )
    for path in (".claude/skills/theirs/SKILL.md", ".claude/skills/new/SKILL.md", "sub/.git", ".git/config"):
        assert session.call(WriteFile(path, "x")).code == "denied"
        assert session.call(DeleteFile(path)).code == "denied"
    assert session.call(WriteFile("plain.txt", "x")).ok


def test_what_is_overwritten_is_kept(place: Place) -> None:
    session = session_of(place, Consent())
    assert session.call(WRITE).ok
    (kept,) = (place.cwd / ".agent/runs").glob("*/trash/*/a.txt")
    assert kept.read_text() == "one\n"


def test_refusals_do_not_tell_a_model_how_to_get_round_them(place: Place) -> None:
    session = session_of(place, Nobody("vade exec --yes greeter hello.py"))
    session.call(UseSkill("greeter"))
    for call in (RunScript("greeter", "hello.py"), WRITE, WriteFile(".git/x", "y")):
        result = session.call(call)
        assert result.code == "denied"
        assert not {"--yes", "--allow", "config.json", "vade "} & set(result.text.split())
        assert "config" not in result.text
        assert result.advice


def test_secrets_do_not_reach_a_model(place: Place) -> None:
    context = replace(place.context, env={**place.context.env, "MY_API_KEY": "correct-horse-battery"})
    (place.cwd / "a.txt").write_text("it is correct-horse-battery\n")
    session = Session(place.build(), place=SessionPlace.at(context))
    assert session.call(ReadFile("a.txt")).text == "it is [secret]\n"


def test_explain_says_what_a_run_would_do(place: Place) -> None:
    rules = [{"permission": "write", "pattern": "docs/*", "effect": "allow"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    session = session_of(place)
    for permission, resource, call in (
        ("write", "docs/a.md", WriteFile("docs/a.md", "x")),
        ("write", ".git/config", WriteFile(".git/config", "x")),
        ("write", ".agent/skills/greeter/x", WriteFile(".agent/skills/greeter/x", "x")),
        ("read", "a.txt", ReadFile("a.txt")),
        ("read", ".env", ReadFile(".env")),
        ("delete", "a.txt", DeleteFile("a.txt")),
    ):
        (place.cwd / ".env").write_text("KEY=1")
        said = explain(session, permission, [resource]).effect is Effect.ALLOW
        assert said == session.call(call).ok, resource
    assert "name it with --allow" in explain(session, "write", ["docs/a.md"]).remedy


def test_advice_that_is_followed_leads_to_a_yes(place: Place) -> None:
    config = place.home / ".agent/config.json"
    config.parent.mkdir()
    reaches = RunScript("greeter", "hello.py", network=["example.org"])
    for call in (RunScript("greeter", "hello.py"), reaches, RunCommand(["true"]), ReadFile(".env")):
        (place.cwd / ".env").write_text("KEY=1")
        config.write_text("{}")
        for again in (False, True):
            session = session_of(place, Nobody())
            session.call(UseSkill("greeter"))
            result = session.call(call)
            assert (result.code == "") == again, result
            rules = re.findall(r"add (\{.*?\}) at", result.advice)
            config.write_text(f'{{"permissions": [{", ".join(rules)}]}}')
    for allowed in ([], allowing(["write_file"])):
        session = Session(
            place.build(),
            place=SessionPlace.at(place.context),
            policy=Policy.load(place.context, run=allowed),
            approver=Nobody(),
        )
        result = session.call(WRITE)
        assert result.ok == bool(allowed)
        assert allowed or "add " not in result.advice  # such a rule would not do, --allow does
        assert allowed or "name it with --allow" in result.advice


def test_a_child_is_bounded_by_its_parent(place: Place) -> None:  # F5
    for name, fields in (("narrow", "allowed-tools: Read\n"), ("apart", "run-mode: subagent\n")):
        write_skill(
            place.cwd / ".agent/skills", name, f"---\nname: {name}\ndescription: x\n{fields}---\n# {name}\n"
        )
    stage = Stage(place)
    write = tool("write_file", path="child.txt", content="x")
    stage.run(select("narrow"), select("apart"), write, final(), final())
    assert not (place.cwd / "child.txt").exists()


def test_a_child_gets_its_task(place: Place) -> None:
    write_skill(
        place.cwd / ".agent/skills",
        "apart",
        "---\nname: apart\ndescription: x\nrun-mode: subagent\n---\n# Apart\n",
    )
    stage = Stage(place)
    start = {
        "action": {
            "type": "select_skills",
            "payload": {"skills": [{"name": "apart", "task": "count to three"}]},
        }
    }
    stage.run(start, final(), final(), request="a long story")
    assert "count to three" in stage.model.seen[1][1].content
    assert "a long story" not in stage.model.seen[1][1].content


def test_a_script_whose_input_is_missing_is_on_record(place: Place) -> None:
    session = session_of(place)
    session.call(UseSkill("greeter"))
    assert session.call(RunScript("greeter", "hello.py", files=["none.txt"])).code == "missing"
    events = read_run(place.cwd / ".agent/runs", session.run_id).events
    assert [event.data["code"] for event in events if event.type == "tool_called"] == ["missing"]


def test_a_repeated_key_is_named_within_bounds(place: Place) -> None:
    key = "k" * 1_000_000
    result = Session(place.build()).call_named("search_skills", f'{{"{key}": 1, "{key}": 2}}')
    assert (result.code, "appears twice" in result.text, len(result.text) < 300) == ("arguments", True, True)
