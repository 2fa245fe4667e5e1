"""Skills of MCP servers: listed, searched, loaded, verified and run under the rules for hosts. R2."""

from __future__ import annotations

import contextlib
import http.server
import json
import shlex
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integrations.test_mcp import TOKEN, served
from tests.support import VADE, Place, write_skill
from vademecum import SkillIndex, Toolkit, build_index
from vademecum.errors import ConfigError, VademecumError
from vademecum.integrations.mcp.clients import Client, Clients
from vademecum.integrations.mcp.resources import SkillResources
from vademecum.policy.approval import Answer, Question
from vademecum.registry.mcp_source import McpSource, sources
from vademecum.session.base import Result

SERVER = str(Path(__file__).with_name("lying_server.py"))


class Person:
    """Says yes, and remembers what was asked."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or Answer("once")
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer


def command(how: str) -> str:
    return shlex.join([sys.executable, "-S", SERVER, how])


def added(place: Place, how: str, name: str = "docs") -> SkillIndex:
    McpSource(name, place.context, seconds=5).add(command(how))
    return index(place)


def index(place: Place) -> SkillIndex:
    providers = [McpSource(source.name, place.context, seconds=5) for source in sources(place.context)]
    return build_index(context=place.context, providers=providers)


def kit_of(place: Place, skills: SkillIndex, person: Person | None = None) -> Toolkit:
    return Toolkit(skills, context=place.context, approver=person)


def load(place: Place, skills: SkillIndex) -> Result:
    return kit_of(place, skills).call("skill", {"name": "helper"})


def test_a_skill_of_a_server_is_used(place: Place) -> None:  # R2
    skills = added(place, "honest")
    skill = skills.get("helper")
    assert (skill.source, skill.description) == ("mcp:docs", "Help with things.")
    assert not skill.path.exists()  # nothing is read before it is needed
    assert skills.get("mcp:docs/helper") is skill
    kit = kit_of(place, skills)
    assert [hit.source for hit in kit.search("help with things", 1)] == ["mcp:docs"]
    assert not skill.path.exists()
    loaded = kit.call("skill", {"name": "helper"})
    assert '<skill_content name="helper" source="mcp:docs">' in loaded.text
    assert "Be helpful." in loaded.text
    asset = kit.call("load_skill_asset", {"skill": "helper", "relative_path": "references/a b.md"})
    assert asset.text == "# A\n"
    for unlisted in ("references/unlisted.md", "references/none.md"):  # the server has the first of them
        assert not kit.call("load_skill_asset", {"skill": "helper", "relative_path": unlisted}).ok


def test_a_server_without_a_handshake(place: Place) -> None:
    assert "Be helpful." in load(place, added(place, "modern")).text


RUN = {"skill": "helper", "relative_path": "run.py"}


def test_a_script_needs_approval_whatever_the_rules_allow(place: Place) -> None:
    rules = [{"permission": "*", "pattern": "*", "effect": "allow"}]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    skills = added(place, "honest")
    alone = kit_of(place, skills)
    alone.call("skill", {"name": "helper"})
    assert alone.call("run_script", RUN).code == "denied"
    person = Person(Answer("always"))
    kit = kit_of(place, skills, person)
    kit.call("skill", {"name": "helper"})
    assert "from afar" in kit.call("run_script", RUN).text
    (question,) = person.asked
    assert "mcp:docs always needs approval" in question.decision.reason
    assert kit.call("run_script", RUN).ok
    assert len(person.asked) == 1  # remembered for this set of digests
    (skills.get("helper").path / "references/a b.md").write_text("# Other\n")
    kit.call("skill", {"name": "helper"})  # what was changed is fetched again, and is what was approved
    assert kit.call("run_script", RUN).ok
    assert len(person.asked) == 1


def test_what_was_tampered_with_is_asked_about_again(place: Place) -> None:
    skills = added(place, "honest")
    person = Person(Answer("always"))
    kit = kit_of(place, skills, person)
    kit.call("skill", {"name": "helper"})
    kit.call("run_script", RUN)
    (skills.get("helper").path / "scripts/run.py").write_text("print('other')")
    kit.call("run_script", RUN)
    assert len(person.asked) == 2


def test_an_answer_lapses_when_the_server_has_another_version(place: Place, tmp_path: Path) -> None:
    """The server is started where it was added, whatever directory the user is in later."""
    (tmp_path / "version").write_text("afar")
    person = Person(Answer("always"))
    here = replace(place.context, cwd=tmp_path)
    McpSource("docs", here).add(command("versions"))
    kit = kit_of(place, index(place), person)
    kit.call("skill", {"name": "helper"})
    assert "from afar" in kit.call("run_script", RUN).text
    (tmp_path / "version").write_text("beyond")
    McpSource("docs", place.context).refresh()
    kit = kit_of(place, index(place), person)
    kit.call("skill", {"name": "helper"})
    assert "from beyond" in kit.call("run_script", RUN).text
    assert len(person.asked) == 2


def test_its_list_of_tools_grants_nothing(place: Place) -> None:
    kit = kit_of(place, added(place, "generous"))
    assert kit.call("skill", {"name": "helper"}).ok
    assert kit.session.view.index.get("helper").controls.allowed_tools == ("Bash", "Write")
    for name, arguments in (
        ("run_script", RUN),
        ("write_file", {"path": "x", "content": "x"}),
        ("run_command", {"argv": ["true"]}),
    ):
        assert kit.session.call_named(name, arguments).code == "denied"


def test_a_script_sees_no_skill_of_another_server(place: Place) -> None:
    added(place, "honest", "one")
    skills = added(place, "spying", "two")
    other = skills.get("mcp:one/helper")
    skills.fetch(other)
    assert list(other.path.iterdir())
    kit = kit_of(place, skills, Person())
    kit.call("skill", {"name": "mcp:two/helper"})
    seen = kit.call("run_script", {**RUN, "skill": "mcp:two/helper", "args": [str(other.path)]})
    assert "sees []" in seen.text


def test_a_local_skill_goes_first(place: Place) -> None:
    write_skill(place.cwd / ".agent/skills", "helper")
    skills = added(place, "honest")
    assert skills.get("helper").source == "project"
    assert skills.get("mcp:docs/helper").source == "mcp:docs"
    (conflict,) = skills.report.conflicts
    assert [other.source for other in conflict.overridden] == ["mcp:docs"]


def test_a_skill_of_a_server_is_served_on_without_its_digests(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Listing it would read it before it is needed, and would name us as its origin."""
    skills = added(place, "honest")

    def listed() -> list[str]:
        clients = Clients(lambda: skills, context=place.context)
        try:
            answer = SkillResources(clients).list_skills(Client("x"), None)
            return [entry["frontmatter"]["name"] for entry in answer["skills"]]
        finally:
            clients.close()

    assert "helper" not in listed()
    assert "comes from mcp:docs" in caplog.text
    assert not skills.get("helper").path.exists()
    skills.fetch(skills.get("helper"))
    assert "helper" not in listed()


def test_two_servers(place: Place) -> None:
    """Each skill is that of its server, and has its files in a place of its own."""
    added(place, "honest", "one")
    skills = added(place, "honest", "two")
    first, second = skills.get("mcp:one/helper"), skills.get("mcp:two/helper")
    assert (first.source, second.source) == ("mcp:one", "mcp:two")
    skills.fetch(first)
    assert first.path.is_dir()
    assert not second.path.exists()


# What a server does, and what is said about it: when it is listed, as a reason to leave the skill out, or
# when the skill is loaded.
REFUSED = {
    "undeclared": "does not declare the extension",
    "odd-extensions": "answer to initialize cannot be used",
    "nothing-able": "answer to initialize cannot be used",
    "odd-cursor": "answer to skills/list cannot be used",
    "half-character": "not a message",
    "endless": "does not end",
    "circle": "does not end",
    "no-list": "answer to skills/list cannot be used",
    "silent": "did not answer",
}
LEFT_OUT = {
    "namesakes": "several skills called 'helper'",
    "outside": "a file outside its directory",
    "climbing": "goes up with '..'",
    "compiled": "not a file of a skill",
    "no-document": "does not announce SKILL.md",
    "twice": "or announces a file twice",
    "no-digest": "digest",
    "dynamic": "resources",
    "huge": "more than 512 files or 16,777,216 bytes",
    "other-name": "does not end in the name",
    "odd-name": "does not end in the name",
    "deep": "nested",
}
NOT_LOADED = {
    "other-bytes": "is not what was announced",
    "other-size": "20 bytes, 19 were announced",
    "changed-frontmatter": "frontmatter of skill://helper/SKILL.md is not what was announced",
    "other-type": "frontmatter of skill://helper/SKILL.md is not what was announced",
    "gigabyte": "more than 33,554,432 bytes",
    "dies": "ended before it answered",
    "silent-read": "did not answer",
    "other-uri": "is not 'skill://helper/SKILL.md'",
    "not-json": "not a message",
}


@pytest.mark.parametrize(("how", "said"), REFUSED.items())
def test_a_list_that_is_refused(place: Place, how: str, said: str) -> None:
    seconds = 0.5 if how == "silent" else 10
    with pytest.raises(VademecumError, match=said):
        McpSource("docs", place.context, seconds=seconds).add(command(how))
    assert sources(place.context) == []


@pytest.mark.parametrize(("how", "said"), LEFT_OUT.items())
def test_an_entry_that_is_left_out(place: Place, how: str, said: str) -> None:
    skills = added(place, how)
    assert "helper" not in {skill.name for skill in skills}
    reasons = [left_out.reason.message for left_out in skills.report.ignored if left_out.source == "mcp:docs"]
    assert said in reasons[-1]


@pytest.mark.parametrize(("how", "said"), NOT_LOADED.items())
def test_a_skill_that_is_not_loaded(place: Place, how: str, said: str) -> None:
    skills = added(place, how)
    if how == "silent-read":
        skills = build_index(context=place.context, providers=[McpSource("docs", place.context, seconds=0.5)])
    result = load(place, skills)
    assert not result.ok
    assert said in result.text
    assert not skills.get("helper").path.exists()
    assert not list(skills.get("helper").path.parent.glob(".*"))


def test_the_command(place: Place) -> None:
    shown = place.vade("source", "add", "docs", "--mcp", command("honest"), "--json")
    assert (shown.json["name"], shown.json["skills"], shown.json["left_out"]) == ("docs", ["helper"], [])
    (one,) = place.vade("source", "list", "--json").json["sources"]
    assert one == shown.json
    assert "mcp:docs" in place.vade("list").out
    assert [each["name"] for each in place.vade("list", "--source", "mcp:docs", "--json").json["skills"]] == [
        "helper"
    ]
    typo = place.vade("inspect", "helper", "--source", "mcp:dosc")
    assert (typo.code, "'mcp:docs'" in typo.err) == (2, True)
    assert place.vade("search", "help with things", "--json").json["results"][0]["source"] == "mcp:docs"
    assert "Be helpful." in place.vade("show", "helper").out
    assert place.vade("exec", "helper", "run.py").code == 3
    assert "from afar" in place.vade("exec", "--yes", "helper", "run.py").out
    assert place.vade("refresh").code == 0
    assert place.vade("source", "remove", "docs", "--json").json == {"removed": "docs"}
    assert "mcp:docs" not in place.vade("list").out
    place.vade("source", "add", "papers", "--mcp", command("honest"))
    assert "did you mean 'papers'?" in place.vade("source", "remove", "paper").err
    again = place.vade("source", "remove", "docs")
    assert (again.code, "no source 'docs'" in again.err) == (4, True)
    silent = place.vade("source", "add", "docs", "--mcp", "false")
    assert silent.code == 1
    assert "The source 'docs' failed (The server ended before it answered)" in silent.err
    assert "check that 'false' is an MCP server that serves skills." in silent.err
    wrong = place.vade("source", "add", "docs", "--mcp", "http://example.com/mcp")
    assert (wrong.code, "use https" in wrong.err) == (2, True)


def test_installing_makes_a_local_copy(place: Place) -> None:
    place.vade("source", "add", "docs", "--mcp", command("honest"))
    done = place.vade("install", "mcp:docs/helper", "--json")
    assert [change["name"] for change in done.json["changes"]] == ["helper"]
    copy = place.cwd / ".agent/skills/helper"
    assert (copy / "scripts/run.py").read_text() == "print('from afar')\n"
    lock = json.loads((place.cwd / ".agent/skills.lock.json").read_text())
    assert "mcp:docs/helper" in json.dumps(lock)
    assert place.vade("verify").code == 0
    shown = place.vade("list", "--json").json
    assert [skill["source"] for skill in shown["skills"] if skill["name"] == "helper"] == ["project"]
    missing = place.vade("install", "mcp:docs/nothing")
    assert (missing.code, "has no skill 'nothing': mcp:docs/helper" in missing.err) == (4, True)
    unknown = place.vade("install", "mcp:elsewhere/helper")
    assert "There is no source 'elsewhere'" in unknown.err


@pytest.mark.parametrize("how", ["other-bytes", "dies"])
def test_nothing_is_installed_from_a_server_that_lies(place: Place, how: str) -> None:
    place.vade("source", "add", "docs", "--mcp", command(how))
    refused = place.vade("install", "mcp:docs/helper")
    assert refused.code == (5 if how == "other-bytes" else 1)
    assert not (place.cwd / ".agent/skills/helper").exists()


def test_our_own_server_is_a_source(place: Place, tmp_path: Path) -> None:
    """Over both transports, with a token that is kept as a secret."""
    far = Place(tmp_path / "far", tmp_path / "far-home")
    (far.cwd / ".git").mkdir(parents=True)
    far.home.mkdir()
    write_skill(far.cwd / ".agent/skills", "distant", "---\nname: distant\ndescription: Far.\n---\nHi.\r\n")
    McpSource("stream", place.context).add(shlex.join([VADE, "mcp", "--project", str(far.cwd)]))
    assert "Hi." in kit_of(place, index(place)).call("skill", {"name": "mcp:stream/distant"}).text
    with served(far, VADE_MCP_TOKEN=TOKEN) as url:
        with pytest.raises(VademecumError, match="status 401"):
            McpSource("web", place.context).add(url)
        McpSource("web", place.context).add(url, token=TOKEN)
        loaded = kit_of(place, index(place)).call("skill", {"name": "mcp:web/distant"})
        assert "Hi." in loaded.text
    assert TOKEN not in (place.home / ".agent/sources/web.json").read_text()
    McpSource("web", place.context).remove()
    assert "MCP_TOKEN" not in place.vade("secrets", "list", "--json").out


class LyingHandler(http.server.BaseHTTPRequestHandler):
    """Answers every message in the way that the path of the address says."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        how = self.path.strip("/")
        self.send_response({"elsewhere": 302, "broken": 500}.get(how, 200))
        self.send_header("Location", "/honest")
        self.send_header("Content-Type", "text/event-stream" if how == "drips" else "application/json")
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range({"gigabyte": 1024, "drips": 50}.get(how, 0)):
                self.wfile.write(b" " * 1024 * 1024 if how == "gigabyte" else b": wait\n\n")
                time.sleep(0.1 if how == "drips" else 0)
            time.sleep(2 if how == "silent" else 0)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name
        """Say nothing."""


@pytest.mark.parametrize(
    ("how", "said"),
    {
        "gigabyte": "more than 33,554,432 bytes",
        "silent": "did not answer in time",
        "drips": "did not answer in time",
        "elsewhere": "status 302",
        "broken": "status 500",
        "empty": "did not answer initialize",
    }.items(),
)
def test_a_server_that_lies_over_http(place: Place, how: str, said: str) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LyingHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        seconds = 10 if how == "gigabyte" else 1
        source = McpSource("docs", place.context, seconds=seconds)
        with pytest.raises(VademecumError, match=said):
            source.add(f"http://127.0.0.1:{server.server_port}/{how}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert sources(place.context) == []


def test_names_that_are_none(place: Place) -> None:
    for name in ("../x", "A", "", "a/b"):
        with pytest.raises(ConfigError, match="not a name for a source"):
            McpSource(name, place.context).add(command("honest"))
