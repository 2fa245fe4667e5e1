"""The limits of a run, and what it has used of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

# The limits: the reason of a run that one ended, which is also its option, its field, and what it is.
LIMITS = {
    "max_turns": ("turns", "Maximum number of model calls"),
    "max_tool_calls": ("tool_calls", "Maximum number of tool calls"),
    "max_script_runs": ("script_runs", "Maximum number of script runs"),
    "max_context": ("context_tokens", "Maximum number of tokens in one request to the model"),
}
LOW = 2  # turns before the last at which the model is told


@dataclass(frozen=True, slots=True)
class Budget:
    """The most of each that a run may use; ``context_tokens`` is the size of one request to the model.

    >>> Budget(turns=4)
    Budget(turns=4, tool_calls=30, script_runs=10, context_tokens=100000)
    """

    turns: int = 12
    tool_calls: int = 30
    script_runs: int = 10
    context_tokens: int = 100_000

    def share(self, spent: Spent) -> Budget:
        """Return half of what is left, for a child; nothing if nothing is left."""
        return replace(
            self,
            turns=(self.turns - spent.turns) // 2,
            tool_calls=(self.tool_calls - spent.tool_calls + 1) // 2,
            script_runs=(self.script_runs - spent.script_runs + 1) // 2,
        )

    def to_json(self) -> dict[str, int]:
        """Return the budget as the record has it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the limits as the first message has them."""
        return f"{self.turns} turns, {self.tool_calls} tool calls, {self.script_runs} script runs"


@dataclass(slots=True)
class Spent:
    """The numbers that a run has used so far."""

    turns: int = 0
    tool_calls: int = 0
    script_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, other: Spent) -> None:
        """Count what a child used."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def refuses(self, budget: Budget, kind: str) -> str | None:
        """Return the limit that an action of this kind would break, if any."""
        if kind in {"run_script", "call_tool"} and self.tool_calls >= budget.tool_calls:
            return "max_tool_calls"
        if kind == "run_script" and self.script_runs >= budget.script_runs:
            return "max_script_runs"
        return None

    def warning(self, budget: Budget) -> str:
        """Return what to tell the model when its turns are nearly used up, else nothing."""
        left = budget.turns - self.turns
        if left == 1:
            return "This is the last turn: answer now, with what you have."
        return f"{left} turns are left: finish, and answer." if left <= LOW + 1 < budget.turns else ""
