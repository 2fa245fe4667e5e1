"""The error tree → a page: every code with its cause and its cure."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference_words import Say, table
from vademecum import errors
from vademecum.agent.protocol import ReplyWrong
from vademecum.cli.main import _exit_code
from vademecum.errors import VademecumError

_CURES = {
    "error": "read the sentence: it says what, where and what to do",
    "config": "correct the file and the key that it names; [settings](configuration.md) lists what is accepted",
    "path-refused": "name a path below the directory that it names, without `..` and without links that lead out",
    "file-refused": "replace it with a plain file, or make it smaller",
    "skill-not-found": "`vade list` shows the names, `vade doctor` what was left out; a rule may hide it as well",
    "load-refused": "`vade validate` the skill; name a file that `vade inspect` lists",
    "denied": "`vade permissions explain` names the rule; change it, approve with `--yes`, or ask who answers for it",
    "declined": "somebody said no: ask again with a reason, or do it another way",
    "tool-refused": "change the arguments as the sentence says",
    "model-failed": "try again; `vade runs show` has what the model said",
    "model-unavailable": "wait and try again; check the address, the key and the network",
    "model-overflow": "ask for less at once, or take a model with a longer context",
    "tools-unsupported": "nothing: the agent goes on without native tool calls",
    "model-refused": "change the request, or take another model; trying again does not help",
    "model-reply-wrong": "check that the address is that of a model's server; take another model",
    "pack-refused": "nothing was changed: correct what the sentence names",
    "integrity": "do not use it: get it again from where it came from; `vade verify` shows what differs",
    "charter-refused": "`vade govern lint` lists every problem with its line",
    "condition": "write the condition in [the language](../governance.md#conditions)",
    "record-damaged": "the record was cut or changed: what is readable is shown; make room on the disk",
    "case-refused": "correct the case, file and field that it names",
    "sandbox-failed": "nothing ran: `vade doctor` says which sandbox works here",
    "skill-refused": "correct the name or the place, and try again",
    "reply-wrong": "sent back to the model twice with all that is wrong; then the run ends with `bad_replies`",
}

# Code → class, cause, cure. Each may arise in more than one place with the same meaning.
_FINER = {
    "arguments": ("ToolRefused", "a tool was called with arguments of the wrong type or size", "correct them as the sentence says"),
    "body-too-long": ("LoadRefused", "a body has more lines or characters than may be handed over", "move parts of it to `references/`, or cut it: `vade show --truncate`"),
    "budget": ("(observation)", "too little of the run's budget is left for a skill that runs by itself", "raise `--max-turns`, or do less in one run"),
    "changed": ("FileRefused, VademecumError", "a file changed while it was read, or what was asked about changed before the answer", "run the command again, or ask again"),
    "dependencies": ("ToolRefused", "the packages or the Python that a script declares cannot be provided as written", "correct the file and line that it names: plain requirements only"),
    "denied": ("Denied", "a rule, a bound or a charter does not allow it", "`vade permissions explain` names the rule"),
    "exists": ("SkillRefused", "there is a skill of that name already", "choose another name, or edit it"),
    "failed": ("(observation)", "a tool failed in a way that nobody foresaw, such as a full disk", "read the text; try another way"),
    "forbidden": ("PackRefused", "a server does not let the file be read", "check the address, and who may read it"),
    "foreign": ("FileRefused", "a file in the cache, or of secrets, belongs to somebody else", "nothing: a cache is made anew; replace a file of secrets"),
    "header": ("ToolRefused", "a header that a request may not set", "leave it out"),
    "interpreter": ("ToolRefused", "there is nothing here that runs this kind of script", "install the interpreter, or set the execute bit"),
    "interrupted": ("(observation)", "Ctrl-C, or the process ended, while a tool ran", "run it again"),
    "invalid-yaml": ("(problem)", "a charter is not YAML", "correct the line that it names"),
    "judge": ("VademecumError", "a model that judges gave no usable verdict", "try again, or another `--judge`"),
    "packages": ("ToolRefused", "the packages of a script cannot be installed: the index, the disk, `uv`, or the packages themselves", "the sentence says which, and what to do"),
    "max-context": ("(observation)", "a body does not fit into the prompt any more", "shorten it, or do less in one run"),
    "missing": ("PackRefused, ToolRefused, LoadRefused", "there is no such file, source or skill", "check the name; the sentence lists what is there"),
    "name": ("SkillRefused", "the name of a new skill is not valid", "lowercase letters, digits and single hyphens"),
    "no-charter": ("CharterRefused", "there is no charter or simulation at that path", "name a `skill_registry.yaml`, or its directory"),
    "busy": ("VademecumError", "a client of `vade mcp` has too many scripts running or waiting for an answer", "let some of them end"),
    "closed": ("RecordDamaged", "something was to be written into a record that is closed", "begin another run"),
    "frontmatter": ("LoadRefused", "the frontmatter cannot be expressed in JSON", "remove aliases, tags and repeated keys"),
    "no-source": ("ConfigError", "no MCP server was added under that name", "see `vade source list`"),
    "not-publishable": ("LoadRefused", "a skill does not fit the rules for exchanging skills over MCP", "read the reason"),
    "source": ("VademecumError", "an MCP server cannot be reached, does not answer, or answers with something else", "check the server"),
    "source-entry": ("IntegrityFailed", "a skill that an MCP server announced cannot be used", "tell its owner"),
    "source-lies": ("IntegrityFailed", "a file of an MCP server is not what it announced", "run `vade refresh`; do not use it if it stays so"),
    "no-question": ("VademecumError", "no call of this agent waits for that answer, or it was answered already", "ask again"),
    "no-run": ("RecordDamaged", "there is no such run, or no such event in it", "`vade runs list` shows the runs"),
    "no-section": ("LoadRefused", "a file has no section of that heading", "take one of the headings that the sentence lists"),
    "candidates": ("VademecumError", "no candidate for a description can be used", "write other candidates"),
    "no-suite": ("CaseRefused", "there are no cases, or no results yet", "`vade eval init` writes cases, `vade eval run` makes results"),
    "no-tool": ("ToolRefused", "there is no tool of that name", "take one of those that the sentence lists"),
    "not-a-directory": ("FileRefused", "a directory was expected", "name one"),
    "not-a-file": ("FileRefused, ToolRefused", "it is a directory, a FIFO, a device, or leads through a file", "name a plain file"),
    "not-installed": ("PackRefused", "no skill of that name was installed here", "`vade list` shows what is there; mind `--scope`"),
    "not-loaded": ("(observation)", "the model ran a script of a skill that it had not loaded", "nothing: the model is told to load it first"),
    "not-private": ("FileRefused", "others can read or change a file of secrets", "run `chmod 600` on it, and replace the values if others may have seen them"),
    "not-text": ("ToolRefused, LoadRefused", "the file is not UTF-8 text", "convert it, or let a script read it"),
    "not-utf8": ("SkillRefused", "a description is not valid text", "write it in UTF-8"),
    "pattern": ("ToolRefused", "a search pattern is no RE2 expression", "correct it; RE2 has no look-around and no back-references"),
    "plan": ("(observation)", "a change of the plan does not fit the plan", "nothing: the model is told"),
    "redirects": ("ToolRefused", "a server redirects too often", "name the last address"),
    "request": ("VademecumError", "the request is empty, or too long", "say what is to be done; put long texts into a file"),
    "script-failed": ("ToolRefused", "a script that carries out a charter's skill failed", "read what it printed in `vade runs show`"),
    "signature": ("IntegrityFailed", "a signature does not match, or the signer is another one than before", "get the skill again; trust the new key only if you know why it is new"),
    "time": ("ToolRefused", "a server took too long to answer", "try again, or ask for less"),
    "too-large": ("FileRefused, ToolRefused, LoadRefused", "a file is larger than its cap", "make it smaller, or read a part of it"),
    "stopped": ("(observation)", "an evaluation ended the run: a constraint was broken, a limit reached, or enough was known", "read the case's verdict in `vade eval report`"),
    "too-many": ("ToolRefused", "more files are named, matched or contained than a script can get", "name a directory, or a smaller one"),
    "linked": ("ToolRefused", "what a command may change contains hard links, so that files elsewhere would change too", "name a smaller part of it"),
    "outside": ("ToolRefused", "an argument names a path outside the project", "copy it into the project, or name it by its absolute path with `vade exec`"),
    "no-program": ("ToolRefused", "the program of a command is not installed, or cannot be run", "install it, or use another"),
    "not-unique": ("ToolRefused", "the text that `edit_file` should replace is not in the file, or more than once", "read the file again, or name a longer text"),
    "secret": ("ToolRefused", "an output contains the value of a secret, so it is neither read nor copied", "let the script leave it out"),
    "too-many-files": ("FileRefused", "a skill has more files than are looked at", "move what is not the skill out of its directory"),
    "unreachable": ("ToolRefused", "a host cannot be found, or did not answer", "check the address and the network"),
    "unusable": ("ToolRefused", "a path cannot be used, such as one without permission", "check the permissions, or name another"),
    "url": ("ToolRefused", "an address is wrong, not http or https, or contains a password", "correct it; use a header for secrets"),
    "wrong-value": ("VademecumError", "a number that makes no sense", "correct it as the sentence says"),
    "stopped-cancelled": ("ToolRefused, (observation)", "the caller cancelled a script, or the installation of its packages", "run it again"),
    "stopped-time": ("(observation)", "a script was ended: its time was over", "raise `execution.seconds`, or give it less"),
    "stopped-memory": ("(observation)", "a script was ended: it used too much memory", "raise `execution.memory_mb`, or give it less"),
    "stopped-disk": ("(observation)", "a script was ended: it wrote too much, or left too little space on the disk", "raise `execution.disk_mb`, or make room"),
    "stopped-processes": ("(observation)", "a script was ended: it started too many processes", "raise `execution.processes`"),
}  # fmt: skip


def errors_page(say: Say) -> str:
    """The whole page."""
    intro = (
        "Every error has a code that stays the same while its words may change. In Python it is `error.code`; in a run it "
        "stands in the observation and in `tool_called`; the command prints the sentence and ends with the exit code."
    )
    elsewhere = (
        "Problems of skills (`name-uppercase`, `invalid-yaml`, …) are in [how documents are read]"
        "(../documents.md), problems and reasons of charters (`duplicate-id`, `cooldown`, …) in [governance]"
        "(../governance.md)."
    )
    kinds = [
        (
            f"`{kind.code}`",
            f"`{kind.__name__}`",
            str(_exit_code(_example(kind))),
            _cause(kind),
            _CURES[kind.code],
        )
        for kind in _kinds()
    ]
    finer = [(f"`{code}`", f"{_FINER[code][0]}", *_FINER[code][1:]) for code in sorted(_FINER)]
    return "\n".join(
        [
            f"# {say('Error codes')}\n",
            say(intro) + "\n",
            f"## {say('Kinds of errors')}\n",
            say("The classes of `vademecum.errors`. `except vm.VademecumError` catches all of them.") + "\n",
            table("code | class | exit | cause | cure", kinds),
            f"## {say('Finer codes')}\n",
            say("Codes that say more than the class does, by where they arise.") + "\n",
            table("code | class | cause | cure", finer),
            f"## {say('Codes elsewhere')}\n",
            say(elsewhere) + "\n",
        ]
    )


def _kinds() -> Iterator[type[VademecumError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, VademecumError):
            yield value
    yield ReplyWrong


def _example(kind: type[VademecumError]) -> VademecumError:
    return kind("")


def _cause(kind: type[VademecumError]) -> str:
    if kind is VademecumError:
        return "whatever has no class of its own"
    text = (kind.__doc__ or "").strip().split("\n")[0]
    first = text[:1].lower() + text[1:]
    return first.replace("``", "`").rstrip(".")
