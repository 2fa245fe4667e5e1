"""Which changes a skill may bring about: those it lists, as far as the role of whoever proposed may write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vademecum.governance.changes import Change
from vademecum.governance.charter import Charter
from vademecum.governance.keys import EVERYTHING, covered
from vademecum.governance.model import May, Reason, may_read_all
from vademecum.governance.words import HIDDEN, shown


class Writable:
    """Compares differences with what one charter allows; what was found out once is remembered."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[tuple[str, str, str], bool] = {}

    def objections(self, agent_type: str, skill_id: str, changes: Iterable[Change]) -> list[Change]:
        """Everything that changed and may not."""
        found = []
        for change in changes:
            asked = (agent_type, skill_id, change[0])
            known = self._known.get(asked)
            if known is None:
                known = self._known[asked] = self._allows(*asked)
            if not known:
                found.append(change)
        return found

    def reason(self, agent_type: str, skill_id: str, change: Change, may: May = may_read_all) -> Reason:
        """Why a change may not be, with what it would have changed as far as that may be read."""
        key, old, new = change
        what = f"({shown(old)} → {shown(new)})" if may(key) else f"({HIDDEN})"
        if covered(key, self._listed(skill_id)):
            text = f"Agent type {agent_type!r} may not write {key!r} {what}"
            return Reason("write-permission", "roles: writes", key, list(self._writes(agent_type)), text)
        text = f"State change not allowed: {key!r} {what}"
        return Reason("state-change", "allowed_state_changes", key, list(self._listed(skill_id)), text)

    def _allows(self, agent_type: str, skill_id: str, key: str) -> bool:
        return covered(key, self._listed(skill_id)) and covered(key, self._writes(agent_type))

    def _listed(self, skill_id: str) -> Sequence[str]:
        return self._charter.skills[skill_id].allowed_state_changes

    def _writes(self, agent_type: str) -> Sequence[str]:
        roles = self._charter.roles
        return EVERYTHING if roles is None else roles.role_of(agent_type).writes
