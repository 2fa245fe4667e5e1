"""The error for a package that an adapter needs and that is not installed."""

from __future__ import annotations


def missing(extra: str, error: ImportError) -> ImportError:
    """Return an error that names the command that installs what is missing.

    >>> print(missing("x", ImportError(name="x")))
    x is not installed: pip install 'vademecum[x]', or pip install '.[x]' in a checkout.
    """
    how = f"pip install 'vademecum[{extra}]', or pip install '.[{extra}]' in a checkout"
    return ImportError(f"{error.name} is not installed: {how}.", name=error.name)
