"""Calls from asynchronous code: each in a thread, and a script ends with the task that wanted it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from vademecum.integrations.toolkit import Toolkit
from vademecum.session.base import Result


async def call_in_thread(kit: Toolkit, name: str, arguments: Mapping[str, Any] | str) -> Result:
    """``kit.call``, without holding up the others; cancelling the task ends the script.

    >>> import asyncio
    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> kit = Toolkit(build_index(BUILTIN_ROOT, IndexOptions()))
    >>> asyncio.run(call_in_thread(kit, "list_skill_assets", {"skill": "file-diff"})).text
    '["scripts/compare.py"]'
    """
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(partial(kit.call, name, arguments, cancelled=given_up.is_set))
    finally:
        given_up.set()
