"""The sentences of the generated pages in both languages; tables and the help of commands stay in English."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Say = Callable[[str], str]

_CHINESE = {
    "Commands": "命令",
    "Every command of `vade`, with its arguments and options. This page is made from the program itself.": (
        "`vade` 的全部命令，以及各自的参数和选项。本页由程序本身生成；命令的帮助文字是英文。"
    ),
    "Exit codes": "退出码",
    "They mean the same for every command.": "所有命令的退出码含义相同。",
    "Every command": "所有命令都有的选项",
    "Options of many commands": "许多命令共有的选项",
    "These choose where skills are looked for; commands that have them say so.": (
        "这些选项决定去哪里找技能；有这些选项的命令会注明。"
    ),
    "It also takes the options that choose where skills are looked for, above.": (
        "它也接受上面那些决定去哪里找技能的选项。"
    ),
    "It takes no arguments and no options of its own.": "它没有自己的参数和选项。",
    "Settings": "设置项",
    "Every key of `config.json` and `config.toml`, from the types that check them. What the files are and how they "
    "are merged is in [configuration](../configuration.md).": (
        "`config.json` 和 `config.toml` 的全部键，取自检查它们的类型定义；表格是英文。这些文件在哪里、如何合并，"
        "见[配置](../configuration.md)。"
    ),
    "In a project's file": "写在项目文件里时",
    "What a project may do with a key that its user has set, or left at its default:": (
        "对于用户已设定（或保留默认值）的键，项目可以做什么："
    ),
    "A rule": "一条规则",
    "An entry of `permissions`. [Permissions](../permissions.md) says how rules are matched.": (
        "`permissions` 里的一项。规则如何匹配，见[权限](../permissions.md)。"
    ),
    "Events": "事件",
    "Every kind of event in `.agent/runs/<run_id>/events.jsonl`, one JSON object a line. The examples are from runs "
    "that were made to write this page; digests, times and long texts are shortened. "
    "[The record](../explanation/the-record.md) says what they are for.": (
        "`.agent/runs/<run_id>/events.jsonl` 里的全部事件种类，每行一个 JSON 对象。示例取自为生成本页而真实执行的运行；"
        "摘要、时间和长文本作了缩短；表格是英文。事件的用途见[记录](../explanation/the-record.md)。"
    ),
    "Every event": "每个事件都有",
    "How a run ends": "运行如何结束",
    "The `status` and `stop_reason` of `run_finished`, and the exit code of `vade run`.": (
        "`run_finished` 的 `status` 和 `stop_reason`，以及 `vade run` 的退出码。"
    ),
    "Passing by": "只通知、不记录",
    "A `listener` hears these as well; they are not written down.": "`listener` 也会听到这些；它们不写进记录。",
    "Error codes": "错误码",
    "Every error has a code that stays the same while its words may change. In Python it is `error.code`; in a run it "
    "stands in the observation and in `tool_called`; the command prints the sentence and ends with the exit code.": (
        "每个错误都有一个错误码：文字可能变，错误码不变。在 Python 里是 `error.code`；在运行中写在观察结果和 `tool_called` "
        "里；命令则打印那句话，并以相应的退出码结束。下面的表格是英文。"
    ),
    "Kinds of errors": "错误的种类",
    "The classes of `vademecum.errors`. `except vm.VademecumError` catches all of them.": (
        "`vademecum.errors` 的各个类。`except vm.VademecumError` 可以捕获全部。"
    ),
    "Finer codes": "更细的错误码",
    "Codes that say more than the class does, by where they arise.": "比类更具体的错误码，以及它们在哪里出现。",
    "Codes elsewhere": "其他地方的代码",
    "Problems of skills (`name-uppercase`, `invalid-yaml`, …) are in [how documents are read]"
    "(../documents.md), problems and reasons of charters (`duplicate-id`, `cooldown`, …) in [governance]"
    "(../governance.md).": (
        "技能的问题代码（`name-uppercase`、`invalid-yaml` 等）见[文档如何读取](../documents.md)；"
        "章程的问题和理由代码（`duplicate-id`、`cooldown` 等）见[治理](../governance.md)。"
    ),
}


def english(sentence: str) -> str:
    """The sentence as it is; one that cannot be said in Chinese is an error in the generator."""
    if sentence not in _CHINESE:
        raise KeyError(sentence)
    return sentence


def chinese(sentence: str) -> str:
    """The same sentence in Chinese."""
    return _CHINESE[sentence]


def table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown; bars inside a cell are kept apart from those between cells."""
    columns = head.split(" | ")
    lines = [f"| {head} |", "|" + "---|" * len(columns)]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"
