"""Results → JUnit XML, as every CI system reads it: one test case for each run."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from vademecum.evals.results import Evaluation, Result

# What XML 1.0 cannot hold at all.
_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(evaluation: Evaluation) -> str:
    """The document; malformed cases are errors of a suite of their own."""
    suites = [
        _suite(name, evaluation.of(name)) for name in (one.name for one in evaluation.header.configurations)
    ]
    wrong = evaluation.header.malformed
    if wrong:
        cases = [
            f'  <testcase classname="malformed" name={_quoted(one.case)}>'
            f'<error type="malformed" message={_quoted(str(one))}/></testcase>'
            for one in wrong
        ]
        count = f'tests="{len(wrong)}" failures="0" errors="{len(wrong)}" skipped="0"'
        head = f'<testsuite name="malformed" {count}>'
        suites.append("\n".join([head, *cases, "</testsuite>"]))
    inside = "\n".join(suites)
    name = _quoted(evaluation.header.name)
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={name}>'
    return f"{head}\n{inside}\n</testsuites>\n"


def _suite(name: str, results: list[Result]) -> str:
    failures = sum(result.outcome == "fail" for result in results)
    errors = sum(result.outcome in {"error", "timeout", "unusable"} for result in results)
    skipped = sum(result.outcome == "unjudged" for result in results)
    seconds = sum(result.seconds for result in results)
    head = (
        f'<testsuite name={_quoted(name)} tests="{len(results)}" failures="{failures}" errors="{errors}" '
        f'skipped="{skipped}" time="{seconds:.3f}">'
    )
    return "\n".join([head, *(_case(name, result) for result in results), "</testsuite>"])


def _case(suite: str, result: Result) -> str:
    name = result.case if result.repetition == 1 else f"{result.case} [{result.repetition}]"
    head = f'  <testcase classname={_quoted(suite)} name={_quoted(name)} time="{result.seconds:.3f}">'
    match result.outcome:
        case "pass":
            inside = ""
        case "fail":
            details = "\n".join(f"{check.name}: {check.detail}" for check in result.failed)
            inside = f'<failure type="check" message={_quoted(result.why)}>{escape(_fit(details))}</failure>'
        case "unjudged":
            inside = '<skipped message="nobody was there to judge it"/>'
        case _:
            inside = f"<error type={_quoted(result.outcome)} message={_quoted(result.why)}/>"
    return f"{head}{inside}</testcase>"


def _quoted(text: str) -> str:
    return quoteattr(" ".join(_fit(text).split()))


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)
