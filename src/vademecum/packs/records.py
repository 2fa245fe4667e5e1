"""Read and write the JSON files that say what was installed, linked and begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vademecum.errors import FileRefused, IntegrityFailed
from vademecum.files import read_capped

MAX_BYTES = 64 * 1024 * 1024

Kind = TypeVar("Kind")


def read_json(file: Path, kind: type[Kind], *, advice: str) -> Kind | None:
    """Return the content of a file as this type, or None if there is no such file."""
    try:
        return msgspec.json.decode(read_capped(file, cap=MAX_BYTES), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, FileRefused, msgspec.DecodeError, RecursionError) as error:
        raise IntegrityFailed(f"{file} cannot be read ({error}): {advice}.") from error


def json_text(value: Any) -> str:
    r"""Return the content of such a file: the same value gives the same bytes.

    >>> json_text({"b": 1, "a": 2})
    '{\n  "a": 2,\n  "b": 1\n}\n'
    """
    data = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(data, indent=2).decode() + "\n"
