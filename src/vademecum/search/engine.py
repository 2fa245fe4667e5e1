"""Words ↔ tantivy: documents go in, numbers with scores come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tantivy
from msgspec import Struct
from tantivy import (
    Document,
    Filter,
    Index,
    Occur,
    Query,
    SchemaBuilder,
    TextAnalyzer,
    TextAnalyzerBuilder,
    Tokenizer,
)

from vademecum.skill.words import prepared

# From a grid on six sets of real requests: best without bodies, and near the best with them
# (docs/decisions/0006-search.md; `python -m bench.search --choose` shows the grid).
WEIGHTS = {"name": 0.5, "description": 1.0, "body": 0.75}
MAX_QUERY_CHARS = 10_000
MAX_QUERY_TERMS = 64

_TOKENIZER = "vade"
_WRITER_BYTES = 50_000_000


MAX_WORD_CHARS = 64


class Text(Struct, frozen=True):
    """What is indexed of one skill."""

    name: str
    description: str
    body: str


class Engine:
    """A search index on disk, or in memory when it has no directory.

    Everything that can go wrong with the files comes out as ``ValueError`` or ``OSError``.
    """

    def __init__(self, directory: Path | None, *, weights: Mapping[str, float] = WEIGHTS) -> None:
        self._weights = weights
        self._schema = _schema()
        path = None if directory is None else str(directory)
        self._index = Index(self._schema, path)
        self._analyzer = analyzer()
        self._index.register_tokenizer(_TOKENIZER, analyzer())
        # Held for good: another process may commit, and its numbers would mean other skills.
        self._searcher = self._index.searcher()

    def update(self, *, remove: Iterable[int], add: Iterable[tuple[int, Text]]) -> int:
        """Take documents out and put others in, all at once; returns the stamp of the new state."""
        writer = self._index.writer(_WRITER_BYTES, 1)
        for number in remove:
            writer.delete_documents_by_term("number", number)
        for number, text in add:
            writer.add_document(
                Document(
                    number=number,
                    name=prepared(text.name),
                    description=prepared(text.description),
                    body=prepared(text.body),
                )
            )
        stamp = writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()
        return stamp

    def terms(self, query: str) -> list[str]:
        """The words of a query, each once; of a very long one those that are rarest here."""
        terms = list(dict.fromkeys(self._analyzer.analyze(prepared(query[:MAX_QUERY_CHARS]))))
        if len(terms) > MAX_QUERY_TERMS:
            found = {term: sum(self._searcher.doc_freq(field, term) for field in WEIGHTS) for term in terms}
            terms = sorted(terms, key=lambda term: (not found[term], found[term]))[:MAX_QUERY_TERMS]
        return terms

    def best(self, terms: Sequence[str], n: int) -> list[tuple[float, int]]:
        """The ``n`` best documents with their scores, and all that tie with the last of them."""
        searcher = self._searcher
        query = Query.boolean_query(
            [
                (Occur.Should, Query.boost_query(Query.term_query(self._schema, field, term), weight))
                for term in terms
                for field, weight in self._weights.items()
            ]
        )
        everything = max(1, searcher.num_docs)
        n = min(n, everything)
        limit = min(n + 20, everything)
        while True:
            hits = searcher.search(query, limit, count=False).hits
            if len(hits) < limit or limit == everything or hits[-1][0] < hits[n - 1][0]:
                break
            limit = min(limit * 4, everything)
        numbers = searcher.fast_field_values("number", [address for _, address in hits])
        return [(float(score), int(number or 0)) for (score, _), number in zip(hits, numbers, strict=True)]


def _schema() -> tantivy.Schema:
    builder = SchemaBuilder()
    builder.add_integer_field("number", stored=False, indexed=True, fast=True)
    for field in WEIGHTS:
        builder.add_text_field(field, stored=False, tokenizer_name=_TOKENIZER, index_option="freq")
    return builder.build()


def analyzer() -> TextAnalyzer:
    """Words in lower case, without the English ones that say nothing, and without their endings."""
    return (
        TextAnalyzerBuilder(Tokenizer.simple())
        .filter(Filter.remove_long(MAX_WORD_CHARS))
        .filter(Filter.lowercase())
        .filter(Filter.stopword("english"))
        .filter(Filter.stemmer("english"))
        .build()
    )
