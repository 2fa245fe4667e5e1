"""The sentences of the generated pages in both languages; tables and the help of commands stay in English."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Say = Callable[[str], str]

_CHINESE = {
    "Commands": "命令",
    "Every command of `vade`, with its arguments and options. This page is made from the program itself.": (
        "本页列出 `vade` 的全部命令，以及各自的参数和选项。内容由程序生成，帮助文字是英文。"
    ),
    "Exit codes": "退出码",
    "They mean the same for every command.": "退出码对所有命令的含义相同。",
    "Every command": "所有命令都有的选项",
    "Options of many commands": "许多命令共有的选项",
    "These choose where skills are looked for; commands that have them say so.": (
        "这些选项决定在哪里查找技能；接受这些选项的命令会注明。"
    ),
    "It also takes the options that choose where skills are looked for, above.": (
        "也接受上面决定在哪里查找技能的选项。"
    ),
    "It takes no arguments and no options of its own.": "没有专用的参数和选项。",
    "Settings": "设置项",
    "Every key of `config.json` and `config.toml`, from the types that check them. What the files are and how they "
    "are merged is in [configuration](../configuration.md).": (
        "本页列出 `config.json` 和 `config.toml` 的全部键，取自用来检查它们的类型定义；表格是英文。"
        "配置文件在哪里、如何合并，见[配置](../configuration.md)。"
    ),
    "At the top": "顶层",
    "In a project's file": "写在项目文件里时",
    "What a project may do with a key that its user has set, or left at its default:": (
        "如果用户已设定某个键（或使用默认值），项目可以怎样改变它："
    ),
    "A rule": "一条规则",
    "An entry of `permissions`. [Permissions](../permissions.md) says how rules are matched.": (
        "`permissions` 里的一项。规则怎样匹配，见[权限](../permissions.md)。"
    ),
    "Events": "事件",
    "Every kind of event in `.agent/runs/<run_id>/events.jsonl`, one JSON object a line. The examples are from runs "
    "that were made to write this page; digests, times and long texts are shortened. "
    "[The record](../explanation/the-record.md) says what they are for.": (
        "本页列出 `.agent/runs/<run_id>/events.jsonl` 里的全部事件种类，每行一个 JSON 对象。示例取自为生成本页而实际执行的运行，"
        "其中的摘要、时间和长文本已缩短；表格是英文。事件的用途见[记录](../explanation/the-record.md)。"
    ),
    "Every event": "所有事件共有的字段",
    "How a run ends": "运行如何结束",
    "The `status` and `stop_reason` of `run_finished`, and the exit code of `vade run`.": (
        "下面是 `run_finished` 的 `status` 和 `stop_reason`，以及 `vade run` 的退出码。"
    ),
    "Passing by": "只通知、不记录",
    "A `listener` hears these as well; they are not written down.": "`listener` 也会收到这些事件；它们不写入记录。",
    "A run began: what was asked, of which model, with which skills.": "运行开始：请求的内容、所用的模型、可用的技能。",
    "A prompt was sent.": "向模型发出一份提示。",
    "The model could not be reached; it is asked again after the pause, three times in all.": "无法连接模型；等待之后重试，一共三次。",
    "A reply came back.": "收到模型的回复。",
    "The reply was not one valid action; it was sent back with all that is wrong with it.": "回复不是有效的动作，连同全部错误退回给模型。",
    "The type of the action was seen while the reply was still streaming. Nothing is done yet.": "回复还在流式输出时，已得知动作的类型。此时尚未执行。",
    "A whole, valid action: what the model wants to do now.": "一个完整、有效的动作，即模型现在要做什么。",
    "The plan changed; this is the plan as it is now.": "计划有变化；内容是当前的计划。",
    "A rule says ask, and somebody is asked.": "规则要求询问，正在询问人。",
    "The answer to that question.": "对该询问的回答。",
    "The body of a skill went into the prompt.": "技能的正文加入提示。",
    "A skill is not active any more.": "停用一个技能。",
    "A file of a skill was read.": "读取技能的一个文件。",
    "A tool was called: the whole audit record, whether it was allowed or not.": "调用一个工具：完整的审计记录，不管是否允许都会写下。",
    "What the model is told about what came of its action.": "告诉模型的动作结果。",
    "The conversation neared its limit: everything before the last exchange became a summary.": (
        "对话接近上限，最后一次往来之前的内容换成摘要。"
    ),
    "Skills came or went while another program's agent was served ([MCP](../mcp.md)).": (
        "为另一个程序的智能体提供服务期间，技能有增减（[MCP](../mcp.md)）。"
    ),
    "A skill with `run-mode: subagent` began a run of its own.": "带有 `run-mode: subagent` 的技能开始子运行。",
    "That run ended.": "子运行结束。",
    "A [charter](../governance.md) holds from here on.": "[章程](../governance.md)从此开始生效。",
    "The charter was asked whether a skill may be selected.": "查询章程是否允许选用一个技能。",
    "What came of one intent under a charter.": "一个意图经章程处理的结果。",
    "The run ended. A record without this event is of a run that was killed.": "运行结束。记录里没有这个事件，说明运行是被强行终止的。",
    "Error codes": "错误码",
    "Every error has a code that stays the same while its words may change. In Python it is `error.code`; in a run it "
    "stands in the observation and in `tool_called`; the command prints the sentence and ends with the exit code.": (
        "每个错误都有一个错误码。错误信息的文字可能变化，错误码不变。在 Python 里是 `error.code`；在运行中写入观察结果和 "
        "`tool_called`；命令则打印错误信息，并以相应的退出码结束。下面的表格是英文。"
    ),
    "Kinds of errors": "错误的种类",
    "The classes of `vademecum.errors`. `except vm.VademecumError` catches all of them.": (
        "`vademecum.errors` 里的异常类。`except vm.VademecumError` 可以捕获全部。"
    ),
    "Finer codes": "更细的错误码",
    "Codes that say more than the class does, by where they arise.": "比异常类更具体的错误码，按出现的位置列出。",
    "Codes elsewhere": "其他地方的代码",
    "Problems of skills (`name-uppercase`, `invalid-yaml`, …) are in [how documents are read]"
    "(../documents.md), problems and reasons of charters (`duplicate-id`, `cooldown`, …) in [governance]"
    "(../governance.md).": (
        "技能的问题代码（`name-uppercase`、`invalid-yaml` 等）见[技能文档的读取](../documents.md)；"
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
