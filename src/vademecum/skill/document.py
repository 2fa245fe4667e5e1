"""Bytes → Document: parse the beginning of a file, and check its fields.

Each field has a method that checks it and notes its problems.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, get_args

from msgspec import structs

from vademecum.nearest import nearest
from vademecum.skill import names
from vademecum.skill.frontmatter import Field, Fields, find_block, read_plain_lines
from vademecum.skill.skill import (
    CONTROL_FIELDS,
    DEFAULT_CONTROLS,
    EMPTY_META,
    KNOWN_FIELDS,
    MANIFEST,
    Controls,
    Document,
    Meta,
    Problem,
    Reading,
    RunMode,
    Severity,
)
from vademecum.skill.text import SUSPECT, without_hidden
from vademecum.wildcards import comparable

# Of a document with thousands of problems, only the first ones are kept.
MAX_PROBLEMS = 50
MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500
MAX_SECRETS = 50
DIGEST_CHARS = 32

_META_FIELDS = frozenset({"version", "author", "license", "compatibility", "metadata"})

# Models see these fields, so they must not contain angle brackets. No model sees the other fields.
_SHOWN_FIELDS = frozenset({"name", "description", "compatibility"})

# Messages recommend the first two words.
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_RUN_MODES = {word: word for word in get_args(RunMode)}
_BETWEEN_NAMES = re.compile(r"[\s,]+")
_ESCAPES = str.maketrans({"<": "&lt;", ">": "&gt;"})


def with_file_name(document: Document, file: str) -> Document:
    """Return a document, with a problem if its file is not called SKILL.md."""
    if file == MANIFEST:
        return document
    text = f"The file is called {file!r}, which some tools do not find. Rename it to {MANIFEST}"
    problems = (*document.problems, Problem("file-name", "warning", text))
    return structs.replace(document, problems=problems)


def parse_document(head: bytes, *, directory: str, reading: Reading | None = None) -> Document:
    r"""Parse a document's opening bytes. Never raise: ``problems`` lists what is wrong with them.

    >>> document = parse_document(b"---\nname: pdf\ndescription: Fill in PDF forms.\n---\n", directory="pdf")
    >>> document.name, document.valid
    ('pdf', True)
    """
    reading = reading or Reading()
    block = find_block(head)
    if isinstance(block, Problem):
        return Document(problems=(block,))
    fields = read_plain_lines(block) or _parsed(block, lenient=reading.lenient)
    if reading.lenient and not fields.by_name.keys() <= KNOWN_FIELDS:
        fields = _in_lowercase(fields)
    if fields.broken:
        return Document(problems=fields.problems)
    document = _interpreted(fields, directory=directory, reading=reading, block=block)
    if len(document.problems) > MAX_PROBLEMS:
        errors = tuple(problem for problem in document.problems if problem.severity == "error")
        document = structs.replace(document, problems=(errors or document.problems)[:MAX_PROBLEMS])
    return document


def _parsed(text: str, *, lenient: bool) -> Fields:
    """Return the fields that YAML finds; lenient mode repairs what it can, with a note for each repair."""
    # YAML takes 20 ms to import, and most documents are plain lines.
    from vademecum.skill.diagnosis import CONFLICT, lost_controls, repair  # noqa: PLC0415
    from vademecum.skill.yaml_subset import read_fields  # noqa: PLC0415

    fields = read_fields(text, lenient=lenient)
    if lenient and fields.broken and not CONFLICT.search(text):
        repaired, notes = repair(text)
        again = read_fields(repaired, lenient=True)
        # A repair must not lose a limit on tools: then the document is refused.
        if again.by_name and not again.broken and not lost_controls(text, again.by_name):
            return structs.replace(again, problems=(*again.problems, *notes))
    return fields


def _in_lowercase(fields: Fields) -> Fields:
    """Return the fields with known keys in lowercase, unless the lowercase key exists too."""
    by_name: dict[str, Field] = {}
    notes: list[Problem] = []
    for key, field in fields.by_name.items():
        plain = key.lower()
        if plain == key or plain not in KNOWN_FIELDS or plain in fields.by_name:
            by_name[key] = field
        else:
            text = f"Field {key!r} was read as {plain!r}. Write it in lowercase"
            notes.append(Problem("field-repaired", "warning", text, plain, field.line))
            by_name[plain] = field
    return structs.replace(fields, by_name=by_name, problems=(*fields.problems, *notes))


def _interpreted(fields: Fields, *, directory: str, reading: Reading, block: str) -> Document:
    """Turn raw fields into a document; collect the problems of all fields in one pass.

    ``block`` is the frontmatter that contains the fields.
    """
    # A bracket or a hidden character can also be written as an escape: "\\x3c". ASCII's hidden characters
    # are not valid in YAML.
    escapes = "\\" in block
    plain = not escapes and (block.isascii() or SUSPECT.search(block) is None)
    reader = _Interpreter(fields, directory, reading, plain=plain)
    name = reader.name()
    description = reader.description()
    present = fields.by_name.keys()
    controls = DEFAULT_CONTROLS if present.isdisjoint(CONTROL_FIELDS) else reader.controls()
    meta = EMPTY_META if present.isdisjoint(_META_FIELDS) else reader.meta()
    extra = {} if present <= KNOWN_FIELDS else reader.extra()
    if reading.block_angle_brackets and (escapes or "<" in block or ">" in block):
        reader.note_brackets()
    digest = hashlib.sha256(block.encode()).hexdigest()[:DIGEST_CHARS]
    return Document(name, description, controls, meta, extra, tuple(reader.problems), digest, reader.alias)


@lru_cache(maxsize=1024)
def _misspelt_control(key: str) -> str | None:
    """Return the control field that a key was probably meant to be; a misspelt one would limit nothing.

    >>> _misspelt_control("allowed_tools"), _misspelt_control("tools")
    ('allowed-tools', None)
    """
    return nearest(key.replace("_", "-").replace(" ", "-"), CONTROL_FIELDS, like=0.85)


def _split_tools(text: str) -> tuple[tuple[str, ...], bool]:
    """Return the tools of a list in one text, and whether commas separate them.

    >>> _split_tools("Bash(git:*, $(x)) Read,Grep")
    (('Bash(git:*, $(x))', 'Read', 'Grep'), True)
    """
    tools = [""]
    depth, commas = 0, False
    for char in text:
        depth = max(0, depth + (char == "(") - (char == ")"))
        if depth == 0 and (char == "," or char.isspace()):
            commas = commas or char == ","
            tools.append("")
        else:
            tools[-1] += char
    return tuple(filter(None, tools)), commas


class _Interpreter:
    def __init__(self, fields: Fields, directory: str, reading: Reading, *, plain: bool) -> None:
        self._fields = fields.by_name
        self._secrets = fields.secrets
        self._directory = directory
        self._reading = reading
        self._plain = plain  # no hidden characters, and no escapes that could encode them
        self.problems: list[Problem] = list(fields.problems)
        self.alias = ""

    def name(self) -> str:
        written = self._required("name")
        line = self._line("name")
        name = comparable(written)
        faults = names.check(name, line=line) if name else []
        if faults and self._reading.lenient:
            better = names.slug(name) or names.slug(self._directory)
            if better:
                text = (
                    f"Skill name {name[:80]!r} is not valid and was read as {better!r}. Write: name: {better}"
                )
                faults = [Problem("name-repaired", "warning", text, "name", line)]
                self.alias, name = name, better
        self.problems += faults
        if name and not faults and name != comparable(self._directory):
            text = (
                f"Directory name {self._directory[:80]!r} must match skill name {name!r}. Rename one of them"
            )
            self._add("name-directory-mismatch", text, "name", severity="warning")
        return name

    def description(self) -> str:
        text = self._required("description")
        self._check_length(
            "description", text, MAX_DESCRIPTION_CHARS, "Shorten it; details belong in the body"
        )
        if self._reading.lenient:
            text = text[:MAX_DESCRIPTION_CHARS]
        return self._shown_to_models("description", text)

    def controls(self) -> Controls:
        return Controls(
            disable_model_invocation=self._choice("disable-model-invocation", _TRUTH, default=False),
            user_invocable=self._choice("user-invocable", _TRUTH, default=True),
            allowed_tools=self._tools(),
            run_mode=self._choice("run-mode", _RUN_MODES, default="inline"),
        )

    def meta(self) -> Meta:
        metadata = self._metadata()
        compatibility = self._text("compatibility") or None
        if compatibility is not None:
            compatibility = self._shown_to_models("compatibility", compatibility)
            self._check_length("compatibility", compatibility, MAX_COMPATIBILITY_CHARS, "Shorten it")
        return Meta(
            # The specification puts these two inside `metadata`; both places are read.
            version=self._text("version") or metadata.get("version"),
            author=self._text("author") or metadata.get("author"),
            license=self._text("license") or None,
            compatibility=compatibility,
            metadata=metadata,
            secrets=self._secret_names(metadata.get("secrets", "")),
        )

    def extra(self) -> dict[str, str | tuple[str, ...]]:
        kept: dict[str, str | tuple[str, ...]] = {}
        for key, field in self._fields.items():
            if key in KNOWN_FIELDS:
                continue
            if control := _misspelt_control(key):
                text = f"Field {key[:40]!r} is not read. Did you mean {control!r}?"
                self._add("misspelt-field", text, key, severity="error")
            if isinstance(field.value, str | tuple):
                kept[key] = field.value
            else:
                text = f"The value of {key[:40]!r} is nested and was left out: it is not a field that is read"
                self._add("nested-value", text, key, severity="warning")
        return kept

    def note_brackets(self) -> None:
        """Warn of angle brackets in fields that other tools may show to a model."""
        for key, field in self._fields.items():
            if key not in _SHOWN_FIELDS and re.search("[<>]", str(field.value)):
                text = f"Field {key[:40]!r} contains an angle bracket (< or >). Use other words"
                self._add("angle-bracket", f"{text}: some tools show it to a model", key, severity="warning")

    def _required(self, key: str) -> str:
        """Return the text of a required field; in lenient mode, a default if it is missing."""
        text = self._text(key)
        if text:
            return text
        default = names.slug(self._directory) if key == "name" else "No description."
        if self._reading.lenient and default:
            self._add(
                f"default-{key}", f"The field {key!r} is missing and was read as {default!r}. Add it", key
            )
            return default
        if key not in self._fields:
            example = "name: my-skill" if key == "name" else "description: What it does, and when to use it"
            other = next((other for other in self._fields if other.lower() == key), None)
            fix = f"Write {other!r} in lowercase" if other else f"Add: {example}"
            text = f"Missing required field in frontmatter: {key}. {fix}"
            line = self._line(other) if other else None
            self.problems.append(Problem("missing-field", "error", text, key, line))
        elif text is not None:
            text = f"Field {key!r} must be a non-empty string. Write one"
            self._add("empty-field", text, key, severity="error")
        return ""

    def _text(self, key: str) -> str | None:
        """Return the visible text of a field; ``None`` if it is missing or not text."""
        field = self._fields.get(key)
        if field is None:
            return None
        if not isinstance(field.value, str):
            example = "read_file grep" if key == "allowed-tools" else "some text"
            self._wrong_shape(key, "text", f"{key}: {example}")
            return None
        if key == "name":  # a name with hidden characters is refused, not cleaned
            return field.value.strip()
        text, hidden = self._cleaned(field.value)
        if hidden:
            message = f"Field {key!r} contains {hidden} hidden characters, which were removed. Delete them"
            self._add("hidden-characters", message, key, severity="warning")
        return text

    def _cleaned(self, text: str) -> tuple[str, int]:
        visible, hidden = (text, 0) if self._plain else without_hidden(text)
        return visible.strip(), hidden

    def _check_length(self, key: str, text: str, most: int, advice: str) -> None:
        if len(text) > most:
            limit = f"{key.capitalize()} exceeds {most} character limit ({len(text)} chars)"
            self._add(f"{key}-too-long", f"{limit}. {advice}", key)

    def _shown_to_models(self, key: str, text: str) -> str:
        if not self._reading.block_angle_brackets or ("<" not in text and ">" not in text):
            return text
        message = (
            f"Field {key!r} contains an angle bracket (< or >), which could look like markup. Use other words"
        )
        self._add("angle-bracket", message, key)
        return text.translate(_ESCAPES) if self._reading.lenient else text

    def _choice(self, key: str, accepted: Mapping[str, Any], *, default: Any) -> Any:
        """Return the meaning of a word. An unknown word is an error in any mode: a guess could allow more."""
        field = self._fields.get(key)
        if field is None:
            return default
        word = field.value.strip() if isinstance(field.value, str) else "(not text)"
        if word.lower() not in accepted:
            text = f"Field {key!r} is {word[:40]!r}. Write {' or '.join(list(accepted)[:2])}"
            self._add("wrong-value", text, key, severity="error")
        return accepted.get(word.lower(), default)

    def _tools(self) -> tuple[str, ...] | None:
        """Return the allowed tools; none if the list cannot be read, so that a mistake allows nothing."""
        field = self._fields.get("allowed-tools")
        if field is None:
            return None
        if isinstance(field.value, tuple):
            return self._understood(filter(None, (self._cleaned(tool)[0] for tool in field.value)))
        text = self._text("allowed-tools")
        if text is None:
            return ()
        if not text:
            message = "Field 'allowed-tools' is empty, so no tool is allowed. Name tools, or remove the line"
            self._add("empty-field", message, "allowed-tools", severity="warning")
        tools, commas = _split_tools(text)
        if commas:
            message = (
                "Field 'allowed-tools' separates tools with commas; it was split. Separate them with spaces"
            )
            self._add("tools-split", message, "allowed-tools", severity="warning")
        return self._understood(tools)

    def _understood(self, tools: Iterable[str]) -> tuple[str, ...]:
        """Return the tools, with a note for each entry that has no meaning here."""
        from vademecum.allowed_tools import Bounds, nearest_word  # noqa: PLC0415 - for the few that name any

        listed = tuple(tools)
        for entry in Bounds.of(listed).unknown:
            near = nearest_word(entry)
            text = f"'allowed-tools' names {entry[:40]!r}, which is not a tool here and allows nothing"
            text += f": did you mean {near!r}?" if near else ""
            self._add("unknown-tool", text, "allowed-tools", severity="warning")
        return listed

    def _metadata(self) -> dict[str, str]:
        field = self._fields.get("metadata")
        if field is None or field.value == "":
            return {}
        if not isinstance(field.value, Mapping):
            self._wrong_shape("metadata", "a map of text to text", "metadata: {author: me}")
            return {}
        return {key: self._cleaned(value)[0] for key, value in field.value.items()}

    def _secret_names(self, written: str) -> tuple[str, ...]:
        """Return the names of the secrets that scripts need, without unusable ones."""
        words = (word for text in (written, *self._secrets) for word in _BETWEEN_NAMES.split(text))
        names = list(dict.fromkeys(filter(None, words)))
        if not names:
            return ()
        from vademecum.secret_store import name_problem  # noqa: PLC0415 - for the few skills that name any

        wrong = [name for name in names if name_problem(name)] or names[MAX_SECRETS:]
        if wrong:
            why = name_problem(wrong[0]) or f"there are more than {MAX_SECRETS}"
            text = f"The secret {wrong[0][:40]!r} in 'metadata' was left out: {why}. Name another variable"
            self._add("secret-name", text, "metadata", severity="warning")
        return tuple(name for name in names if not name_problem(name))[:MAX_SECRETS]

    def _wrong_shape(self, key: str, wanted: str, example: str) -> None:
        value = self._fields[key].value
        found = "nested" if value is None else "text" if isinstance(value, str) else "a list"
        found = "a map" if isinstance(value, Mapping) else found
        self._add("wrong-shape", f"Field {key!r} must be {wanted}, not {found}. Write: {example}", key)

    def _line(self, key: str) -> int | None:
        field = self._fields.get(key)
        return field.line if field else None

    def _add(self, code: str, message: str, key: str, *, severity: Severity | None = None) -> None:
        """Note a problem: an error in strict mode, a repair in lenient mode, unless ``severity`` is given."""
        level: Severity = severity or ("warning" if self._reading.lenient else "error")
        self.problems.append(Problem(code, level, message, key, self._line(key)))
