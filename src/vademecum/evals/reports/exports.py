"""Results for other programs: JSON documents with everything that can be computed from them."""

from __future__ import annotations

from typing import Any

import msgspec

from vademecum.evals.reports.markdown import notes
from vademecum.evals.reports.summary import CaseRow, Comparison, Summary
from vademecum.evals.reports.triggers import SkillRate, Triggers
from vademecum.evals.results import Evaluation

_COMPUTED: dict[type, tuple[str, ...]] = {
    CaseRow: ("mark",),
    Comparison: ("verdict", "said", "regression"),
    SkillRate: ("precision", "recall", "precision_interval", "recall_interval"),
    Triggers: ("false_trigger_rate", "false_trigger_interval"),
}


def summary_document(evaluation: Evaluation, summary: Summary) -> dict[str, Any]:
    """Return the JSON document of an evaluation and its summary."""
    return {
        **document(summary),
        "passed": summary.is_clean,
        "notes": notes(summary),
        "results": msgspec.to_builtins(evaluation.results),
        "place": evaluation.place,
    }


def document(value: Any) -> Any:
    """Return a value of plain types; what is computed from a value's fields stands beside them."""
    if isinstance(value, msgspec.Struct):
        names = (*value.__struct_fields__, *_COMPUTED.get(type(value), ()))
        return {name: document(getattr(value, name)) for name in names}
    return [document(each) for each in value] if isinstance(value, tuple) else value
