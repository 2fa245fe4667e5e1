"""The default model: rules, no network, no key. It reads the same prompt as any other, and says what it is.

It takes the skill that search ranks first if its description has the request's words, loads it, runs its
entry script with the files that the request names, and reports the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vademecum.models import sections
from vademecum.models.base import Message, OnText, Reply
from vademecum.skill.words import UNSPACED, prepared

LEAST_SHARE = 0.34  # of the request's words that must be in a skill's name or description
MAX_QUOTED_CHARS = 6000

_WORD = re.compile(r"\w+")
_FILES = re.compile(r"^files it names: (\[.*\])$", re.MULTILINE)
_ABSENT = re.compile(r"^files it names that are not here: (\[.*\])$", re.MULTILINE)
_RANKED = re.compile(r"^ranked first by search: (.*)$", re.MULTILINE)
_LOADED = re.compile(r"^skill (\S+) \(source (\S+)\)(?:, entry (\S+))?$", re.MULTILINE)
_OBSERVED = re.compile(r"^\[\d+\] (\w+)(?: (.*?))?: (\S+)$", re.MULTILINE)
_LITTLE = (
    "a about after all an and are as at be by can could do does for from give has have help how i if in into "
    "is it its let make me my of on or our please shall show so some tell that the their them then there "
    "these they this those to us use was we what when which who why will with would you your"
)
# Chinese signs that hold a sentence together; the pairs they would be part of say nothing.
_LITTLE_SIGNS = re.compile("[请帮我你您的了吗呢把和与及或有是在这那些什么怎样一下看给让做]")
_LITTLE_WORDS = frozenset(_LITTLE.split(" "))


class _Phrases(NamedTuple):
    """What it says, in one language."""

    none: str
    absent: str
    no_entry: str
    ran: str
    failed: str
    plan: tuple[str, str, str]


_ENGLISH = _Phrases(
    none="No skill here fits this request: {request}\nI am the offline model: a few rules, not a language "
    "model, so I cannot do it myself. `vade search` looks for skills, and --model sets a language model.",
    absent="There is no {files} here that a skill could read: name a file of this project.",
    no_entry="The skill {skill!r} fits, but it names no entry script (metadata: entry: scripts/x.py), and I "
    "am the offline model: a few rules, not a language model. I cannot follow its instructions, which "
    "are:\n\n{text}",
    ran="I ran {script} of the skill {skill!r} (offline model: by rules, not a language model).\n\n{text}",
    failed="I could not finish this with the skill {skill!r}:\n\n{text}",
    plan=("Choose the skill that fits", "Run its script", "Report what came of it"),
)
_CHINESE = _Phrases(
    none="这里没有适合该请求的技能：{request}\n我是离线模型，只有几条规则，不是语言模型，自己做不了。"
    "可以用 `vade search` 找技能，或用 --model 指定语言模型。",
    absent="这里没有技能可读的 {files}：请写出本项目里的文件。",
    no_entry="技能 {skill!r} 适合，但它没有写明入口脚本（metadata: entry: scripts/x.py）；我是离线模型，"
    "只有几条规则，不是语言模型，无法照着说明去做。说明如下：\n\n{text}",
    ran="已运行技能 {skill!r} 的 {script}（离线模型：只按规则，不是语言模型）。\n\n{text}",
    failed="用技能 {skill!r} 没能完成：\n\n{text}",
    plan=("选出适合的技能", "运行它的脚本", "报告结果"),
)


class Offline:
    """Decides by rules, from what the prompt says."""

    name = "offline"

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any],  # noqa: ARG002 - it knows the protocol
        on_text: OnText | None = None,
    ) -> Reply:
        """Read the prompt and take the next step."""
        prompt = sections.read(next(m.content for m in messages if m.role == "user"))
        text = json.dumps(_turn(prompt), ensure_ascii=False)
        if on_text is not None:
            on_text(text)
        return Reply(text)


def _turn(prompt: dict[str, str]) -> dict[str, Any]:
    request = prompt.get("request", "")
    said = _CHINESE if UNSPACED.search(_FILES.sub("", request)) else _ENGLISH
    loaded = _LOADED.findall(_own_words(prompt.get("loaded skills", "")))
    observed = _OBSERVED.findall(_own_words(prompt.get("observations", "")))
    if observed and observed[-1][2] != "ok":
        skill = loaded[-1][0] if loaded else "?"
        return _final(said.failed.format(skill=skill, text=_last_words(prompt)), complete=False)
    if not loaded:
        chosen = _fitting(prompt, request)
        if chosen is None:
            return _final(said.none.format(request=_first_line(request)), complete=False)
        return _select(chosen, request, said.plan)
    skill, source, entry = loaded[-1]
    if not entry:
        text = said.no_entry.format(skill=skill, text=_quoted(prompt["loaded skills"]))
        return _final(text, complete=False)
    if not any(what == "run_script" for what, _, _ in observed):
        absent = _listed(_ABSENT, request)
        if absent:
            return _final(said.absent.format(files=", ".join(map(repr, absent))), complete=False)
        return _run(skill, source, entry, _files(prompt)) | _progress(prompt, request, said.plan, done=1)
    came = _last_words(prompt)
    # A script that only complained has not done what was asked; one that printed something may well have.
    complete = "It printed:" in came or " exit code 0 " in came.partition("\n")[0]
    answer = _final(said.ran.format(skill=skill, script=entry, text=came), complete=complete)
    return answer | _progress(prompt, request, said.plan, done=3)


def _own_words(text: str) -> str:
    """A section without what came from outside: only our own lines say what happened."""
    lines, outside = [], True
    for line in text.splitlines():
        if outside and line.startswith("<untrusted "):
            outside = False
        elif line == "</untrusted>":
            outside = True
        elif outside:
            lines.append(line)
    return "\n".join(lines)


def _fitting(prompt: dict[str, str], request: str) -> str | None:
    """The skill that search ranks first, unless the request's words say that it is about something else."""
    ranked = _RANKED.search(prompt.get("catalogue", ""))
    wanted = _words(_without_files(prompt, request))
    if ranked is None or not wanted:
        return None
    for name in ranked[1].split(", ")[:1]:
        described = re.search(
            rf"^- name={re.escape(name)} \| source=\S+ \| description=(.*)$",
            prompt["catalogue"],
            re.MULTILINE,
        )
        known = _words(f"{name} {described[1] if described else ''}")
        share = sum(any(_alike(word, other) for other in known) for word in wanted) / len(wanted)
        if share >= LEAST_SHARE:
            return name
    return None


def _without_files(prompt: dict[str, str], request: str) -> str:
    """The request's own words: what its files are called says little of what is to be done with them."""
    text = _ABSENT.sub("", _FILES.sub("", request))
    names = [*_files(prompt), *_listed(_ABSENT, request)]
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    return _LITTLE_SIGNS.sub(" ", text)


def _words(text: str) -> set[str]:
    found = {word.casefold() for word in _WORD.findall(prepared(text))}
    return {word for word in found if len(word) > 1 and word not in _LITTLE_WORDS and not word.isdigit()}


def _alike(one: str, other: str) -> bool:
    """The same word, or the same but for its ending."""
    if one == other:
        return True
    shared = max(4, min(len(one), len(other)) - 3)
    return one.isascii() and len(one) >= 4 and len(other) >= 4 and one[:shared] == other[:shared]


def _files(prompt: dict[str, str]) -> list[str]:
    return _listed(_FILES, prompt.get("request", ""))


def _listed(pattern: re.Pattern[str], request: str) -> list[str]:
    """The names in the last line of that kind, which is ours; the ones before may be the request's own."""
    lines = pattern.findall(request)
    try:
        found = json.loads(lines[-1]) if lines else []
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)]


def _select(name: str, request: str, titles: Sequence[str]) -> dict[str, Any]:
    payload = {
        "skills": [{"name": name}],
        "reason": "search ranks it first and its description has these words",
    }
    return {
        "action": {"type": "select_skills", "payload": payload},
        "plan_update": _plan(request, titles, done=0),
    }


def _plan(request: str, titles: Sequence[str], *, done: int) -> dict[str, Any]:
    steps = [
        {"id": f"s{n}", "title": title, "status": "completed" if n <= done else "pending"}
        for n, title in enumerate(titles, 1)
    ]
    return {"goal": _first_line(request), "steps": steps}


def _progress(prompt: dict[str, str], request: str, titles: Sequence[str], *, done: int) -> dict[str, Any]:
    """What is done by now: the first plan, or a patch of the one there is."""
    if prompt.get("plan and budget", "").startswith("plan: none yet"):
        return {"plan_update": _plan(request, titles, done=done)}
    patches = [{"op": "update", "id": f"s{n}", "status": "completed"} for n in range(1, done + 1)]
    return {"plan_update": patches}


def _run(skill: str, source: str, entry: str, files: list[str]) -> dict[str, Any]:
    payload = {"skill": {"name": skill, "source": source}, "relative_path": entry, "args": files}
    return {"action": {"type": "run_script", "payload": payload}}


def _final(text: str, *, complete: bool = True) -> dict[str, Any]:
    payload: dict[str, Any] = {"text": text} if complete else {"text": text, "complete": False}
    return {"action": {"type": "final_answer", "payload": payload}}


def _last_words(prompt: dict[str, str]) -> str:
    """The text of the last observation."""
    lines = prompt.get("observations", "").splitlines()
    start, outside = 0, True
    for number, line in enumerate(lines):
        if outside and line.startswith("<untrusted "):
            outside = False
        elif line == "</untrusted>":
            outside = True
        elif outside and _OBSERVED.match(line):
            start = number + 1
    return _quoted("\n".join(lines[start:]))


def _quoted(text: str) -> str:
    plain = re.sub(r"(?m)^</?untrusted[^>\n]*>$\n?", "", text).strip()
    if len(plain) <= MAX_QUOTED_CHARS:
        return plain
    head, tail = plain[: MAX_QUOTED_CHARS * 3 // 4], plain[-MAX_QUOTED_CHARS // 4 :]
    return f"{head}\n[… {len(plain) - MAX_QUOTED_CHARS:,} characters left out; the record has them …]\n{tail}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""
