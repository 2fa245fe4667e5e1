"""Run scripts and commands: ask for their needs, give them only those, and keep their outputs."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from vademecum.errors import Denied, ToolRefused
from vademecum.files import sha256_of
from vademecum.policy.base import Effect
from vademecum.policy.gate import refusal
from vademecum.policy.grants import ApprovedTexts, grants_file
from vademecum.sandbox.base import ByProxy, Interpreter, Mount, Network, home_of, search_path
from vademecum.session.act import Act, Finer
from vademecum.session.recording import CHANGED
from vademecum.session.view import file_names
from vademecum.skill.assets import script_name
from vademecum.skill.skill import Skill
from vademecum.skill.text import escaped, visible
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import PREFIX, Furnished, Input, digests, furnish, parts_of, renamed
from vademecum.tools.job import (
    MAX_LISTED_OUTPUTS,
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
from vademecum.tools.workspace import Located
from vademecum.tracing import PARENT, is_configured

if TYPE_CHECKING:
    from vademecum.tools.hosts import Hop, Permit
    from vademecum.tools.writing import Changes

WHOLE_NETWORK = "*"
USUAL_PORTS = (80, 443)


def prepared(
    act: Act, call: calls.RunScript, skill: Skill, stdin: int | None
) -> tuple[str, dict[str, object], Callable[[], Observation]]:
    """Return the name of a script, its parameters for a charter, and the work itself.

    The script gets the files of the call and those that its arguments name. If a model may not know of a
    path, the word is a plain word. A person sees which paths the script does not get.
    """
    inputs, outside = act.inputs(call.args, call.files, call.copy)
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
    notes = []
    if outside:
        words = shown_words(outside, ", ")
        notes = [f"Only passed as words, because they are outside the project: {words}."]
    work = partial(run_script, act, call, skill, names, inputs, notes, stdin)
    return names[0], {key: value for key, value in said.items() if value}, work


def run_script(  # noqa: PLR0913, PLR0917 - results from before the charter was asked
    act: Act,
    call: calls.RunScript,
    skill: Skill,
    names: tuple[str, ...],
    given: Sequence[Input],
    notes: Sequence[str],
    stdin: int | None,
) -> Observation:
    """Run a script of a skill: ask for its needs, then run a private copy of it."""
    once: list[Finer] = [  # files are copied before anybody is asked
        ("skill", (skill.name,), ""),
        ("script", names, ""),
        *act.reads(*(each.located for each in given if each.kind == "file")),
        *_network_requests(act, call.network, names[0]),
    ]
    in_place = [each.located for each in given if each.kind != "file"]
    act.decide(partial(act.reads, *in_place), fixed=once)
    act.refuse_denied()
    inputs = _with_hidden(act, given)
    with Room(act.directory) as room:
        furnished = furnish(room.work, inputs, call.args, act.session.sandbox)
        snapshot = take_snapshot(skill, room.skill, act.denied_files(skill))
        path = search_path(act.session.place.context.env.get("PATH", ""))
        plan = plan_script(call, skill, snapshot, path=path, sees=act.sees(skill))
        secrets = _secrets(act, skill)
        further: list[Finer] = []
        if plan.packages:
            further.append(("packages", tuple(f"{skill.name}/{each}" for each in plan.packages), ""))
        if secrets:
            further.append(("secret", tuple(f"{skill.name}/{name}" for name in secrets), ""))
        act.decide_also(further)
        act.refuse_denied()
        _settle_script(act, plan, secrets, inputs, partial(digests, room.work, furnished.copies))
        _check_unchanged(act, given, inputs)
        act.session.place.secrets.add(secrets.values())
        interpreter, facts = _interpreter(act, plan)
        environment = _environment_of(act) | secrets
        job = Job(
            title=plan.resource,
            argv=(*interpreter.words, str(plan.file), *furnished.words),
            directory=room.work,
            readable=(plan.snapshot, *interpreter.readable),
            environment=environment,
            furnished=furnished,
            stdin=call.stdin.encode() or stdin,
            limits=limits_of(act.session.place.config.execution),
        )
        facts |= {"digest": plan.digest, "script_sha256": sha256_of(plan.file)}
        if unset := [name for name in skill.meta.secrets if name not in environment]:
            facts["secrets_not_set"] = unset
        return _run_started(act, room, job, call.network, facts, notes)


def _secrets(act: Act, skill: Skill) -> dict[str, str]:
    """Return the stored secrets of a skill, as far as it names them."""
    if not skill.meta.secrets:
        return {}
    from vademecum.secret_store import SecretStore  # noqa: PLC0415 - for these skills alone

    return SecretStore(act.session.place.context).for_skill(skill.name, skill.meta.secrets)


def _settle_script(
    act: Act,
    plan: ScriptPlan,
    secrets: Collection[str],
    inputs: Sequence[Input],
    copies: Callable[[], object],
) -> None:
    """Ask, if the rules require it, about exactly this script with these arguments and inputs."""
    approved = ApprovedTexts(grants_file(act.session.place.context))

    def about() -> str:
        facts = _facts_of(act, plan.call.network, inputs)
        if plan.packages:
            built = act.session.place.config.execution.build_packages
            how = ", built from source in the sandbox if there is no wheel" if built else ""
            facts.append(f"installs: {shown_words(plan.packages, ', ')}{how}")
        if secrets:
            skill = f"{plan.skill.name} of the {plan.skill.source} ({plan.skill.location})"
            facts.append(
                f"gets the secrets {', '.join(secrets)}, kept for a skill of this name, which is {skill}"
            )
        # Last, so that a long argument cannot push the script out of a text that is cut.
        texts = _shown_whole("long arguments", plan.call.args, plan.call.stdin)
        return "\n".join([about_script(plan, facts, approved=approved.last(plan.resource)), *texts])

    def exact() -> str:
        return repr((plan.call.args, plan.call.network, plan.call.stdin, copies()))

    act.settle((plan.relative,), about=about, exact=exact, digest=plan.digest)
    if act.passage is not None and act.passage.seen:
        approved.keep(plan.resource, plan.text, plan.files)


def _interpreter(act: Act, plan: ScriptPlan) -> tuple[Interpreter, dict[str, Any]]:
    """Return how to start the script; if it requires packages, in an environment that has them."""
    if not plan.packages:
        return plan.interpreter, {}
    from vademecum.tools.packages.environments import Environments  # noqa: PLC0415 - for these scripts alone

    def progress(line: str) -> None:
        act.run.record.passing("progress", call=act.number, text=line)

    builds = act.session.place.config.execution.build_packages
    environments = Environments(act.session.place.context, builder=act.session.sandbox if builds else None)
    built = environments.get(plan.packages, progress=progress, cancelled=act.cancelled)
    words = (str(built.python), *plan.interpreter.words[1:])
    return Interpreter(words, built.readable), {"packages": built.lock, "packages_cached": built.cached}


# Commands


def run_command(act: Act, call: calls.RunCommand) -> Observation:
    """Run a program in the working directory. It reads the project and changes only what ``writes`` names."""
    from vademecum.tools.writing import Changes  # noqa: PLC0415 - for commands alone

    lines = _lines(call.argv)
    reads, _ = act.inputs((), call.reads)
    made = _outputs_in(act, call.argv[1:])
    whole = Input(".", Located(act.session.place.project, ".", ".", "."), "directory")
    reads = [*(reads or [whole]), *made.values()]
    writes = [act.session.place.workspace.locate(path) for path in call.writes]

    def wanted() -> list[Finer]:
        return [
            ("command", lines, ""),
            *act.reads(*(each.located for each in reads)),
            *(finer for each in writes for finer in (*act.writes(each), *act.reads(each))),
            *_network_requests(act, call.network, lines[0]),
        ]

    act.decide(wanted)
    act.refuse_denied()
    program = _program(act, call.argv[0])
    # Hidden paths in writable directories stay hidden.
    shown = [*reads, *(Input(each.name, each, "directory") for each in writes if each.path.is_dir())]
    inputs = _with_hidden(act, shown)
    changes = Changes(act.trash, tuple(Path(os.path.realpath(each.path)) for each in writes))
    _refuse_closed(act, changes)

    def about() -> str:
        facts = _facts_of(act, call.network, reads)
        facts += [f"changes: {shown_words([each.name for each in writes], ', ')}"] if writes else []
        texts = _shown_whole("the whole of it", call.argv, call.stdin)
        return "\n".join([f"run {shown_words(call.argv)}", *facts, *texts])

    _settle_command(act, call, lines, program, about)
    _check_unchanged(act, shown, inputs)
    _refuse_closed(act, changes)
    named = {name: str(each.located.path) for name, each in made.items()}
    job = Job(
        title=shown_words(call.argv[:2]),
        argv=(*program.words, *renamed(call.argv[1:], named)),
        directory=act.session.place.context.cwd,
        readable=program.readable,
        environment=_environment_of(act),
        furnished=_in_place(inputs),
        writable=changes.paths,
        stdin=call.stdin.encode() or None,
        limits=limits_of(act.session.place.config.execution),
    )
    with Room(act.directory) as room:
        changes.keep()
        try:
            seen = _run_started(act, room, job, call.network, {})
        finally:
            changed, refused = _sorted_changes(act, changes)
    return _with_changes(seen, changed, refused)


def _outputs_in(act: Act, words: Sequence[str]) -> dict[str, Input]:
    """Return the outputs of this conversation that are named in ``words``."""
    parts = (part for word in words for _, part in parts_of(word))
    return {part: Input(part, act.locate(part), "file") for part in parts if part.startswith(PREFIX)}


def _settle_command(
    act: Act, call: calls.RunCommand, lines: tuple[str, ...], program: Interpreter, about: Callable[[], str]
) -> None:
    """Ask about these arguments, this standard input, and the current content of a program of the project."""
    own = sha256_of(program.words[0]) if not program.readable and _is_own(call.argv[0]) else ""
    exact = repr((calls.said(call), own))
    digest = hashlib.sha256(f"{own} {call.stdin}".encode()).hexdigest() if own or call.stdin else ""
    act.settle(lines, about=about, exact=lambda: exact, digest=digest)
    if own and sha256_of(program.words[0]) != own:
        raise ToolRefused(CHANGED, code="changed")


def _in_place(inputs: Sequence[Input]) -> Furnished:
    """Show the files and directories that a command reads in place, without hidden ones."""
    bases = [Path(os.path.realpath(each.located.path)) for each in inputs]
    hidden = tuple(base / name for base, each in zip(bases, inputs, strict=True) for name in each.hidden)
    mounted = tuple(Mount(base, base) for base in bases)
    return Furnished((), mounted=mounted, hidden=hidden, left_out=len(hidden))


def _lines(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the resources for the rules: the words in shell syntax, also with the program's bare name.

    >>> _lines(["/bin/echo", "a b"])
    ("/bin/echo 'a b'", "echo 'a b'")
    """
    words = [argv[0], os.path.basename(argv[0])] if argv[0].startswith("/") else [argv[0]]
    return tuple(shlex.join([word, *argv[1:]]) for word in words)


def _is_own(word: str) -> bool:
    """Return whether a word names a program by a path outside the system's directories."""
    return "/" in word and not word.startswith(("/usr/", "/bin/", "/sbin/"))


def _program(act: Act, word: str) -> Interpreter:
    """Return how to start a program: the system's by its name, or the project's by its path."""
    if _is_own(word):
        located = act.locate(word)
        act.decide_also(act.reads(located))
        act.refuse_denied()
        if not os.access(located.path, os.X_OK) or not located.path.is_file():
            raise ToolRefused(f"{word[:200]!r} is not a program that can be run.", code="no-program")
        return Interpreter((str(located.path),))
    found = shutil.which(word, path=search_path(act.session.place.context.env.get("PATH", "")))
    if found is None:
        raise ToolRefused(
            f"The program {word[:200]!r} is not installed here: use another.", code="no-program"
        )
    return Interpreter((found,), home_of(found))


def _refuse_closed(act: Act, changes: Changes) -> None:
    """Raise if the command could change something that is denied."""
    closed = next(filter(act.is_closed, changes.files()), None)
    if closed is not None:
        shown = os.path.relpath(closed, act.session.place.project)
        text = "The paths to change contain files that must not change: name a smaller part."
        raise Denied(text, advice=f"one of them is {shown}")
    plain = (about for file in changes.files() if stat.S_ISREG((about := file.lstat()).st_mode))
    if any(about.st_nlink > 1 for about in plain):
        text = "The paths to change contain hard links, so other files would change too"
        raise ToolRefused(f"{text}: name a smaller part.", code="linked")


def _sorted_changes(act: Act, changes: Changes) -> tuple[list[str], list[str]]:
    """Return what the command changed, and remove and return what it must not create."""
    changed, refused = [], []
    for file in changes.found():
        if act.is_closed(file):
            top = _closed_top(act, file, changes)
            if os.path.lexists(top):
                changes.take_away(top)
            refused.append(os.path.relpath(top, act.session.place.project))
        else:
            changed.append(os.path.relpath(file, act.session.place.project))
    return changed, list(dict.fromkeys(refused))


def _closed_top(act: Act, file: Path, changes: Changes) -> Path:
    """Return the topmost closed path, such as the directory ``.git`` for a file in it."""
    top = file
    while top.parent not in changes.paths and len(top.parents) > 1 and act.is_closed(top.parent):
        top = top.parent
    return top


def _with_changes(seen: Observation, changed: list[str], refused: list[str]) -> Observation:
    if not changed and not refused:
        return seen
    lines = [seen.text, *(f"It changed {visible(name)}." for name in changed[:MAX_LISTED_OUTPUTS])]
    if len(changed) > MAX_LISTED_OUTPUTS:
        lines.append(f"It changed {len(changed) - MAX_LISTED_OUTPUTS:,} more files.")
    lines += [f"It made {visible(name)}, which is not allowed and was removed." for name in refused]
    facts = {**seen.facts, "changed": changed, "taken_away": refused}
    code = seen.code or ("denied" if refused else "")
    return structs.replace(seen, text="\n".join(lines), code=code, facts=facts)


# Both


def _shown_whole(name: str, words: Sequence[str], stdin: str) -> list[str]:
    """Return long words and standard input for a person, so that no line can look like one of ours."""
    long = [word for word in words if len(word) > MAX_WORD_CHARS or "\n" in word]
    shown = []
    for title, text in ((name, "\n".join(long)), ("standard input", stdin)):
        if text:
            shown += [f"{title}:", *(f"| {escaped(line)}" for line in text.split("\n"))]
    return shown


def _with_hidden(act: Act, inputs: Sequence[Input]) -> list[Input]:
    """Return the inputs with the hidden paths in each directory."""
    return [
        each if each.kind == "file" else replace(each, hidden=act.hidden_in(each.located)) for each in inputs
    ]


def _check_unchanged(act: Act, inputs: Sequence[Input], before: Sequence[Input]) -> None:
    """Raise if the hidden paths in a directory changed while a person answered."""
    if act.passage is not None and act.passage.seen and _with_hidden(act, inputs) != list(before):
        raise ToolRefused(CHANGED, code="changed")


def _network_requests(act: Act, hosts: Sequence[str], resource: str) -> list[Finer]:
    """Return the requests for the network: for the script or command, and for each named host.

    The whole network would bypass a rule that denies a host, so it is refused if there is such a rule.
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
def _network_of(act: Act, hosts: Sequence[str], traffic: list[dict[str, Any]]) -> Iterator[Network]:
    """Yield the network of a process: none, all of it, or the named hosts; note what it reached."""
    if not hosts or WHOLE_NETWORK in hosts:
        yield "all" if hosts else "none"
        return
    from vademecum.tools.proxy import Proxy  # noqa: PLC0415 - for these alone

    with Proxy(permit=_permit(act, hosts)) as proxy:
        try:
            yield ByProxy(proxy.serve)
        finally:
            traffic += [asdict(each) for each in proxy.traffic]


def _permit(act: Act, hosts: Sequence[str]) -> Permit:
    """Return the permit for a proxy: the named hosts, at their default ports unless a port is named.

    An address that is not public needs a rule of the user for ``private-network``.
    """
    from vademecum.tools.hosts import host_and_port  # noqa: PLC0415 - for these alone

    allowed = {host_and_port(host) for host in hosts}

    def permit(permission: str, hop: Hop) -> None:
        usual = (hop.host, None) in allowed and hop.port in USUAL_PORTS
        if not usual and (hop.host, hop.port) not in allowed:
            raise Denied(f"{hop.resource} is not among the hosts that were approved.")
        if permission == "private-network":
            request, decision = act.decided(permission, (hop.resource,))
            if decision.effect is not Effect.ALLOW:
                raise refusal([request], decision)

    return permit


def _facts_of(act: Act, hosts: Sequence[str], inputs: Sequence[Input]) -> list[str]:
    """Return the facts about a process for a person: where it runs, what it reaches and reads."""
    network = f"network: {shown_words(hosts, ', ')}" if hosts else "no network"
    if WHOLE_NETWORK in hosts:
        network = "with the whole network: every host that this machine reaches, also local ones"
    seconds = limits_of(act.session.place.config.execution).seconds
    found = [f"risk: medium · sandbox: {act.session.sandbox.name} · {network} · at most {seconds:.0f} s"]
    return [*found, f"reads: {shown_inputs(inputs)}"] if inputs else found


def _environment_of(act: Act) -> dict[str, str]:
    env = act.session.place.context.env
    names = (*act.session.place.config.execution.environment, *((PARENT,) if is_configured() else ()))
    return {name: env[name] for name in names if name in env}


def _run_started(  # noqa: PLR0913, PLR0917 - the parts of a start
    act: Act,
    room: Room,
    job: Job,
    hosts: Sequence[str],
    facts: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Observation:
    """Run a job, show its output while it runs, and keep its outputs, without secrets."""
    secrets, run, sandbox = act.session.place.secrets, act.run, act.session.sandbox
    masked = {"out": secrets.stream(), "err": secrets.stream()}

    def on_output(stream: str, data: bytes, *, last: bool = False) -> None:
        if shown := masked[stream].feed(data, last=last):
            run.record.passing("output_piece", call=act.number, stream=stream, data=shown)

    traffic: list[dict[str, Any]] = []
    with _network_of(act, hosts, traffic) as network:
        job = replace(job, network=network)
        ended = run_job(job, room, sandbox, on_output=on_output, cancelled=act.cancelled)
    refused = [f"{t['host']}:{t['port']} was not reached: {t['refused']}" for t in traffic if t["refused"]]
    for stream in masked:
        on_output(stream, b"", last=True)
    for file in (room.streams.out, room.streams.err):
        secrets.mask_file(file)
    made, beyond = act.session.outputs.take(
        room.work, job.furnished.copies, room.outputs, since=run.started, secrets=secrets
    )
    facts = {"sandbox": sandbox.name, **({"network": traffic} if traffic else {}), **facts}
    notes = [*notes, *refused]
    return observe(act.tool, job, room, ended, made, beyond=beyond, facts=facts, notes=notes)
