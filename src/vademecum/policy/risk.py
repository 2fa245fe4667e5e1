"""How much a tool can do: reading is low, running a skill's script is medium, changing things is high."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from vademecum.policy.base import Decision, Effect, Rule


class Risk(IntEnum):
    """What a tool could do at worst."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


RISKS = {
    "read_file": Risk.LOW,
    "list_dir": Risk.LOW,
    "grep": Risk.LOW,
    "run_script": Risk.MEDIUM,
    "write_file": Risk.HIGH,
    "delete_file": Risk.HIGH,
    "network_request": Risk.HIGH,
}


def risk_of(tool: str) -> Risk:
    """The risk of a tool; one that nobody knows is high.

    >>> risk_of("grep").name, risk_of("launch_rocket").name
    ('LOW', 'HIGH')
    """
    return RISKS.get(tool, Risk.HIGH)


def needs_approval(tool: str, *, careful: Iterable[str] = ()) -> Decision | None:
    """Ask, where the risk is high or the configuration names the tool, whatever the rules allow."""
    risk = risk_of(tool)
    if risk is Risk.HIGH:
        layer, says = "the risk", f"of {tool!r} is high, which always needs approval"
    elif tool in careful:
        layer, says = "'execution.require_approval_for'", f"names {tool!r}"
    else:
        return None
    remedy = "approve it, or name it with --allow for one run"
    return Decision(Effect.ASK, Rule("tool", says, Effect.ASK, layer, 0, remedy), "tool", tool)
