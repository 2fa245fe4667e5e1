"""The error tree.

::

    VademecumError
     ├─ ConfigError        a configuration file or a setting is wrong
     ├─ PathRefused        a path from outside leads out of its directory
     ├─ FileRefused        a file is not a plain file, or larger than its cap
     ├─ SkillNotFound      no skill has that name (there, or at all)
     ├─ LoadRefused        a skill's text is too long, not text, or missing
     ├─ Denied             a rule does not allow it, or nobody can give the approval it needs
     │   └─ Declined       a person declined
     ├─ ToolRefused        a tool was called with arguments it cannot work with
     ├─ ModelFailed        a model gave no usable reply
     │   ├─ ModelUnavailable   it may work later; `wait` says how long to wait
     │   ├─ ModelRefused       it refuses the request
     │   │   ├─ ModelOverflow      the conversation is longer than it can read
     │   │   └─ ToolsUnsupported   it does not support native tool calls
     │   └─ ModelReplyWrong    its answer is not a reply
     ├─ PackRefused        a pack or a source cannot be used; nothing was changed
     ├─ IntegrityFailed    a hash, a signature or the lock does not match
     ├─ CharterRefused     a charter, or a definition in it, is not valid
     │   └─ ConditionWrong     a condition is not valid
     ├─ RecordDamaged      the record of a run cannot be read
     ├─ CaseRefused        cases of an evaluation, or its results, cannot be read
     ├─ SandboxFailed      the sandbox could not be set up, so nothing ran
     └─ SkillRefused       a skill cannot be created, or is not valid

Every error has a stable ``code``. Its text is one sentence: what, where, what to do. ``advice`` is for people
only, such as the rule that refused a call and what would allow it. A model never sees it.
"""

from __future__ import annotations


class VademecumError(Exception):
    """The root of the tree: catch this to catch everything vademecum raises on purpose.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> try:
    ...     build_index(BUILTIN_ROOT, IndexOptions()).get("file-dif")
    ... except VademecumError as error:
    ...     error.code, str(error)
    ('skill-not-found', "No skill is called 'file-dif': did you mean 'file-diff'?")
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice
        if code is not None:
            self.code = code

    @property
    def in_full(self) -> str:
        """Return the text with its advice, for people."""
        return f"{str(self).rstrip('.')}, {self.advice}." if self.advice else str(self)


class ConfigError(VademecumError):
    """A configuration file or a setting is wrong. The text names the file and the key.

    Raised when settings are read, and when a model, a key or the directory of a record is chosen.

    >>> from vademecum import BUILTIN_ROOT, Agent, IndexOptions, build_index
    >>> Agent("oracle", build_index(BUILTIN_ROOT, IndexOptions())).run("What now?")
    Traceback (most recent call last):
    ...
    vademecum.errors.ConfigError: There is no kind of model 'oracle': there are offline, mock, ...
    """

    code = "config"


class PathRefused(VademecumError):
    """A path from outside would leave the directory it belongs to.

    Raised for paths in a skill, a project, a pack or a record. A ``Toolkit`` and a ``SkillsManager`` return
    the text instead.

    >>> from vademecum import BUILTIN_ROOT, SkillsManager
    >>> SkillsManager(BUILTIN_ROOT).get_skill_asset("file-diff", "../skill-author/SKILL.md")
    "The path '../skill-author/SKILL.md' goes up with '..': name a file below .../builtin/file-diff."
    """

    code = "path-refused"


class FileRefused(VademecumError):
    """A file is not a plain file, or is larger than its cap."""

    code = "file-refused"


class SkillNotFound(VademecumError):
    """No skill has that name.

    Raised by ``SkillIndex.get`` and ``Toolkit.get``, and by ``Agent.run`` for a skill that the request
    names. The text suggests the nearest name.
    """

    code = "skill-not-found"


class LoadRefused(VademecumError):
    """A body, a resource or a section cannot be returned.

    Raised when a skill's text is too long, not UTF-8 or missing. The ``code`` says which.

    >>> from vademecum import BUILTIN_ROOT, SkillsManager
    >>> SkillsManager(BUILTIN_ROOT).get_skill_script_path("file-diff", "merge.py")
    "Skill 'file-diff' has no script 'merge.py': did you mean 'scripts/compare.py'?"
    """

    code = "load-refused"


class Denied(VademecumError):
    """A rule does not allow the call; ``advice`` names the rule and what would allow it.

    Raised before a tool, a script or an installation runs. In a run, the ``Outcome`` then has the status
    ``refused``. On the command line, the exit code is 3.
    """

    code = "denied"


class Declined(Denied):
    """A person declined; ``told`` is their message, if any."""

    code = "declined"

    def __init__(self, message: str, *, told: str = "", advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.told = told


class ToolRefused(VademecumError):
    """A tool was called with arguments it cannot work with; the text says what to change."""

    code = "tool-refused"


class ModelFailed(VademecumError):
    """A model gave no usable reply."""

    code = "model-failed"


class ModelUnavailable(ModelFailed):
    """A model cannot be reached now; ``wait`` is the number of seconds it asked to wait."""

    code = "model-unavailable"

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class ModelRefused(ModelFailed):
    """A model or its provider refuses the request: trying again does not help."""

    code = "model-refused"


class ModelOverflow(ModelRefused):
    """The conversation is longer than the model can read; the agent shortens it and asks again."""

    code = "model-overflow"


class ToolsUnsupported(ModelRefused):
    """The model or its server does not support native tool calls; the agent uses JSON text instead."""

    code = "tools-unsupported"


class ModelReplyWrong(ModelFailed):
    """A model's server sent something that is not a complete reply."""

    code = "model-reply-wrong"


class PackRefused(VademecumError):
    """A pack or its source cannot be used; nothing was changed."""

    code = "pack-refused"


class IntegrityFailed(VademecumError):
    """A hash, a signature or the lock does not match the content."""

    code = "integrity"


class CharterRefused(VademecumError):
    """A charter is not valid; the one in force stays.

    Raised when a charter is read or reloaded, and when a definition is registered.

    >>> from vademecum.governance import load_charter
    >>> load_charter("nowhere.yaml")
    Traceback (most recent call last):
    ...
    vademecum.errors.CharterRefused: There is no charter at nowhere.yaml: name a skill_registry.yaml.
    """

    code = "charter-refused"


class ConditionWrong(CharterRefused):
    """A condition cannot be read; the text says where and what was expected.

    Raised when a single condition is parsed. A definition that contains it is refused with `CharterRefused`,
    and ``lint_charter`` lists it among the problems.

    >>> from vademecum.governance.conditions import parse
    >>> parse("age <")
    Traceback (most recent call last):
    ...
    vademecum.errors.ConditionWrong: The condition 'age <' is not complete.
    """

    code = "condition"


class RecordDamaged(VademecumError):
    """The record of a run is missing or cannot be read."""

    code = "record-damaged"


class CaseRefused(VademecumError):
    """A file of cases or of an evaluation's results is missing or not valid."""

    code = "case-refused"


class SandboxFailed(VademecumError):
    """A sandbox could not be set up. Nothing ran, and the text is not a script's output."""

    code = "sandbox-failed"


class SkillRefused(VademecumError):
    """A skill cannot be created, or is not valid.

    Raised when a new skill is written and its name is not valid or already in use.
    """

    code = "skill-refused"
