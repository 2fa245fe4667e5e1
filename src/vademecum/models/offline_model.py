"""The default model: rules, no network, no key. It reads the same messages as other models.

If the first skill in the search results fits, it loads that skill, runs its entry script with the files that
the request names, and reports the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from vademecum.models.base import Message, OnText, Reply

MAX_QUOTED_CHARS = 6000

_HEAD = re.compile(r"^=== ([a-z ]+) ===$", re.MULTILINE)
_FILES = re.compile(r"^files it names: (\[.*\])$", re.MULTILINE)
_ABSENT = re.compile(r"^files it names that are not here: (\[.*\])$", re.MULTILINE)
_SIMILAR = re.compile(r"^files with similar names: (\[.*\])$", re.MULTILINE)
_IN_CHINESE = re.compile(r"^answer in: Chinese$", re.MULTILINE)
_FITS = re.compile(r"^the first one fits: yes\b", re.MULTILINE)
_RANKED = re.compile(r"^ranked first by search: (.*)$", re.MULTILINE)
_LOADED = re.compile(r"^skill (\S+) \(source (\S+)\)(?:, entry (\S+))?$", re.MULTILINE)
_OUTSIDE = re.compile(r"^<untrusted .*?(?:^</untrusted>$|\Z)", re.MULTILINE | re.DOTALL)
_OBSERVED = re.compile(r"^\[\d+\] (\w+)(?: (.*?))?: (\S+)$", re.MULTILINE)

_ENGLISH = {
    "none": "No skill here fits this request: {request}\nI am the offline model: a few rules, not a language "
    "model, so I cannot do it myself. `vade search` looks for skills, and --model sets a language model.",
    "absent": "I cannot find {files}: name a file of this project.",
    "similar": " Did you mean {files}?",
    "no_entry": "The skill {skill!r} fits, but it names no entry script (metadata: entry: scripts/x.py), and "
    "I am the offline model: a few rules, not a language model. I cannot follow its instructions, which "
    "are:\n\n{text}",
    "ran": "I ran {script} of the skill {skill!r} (offline model: by rules, not a language model).\n\n{text}",
    "failed": "I could not finish this with the skill {skill!r}:\n\n{text}",
    "plan": "Choose the skill that fits\nRun its script\nReport what came of it",
}
_CHINESE = {
    "none": "这里没有适合该请求的技能：{request}\n我是离线模型，只有几条规则，不是语言模型，自己做不了。"
    "可以用 `vade search` 找技能，或用 --model 指定语言模型。",
    "absent": "找不到 {files}：请写本项目里的文件名。",
    "similar": "是不是 {files}？",
    "no_entry": "技能 {skill!r} 适合，但它没有写明入口脚本（metadata: entry: scripts/x.py）；我是离线模型，"
    "只有几条规则，不是语言模型，无法照着说明去做。说明如下：\n\n{text}",
    "ran": "已运行技能 {skill!r} 的 {script}（离线模型：只按规则，不是语言模型）。\n\n{text}",
    "failed": "用技能 {skill!r} 没能完成：\n\n{text}",
    "plan": "选出适合的技能\n运行它的脚本\n报告结果",
}


class Offline:
    """Decides by rules, from the messages since the last request."""

    name = "offline"
    needs_ranking = True

    def reply(self, messages: Sequence[Message], *, on_text: OnText | None = None, **_: Any) -> Reply:
        """Read the conversation and take the next step."""
        text = json.dumps(_turn(messages), ensure_ascii=False)
        if on_text is not None:
            on_text(text)
        return Reply(text)


def _turn(messages: Sequence[Message]) -> dict[str, Any]:
    told = [message.content for message in messages if message.role == "user"]
    start = max(n for n, text in enumerate(told) if text.startswith("=== request ==="))
    prompt = _sections(told[start])
    request, about = prompt.get("request", ""), prompt.get("about", "")
    said = _CHINESE if _IN_CHINESE.search(about) else _ENGLISH
    since = [prompt.get("loaded skills", ""), *told[start + 1 :]]
    own = [_own_words(text) for text in since]
    loaded, observed = _LOADED.findall("\n".join(own)), _OBSERVED.findall("\n".join(own[1:]))
    files = _listed(_FILES, request)
    if observed and observed[-1][2] != "ok":
        skill = loaded[-1][0] if loaded else observed[-1][1]  # its loading failed
        return _final(said["failed"].format(skill=skill, text=_last_words(since[-1])), complete=False)
    if not loaded:
        ranked, before = _RANKED.search(about), _LOADED.findall("\n".join(map(_own_words, told[:start])))
        if ranked and _FITS.search(about):
            chosen = ranked[1].split(", ")[0]
        elif before and files:  # the same as for the last request
            chosen = before[-1][0]
        else:
            return _final(said["none"].format(request=_first_line(request)), complete=False)
        reason = "search ranks it first and says that it fits"
        return _action("select_skills", skills=[{"name": chosen}], reason=reason) | _plan(request, said, 0)
    skill, source, entry = loaded[-1]
    if not entry:
        body = next(text for text, words in zip(since[::-1], own[::-1], strict=True) if _LOADED.search(words))
        return _final(said["no_entry"].format(skill=skill, text=_quoted(body)), complete=False)
    if not any(what == "run_script" for what, _, _ in observed):
        if absent := _listed(_ABSENT, request):
            text = said["absent"].format(files=", ".join(map(repr, absent)))
            if similar := _listed(_SIMILAR, request):
                text += said["similar"].format(files=", ".join(map(repr, similar)))
            return _final(text, complete=False)
        named = {"name": skill, "source": source}
        run = _action("run_script", skill=named, relative_path=entry, args=files)
        return run | _plan(request, said, 1)
    came = _last_words(since[-1])
    # A failed script that printed something to standard output may still have done the task.
    complete = "It printed:" in came or " exit code 0 " in came.partition("\n")[0]
    answer = _final(said["ran"].format(skill=skill, script=entry, text=came), complete=complete)
    return answer | _plan(request, said, 3)


def _sections(text: str) -> dict[str, str]:
    r"""Return the sections of a message by name; of several with the same name, the first is ours.

    >>> _sections("=== request ===\ndo it\n\n=== about ===\nnothing")["request"]
    'do it'
    """
    _, *parts = _HEAD.split(text)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    return {name: body.strip("\n") for name, body in reversed(pairs)}


def _own_words(text: str) -> str:
    """Return a text with untrusted parts replaced by spaces: only the rest says what happened."""
    return _OUTSIDE.sub(lambda found: " " * len(found[0]), text)


def _listed(pattern: re.Pattern[str], request: str) -> list[str]:
    """Return the names in the last matching line; earlier ones can be words of the request."""
    lines = pattern.findall(request)
    try:
        found = json.loads(lines[-1]) if lines else []
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)]


def _plan(request: str, said: dict[str, str], done: int) -> dict[str, Any]:
    steps = [
        {"id": f"s{n}", "title": title, "status": "completed" if n <= done else "pending"}
        for n, title in enumerate(said["plan"].splitlines(), 1)
    ]
    return {"plan_update": {"goal": _first_line(request), "steps": steps}}


def _action(type_: str, **payload: Any) -> dict[str, Any]:
    return {"action": {"type": type_, "payload": payload}}


def _final(text: str, *, complete: bool = True) -> dict[str, Any]:
    return _action("final_answer", text=text, **({} if complete else {"complete": False}))


def _last_words(observations: str) -> str:
    *_, head = [0, *(found.end() for found in _OBSERVED.finditer(_own_words(observations)))]
    return _quoted(observations[head:])


def _quoted(text: str) -> str:
    plain = re.sub(r"(?m)^</?untrusted[^>\n]*>$\n?", "", text).strip()
    if len(plain) <= MAX_QUOTED_CHARS:
        return plain
    head, tail = plain[: MAX_QUOTED_CHARS * 3 // 4], plain[-MAX_QUOTED_CHARS // 4 :]
    return f"{head}\n[… {len(plain) - MAX_QUOTED_CHARS:,} characters left out; the record has them …]\n{tail}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""
