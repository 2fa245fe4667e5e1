"""Scripts: ask for what they need, give them that and nothing else, keep what they leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vademecum.errors import Denied, ToolRefused
from vademecum.files import sha256_of
from vademecum.policy.base import Effect, Request
from vademecum.policy.gate import refusal
from vademecum.policy.grants import ApprovedTexts
from vademecum.sandbox.base import ByProxy, Interpreter, Network, Sandbox, search_path
from vademecum.session.act import Act, Finer
from vademecum.session.recording import CHANGED
from vademecum.session.view import file_names
from vademecum.skill.assets import script_name
from vademecum.skill.skill import Skill
from vademecum.skill.text import escaped
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import Furnished, Input, digests, find_inputs, furnish
from vademecum.tools.job import (
    MAX_WORD_CHARS,
    Job,
    Room,
    ScriptPlan,
    about_script,
    limits_of,
    observe,
    plan_script,
    run_job,
    shown_inputs,
    shown_words,
    take_snapshot,
)
from vademecum.tracing import PARENT, is_configured

if TYPE_CHECKING:
    from vademecum.tools.hosts import Hop, Permit

WHOLE_NETWORK = "*"
USUAL_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class Start:
    """A process that is about to start: its call, its directories, and what it sees."""

    act: Act
    room: Room
    sandbox: Sandbox
    inputs: Sequence[Input]
    furnished: Furnished
    hosts: Sequence[str] = ()


def prepared(
    act: Act, call: calls.RunScript, skill: Skill, stdin: int | None
) -> tuple[str, dict[str, object], Callable[[], Observation]]:
    """Return the name of a script, what is said to it as a charter knows that, and the work itself.

    It gets what is named for it, and what its arguments name. A word that names something a model may not
    know of is a plain word. A person is told of a path that is not passed on.
    """
    inputs, outside = find_inputs(
        call.args,
        call.files,
        call.copy,
        workspace=act.session.place.workspace,
        locate=act.locate,
        known=act.knows if act.origin != "user" else bool,
    )
    if act.origin == "user":
        for word in outside:
            if os.path.lexists(os.path.join(act.session.place.context.cwd, word)):
                raise ToolRefused(
                    f"{word!r} is outside the project, so the script cannot get it: copy it here.",
                    code="outside",
                )
        outside = []
    said = {"arguments": call.args, "files": [each.typed for each in inputs], "network": call.network}
    names = file_names(skill, script_name(skill, call.relative_path))
    words = f"{shown_words(outside, ', ')}."
    notes = [f"Only passed as words, because they are outside the project: {words}"] if outside else []
    work = partial(run_script, act, call, skill, names, inputs, notes, stdin)
    return names[0], {key: value for key, value in said.items() if value}, work


def run_script(  # noqa: PLR0913, PLR0917 - what was found out before the charter was asked
    act: Act,
    call: calls.RunScript,
    skill: Skill,
    names: tuple[str, ...],
    given: Sequence[Input],
    notes: Sequence[str],
    stdin: int | None,
) -> Observation:
    """Run a script of a skill: ask for what it needs, then run a private copy of it."""
    once: list[Finer] = [  # of files it gets copies, made before anybody is asked
        ("skill", (skill.name,), ""),
        ("script", names, ""),
        *(finer for each in given if each.kind == "file" for finer in act.reads(each.located)),
        *network_requests(act, call.network, names[0]),
    ]
    in_place = [each.located for each in given if each.kind != "file"]
    act.decide(lambda: [finer for each in in_place for finer in act.reads(each)], fixed=once)
    act.refuse_denied()
    inputs = with_hidden(act, given)
    sandbox = act.session.sandbox()
    with Room(act.directory) as room:
        furnished = furnish(room.work, inputs, call.args, sandbox)
        snapshot = take_snapshot(skill, room.skill, act.denied_files(skill))
        path = search_path(act.session.place.context.env.get("PATH", ""))
        plan = plan_script(call, skill, snapshot, path=path, sees=act.sees)
        secrets = _secrets(act, skill)
        packages: list[Finer] = [("packages", plan.packages.resources(skill.name), "")]
        kept: list[Finer] = [("secret", tuple(f"{skill.name}/{name}" for name in secrets), "")]
        act.decide_also([*(packages if plan.packages.wanted else ()), *(kept if secrets else ())])
        act.refuse_denied()
        start = Start(act, room, sandbox, inputs, furnished, call.network)
        _settle_script(start, plan, secrets)
        check_unchanged(act, given, inputs)
        act.session.place.secrets.add(secrets.values())
        interpreter, facts = _interpreter(act, plan)
        job = Job(
            title=plan.resource,
            argv=(*interpreter.words, str(plan.file), *furnished.words),
            directory=room.work,
            readable=(plan.snapshot, *interpreter.readable),
            environment=environment_of(act) | secrets,
            furnished=furnished,
            stdin=call.stdin.encode() or stdin,
            limits=limits_of(act.session.place.config.execution),
        )
        facts |= {"digest": plan.digest, "script_sha256": sha256_of(plan.file)}
        return run_started(start, job, facts, notes)


def _secrets(act: Act, skill: Skill) -> dict[str, str]:
    """Return the values that are kept for a skill, of those that it names."""
    if not skill.meta.secrets:
        return {}
    from vademecum.secret_store import SecretStore  # noqa: PLC0415 - for these skills alone

    return SecretStore(act.session.place.context).for_skill(skill.name, skill.meta.secrets)


def _settle_script(start: Start, plan: ScriptPlan, secrets: Collection[str]) -> None:
    """Ask, if the rules want that, about exactly this script with these words and inputs."""
    act = start.act
    approved = ApprovedTexts(act.session.place.grants)

    def about() -> str:
        facts = facts_of(act, plan.call.network, start.inputs, start.sandbox)
        if plan.packages.wanted:
            built = act.session.place.config.execution.build_packages
            how = ", built from source in the sandbox if there is no wheel" if built else ""
            facts.append(f"installs: {shown_words(plan.packages.wanted, ', ')}{how}")
        if secrets:
            skill = f"{plan.skill.name} of the {plan.skill.source} ({plan.skill.location})"
            facts.append(
                f"gets the secrets {', '.join(secrets)}, kept for a skill of this name, which is {skill}"
            )
        long = "\n".join(word for word in plan.call.args if len(word) > MAX_WORD_CHARS or "\n" in word)
        # Last, so that a long argument cannot push the script out of a form that is cut.
        texts = [*shown_text("long arguments", long), *shown_text("standard input", plan.call.stdin)]
        return "\n".join([about_script(plan, facts, approved=approved.last(plan.resource)), *texts])

    def exact() -> str:
        copies = digests(start.room.work, start.furnished.copies)
        return repr((plan.call.args, plan.call.network, plan.call.stdin, copies))

    act.settle((plan.relative,), about=about, exact=exact, digest=plan.digest)
    if act.passage is not None and act.passage.seen:
        approved.keep(plan.resource, plan.text, plan.files)


def _interpreter(act: Act, plan: ScriptPlan) -> tuple[Interpreter, dict[str, Any]]:
    """Return how the script is started; if it requires packages, in an environment that has them."""
    if not plan.packages.wanted:
        return plan.interpreter, {}
    from vademecum.tools.packages.environments import Environments  # noqa: PLC0415 - for these scripts alone

    def progress(line: str) -> None:
        act.run.record.passing("progress", call=act.number, text=line)

    builds = act.session.place.config.execution.build_packages
    environments = Environments(act.session.place.context, builder=act.session.sandbox() if builds else None)
    built = environments.get(plan.packages, progress=progress, cancelled=act.cancelled)
    words = (str(built.python), *plan.interpreter.words[1:])
    return Interpreter(words, built.readable), {"packages": built.lock, "packages_cached": built.cached}


def shown_text(name: str, text: str) -> list[str]:
    """Return a text as lines that a person reads before a yes, in which none can look like a line of ours."""
    return [f"{name}:", *(f"| {escaped(line)}" for line in text.split("\n"))] if text else []


def with_hidden(act: Act, inputs: Sequence[Input]) -> list[Input]:
    """Find out what the rules hide in each directory."""
    return [
        each if each.kind == "file" else replace(each, hidden=act.hidden_in(each.located)) for each in inputs
    ]


def check_unchanged(act: Act, inputs: Sequence[Input], before: Sequence[Input]) -> None:
    """Raise if the rules hide something else by now in a directory, after a person took time to answer."""
    if act.passage is not None and act.passage.seen and with_hidden(act, inputs) != list(before):
        raise ToolRefused(CHANGED, code="changed")


def network_requests(act: Act, hosts: Sequence[str], resource: str) -> list[Finer]:
    """Return what the network needs: for the script or command, and for each host that is named.

    The whole network would go round a rule that denies a host, so that it is refused if there is one.
    """
    if not hosts:
        return []
    if WHOLE_NETWORK in hosts and act.session.gate.policy.denies_some(
        ("network", "private-network"), act.session.agent
    ):
        raise Denied("The whole network cannot be given, because rules deny some hosts: name the hosts.")
    from vademecum.tools.hosts import host_resource  # noqa: PLC0415 - for these alone

    return [("script-network", (resource,), ""), *(("network", (host_resource(host),), "") for host in hosts)]


@contextmanager
def _network_of(start: Start, traffic: list[dict[str, Any]]) -> Iterator[Network]:
    """Give a process its network: none, all of it, or the hosts that are named; note what it reached."""
    if not start.hosts or WHOLE_NETWORK in start.hosts:
        yield "all" if start.hosts else "none"
        return
    from vademecum.tools.proxy import Proxy  # noqa: PLC0415 - for these alone

    with Proxy(permit=_permit(start.act, start.hosts)) as proxy:
        try:
            yield ByProxy(proxy.serve)
        finally:
            traffic += [asdict(each) for each in proxy.traffic]


def _permit(act: Act, hosts: Sequence[str]) -> Permit:
    """Return the test of a proxy: the hosts that are named, at their usual ports unless a port is named.

    An address that is not public needs a rule of the user for ``private-network``.
    """
    from vademecum.tools.hosts import host_and_port  # noqa: PLC0415 - for these alone

    allowed = {host_and_port(host) for host in hosts}

    def permit(permission: str, hop: Hop) -> None:
        usual = (hop.host, None) in allowed and hop.port in USUAL_PORTS
        if not usual and (hop.host, hop.port) not in allowed:
            raise Denied(f"{hop.resource} is not among the hosts that were approved.")
        if permission == "private-network":
            request = Request(permission, (hop.resource,), act.origin, act.session.agent)
            decision = act.session.gate.policy.decide(request)
            if decision.effect is not Effect.ALLOW:
                raise refusal(request, decision)

    return permit


def facts_of(act: Act, hosts: Sequence[str], inputs: Sequence[Input], sandbox: Sandbox) -> list[str]:
    """Return what a person should know of any process: where it runs, what it reaches and reads."""
    network = f"network: {shown_words(hosts, ', ')}" if hosts else "no network"
    if WHOLE_NETWORK in hosts:
        network = "with the whole network: every host that this machine reaches, also local ones"
    seconds = limits_of(act.session.place.config.execution).seconds
    found = [f"risk: medium · sandbox: {sandbox.name} · {network} · at most {seconds:.0f} s"]
    return [*found, f"reads: {shown_inputs(inputs)}"] if inputs else found


def environment_of(act: Act) -> dict[str, str]:
    env = act.session.place.context.env
    names = (*act.session.place.config.execution.environment, *((PARENT,) if is_configured() else ()))
    return {name: env[name] for name in names if name in env}


def run_started(start: Start, job: Job, facts: Mapping[str, Any], notes: Sequence[str] = ()) -> Observation:
    """Run it, show what it prints while it does, and keep what it left, without secrets."""
    act, room = start.act, start.room
    secrets, run = act.session.place.secrets, act.run
    masked = {"out": secrets.stream(), "err": secrets.stream()}

    def show(stream: str, data: bytes) -> None:
        if data:
            run.record.passing("output_piece", call=act.number, stream=stream, data=data)

    def on_output(stream: str, data: bytes) -> None:
        show(stream, masked[stream].feed(data))

    traffic: list[dict[str, Any]] = []
    with _network_of(start, traffic) as network:
        job = replace(job, network=network)
        ended = run_job(job, room, start.sandbox, on_output=on_output, cancelled=act.cancelled)
    for stream, kept in masked.items():
        show(stream, kept.end())
    for file in (room.streams.out, room.streams.err):
        secrets.mask_file(file)
    made, beyond = act.session.outputs.take(
        room.work, job.furnished.copies, room.outputs, since=run.started, secrets=secrets
    )
    facts = {"sandbox": start.sandbox.name, **({"network": traffic} if traffic else {}), **facts}
    refused = [f"{t['host']}:{t['port']} was not reached: {t['refused']}" for t in traffic if t["refused"]]
    notes = [*notes, *refused]
    return observe(act.tool, job, room, ended, made, beyond=beyond, facts=facts, notes=notes)
