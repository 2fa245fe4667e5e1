"""Results → the files that viewers of skill evaluations open: gradings, timings, a benchmark."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from vademecum.errors import PathRefused
from vademecum.evals.configurations import WITH, WITHOUT
from vademecum.evals.results import OUTPUTS, Evaluation, Result
from vademecum.files import write_atomic
from vademecum.paths import contained

_ITERATION = re.compile(r"iteration-(\d+)")


def write_workspace(evaluation: Evaluation, base: Path) -> Path:
    """Write ``<skill>-workspace/iteration-N`` below a directory, N one more than there is; gives its path."""
    place = base / f"{_slug(evaluation.header.skill or evaluation.header.name)}-workspace"
    known = [
        int(found[1]) for path in place.glob("iteration-*") if (found := _ITERATION.fullmatch(path.name))
    ]
    iteration = place / f"iteration-{max(known, default=0) + 1}"
    repeated = any(result.repetition > 1 for result in evaluation.results)
    for result in evaluation.results:
        run = iteration / f"eval-{_slug(result.case)}" / _side(evaluation, result.configuration)
        _write_run(run / f"run-{result.repetition}" if repeated else run, result, Path(evaluation.place))
    _write(iteration / "benchmark.json", _benchmark(evaluation))
    return iteration


def _write_run(place: Path, result: Result, evaluated: Path) -> None:
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
    checked = [
        {"text": check.name, "passed": check.holds != "fail", "evidence": check.detail or "it holds"}
        for check in result.checks
        if check.holds in {"pass", "fail"}
    ]
    # Both names are in use, and each viewer reads one of them.
    _write(
        place / "grading.json",
        {"assertion_results": checked, "expectations": checked, "summary": _counted(result)},
    )
    tokens = result.input_tokens + result.output_tokens
    _write(place / "timing.json", {"total_tokens": tokens, "duration_ms": round(result.seconds * 1000)})


def _benchmark(evaluation: Evaluation) -> dict[str, Any]:
    header = evaluation.header
    sides = {one.name: _side(evaluation, one.name) for one in header.configurations}
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
                "errors": int(result.outcome in {"error", "timeout"}),
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
    found = {}
    for key in ("pass_rate", "time_seconds", "tokens"):
        values = [float(run["result"][key]) for run in runs]
        found[key] = {"mean": fmean(values) if values else 0.0, "stddev": pstdev(values) if values else 0.0}
    return found


def _counted(result: Result) -> dict[str, Any]:
    judged = [check for check in result.checks if check.holds in {"pass", "fail"}]
    passed = sum(check.holds == "pass" for check in judged)
    rate = passed / len(judged) if judged else 0.0
    return {"passed": passed, "failed": len(judged) - passed, "total": len(judged), "pass_rate": rate}


def _side(evaluation: Evaluation, configuration: str) -> str:
    """Viewers know two sides; where there is one configuration, it is the one with the skill."""
    names = [one.name for one in evaluation.header.configurations]
    return WITH if len(names) == 1 else _slug(configuration)


def _slug(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-")[:80] or "case"


def _write(path: Path, document: Any) -> None:
    write_atomic(path, json.dumps(document, ensure_ascii=False, indent=2).encode())
