"""What a run may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Budget:
    """The most of each that a run may use; ``context_chars`` is the size of one prompt.

    >>> Budget(turns=4)
    Budget(turns=4, tool_calls=30, script_runs=10, context_chars=200000)
    """

    turns: int = 12
    tool_calls: int = 30
    script_runs: int = 10
    context_chars: int = 200_000

    def share(self, spent: Spent) -> Budget:
        """Half of what is left, for a child; where nothing is left, nothing."""
        return replace(
            self,
            turns=(self.turns - spent.turns) // 2,
            tool_calls=(self.tool_calls - spent.tool_calls + 1) // 2,
            script_runs=(self.script_runs - spent.script_runs + 1) // 2,
        )


@dataclass(slots=True)
class Spent:
    """What a run has used so far."""

    turns: int = 0
    tool_calls: int = 0
    script_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: Spent) -> None:
        """Count what a child used."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def exhausted(self, budget: Budget) -> str | None:
        """What has run out, if anything has."""
        if self.turns >= budget.turns:
            return "max_turns"
        return None

    def refuses(self, budget: Budget, kind: str) -> str | None:
        """Which limit an action of this kind would break, if any."""
        if kind in {"run_script", "call_tool"} and self.tool_calls >= budget.tool_calls:
            return "max_tool_calls"
        if kind == "run_script" and self.script_runs >= budget.script_runs:
            return "max_script_runs"
        return None

    def to_json(self) -> dict[str, int]:
        """As the record has it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def said(self, budget: Budget) -> str:
        """As the prompt has it."""
        return (
            f"turn {self.turns + 1} of {budget.turns}; tool calls {self.tool_calls} of {budget.tool_calls}; "
            f"script runs {self.script_runs} of {budget.script_runs}"
        )
