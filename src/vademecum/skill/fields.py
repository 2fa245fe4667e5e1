"""Fields → Document: what each field must be, and what is said when it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vademecum.skill import names
from vademecum.skill.model import (
    DEFAULT_CONTROLS,
    EMPTY_META,
    Controls,
    Document,
    Meta,
    Problem,
    Reading,
    RunMode,
    Severity,
)
from vademecum.skill.text import without_hidden
from vademecum.skill.yaml_subset import DROPPED, Fields

MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500

SPECIFIED_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
OWN_FIELDS = ("version", "author", "disable-model-invocation", "user-invocable", "run-mode")
KNOWN_FIELDS = frozenset(SPECIFIED_FIELDS + OWN_FIELDS)
_CONTROL_FIELDS = frozenset({"disable-model-invocation", "user-invocable", "allowed-tools", "run-mode"})
_META_FIELDS = frozenset({"version", "author", "license", "compatibility", "metadata"})

_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# One tool: a word, with its argument pattern in parentheses where it has one.
_TOOL = re.compile(r"[^\s,(]+(?:\([^)]*\)?)?")
_ESCAPES = str.maketrans({"<": "&lt;", ">": "&gt;"})


def interpret(fields: Fields, *, directory: str, reading: Reading, digest: str) -> Document:
    """Turn raw fields into a document; every problem of every field is collected in one pass."""
    reader = _Interpreter(fields, directory, reading)
    name = reader.name()
    description = reader.description()
    present = fields.by_name.keys()
    controls = DEFAULT_CONTROLS if present.isdisjoint(_CONTROL_FIELDS) else reader.controls()
    meta = EMPTY_META if present.isdisjoint(_META_FIELDS) else reader.meta()
    extra = {} if present <= KNOWN_FIELDS else reader.extra()
    return Document(name, description, controls, meta, extra, tuple(reader.problems), digest)


class _Interpreter:
    def __init__(self, fields: Fields, directory: str, reading: Reading) -> None:
        self._fields = fields.by_name
        self._directory = directory
        self._reading = reading
        self.problems: list[Problem] = list(fields.problems)

    def name(self) -> str:
        written = self._required("name")
        line = self._line("name")
        name = names.normal(written)
        faults = names.check(name, line=line) if name else []
        if faults and self._reading.lenient:
            better = names.slug(name) or names.slug(self._directory)
            if better:
                text = (
                    f"Skill name {name[:80]!r} is not valid and was read as {better!r}. Write: name: {better}"
                )
                faults = [Problem("name-repaired", "warning", text, "name", line)]
                name = better
        self.problems += faults
        if name and not faults and name != names.normal(self._directory):
            text = (
                f"Directory name {self._directory[:80]!r} must match skill name {name!r}. Rename one of them"
            )
            self._add("name-directory-mismatch", text, "name", severity="warning")
        return name

    def description(self) -> str:
        text = self._shown_to_models("description", self._required("description"))
        if len(text) > MAX_DESCRIPTION_CHARS:
            limit = f"Description exceeds {MAX_DESCRIPTION_CHARS} character limit ({len(text)} chars)"
            self._add(
                "description-too-long", f"{limit}. Shorten it; details belong in the body", "description"
            )
            text = text[:MAX_DESCRIPTION_CHARS]
        return text

    def controls(self) -> Controls:
        return Controls(
            disable_model_invocation=self._boolean("disable-model-invocation", default=False),
            user_invocable=self._boolean("user-invocable", default=True),
            allowed_tools=self._tools(),
            run_mode=self._run_mode(),
        )

    def meta(self) -> Meta:
        metadata = self._metadata()
        compatibility = self._optional("compatibility")
        if compatibility is not None:
            compatibility = self._shown_to_models("compatibility", compatibility)
            if len(compatibility) > MAX_COMPATIBILITY_CHARS:
                limit = f"Compatibility exceeds {MAX_COMPATIBILITY_CHARS} character limit"
                self._add(
                    "compatibility-too-long",
                    f"{limit} ({len(compatibility)} chars). Shorten it",
                    "compatibility",
                )
        return Meta(
            # The specification keeps these two inside `metadata`; both places are read.
            version=self._optional("version") or metadata.get("version"),
            author=self._optional("author") or metadata.get("author"),
            license=self._optional("license"),
            compatibility=compatibility,
            metadata=metadata,
        )

    def extra(self) -> dict[str, str | tuple[str, ...]]:
        kept: dict[str, str | tuple[str, ...]] = {}
        for key in self._fields.keys() - KNOWN_FIELDS:
            value = self._fields[key].value
            if isinstance(value, str | tuple):
                kept[key] = value
            else:
                text = f"The value of {key[:40]!r} is nested and was left out: it is not a field that is read"
                self._add("nested-value", text, key, severity="warning")
        return dict(sorted(kept.items()))

    def _required(self, key: str) -> str:
        """The text of a required field; in lenient mode a default where there is none."""
        text = self._text(key)
        if text:
            return text
        if self._reading.lenient:
            default = names.slug(self._directory) if key == "name" else "No description."
            self._add(
                f"default-{key}", f"The field {key!r} is missing and was read as {default!r}. Add it", key
            )
            return default
        if key not in self._fields:
            example = "name: my-skill" if key == "name" else "description: What it does, and when to use it"
            self._add("missing-field", f"Missing required field in frontmatter: {key}. Add: {example}", key)
        elif text is not None:
            self._add("empty-field", f"Field {key!r} must be a non-empty string. Write one", key)
        return ""

    def _optional(self, key: str) -> str | None:
        return self._text(key) or None

    def _text(self, key: str) -> str | None:
        """The text of a field without what cannot be seen; ``None`` when it is missing or no text."""
        field = self._fields.get(key)
        if field is None:
            return None
        if not isinstance(field.value, str):
            self._wrong_shape(key, "text", f"{key}: some text")
            return None
        if key == "name":  # a name with hidden characters is refused, not cleaned
            return field.value.strip()
        text, hidden = without_hidden(field.value)
        if hidden:
            message = f"Field {key!r} holds {hidden} hidden characters, which were removed. Delete them"
            self._add("hidden-characters", message, key, severity="warning")
        return text.strip()

    def _shown_to_models(self, key: str, text: str) -> str:
        if not self._reading.block_angle_brackets or ("<" not in text and ">" not in text):
            return text
        message = (
            f"Field {key!r} holds an angle bracket (< or >), which could pass for markup. Use other words"
        )
        self._add("angle-bracket", message, key)
        return text.translate(_ESCAPES) if self._reading.lenient else text

    def _boolean(self, key: str, *, default: bool) -> bool:
        if key not in self._fields:
            return default
        value = self._text(key)
        if value is not None and value.lower() not in _TRUTH:
            text = f"Field {key!r} is {value[:40]!r}. Write true or false"
            self._add("wrong-value", text, key, severity="error")
        return _TRUTH.get((value or "").lower(), default)

    def _run_mode(self) -> RunMode:
        value = self._text("run-mode")
        if value is None or value == "inline":
            return "inline"
        if value == "subagent":
            return "subagent"
        text = f"Field 'run-mode' is {value[:40]!r}. Write inline or subagent"
        self._add("wrong-value", text, "run-mode", severity="error")
        return "inline"

    def _tools(self) -> tuple[str, ...] | None:
        """The upper bound on tools. What cannot be read bounds to nothing: a mistake must not widen it."""
        field = self._fields.get("allowed-tools")
        if field is None:
            return None
        if isinstance(field.value, tuple):
            return tuple(filter(None, (without_hidden(item)[0].strip() for item in field.value)))
        text = self._text("allowed-tools")
        if text is None:
            return ()
        if not text:
            message = "Field 'allowed-tools' is empty, so no tool is allowed. Name tools, or remove the line"
            self._add("empty-field", message, "allowed-tools", severity="warning")
        if "," in re.sub(r"\([^)]*\)?", "", text):
            message = (
                "Field 'allowed-tools' separates tools with commas; it was split. Separate them with spaces"
            )
            self._add("tools-split", message, "allowed-tools", severity="warning")
        return tuple(_TOOL.findall(text))

    def _metadata(self) -> dict[str, str]:
        field = self._fields.get("metadata")
        if field is None or field.value == "":
            return {}
        if not isinstance(field.value, Mapping):
            self._wrong_shape("metadata", "a map of text to text", "metadata: {author: me}")
            return {}
        return {key: without_hidden(value)[0].strip() for key, value in field.value.items()}

    def _wrong_shape(self, key: str, wanted: str, example: str) -> None:
        value = self._fields[key].value
        found = "nested" if value is DROPPED else "text" if isinstance(value, str) else "a list"
        found = "a map" if isinstance(value, Mapping) else found
        self._add("wrong-shape", f"Field {key!r} must be {wanted}, not {found}. Write: {example}", key)

    def _line(self, key: str) -> int | None:
        field = self._fields.get(key)
        return field.line if field else None

    def _add(self, code: str, message: str, key: str, *, severity: Severity | None = None) -> None:
        """Note a problem: an error in strict mode, a repair in lenient mode, unless said otherwise."""
        level: Severity = severity or ("warning" if self._reading.lenient else "error")
        self.problems.append(Problem(code, level, message, key, self._line(key)))
