"""Bytes → Document: the whole way from a file's opening to its checked fields."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from vademecum.skill.fields import interpret
from vademecum.skill.frontmatter import find_block, read_opening
from vademecum.skill.plain_lines import Field, Fields, read_plain_lines
from vademecum.skill.skill import KNOWN_FIELDS, MANIFEST, Document, Problem, Reading

# A document with thousands of faults is told of the first ones.
MAX_PROBLEMS = 50


def read_document(path: str | Path, *, directory: str, reading: Reading, file: str = MANIFEST) -> Document:
    """Read one document's frontmatter from disk; only ``OSError`` and ``FileRefused`` come out."""
    return with_file_name(parse_document(read_opening(path), directory=directory, reading=reading), file)


def with_file_name(document: Document, file: str) -> Document:
    """Return a document with the problem that its file has another name, if it has."""
    if file == MANIFEST:
        return document
    text = f"The file is called {file!r}, which some tools do not find. Rename it to {MANIFEST}"
    problems = (*document.problems, Problem("file-name", "warning", text))
    return structs.replace(document, problems=problems)


def parse_document(head: bytes, *, directory: str, reading: Reading | None = None) -> Document:
    r"""Parse a document's opening bytes, whatever they are: what is wrong with them is in ``problems``.

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
    document = interpret(fields, directory=directory, reading=reading, block=block)
    if len(document.problems) > MAX_PROBLEMS:
        errors = tuple(problem for problem in document.problems if problem.severity == "error")
        document = structs.replace(document, problems=(errors or document.problems)[:MAX_PROBLEMS])
    return document


def _parsed(text: str, *, lenient: bool) -> Fields:
    """Return the fields that YAML finds; in lenient mode what can be repaired is, with a note each time."""
    # YAML takes 20 ms to import, and most documents are plain lines.
    from vademecum.skill.diagnosis import CONFLICT, lost_controls, repair  # noqa: PLC0415
    from vademecum.skill.yaml_subset import read_fields  # noqa: PLC0415

    fields = read_fields(text, lenient=lenient)
    if lenient and fields.broken and not CONFLICT.search(text):
        repaired, notes = repair(text)
        again = read_fields(repaired, lenient=True)
        # A repair must not lose a bound: then the document stays out.
        if again.by_name and not again.broken and not lost_controls(text, again.by_name):
            return structs.replace(again, problems=(*again.problems, *notes))
    return fields


def _in_lowercase(fields: Fields) -> Fields:
    """Return the fields with those of the specification in lowercase, unless that one is there too."""
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
