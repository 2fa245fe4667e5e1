"""The whole error tree.

::

    VademecumError
     ├─ ConfigError        a configuration file or a setting is wrong
     ├─ PathRefused        a path from outside leads out of its directory
     ├─ FileRefused        a file is not a plain file, or larger than its cap
     ├─ SkillNotFound      no skill goes by that name (there, or at all)
     ├─ LoadRefused        a skill's text is too long, not text, or not there
     ├─ Denied             a rule does not allow it, or would ask and nobody is there
     └─ SkillRefused       a skill cannot be made, or is not what it must be

Every error has a stable ``code``, and its text is one sentence: what, where, what to do.
"""

from __future__ import annotations


class VademecumError(Exception):
    """The root of the tree: catch this to catch everything vademecum raises on purpose."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ConfigError(VademecumError):
    """A configuration file or a setting is wrong; the text names the file and the key."""

    code = "config"


class PathRefused(VademecumError):
    """A path from outside would leave the directory it belongs to."""

    code = "path-refused"


class FileRefused(VademecumError):
    """A file is not a plain file, or is larger than its cap."""

    code = "file-refused"


class SkillNotFound(VademecumError):
    """No skill goes by that name."""

    code = "skill-not-found"


class LoadRefused(VademecumError):
    """A body, a resource or a section cannot be handed over as it is."""

    code = "load-refused"


class Denied(VademecumError):
    """A rule does not allow it; the text names the rule and what would allow it."""

    code = "denied"


class SkillRefused(VademecumError):
    """A skill cannot be made or taken as it is."""

    code = "skill-refused"
