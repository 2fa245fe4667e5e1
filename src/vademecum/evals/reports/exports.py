"""Write results for other programs: JSON documents, JUnit XML, and workspaces for eval viewers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from vademecum.errors import PathRefused
from vademecum.evals.reports.markdown import notes
from vademecum.evals.reports.summary import Comparison, ConfigurationSummary, Summary, summarise
from vademecum.evals.reports.triggers import SkillRate
from vademecum.evals.results import JUDGED, OUTPUTS, CaseLine, CaseResult, CheckResult, Evaluation
from vademecum.evals.units import WITH, WITHOUT
from vademecum.files import write_atomic
from vademecum.paths import contained

# What XML 1.0 cannot hold at all.
_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(evaluation: Evaluation) -> str:
    """Return the XML document; malformed cases are errors of a suite of their own."""
    header = evaluation.header
    root = Element("testsuites", name=_line(header.name))
    lines = {case.id: case for case in header.cases}
    for one in header.configurations:
        results = evaluation.of(one.name)
        outcomes = [result.outcome for result in results]
        bad = sum(outcome in {"error", "timeout", "unusable"} for outcome in outcomes)
        counts = (len(results), outcomes.count("fail"), bad, outcomes.count("unjudged"))
        suite = _suite(root, one.name, counts)
        suite.set("time", f"{sum(result.seconds for result in results):.3f}")
        for result in results:
            _case(suite, result, lines.get(result.case))
    if header.malformed:
        suite = _suite(root, "malformed", (len(header.malformed), 0, len(header.malformed), 0))
        for wrong in header.malformed:
            case = SubElement(suite, "testcase", classname="malformed", name=_line(wrong.case))
            SubElement(case, "error", type="malformed", message=_line(str(wrong)))
    told = notes(summarise(evaluation))
    if told and len(root):
        SubElement(root[0], "system-out").text = _fit("\n".join(told))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(root: Element, name: str, counts: Sequence[int]) -> Element:
    named = zip(("tests", "failures", "errors", "skipped"), map(str, counts), strict=True)
    return SubElement(root, "testsuite", {"name": _line(name), **dict(named)})


def _case(suite: Element, result: CaseResult, line: CaseLine | None) -> None:
    name = result.case if result.repetition == 1 else f"{result.case} [{result.repetition}]"
    found = SubElement(suite, "testcase", classname=suite.attrib["name"], name=_line(name))
    found.set("time", f"{result.seconds:.3f}")
    match result.outcome:
        case "pass":
            pass
        case "fail":
            details = "\n".join(f"{check.name}: {check.detail}" for check in result.failed)
            SubElement(found, "failure", type="check", message=_line(result.why)).text = _fit(details)
        case "unjudged":
            SubElement(found, "skipped", message=_line(result.why))
        case _:
            SubElement(found, "error", type=result.outcome, message=_line(result.why))
    told = [f"request: {line.input}", f"expected: {'; '.join(line.expected) or 'nothing'}"] if line else []
    told += [f"answer: {result.answer}"] if result.answer else []
    SubElement(found, "system-out").text = _fit("\n".join(told))


def _line(text: str) -> str:
    return " ".join(_fit(text).split())


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)


_ITERATION = re.compile(r"iteration-(\d+)")


def write_workspace(evaluation: Evaluation, base: Path) -> Path:
    """Write ``<skill>-workspace/iteration-N`` below a directory, N one more than there is; gives its path."""
    place = base / f"{_slug(evaluation.header.skill or evaluation.header.name)}-workspace"
    known = [
        int(found[1]) for path in place.glob("iteration-*") if (found := _ITERATION.fullmatch(path.name))
    ]
    iteration = place / f"iteration-{max(known, default=0) + 1}"
    repeated = any(result.repetition > 1 for result in evaluation.results)
    sides, cases = _sides(evaluation), _slugs(dict.fromkeys(result.case for result in evaluation.results))
    for result in evaluation.results:
        run = iteration / f"eval-{cases[result.case]}" / sides[result.configuration]
        _write_run(run / f"run-{result.repetition}" if repeated else run, result, Path(evaluation.place))
    _write(iteration / "benchmark.json", _benchmark(evaluation, sides))
    return iteration


def _write_run(place: Path, result: CaseResult, evaluated: Path) -> None:
    outputs = place / "outputs"
    outputs.mkdir(parents=True, exist_ok=True)
    write_atomic(outputs / "answer.md", result.answer.encode("utf-8", "replace"))
    for name in result.files:
        # Results may have come from elsewhere: what they name stays below where it belongs.
        with suppress(PathRefused, FileNotFoundError):
            kept = contained(evaluated / OUTPUTS, f"{result.key[:16]}/{name}")
            target = contained(outputs, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, target)
    if result.outcome in JUDGED:
        checked = [
            {"text": check.name, "passed": check.holds == "pass", "evidence": check.detail or "it holds"}
            for check in _graded(result)
        ]
        # Both names are in use, and each viewer reads one of them. A run without a verdict has no grades.
        grading = {"assertion_results": checked, "expectations": checked, "summary": _counted(result)}
        _write(place / "grading.json", grading)
    tokens = result.input_tokens + result.output_tokens
    _write(place / "timing.json", {"total_tokens": tokens, "duration_ms": round(result.seconds * 1000)})


def _benchmark(evaluation: Evaluation, sides: Mapping[str, str]) -> dict[str, Any]:
    header = evaluation.header
    runs = [
        {
            "eval_id": result.case,
            "configuration": sides[result.configuration],
            "run_number": result.repetition,
            "result": {
                **_counted(result),
                "time_seconds": result.seconds,
                "tokens": result.input_tokens + result.output_tokens,
                "tool_calls": result.tool_calls,
                "errors": int(result.outcome in {"error", "timeout", "unusable"}),
            },
        }
        for result in evaluation.results
    ]
    summary: dict[str, Any] = {
        side: _means([run for run in runs if run["configuration"] == side]) for side in sides.values()
    }
    if WITH in summary and WITHOUT in summary:
        keys = ("pass_rate", "time_seconds", "tokens")
        summary["delta"] = {key: summary[WITH][key]["mean"] - summary[WITHOUT][key]["mean"] for key in keys}
    metadata = {
        "skill_name": header.skill or header.name,
        "timestamp": header.started,
        "evals_run": [case.id for case in header.cases],
        "models": [one.model for one in header.configurations],
    }
    return {"metadata": metadata, "runs": runs, "run_summary": summary}


def _means(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over the runs with a verdict; runs that ended in an error do not count."""
    found = {}
    for key in ("pass_rate", "time_seconds", "tokens"):
        values = [float(run["result"][key]) for run in runs if run["result"]["pass_rate"] is not None]
        found[key] = {"mean": fmean(values) if values else 0.0, "stddev": pstdev(values) if values else 0.0}
    return found


def _counted(result: CaseResult) -> dict[str, Any]:
    """Return how many of its expectations are met; a run without a verdict has no rate."""
    graded = _graded(result) if result.outcome in JUDGED else []
    passed = sum(check.holds == "pass" for check in graded)
    rate = passed / len(graded) if graded else 1.0
    known = rate if result.outcome in JUDGED else None
    return {"passed": passed, "failed": len(graded) - passed, "total": len(graded), "pass_rate": known}


def _graded(result: CaseResult) -> list[CheckResult]:
    """Return the checks of the case, and those failed checks that apply to every run."""
    judged = [check for check in result.checks if check.holds in {"pass", "fail"}]
    return [check for check in judged if not check.always or check.holds == "fail"]


def _sides(evaluation: Evaluation) -> dict[str, str]:
    """Viewers know two sides; where there is one configuration, it is the one with the skill."""
    names = [one.name for one in evaluation.header.configurations]
    return {names[0]: WITH} if len(names) == 1 else _slugs(names)


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Names of directories, each its own."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        slug, number = _slug(name), 2
        while slug.casefold() in taken:
            slug, number = f"{_slug(name)}-{number}", number + 1
        taken.add(slug.casefold())
        found[name] = slug
    return found


def _slug(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-")[:80] or "case"


def _write(path: Path, document: Any) -> None:
    write_atomic(path, json.dumps(document, ensure_ascii=False, indent=2).encode())


def summary_document(evaluation: Evaluation, summary: Summary) -> dict[str, Any]:
    """Return the JSON document of an evaluation and its summary."""
    return {
        **_fields(summary),
        "columns": [_column(column) for column in summary.columns],
        "rows": [{**_fields(row), "mark": row.mark} for row in summary.rows],
        "comparisons": [comparison_document(one) for one in summary.comparisons],
        "passed": summary.is_clean,
        "notes": notes(summary),
        "results": msgspec.to_builtins(evaluation.results),
        "place": evaluation.place,
    }


def comparison_document(one: Comparison) -> dict[str, Any]:
    """Return the JSON document of a comparison with its conclusion."""
    words = {"verdict": one.difference.verdict, "said": one.said, "regression": one.is_regression}
    return {**_fields(one), **words}


def _column(column: ConfigurationSummary) -> dict[str, Any]:
    found = column.triggers
    if found is None:
        return _fields(column)
    skills = {"overall": _rate(found.overall), "skills": [_rate(rate) for rate in found.skills]}
    false = {
        "false_trigger_rate": found.false_trigger_rate,
        "false_trigger_interval": _fields(found.false_trigger_interval),
    }
    return {**_fields(column), "triggers": {**_fields(found), **skills, **false}}


def _rate(rate: SkillRate) -> dict[str, Any]:
    intervals = {
        "precision_interval": _fields(rate.precision_interval),
        "recall_interval": _fields(rate.recall_interval),
    }
    return {**_fields(rate), "precision": rate.precision, "recall": rate.recall, **intervals}


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
