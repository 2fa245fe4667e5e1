"""Values in messages: short, and whatever they are."""

from __future__ import annotations

from typing import Any

MAX_SHOWN_CHARS = 80
HIDDEN = "not readable in this role"


def shown(value: Any) -> str:
    """A value in a message, not too long.

    >>> shown(0.1 + 0.2), shown("x" * 200)[-3:], shown(10**5000)
    ('0.3', 'xx…', 'a number of 16610 bits')
    """
    try:
        text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    except ValueError:  # Python writes out no number of that many digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "something too large"
    except Exception as error:  # noqa: BLE001 - an object's own words
        text = f"a {type(value).__name__} ({type(error).__name__})"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"
