"""D1: how texts and queries are taken apart."""

from __future__ import annotations

import pytest

from vademecum.search.text_index import analyzer
from vademecum.search.words import prepared


def words(text: str) -> list[str]:
    return analyzer().analyze(prepared(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The files are compared", ["file", "compar"]),
        ("file-diff snake_case", ["file", "diff", "snake", "case"]),
        ("fillPDFForm", ["fillpdfform", "fill", "pdf", "form"]),
        ("get_userName", ["get", "usernam", "user", "name"]),
        ("pay\u200bload", ["payload"]),
        ("JavaScript", ["javascript", "java", "script"]),
        ("ＰＤＦ　ｆｏｒｍ", ["pdf", "form"]),
        ("技能说明", ["技能", "能说", "说明"]),
        ("图", ["图"]),
        ("簡歷", ["简历"]),
        ("ファイル比較", ["ファ", "ァイ", "イル", "ル比", "比较"]),
        ("한국어 기술", ["한국", "국어", "기술"]),
        ("用PDF表单", ["用", "pdf", "表单"]),
        ("C++ & C#!", ["c", "c"]),
        ("", []),
        ("?!… 。，", []),
        ("x" * 100, []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected
