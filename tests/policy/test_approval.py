"""F2, F3, F7: asking, answering from elsewhere, remembering exactly, and nobody there."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import index_of, write_skill
from vademecum import ConfigError, Denied, Policy
from vademecum.policy.approval import Answer, Desk, Nobody, Question
from vademecum.policy.base import Decision, Effect, Request
from vademecum.policy.engine import OwnPolicy, default_rules
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.skill.assets import skill_digest

REQUEST = Request("script", ("pdf/scripts/a.py",), skill="pdf")
PROJECT = Path("/srv/project")


class Saying:
    """Gives one answer to everything, and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self._answer


def gate(tmp_path: Path, approver: Saying | Nobody, project: Path = PROJECT) -> Gate:
    return Gate(
        Policy(default_rules()), project=project, grants=Grants(tmp_path / "grants.db"), approver=approver
    )


def passes(gate_: Gate, request: Request = REQUEST, digest: str = "d1") -> bool:
    try:
        gate_.require(request, digest=lambda: digest)
    except Denied:
        return False
    return True


def test_once_is_not_remembered_and_always_is(tmp_path: Path) -> None:
    once, always, nobody = Saying(Answer("once")), Saying(Answer("always")), Nobody()
    assert passes(gate(tmp_path, once))
    assert not passes(gate(tmp_path, nobody))
    assert passes(gate(tmp_path, always))
    assert passes(gate(tmp_path, nobody))
    assert (len(once.asked), len(always.asked)) == (1, 1)


def test_remembered_answer_is_exact(tmp_path: Path) -> None:
    assert passes(gate(tmp_path, Saying(Answer("always"))))
    nobody = gate(tmp_path, Nobody())
    assert passes(nobody)
    assert not passes(nobody, digest="d2")  # the skill changed
    assert not passes(nobody, Request("script", ("pdf/scripts/b.py",)))
    assert not passes(nobody, Request("script", ("pdf/scripts/a.py", "pdf/scripts/b.py")))
    assert not passes(nobody, Request("tool", ("pdf/scripts/a.py",)))
    assert not passes(gate(tmp_path, Nobody(), Path("/elsewhere")))


def test_a_name_that_looks_like_a_pattern_grants_only_itself(tmp_path: Path) -> None:
    assert passes(gate(tmp_path, Saying(Answer("always"))), Request("script", ("*",)))
    assert not passes(gate(tmp_path, Nobody()), REQUEST)


def test_a_rule_that_denies_beats_what_was_remembered(tmp_path: Path) -> None:
    from tests.policy.test_engine import rules

    assert passes(gate(tmp_path, Saying(Answer("always"))))
    denying = Policy([*default_rules(), *rules("x", ("script", "*", Effect.DENY))])
    asked = Saying(Answer("always"))
    strict = Gate(denying, project=PROJECT, grants=Grants(tmp_path / "grants.db"), approver=asked)
    assert not passes(strict)
    assert asked.asked == []


def test_a_no_is_never_a_yes(tmp_path: Path) -> None:
    with pytest.raises(Denied, match=r"script 'pdf/scripts/a\.py' was declined \(not this one\)"):
        gate(tmp_path, Saying(Answer("reject", "not this one"))).require(REQUEST, digest=lambda: "d")
    with pytest.raises(Denied, match="nobody is there to ask"):
        gate(tmp_path, Nobody()).require(REQUEST, digest=lambda: "d")
    assert not (tmp_path / "grants.db").exists()


def test_grants_can_be_listed_revoked_and_expire(tmp_path: Path) -> None:
    now = [1000.0]
    grants = Grants(tmp_path / "deep" / "grants.db", clock=lambda: now[0])
    assert (grants.all(), grants.revoke(1)) == ([], False)
    grants.add(REQUEST, digest="d", scope="user", project=PROJECT, seconds=1000.0)
    assert (tmp_path / "deep" / "grants.db").stat().st_mode & 0o777 == 0o600
    (grant,) = grants.all()
    assert (grant.resource, grant.scope, grant.project, grant.expires) == (
        "pdf/scripts/a.py",
        "user",
        "",
        2000.0,
    )
    assert grants.cover(REQUEST, digest="d", project=Path("/anywhere"))
    now[0] = 2000.0
    assert not grants.cover(REQUEST, digest="d", project=PROJECT)
    assert (grants.revoke(grant.id), grants.revoke(grant.id), grants.all()) == (True, False, [])


def test_damaged_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "grants.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"grants\.db cannot be used"):
        Grants(tmp_path / "grants.db").all()


def test_processes_remember_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vademecum.policy.base import Request; from vademecum.policy.grants import Grants\n"
        "grants = Grants(Path(sys.argv[1]))\n"
        "for n in range(20): grants.add(Request('script', (f'{sys.argv[2]}-{n}',)), digest='d', scope='user', project=Path('/'))"
    )

    def run(number: int) -> None:
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "grants.db"), str(number)], check=True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(6)))
    grants = Grants(tmp_path / "grants.db").all()
    assert len({grant.resource for grant in grants}) == len(grants) == 120


def question(number: int, resource: str = "x") -> Question:
    return Question(
        str(number), (Request("tool", (resource,)),), Decision(Effect.ASK, None, "tool", resource)
    )


def wait_for(desk: Desk, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(desk.waiting()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_desk_is_answered_from_another_thread() -> None:
    desk = Desk()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(desk.ask, question(1))
        wait_for(desk, 1)
        assert desk.waiting() == [question(1)]
        assert desk.answer("1", Answer("reject", "later"))
        assert asked.result(timeout=60) == Answer("reject", "later")
    assert (desk.waiting(), desk.answer("1", Answer("once")), desk.answer("9", Answer("once"))) == (
        [],
        False,
        False,
    )


def test_always_releases_what_asks_for_the_same() -> None:
    desk = Desk()
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(desk.ask, question(n, resource)) for n, resource in enumerate(("x", "x", "other"))
        ]
        wait_for(desk, 3)
        assert desk.answer("0", Answer("always"))
        assert [future.result(timeout=60).verdict for future in asked[:2]] == ["always", "always"]
        assert [q.id for q in desk.waiting()] == ["2"]
        desk.close()
        assert asked[2].result(timeout=60).verdict == "reject"
    assert desk.ask(question(7)).verdict == "reject"


def test_closing_ends_every_wait() -> None:
    desk = Desk()
    threads = [threading.Thread(target=desk.ask, args=(question(n),)) for n in range(20)]
    for thread in threads:
        thread.start()
    wait_for(desk, 20)
    desk.close()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_skill_digest_is_of_every_file(root: Path) -> None:
    place = write_skill(root, "x")
    (place / "scripts").mkdir()
    (place / "scripts" / "a.py").write_text("1")
    skill = index_of(root).get("x")
    seen = {skill_digest(skill)}
    assert skill_digest(skill) in seen
    script, other, link = place / "scripts" / "a.py", place / "scripts" / "b.py", place / "link"
    for change in ("edit", "add", "rename", "link", "relink"):
        match change:
            case "edit":
                script.write_text("2")
            case "add":
                other.write_text("2")
            case "rename":
                other.rename(place / "scripts" / "c.py")
            case "link":
                link.symlink_to("scripts/a.py")
            case "relink":
                link.unlink()
                link.symlink_to("scripts/c.py")
        digest = skill_digest(skill)
        assert digest not in seen
        seen.add(digest)


def test_a_policy_that_fails_or_hangs_has_not_allowed_it() -> None:  # F1
    released = threading.Event()

    class Odd:
        def __init__(self, way: str) -> None:
            self._way = way

        def decide(self, request: Request) -> Decision:
            if self._way == "hangs":
                released.wait()
            if self._way == "raises":
                raise RuntimeError("no answer")
            return None if self._way == "nothing" else Decision(Effect.ALLOW, None, request.permission, "")  # type: ignore[return-value]

    said = {}
    for way in ("hangs", "raises", "nothing", "answers"):
        patience = 0.05 if way == "hangs" else 10.0
        said[way] = OwnPolicy(Odd(way), patience).decide(REQUEST)
    released.set()
    assert [decision.effect.name for decision in said.values()] == ["DENY", "DENY", "DENY", "ALLOW"]
    assert [said[way].reason for way in ("hangs", "raises")] == [
        "the policy did not answer in time",
        "the policy failed (RuntimeError)",
    ]
