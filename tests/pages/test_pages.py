"""Pages: hostile texts stay texts, contrast is readable, a page is one small file, both languages are there."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from vademecum.pages.charts import dots, heat_map, lines, nice_ticks, rates
from vademecum.pages.render import MAX_PAGE_BYTES, asset, catalogue, chinese, render, rich_text
from vademecum.pages.run import Back, conversation, run_page, spans
from vademecum.runs.record import Event
from vademecum.runs.stored import PastRun, timeline
from vademecum.simulation.figures import report_of
from vademecum.simulation.setting import Chart, Simulated

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '"><b onmouseover=alert(1)>',
    "' onfocus='alert(1)' autofocus='",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</pre></details><iframe src=javascript:alert(1)>",
    "<!--",
    "--><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](http://203.0.113.1/pixel.png)",
    "<a href='http://203.0.113.1'>x</a>",
    "[x][1]\n\n[1]: javascript:alert(1)",
    "`</code><script>alert(1)</script>`",
    "```\n</pre><script>alert(1)</script>\n```",
    "| a | b |\n|---|---|\n| <script>alert(1)</script> | <b>x</b> |",
    "<base href=//203.0.113.1>",
    "<meta http-equiv=refresh content='0;url=//203.0.113.1'>",
    "<link rel=stylesheet href=//203.0.113.1/x.css>",
    "<form action=//203.0.113.1><button>x</button></form>",
    "<object data=//203.0.113.1>",
    "<style>@import '//203.0.113.1/x.css'</style>",
    "\u202e<script>\u2066alert(1)</script>",
    "<math><mtext></p><style><img src=x onerror=alert(1)></style>",
    "javascript:alert(1)//\x00<x>",
]
ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "script",
    "body",
    "header",
    "main",
    "section",
    "h1",
    "h2",
    "h3",
    "p",
    "a",
    "span",
    "div",
    "b",
    "i",
    "pre",
    "code",
    "details",
    "summary",
    "ol",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "button",
    "strong",
    "em",
    "small",
    "figure",
    "figcaption",
    "svg",
    "line",
    "text",
    "tspan",
    "circle",
    "rect",
    "polyline",
    "img",
    "hr",
    "br",
    "blockquote",
}


class Tags(HTMLParser):
    """Collects the elements of a page and the addresses in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.handlers += [
            name for name, _ in attrs if name.startswith("on") or name in {"autofocus", "action"}
        ]
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.sources += [value or "" for name, value in attrs if name in {"src", "data", "srcset", "poster"}]


def run_of(place: Path, text: str, count: int = 1) -> PastRun:
    called = {
        "tool": text, "code": "", "ok": True, "seconds": 0.1, "risk": "medium", "parameters": {"path": text},
        "decision": {"effect": "ask", "reason": text}, "result": {"text": text, "exit_code": 1},
    }  # fmt: skip
    plans = [
        {"goal": text, "steps": [{"id": "s", "title": text, "status": status}]}
        for status in ("pending", text)
    ]
    told = [
        Event(1, 0.0, "run_started", {"request": text, "model": text, "agent": text, "skills": 1}),
        Event(2, 1.0, "model_asked", {"turn": 1}),
        Event(3, 2.0, "model_replied", {"text": text, "seconds": 1.0}),
        *(Event(4 + n, 2.0, "plan", {"plan": plan}) for n, plan in enumerate(plans)),
        Event(6, 2.1, "approval_asked", {"wanted": text, "reason": text, "about": text}),
        Event(7, 2.5, "approval_answered", {"verdict": "once"}),
        *(Event(8 + n, 3.0 + n, "tool_called", called) for n in range(count)),
        Event(9 + count, 4.0 + count, "child_started", {"run": text, "skill": text}),
        Event(10 + count, 5.0 + count, "child_finished", {"status": text}),
        Event(
            11 + count, 6.0 + count, "run_finished", {"status": "done", "stop_reason": text, "answer": text}
        ),
    ]
    return PastRun("run", str(place), tuple(told))


def evaluation_page(text: str) -> str:
    from vademecum.evals.checks.trajectory import CheckResult
    from vademecum.evals.reports.page import page
    from vademecum.evals.reports.summary import summarise
    from vademecum.evals.results import CaseLine, CaseResult, Evaluation, Header
    from vademecum.evals.suite import Malformed
    from vademecum.evals.units import Configuration

    line = CaseLine(text, text, one_of=(text,), expected=(text,), problems=(text,))
    header = Header(
        text,
        text,
        0.0,
        (Configuration(text), Configuration("b")),
        (line,),
        (Malformed(text, text, text, text),),
        (),
    )
    checks = (CheckResult(text, "fail", text), CheckResult(text, "vacuous"))
    results = (
        CaseResult("1", text, text, 1, "fail", checks, skills=(text,), answer=text, error=text),
        CaseResult("2", text, "b", 1, "pass", answer=text),
    )
    return page(summarise(Evaluation(header, results)), {})


def simulation_page(text: str) -> str:
    run = Simulated({text: text, "n": 3}, [Chart(text, text, {text: [1, 2, 3]})])
    other = Simulated({text: text, "n": 4}, [Chart(text, text, {text: [1, 2, 9]})])
    return report_of(text, text, {"with the charter": run, "without": other})


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(tmp_path: Path, text: str) -> None:
    pages = {
        "run": run_page(run_of(tmp_path, text), back=Back("../report.html#case-1", text)),
        "evaluation": evaluation_page(text),
        "simulation": simulation_page(text),
    }
    for name, page in pages.items():
        tags = Tags(page)
        assert set(tags.names) <= ALLOWED, name
        assert (tags.names.count("script"), tags.names.count("style"), tags.handlers) == (1, 1, []), name
        assert tags.names.count("meta") == 3, name
        assert all(each.startswith("data:image/") for each in tags.sources), name
        assert not any(re.match(r"\s*(javascript|vbscript|data):", each, re.I) for each in tags.links), name


def test_the_policy_allows_our_script_alone() -> None:
    import base64
    import hashlib

    page = simulation_page("x")
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    )


def luminance(colour: str) -> float:
    wide = colour.lstrip("#")
    wide = "".join(c * 2 for c in wide) if len(wide) == 3 else wide
    parts = [int(wide[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_is_that_of_wcag_aa(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", asset("page.css"), re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", blocks[scheme]))
    pairs = [
        (ink, ground)
        for ink in ("ink", "soft", "ok", "bad", "warn", "blue", "asked")
        for ground in ("paper", "card")
    ]
    pairs += [("on", ground) for ground in ("ok", "bad", "warn", "asked", "soft")]
    for ink, ground in pairs:
        dark, light = sorted((luminance(colours[ink]), luminance(colours[ground])))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_a_long_run_is_one_small_file(tmp_path: Path) -> None:
    page = run_page(run_of(tmp_path, "word " * 1000, count=3000))
    assert len(page.encode()) <= MAX_PAGE_BYTES


def test_a_waterfall_and_a_conversation(tmp_path: Path) -> None:
    run = run_of(tmp_path, "x")
    assert [(span.kind, round(span.seconds, 3)) for span in spans(run)] == [
        ("model", 1.0),
        ("approval", 0.4),
        ("wrong", 0.1),
        ("child", 1.0),
    ]
    assert [role for role, _ in conversation(run)] == ["user", "assistant"]
    page = run_page(run)
    assert page.count("1 changes") == 1  # the plan is there once
    assert ("Rule:" in page, "ask: x" in page) == (True, True)


def test_an_exit_code_other_than_0_has_no_tick(tmp_path: Path) -> None:
    marks = {entry.title: entry.mark for entry in timeline(run_of(tmp_path, "x"))}
    assert marks["x ran in 0.10 s, exit code 1 (risk medium)"] == "failed"


def test_markdown_tables_and_differences() -> None:
    assert "<table>" in rich_text("| a | b |\n|---|---|\n| 1 | 2 |")
    assert rich_text("--- a.txt\n+++ b.txt\n-apples 3\n+apples 4").startswith('<pre tabindex="0">--- a.txt')
    assert "<strong>bold</strong>" in rich_text("**bold** words")


def test_words_are_in_both_languages() -> None:
    for english, said in catalogue("words").items():
        assert english.isascii(), english
        assert re.search(r"[\u4e00-\u9fff]", said), english
    page = simulation_page("x")
    assert "The charter changed 1 of 2 figures" in page
    assert "章程改变了 2 项数据中的 1 项" in page


def test_a_figure_that_one_run_alone_has_differs() -> None:
    page = report_of(
        "t", "", {"with the charter": Simulated({"n": 1}), "without": Simulated({"n": 1, "denied": 2})}
    )
    assert "The charter changed 1 of 2 figures (without → with): denied 2 → –." in page
    assert '<td class="n">–</td><td class="n">2</td>' in page


def test_charts_draw_values_and_nothing_else() -> None:
    assert nice_ticks(97) == [0, 20, 40, 60, 80, 100]
    two = dots([(1.0, 1.0, 0, "a"), (1.0, 1.0, 0, "b"), (3.0, 0.0, 0, "c")], unit="turns")
    assert two.count("<circle") == 2
    assert ">2</text>" in two
    assert "–" in rates([("none", None, 0.0, 1.0)])
    assert heat_map(["a"], ["a", "b"], {("a", "a"): 3}, {("a", "a")}).count("<rect") == 2
    assert lines([("red", [1, 2], True)], top=2, label=("x", "x")).count("stroke-dasharray") == 1


def test_few_lines_share_a_plot_and_empty_ones_have_no_legend() -> None:
    few = [Chart("t", "u", {"a": [1, 2], "never": [0, 0]})]
    page = report_of("t", "", {"with the charter": Simulated({}, few), "without": Simulated({}, few)})
    assert (page.count("<svg"), "never" in page) == (1, False)
    many = [Chart("t", "u", {name: [1, 2] for name in "abc"})]
    page = report_of("t", "", {"with the charter": Simulated({}, many), "without": Simulated({}, many)})
    assert page.count("<svg") == 2
    assert render("simulation", title="t", about="", lead=("a", "b"), names=[], rows=[], sections=[])


def test_a_run_in_which_nothing_happened_is_drawn_as_zero() -> None:
    some, none = ([Chart("t", "u", {name: [n, n] for name in "abc"})] for n in (2, 0))
    page = report_of("t", "", {"with the charter": Simulated({}, some), "without": Simulated({}, none)})
    assert page.count("<polyline") == 6


def test_lines_of_a_reply_stay_lines() -> None:
    assert rich_text("run_script\nskill: file-diff").count("<br") == 1


def test_cells_fill_their_card() -> None:
    few = heat_map(["a"], ["a", "b"], {("a", "a"): 3}, {("a", "a")})
    assert re.findall(r'<rect x="([\d.]+)".*? width="([\d.]+)"', few)[-1] == ("278.0", "140.0")
    assert "rotate" not in few
    assert "rotate" in heat_map(["a"], [f"a-long-name-{n}" for n in range(8)], {}, set())


class Shown(HTMLParser):
    """Collects what a page says to a reader of Chinese, and what it says in English only."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        named = [given[key] or "" for key in ("title", "aria-label", "alt") if key in given]
        self.texts += [given["data-zh"] or ""] if "data-zh" in given else named
        if tag not in {"meta", "line", "circle", "rect", "polyline", "img", "br", "hr"}:
            told = tag == "title" and "data-zh" in given
            self.inside.append("title in Chinese" if told else f"{tag} {given.get('class') or ''}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"line", "circle", "rect", "polyline"}:
            return

    def handle_endtag(self, tag: str) -> None:
        while self.inside and not self.inside.pop().startswith(f"{tag} "):
            pass

    def handle_data(self, data: str) -> None:
        if not {"style ", "script ", "span en", "tspan en", "title in Chinese"} & set(self.inside):
            self.texts.append(data)

    @property
    def left_in_english(self) -> set[str]:
        names = r"(tool|run_script):re:|allowed-tools|tool_called|KeyError: '\w+'|token|JSON|UTC|KIND:NAME|--judge|pass[@^]\d"
        return {text for text in self.texts if re.search(r"[A-Za-z]{2,}", re.sub(names, "", text))}


def every_event() -> list[Event]:
    x = "X7"  # what a run is about, and not a word of ours
    decisions = [
        {"effect": "allow", "reason": "rule 1 of the defaults: X7"},
        {"effect": "ask", "reason": "the risk of 'X7' is high, which always needs approval"},
        {"effect": "deny", "reason": "no rule matches X7 'X7'"},
        {"effect": "deny", "reason": "rule 2 of the fixed rules: X7"},
        {"effect": "deny", "reason": "'allowed-tools' of skill 'X7' does not name 'X7' for this"},
    ]
    results = [
        {"code": "", "ok": True, "result": {"text": x, "exit_code": 0}},
        {"code": "", "ok": True, "result": {"text": x, "exit_code": 1}, "approved_by": "once"},
        {"code": "", "ok": True, "result": {"text": x}},
        {"code": "denied", "ok": False, "result": {"text": x}},
        {"code": "X7", "ok": False, "result": {"text": x}},
    ]
    called = [
        {
            "tool": x,
            "seconds": 0.1,
            "risk": "medium",
            "parameters": {"path": x},
            "decision": decision,
            **result,
        }
        for decision, result in zip(decisions, results, strict=True)
    ]
    outcome = {
        "step": 1,
        "agent": x,
        "agent_type": x,
        "executed": "",
        "proposed": x,
        "reasons": [{"message": x}],
    }
    told: list[tuple[str, Any]] = [
        ("run_started", {"request": x, "model": x, "agent": x, "skills": 1}),
        ("model_asked", {"turn": 1}),
        ("model_replied", {"text": x, "seconds": 1.0}),
        ("model_asked", {"turn": 2}),
        ("model_failed", {"problem": x}),
        ("action", {"action": x, "payload": {"p": x}}),
        ("plan", {"plan": {"goal": x, "steps": [{"title": x, "status": "pending"}]}}),
        ("plan", {"plan": {"goal": x, "steps": [{"title": x, "status": "completed"}]}}),
        ("skill_loaded", {"skill": x, "report": {"n": 7}}),
        ("resource_loaded", {"skill": x, "path": x, "report": {"n": 7}}),
        *(
            (kind, data)
            for verdict in ("once", "always", "reject")
            for kind, data in (
                ("approval_asked", {"wanted": x, "reason": x, "about": x}),
                ("approval_answered", {"verdict": verdict}),
            )
        ),
        *(("tool_called", each) for each in called),
        ("charter", {"digest": "7", "skills": 1}),
        *(("charter_asked", {"allowed": allowed, "skill": x}) for allowed in (True, False)),
        ("outcome", outcome),
        ("outcome", outcome | {"rolled_back": True}),
        ("outcome", outcome | {"executed": x}),
        ("observation", {"code": x, "line": x}),
        ("child_started", {"run": x, "skill": x}),
        ("child_finished", {"status": "degraded"}),
        ("compacted", {"observations": 7}),
        ("plan_of_another_version", {}),
        ("tool_called", {"tool": x, "parameters": x, "result": {"text": x}}),
        (
            "run_finished",
            {
                "status": "done",
                "stop_reason": x,
                "answer": x,
                "stats": {"turns": 2, "tool_calls": 1, "input_tokens": 7},
            },
        ),
    ]
    return [Event(n, float(n), kind, data) for n, (kind, data) in enumerate(told, 1)]


def whole_evaluation() -> str:
    from vademecum.evals.cases import Case
    from vademecum.evals.checks.trajectory import CheckResult
    from vademecum.evals.reports.page import page
    from vademecum.evals.reports.summary import summarise
    from vademecum.evals.results import CaseLine, CaseResult, Evaluation, Header
    from vademecum.evals.suite import Malformed
    from vademecum.evals.units import Configuration

    expected = {
        "skills_any_of": ["X7"], "skills_all_of": ["X7"], "skills_none_of": ["X7"], "status": ["done", "refused"],
        "output": {
            "contains": ["X7"], "contains_any": ["X7", "Y7"], "contains_none": ["X7"], "regex": ["X7"],
            "json": [{"path": "x"}, {}], "files": [{"path": "x", "contains": ["X7"]}],
            "judge": ["X7"],
        },
        "trajectory": [
            {"never": "tool:re:7"}, {"require": "tool:re:7"}, {"before": ["tool:re:7", "tool:re:8"]},
            {"after": "tool:re:7", "then": "tool:re:8"}, {"at_most": 2, "of": "tool:re:7"}, {"at_least": 2, "of": "tool:re:7"},
            {"sequence": ["tool:re:7"]}, {"sequence": ["run_script:re:7"], "mode": "exact"},
        ],
    }  # fmt: skip
    limits = {"max_turns": 1, "max_tool_calls": 1, "max_script_runs": 1}
    case = Case.model_validate({"id": "C0", "input": "X7", "expected": expected, "constraints": limits})
    assert case.contradictions
    failing = [
        *(CheckResult(each, "fail") for each in CaseLine.of(case, ["X7"]).expected),
        CheckResult("skills_any_of X7", "fail", "it took no skill"),
        CheckResult("output contains 'X7'", "fail", "the answer is 'X7; Y7'"),
        CheckResult("max_turns", "fail", "2, at most 1 allowed, at event 7"),
        CheckResult("file x", "fail", "it does not contain 'X7': its content is 'Y7'"),
    ]
    others = [
        "It did not finish within 7 s.",
        "The model's reply cannot be used: X7",
        "Stopped at the first violation: max_turns.",
    ]
    lines = [
        CaseLine.of(case, {"X7"})
        if number == 0
        else CaseLine(f"C{number}", "X7", problems=("X7 is both expected and excluded",))
        for number in range(12)
    ]
    results = []
    for side in ("A7", "B7"):
        for number, line in enumerate(lines):
            for again in (1, 2):
                outcome: Any = (
                    "pass" if side == "A7" or number > 4 or (number == 4 and again == 1) else "fail"
                )
                outcome = {1: "timeout", 2: "unjudged"}.get(number, outcome) if side == "B7" else outcome
                checks = failing if number == 0 else [CheckResult("output contains 'X7'", "vacuous")]
                error = others[number % 3] if outcome in {"timeout", "fail"} and number else ""
                results.append(
                    CaseResult(
                        f"{side}{number}{again}",
                        line.id,
                        side,
                        again,
                        outcome,
                        tuple(checks),
                        skills=("X7",),
                        answer="X7",
                        error=error,
                    )
                )
    header = Header("N7", "X7", 0.0, (Configuration("A7"), Configuration("B7")), tuple(lines),
                    (Malformed("X7", "X7", "X7", "X7"),), ())  # fmt: skip
    return page(summarise(Evaluation(header, tuple(results))), {})


def whole_simulation() -> str:
    words = {"figures": "数字", "title": "标题", "unit": "单位", "line": "线"}
    runs = [
        Simulated({"figures": n}, [Chart("title", "unit", {"line": [1, 2_000_000 + n]})], words)
        for n in (1, 2)
    ]
    about = "300 agents, 50 steps, seed 1, charter 7:7"
    return report_of("Simulation: X7", about, {"with the charter": runs[0], "without": runs[1]})


def test_no_phrase_of_a_page_is_left_without_chinese(tmp_path: Path) -> None:
    run = run_page(PastRun("R7", str(tmp_path), tuple(every_event())), back=Back("x", "X7", "fail"))
    assert Shown(run).left_in_english == set()
    assert Shown(whole_evaluation()).left_in_english == set()
    assert Shown(whole_simulation()).left_in_english == set()


def test_sentences_keep_what_they_name() -> None:
    for english, said in catalogue("sentences").items():
        assert sorted(re.findall(r"\{(\w+)\}", english)) == sorted(re.findall(r"\{(\w+)\}", said)), english
        assert re.search(r"[\u4e00-\u9fff]", said) or english.startswith("{"), english
    assert chinese("asked: <b>; what: is") == "收到请求：<b>; what: is"
    assert chinese("+5.0% from before to after (95 % interval +0.0% to +8.9%, 7 cases)").startswith(
        "从 before 到 after"
    )
    assert chinese("better: +5.0% from before to after (95 % interval +0.0% to +8.9%, 7 cases)").startswith(
        "变好：从"
    )
    assert not chinese("The sky is blue")
    assert not chinese("flaky: " + "x" * 10_000)
