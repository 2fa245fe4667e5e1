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
    "At the top": "顶层",
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
    "A run began: what was asked, of which model, with which skills.": "一次运行开始：请求是什么、问哪个模型、有哪些技能。",
    "A prompt was sent.": "发出了一份提示。",
    "The model could not be reached; it is asked again after the pause, three times in all.": "模型不可达；等待之后再问，一共三次。",
    "A reply came back.": "收到一次回复。",
    "The reply was not one valid action; it was sent back with all that is wrong with it.": "回复不是一个有效的动作；连同全部问题发回给模型。",
    "The type of the action was seen while the reply was still streaming. Nothing is done yet.": "回复还在流式输出时，看到了动作的类型。此时还什么都没做。",
    "A whole, valid action: what the model wants to do now.": "一个完整、有效的动作：模型现在想做什么。",
    "The plan changed; this is the plan as it is now.": "计划有变；这是现在的计划。",
    "A rule says ask, and somebody is asked.": "规则要求询问，于是去问人。",
    "The answer to that question.": "对那个问题的回答。",
    "The body of a skill went into the prompt.": "一个技能的正文进入了提示。",
    "A skill is not active any more.": "一个技能被停用。",
    "A file of a skill was read.": "读取了一个技能的文件。",
    "A tool was called: the whole audit record, whether it was allowed or not.": "调用了一个工具：完整的审计记录，无论是否被允许。",
    "What the model is told about what came of its action.": "关于动作的结果，模型被告知了什么。",
    "The conversation neared its limit: everything before the last exchange became a summary.": (
        "对话接近上限：最后一次往来之前的内容变成了摘要。"
    ),
    "Skills came or went while another program's agent was served ([MCP](../mcp.md)).": (
        "为另一个程序的智能体服务期间，技能有增减（[MCP](../mcp.md)）。"
    ),
    "A skill with `run-mode: subagent` began a run of its own.": "一个 `run-mode: subagent` 的技能开始了自己的运行。",
    "That run ended.": "那次运行结束了。",
    "A [charter](../governance.md) holds from here on.": "从这里起，一份[章程](../governance.md)生效。",
    "The charter was asked whether a skill may be selected.": "询问章程：可不可以选中一个技能。",
    "What came of one intent under a charter.": "在章程之下，一个意图的结果。",
    "The run ended. A record without this event is of a run that was killed.": "运行结束。没有这个事件的记录，来自被强行终止的运行。",
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
