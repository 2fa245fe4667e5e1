"""Which skills of a root vade put there itself: those it may take away, the rest is somebody's work."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vademecum.errors import FileRefused
from vademecum.files import read_capped

INSTALLED = ".installed.json"
MAX_BYTES = 16 * 1024 * 1024


def installed_path(root: Path) -> Path:
    """Where that is remembered."""
    return root / INSTALLED


def read_installed(root: Path) -> dict[str, str]:
    """The installed skills with their digests; what cannot be read counts as nothing installed."""
    try:
        return msgspec.json.decode(read_capped(installed_path(root), cap=MAX_BYTES), type=dict[str, str])
    except (OSError, FileRefused, msgspec.DecodeError):
        return {}


def installed_text(installed: dict[str, str]) -> str:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(dict(sorted(installed.items()))), indent=2).decode() + "\n"
