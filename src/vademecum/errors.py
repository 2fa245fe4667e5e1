"""The whole error tree.

::

    VademecumError
     ├─ ConfigError        a configuration file or a setting is wrong
     ├─ PathRefused        a path from outside leads out of its directory
     ├─ FileRefused        a file is not a plain file, or larger than its cap
     ├─ SkillNotFound      no skill goes by that name (there, or at all)
     ├─ LoadRefused        a skill's text is too long, not text, or not there
     ├─ Denied             a rule does not allow it, or would ask and nobody is there
     │   └─ Declined       a person said no
     ├─ ToolRefused        a tool was called with what it cannot do
     ├─ ModelFailed        a model gave no usable reply
     │   ├─ ModelUnavailable   it may work later; `wait` says how long to wait
     │   ├─ ModelRefused       it will not do this
     │   └─ ModelReplyWrong    it answered with something else than a reply
     ├─ PackRefused        a pack or a source cannot be taken; nothing was changed
     ├─ IntegrityFailed    a hash, a signature or the lock does not match
     ├─ CharterRefused     a charter, or a definition in it, cannot be used as it is
     │   └─ ConditionWrong     a condition is not in the language
     ├─ RecordDamaged      the record of a run cannot be read
     ├─ CaseRefused        cases of an evaluation, or its results, cannot be read
     ├─ SandboxFailed      the sandbox could not be set up, so nothing ran
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


class Declined(Denied):
    """A person said no; ``told`` is the message that goes with it, if any."""

    code = "declined"

    def __init__(self, message: str, *, told: str = "") -> None:
        super().__init__(message)
        self.told = told


class ToolRefused(VademecumError):
    """A tool was called with arguments it cannot work with; the text says what to change."""

    code = "tool-refused"


class ModelFailed(VademecumError):
    """A model gave no usable reply."""

    code = "model-failed"


class ModelUnavailable(ModelFailed):
    """A model cannot be reached now; ``wait`` is how many seconds it asked to be left alone."""

    code = "model-unavailable"

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class ModelRefused(ModelFailed):
    """A model, or whoever runs it, will not do this: trying again does not help."""

    code = "model-refused"


class ModelReplyWrong(ModelFailed):
    """What came back is not a model's reply, or only a part of one."""

    code = "model-reply-wrong"


class PackRefused(VademecumError):
    """A pack, or what it comes from, cannot be taken as it is; nothing was changed."""

    code = "pack-refused"


class IntegrityFailed(VademecumError):
    """What is there is not what was promised: a hash, a signature or the lock does not match."""

    code = "integrity"


class CharterRefused(VademecumError):
    """A charter cannot be used as it is; the one that holds stays."""

    code = "charter-refused"


class ConditionWrong(CharterRefused):
    """A condition cannot be read; the text says where and what was expected."""

    code = "condition"


class RecordDamaged(VademecumError):
    """The record of a run is not there, or cannot be read."""

    code = "record-damaged"


class CaseRefused(VademecumError):
    """A file of cases or of an evaluation's results is not there, or is not what it must be."""

    code = "case-refused"


class SandboxFailed(VademecumError):
    """A sandbox could not be set up: nothing was run, and nothing here is a script's output."""

    code = "sandbox-failed"


class SkillRefused(VademecumError):
    """A skill cannot be made or taken as it is."""

    code = "skill-refused"
