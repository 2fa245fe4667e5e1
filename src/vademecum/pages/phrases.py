"""The words of pages in English and Chinese, and the Chinese of sentences that runs and evaluations keep."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import re2

WORDS: dict[str, tuple[str, str]] = {
    "back_to_case": ("Case", "用例"),
    "model": ("model", "模型"),
    "agent": ("agent", "智能体"),
    "turns": ("turns", "轮次"),
    "calls": ("calls", "调用"),
    "tokens": ("tokens", "token 数"),
    "seconds": ("seconds", "秒数"),
    "outputs": ("Outputs", "输出文件"),
    "bytes": ("{count} bytes", "{count} 字节"),
    "changed": ("changed", "有变化"),
    "has_secret": ("contains a secret", "含有机密值"),
    "where_time_went": ("Where the time went", "时间花在哪里"),
    "span_model": ("model", "模型"),
    "span_call": ("call", "调用"),
    "span_wrong": ("failed, refused, or exit code not 0", "失败、被拒绝或退出码不为 0"),
    "span_approval": ("approval", "批准"),
    "span_child": ("child run", "另开的运行"),
    "plan": ("Plan", "计划"),
    "plan_changes": ("{count} changes", "{count} 处变化"),
    "steps": ("Steps", "步骤"),
    "expand_all": ("Expand all", "全部展开"),
    "rule": ("Rule:", "规则："),
    "more_steps": ("{count} more steps are in the record.", "另有 {count} 步，见运行记录。"),
    "conversation": ("Conversation", "对话"),
    "role_user": ("User", "用户"),
    "role_assistant": ("Model", "模型"),
    "role_tool": ("Result", "结果"),
    "mark_pass": ("pass", "通过"),
    "mark_fail": ("fail", "未通过"),
    "mark_flaky": ("flaky", "不稳定"),
    "mark_timeout": ("time-out", "超时"),
    "mark_error": ("error", "出错"),
    "mark_unusable": ("unusable", "回复无效"),
    "mark_unjudged": ("not judged", "未评判"),
    "evaluation_of": ("Evaluation of {name}", "{name} 的评估"),
    "cases_count": ("{count} cases", "{count} 个用例"),
    "configurations_count": ("{count} configurations", "{count} 种配置"),
    "pass_rate": ("Pass rate, with 95 % intervals", "通过率（95% 置信区间）"),
    "cost_success": ("Cost against success", "成本与通过率"),
    "confusion": ("Which skill took whose request", "请求由哪个技能接手"),
    "confusion_legend": ("Rows: wanted. Columns: taken.", "行：应当触发；列：实际触发。"),
    "right": ("right", "正确"),
    "wrong": ("wrong", "错误"),
    "configuration": ("configuration", "配置"),
    "passed": ("passed", "通过"),
    "rate": ("rate", "通过率"),
    "95 % interval": ("95 % interval", "95% 置信区间"),
    "time-outs": ("time-outs", "超时"),
    "errors": ("errors", "出错"),
    "unusable": ("unusable", "回复无效"),
    "not judged": ("not judged", "未评判"),
    "precision": ("precision", "精确率"),
    "recall": ("recall", "召回率"),
    "false triggers": ("false triggers", "误触发率"),
    "skill": ("skill", "技能"),
    "wrongly taken": ("wrongly taken", "误用"),
    "missed": ("missed", "漏用"),
    "vacuous": ("vacuous:", "未触及："),
    "skills": ("Skills", "技能"),
    "what_changed": ("What changed", "有变化的用例"),
    "cases": ("Cases", "用例"),
    "request": ("Request", "请求"),
    "expected": ("Expected", "期望"),
    "answer": ("Answer", "回答"),
    "why": ("Why", "原因"),
    "run": ("run", "运行"),
    "nothing_expected": ("nothing: it passes whatever is done", "无：怎样都会通过"),
    "notes": ("What to know", "说明"),
    "malformed": ("malformed", "格式错误"),
    "more_cases": ("{count} more cases are in the JSON report.", "另有 {count} 个用例，见 JSON 报告。"),
    "ranked_first": (
        "Search alone ranks the right skill first for {first} of {wanted} requests.",
        "仅凭搜索，{wanted} 个请求中有 {first} 个的正确技能排在首位。",
    ),
    "false_triggers": (
        "False triggers: {wrong} of {negatives} requests that must not trigger ({share}).",
        "误触发：{negatives} 个不应触发的请求中有 {wrong} 个（{share}）。",
    ),
    "all": ("all", "全部"),
    "figures": ("Figures", "数据"),
    "by_step": ("by step", "按步"),
}

MAX_SENTENCE_CHARS = 2000
MAX_PARTS = 50
_QUOTED = re2.compile(r"'(?:[^'\\]|\\.)*'|" + r'"(?:[^"\\]|\\.)*"')
_MEANT = {
    "quoted": _QUOTED.pattern,
    "names": r"[^:;()]+",
    **dict.fromkeys(("name", "path", "words"), "[^:;]+"),
    "number": r"[-+–]?[\d.,]*%?",
    **dict.fromkeys(("first", "then", "what", "steps"), "(?:[^:;]|:[^ ;])+"),
}
_BETWEEN = (("; ", "；", MAX_PARTS), (": ", "：", 1), (", ", "、", MAX_PARTS), (" (", " (", 1))
# What is quoted is not taken apart.
_HIDE = str.maketrans(":;,(", "\ue000\ue001\ue002\ue003")
_SHOW = {new: old for old, new in _HIDE.items()}


@lru_cache(maxsize=4096)
def chinese(text: str, depth: int = 6) -> str:
    """Return a sentence of ours in Chinese, with what it names as it is; nothing if it is not one of ours.

    >>> chinese("that run ended: done"), chinese("fast: flaky: a, b"), chinese("hello")
    ('那次运行结束了：完成', 'fast：不稳定：a, b', '')
    """
    if len(text) > MAX_SENTENCE_CHARS:
        return ""
    for pattern, to in _patterns():
        found = pattern.fullmatch(text)
        if found:
            values = {
                key: (depth and key.isupper() and chinese(value, depth - 1)) or value
                for key, value in found.groupdict().items()
            }
            shown = to.format(**values)
            if shown != text:
                return shown
    hidden = _QUOTED.sub(lambda found: found[0].translate(_HIDE), text)
    for between, shown, most in _BETWEEN:
        parts = [part.translate(_SHOW) for part in hidden.split(between, most)]
        told = [chinese(part, depth - 1) for part in parts] if depth and len(parts) > 1 else []
        if any(told):
            return shown.join(new or old for new, old in zip(told, parts, strict=True))
    return ""


@cache
def sentences() -> dict[str, str]:
    """Return the sentences of ours, in English and in Chinese."""
    text = files("vademecum.pages").joinpath("templates", "sentences.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {english: said.strip() for english, said in zip(lines[::2], lines[1::2], strict=True)}


@cache
def _patterns() -> list[tuple[Any, str]]:
    return [(_pattern(english), to) for english, to in sentences().items()]


def _pattern(template: str) -> Any:
    """Return the regular expression, linear in any text, of a template's sentences."""
    parts = []
    for n, part in enumerate(re2.split(r"\{(\w+)\}", template)):
        meant = _MEANT.get(part.rstrip("23"), ".+?") if n % 2 else re2.escape(part)
        parts.append(f"(?P<{part}>{meant})" if n % 2 else meant)
    return re2.compile(f"(?s){''.join(parts)}")
