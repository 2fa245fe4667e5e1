"""A program that uses every public name, with the type that a type checker must see for each.

mypy checks it with everything else here; `test_wheel.py` checks and runs it against the installed package.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import vademecum as vm
import vademecum.governance as gov
from vademecum.masking import Secrets
from vademecum.models.base import Model
from vademecum.models.scripted_model import Scripted
from vademecum.runs.record import Record
from vademecum.runs.stored import read_run
from vademecum.session.session import Session


def find() -> vm.SkillIndex:
    root = vm.Root(vm.BUILTIN_ROOT, "builtin")
    options = vm.IndexOptions(reading=vm.Reading(lenient=True))
    index = vm.build_index([root], options)
    assert_type(vm.BUILTIN_ROOT, Path)
    assert_type(index, vm.SkillIndex)
    assert_type(vm.refresh_index(index, [vm.BUILTIN_ROOT]), vm.SkillIndex)
    assert_type(index.skills, tuple[vm.Skill, ...])
    assert_type(index.get("file-diff").name, str)
    assert_type(index.report, vm.Report)
    assert_type(index.report.ignored, tuple[vm.LeftOut, ...])
    assert_type([left_out.reason for left_out in index.report.ignored], list[vm.Problem])
    return index


def check() -> None:
    verdict = vm.validate_skill(vm.BUILTIN_ROOT / "file-diff")
    assert_type(verdict, vm.Validation)
    assert_type(verdict.valid, bool)
    assert_type(verdict.problems, tuple[vm.Problem, ...])


def search(index: vm.SkillIndex) -> None:
    hits = vm.Finder(index).search("compare two files", n=1)
    assert_type(hits, list[vm.Hit])
    assert_type(hits[0].score, float)
    found = vm.Finder(index).find("compare two files", n=1)
    assert_type(found, vm.Findings)
    assert_type(found.fits, bool)


def settings() -> None:
    context = vm.Context.current()
    assert_type(context, vm.Context)
    loaded = vm.load_config(context)
    assert_type(loaded.settings, vm.Config)
    assert_type(loaded.settings.lenient, bool)
    assert_type(vm.Policy.load(context), vm.Policy)
    assert_type(vm.__version__, str)


def offer(index: vm.SkillIndex) -> None:
    kit = vm.Toolkit(index, policy=vm.Policy.load())
    assert_type(kit.system_prompt(), str)
    assert_type(kit.skills, tuple[vm.Skill, ...])
    assert_type(kit.call("skill", {"name": "file-diff"}).text, str)
    manager = vm.SkillsManager(index)
    assert_type(manager.list_skills(), list[str])
    assert_type(manager.get_skill_content("file-diff"), str)


def run(index: vm.SkillIndex) -> None:
    told = vm.models.scripted([{"action": {"type": "final_answer", "payload": {"text": "Done."}}}])
    assert_type(told, Scripted)
    assert_type(vm.models.offline(), Model)
    assert_type(vm.models.recorded("tape.jsonl", told), Model)
    outcome = vm.Agent(told, index, budget=vm.Budget(turns=2)).run("Say that it is done.")
    assert_type(outcome, vm.Outcome)
    assert_type(outcome.answer, str)


def connect(kind: str) -> Model:
    """Needs the extras, so it is checked and not called."""
    assert_type(vm.models.openai("gpt-4o-mini", timeout=10), Model)
    assert_type(vm.models.anthropic("claude-sonnet-4-5"), Model)
    return vm.models.openai(kind)


def govern() -> None:
    rest = gov.SkillDefinition(
        "rest", implementation_mapping="rest", output_schema={"hours": gov.Parameter("number")}
    )
    registry = gov.SkillRegistry([rest])
    roles = gov.RoleEnforcer({"resident": gov.Role(["rest"])})
    functions = gov.Functions({"rest": lambda agent, hours=8: None})
    broker = gov.Broker(registry, roles, functions, gov.BrokerPolicy(retries=0), ledger=gov.Ledger())
    agent: gov.GovernedAgent = gov.Actor("a1", "resident")
    outcome = broker.propose(agent, gov.Intent("rest", {"hours": 7}))
    assert_type(outcome, gov.ActionOutcome)
    assert_type(outcome.executed, str | None)
    assert_type(outcome.result, gov.ValidationResult)
    assert_type(outcome.reasons, tuple[gov.Reason, ...])
    assert_type(broker.charter, gov.Charter)
    assert_type(broker.charter.check("rest", agent).message, str)
    engine: gov.Engine = functions
    assert_type(engine, gov.Engine)
    Path("skill_registry.yaml").write_text("skills: []\n", "utf-8")
    assert_type(gov.lint_charter("skill_registry.yaml"), gov.Linted)
    try:
        assert_type(gov.load_charter("nowhere.yaml"), gov.Charter)
    except (gov.CharterRefused, gov.ConditionWrong) as error:
        assert_type(error.code, str)


def keep(record: Record, session: Session) -> None:
    """What needs a run's record and a session, so it is checked and not called."""
    assert_type(gov.Audit(record, secrets=Secrets({})), gov.Audit)
    assert_type(gov.replay_outcomes(read_run(Path("runs"), record.run_id)).compared, int)


def fail(index: vm.SkillIndex) -> list[str]:
    codes: list[str] = []
    errors = (vm.ConfigError, vm.Denied, vm.LoadRefused, vm.PathRefused, vm.SkillNotFound, vm.SkillRefused)
    try:
        index.get("nothing")
    except errors as error:
        assert_type(error.code, str)
        codes.append(error.code)
    try:
        vm.Agent("oracle", index).run("What now?")
    except vm.VademecumError as error:
        codes.append(error.code)
    return codes


if __name__ == "__main__":
    found = find()
    check()
    search(found)
    settings()
    offer(found)
    run(found)
    govern()
    assert fail(found) == ["skill-not-found", "config"]
