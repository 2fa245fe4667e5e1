"""Bytes → Document: the whole way from a file's opening to its checked fields."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import structs

from vademecum.skill.fields import interpret
from vademecum.skill.frontmatter import find_block, read_opening
from vademecum.skill.repair import quote_values
from vademecum.skill.skill import MANIFEST, Document, Problem, Reading
from vademecum.skill.yaml_subset import FIRST_LINE, Fields, read_fields

DIGEST_CHARS = 32
# A document with thousands of faults is told of the first ones.
MAX_PROBLEMS = 50


def read_document(path: str | Path, *, directory: str, reading: Reading, file: str = MANIFEST) -> Document:
    """Read one document's frontmatter from disk; only ``OSError`` and ``FileRefused`` come out."""
    document = parse_document(read_opening(path), directory=directory, reading=reading)
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
    fields = read_fields(block.text, lenient=reading.lenient)
    if fields.broken and reading.lenient:
        fields = _repaired(block.text, fields)
    if fields.broken:
        return Document(problems=fields.problems)
    digest = hashlib.sha256(block.text.encode()).hexdigest()[:DIGEST_CHARS]
    document = interpret(fields, directory=directory, reading=reading, digest=digest)
    if len(document.problems) > MAX_PROBLEMS:
        errors = tuple(problem for problem in document.problems if problem.severity == "error")
        document = structs.replace(document, problems=(errors or document.problems)[:MAX_PROBLEMS])
    return document


def _repaired(text: str, fields: Fields) -> Fields:
    """The fields after quoting what lacked quotes, with a note for each; the old ones if that fails."""
    quoted, changed = quote_values(text)
    again = read_fields(quoted, lenient=True)
    if again.broken:
        return fields
    message = "The value lacked quotes and was read as one text. Put it in quotes"
    notes = tuple(Problem("unquoted-value", "warning", message, line=line + FIRST_LINE) for line in changed)
    return structs.replace(again, problems=(*again.problems, *notes))
