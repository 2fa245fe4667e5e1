"""Summaries and comparisons → what programs read: every number, and every word that is computed from them."""

from __future__ import annotations

from typing import Any

import msgspec

from vademecum.evals.markdown import notes
from vademecum.evals.results import Evaluation
from vademecum.evals.summary import Column, Comparison, Summary
from vademecum.evals.triggers import SkillRate


def summary_document(evaluation: Evaluation, summary: Summary) -> dict[str, Any]:
    """An evaluation and what it says."""
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
    """A comparison, with what it comes to."""
    words = {"verdict": one.difference.verdict, "said": one.said, "regression": one.is_regression}
    return {**_fields(one), **words}


def _column(column: Column) -> dict[str, Any]:
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
