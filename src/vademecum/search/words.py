"""Split text into search words, and translate Chinese ones.

The dictionary is loaded on first use. ``python -m bench.dictionary`` makes it from CC-CEDICT (CC BY-SA
4.0, see NOTICE).
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from functools import cache
from pathlib import Path

from vademecum.skill.text import without_hidden

MAX_WORD_CHARS = 8
MAX_GLOSSES = 2

# Compiled on first use; English requests never need them.
HAN = "[\u3400-\u4dbf\u4e00-\u9fff]+"
KANA = "[\u3040-\u30ff]"
# Han, Kana and Hangul, which are written without spaces.
_UNSPACED = (
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
# Words without a topic. Requests are split at them, so they match nothing.
_STOP = (
    "的 了 吗 呢 吧 啊 呀 嘛 么 着 过 地 得 之 所 而 且 但 并 或 和 与 及 跟 同 对 对于 关于 由 被 把 "
    "将 让 使 给 向 往 从 到 在 于 以 用 是 有 没 没有 不 不是 不能 不会 不要 很 太 更 最 都 也 还 就 "
    "才 再 又 只 只有 非常 一个 一下 一些 一份 一套 一种 一张 一段 一条 一点 一样 一起 一直 一次 "
    "一遍 几个 两个 三个 每个 各个 各种 这个 那个 这些 那些 这 那 哪 哪个 哪些 哪里 这里 那里 这样 那样 "
    "这种 那种 这份 这段 这张 这套 这次 怎么 怎样 怎么样 怎么办 如何 什么 为什么 为何 多少 几 谁 我 你 "
    "您 他 她 它 我们 你们 他们 它们 咱们 大家 自己 别人 有人 请 请问 请帮 帮 帮我 帮忙 麻烦 谢谢 多谢 "
    "你好 您好 能 能不能 能否 可以 可不可以 可否 会 会不会 要 要不要 想 想要 需要 应该 必须 希望 打算 "
    "准备 觉得 认为 知道 有没有 是不是 是否 如果 要是 假如 因为 所以 但是 不过 然后 之后 以后 之前 以前 "
    "时候 的话 现在 目前 今天 已经 正在 刚 刚刚 刚才 先 后 里 里面 上 上面 下 下面 中 中间 内 外 左右 "
    "等 等等 之类 方面 东西 事情 问题 办法 方法 方式 一 二 两 三 个 些 份 种 张 段 条 次 遍 做 弄 搞 来 "
    "去 说 看 看看 给我 告诉 手头 手上 老是 总是 有点 一定 可能 到底 究竟 具体 相关 有关 其中 其他 另外 "
    "以及 还有 还是 或者 并且 而且 只要 只是 就是 都是 不到 不了 好 好的 起来 出来 下来 过来 进去 出去 "
    "完 该 比 按 按照 根据 通过 为 为了 当 当中 每 各 某 多 少 大概 尽量 直接 最好 顺便 急 很急 紧急 "
    "嗯 嗯嗯 哦 噢 哈哈 唉 喂 算了 知道了 没问"
)
STOP_WORDS = frozenset(_STOP.split(" "))
# A word with a capital inside, such as JavaScript or PDFForm, and where to cut it.
_MIXED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_CUT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Dictionary:
    """The meanings of Chinese words in simplified characters."""

    def __init__(self, text: str) -> None:
        self._lines = {line[0]: line for line in text.split("\n")}
        self._beginning_with = cache(self._parsed)
        for word in STOP_WORDS:
            line = self._lines.get(word[0], word[0])
            self._lines[word[0]] = f"{word[0]}\t{word[1:]}={line[1:]}"

    def meanings(self, word: str) -> list[str]:
        """Return the English meanings of a word, common ones first; none if it is unknown."""
        glosses = self._beginning_with(word[0]).get(word[1:], "")
        return glosses.split(";") if glosses else []

    def _parsed(self, first: str) -> dict[str, str]:
        entries = self._lines.get(first, first).replace("=", "\t").split("\t")
        return dict(zip(entries[1::2], entries[2::2], strict=True))

    def segmented(self, run: str) -> list[str]:
        """Split a run of characters into the fewest words; of equal splits, the one with the longest word."""
        best = [(0, 0, 0), *[(len(run), 0, 0)] * len(run)]
        for start, first in enumerate(run):
            before, squares, _ = best[start]
            endings = self._beginning_with(first)
            for end in range(start + 1, min(start + MAX_WORD_CHARS, len(run)) + 1):
                if end == start + 1 or run[start + 1 : end] in endings:
                    best[end] = min(best[end], (before + 1, squares - (end - start) ** 2, start))
        words, end = [], len(run)
        while end:
            start = best[end][2]
            words.append(run[start:end])
            end = start
        return words[::-1]


@cache
def dictionary() -> Dictionary:
    """Load the dictionary, once per process."""
    data = Path(__file__).with_name("dictionary.txt.z").read_bytes()
    return Dictionary(zlib.decompress(data).decode("utf-8"))


def glosses_of(text: str) -> str:
    """Return the English meanings of a Chinese text, so that English requests find it.

    >>> glosses_of("填写发票")
    'fill form write data box invoice receipt'
    """
    han = sum(map(len, re.findall(HAN, text)))
    if 2 * han < len(text) or re.search(KANA, text):
        return ""
    words = [word for run in re.findall(HAN, simplified(text)) for word in dictionary().segmented(run)]
    kept = [dictionary().meanings(word)[:MAX_GLOSSES] for word in words if word not in STOP_WORDS]
    return " ".join(gloss for glosses in kept for gloss in glosses)


def prepared(text: str) -> str:
    """Return the text with its searchable words separated by spaces.

    Documents, queries and requests are all split in this way.

    >>> prepared("fillPDFForm in ＪａｖａＳｃｒｉｐｔ 技能说明")
    'fillPDFForm fill PDF Form in JavaScript Java Script  技能 能说 说明 '
    """
    if not text.isascii():
        whole = text.encode("utf-8", "replace").decode()  # half a character cannot be searched for
        text = re.sub(_UNSPACED, _pairs, simplified(unicodedata.normalize("NFKC", without_hidden(whole)[0])))
    return _MIXED.sub(lambda word: f"{word[0]} {_CUT.sub(' ', word[0])}", text)


def simplified(text: str) -> str:
    """Return the text with simplified Chinese characters in place of traditional ones.

    >>> simplified("簡歷 CV")
    '简历 CV'
    """
    return text.translate(_simplified_characters())


@cache
def _simplified_characters() -> dict[int, str]:
    pairs = Path(__file__).with_name("simplified.txt").read_text("utf-8")
    return {ord(old): new for old, new in zip(pairs[::2], pairs[1::2], strict=True)}


def _pairs(run: re.Match[str]) -> str:
    """Return a run as its overlapping pairs."""
    text = run[0]
    pairs = [text[n : n + 2] for n in range(max(1, len(text) - 1))]
    return f" {' '.join(pairs)} "
