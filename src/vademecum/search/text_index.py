"""A search index by tantivy, which returns the numbers of documents with their scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
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

from vademecum.search.query_terms import QueryParser, Term
from vademecum.search.words import glosses_of, prepared

# From a grid on six sets of real requests: best without bodies, and near the best with them
# (docs/decisions/0006-search.md; `python -m bench.search --choose` shows the grid).
# Glosses are the description in English.
WEIGHTS = {"name": 0.5, "description": 1.0, "body": 0.75, "glosses": 1.0}

_TOKENIZER = "vade"
_WRITER_BYTES = 50_000_000
MAX_WORD_CHARS = 64
MAX_BEGINNING = 20
MAX_REMEMBERED = 10_000


class Text(Struct, frozen=True):
    """The indexed text of one skill."""

    name: str
    description: str
    body: str


class TextIndex:
    """A search index on disk, or in memory when it has no directory.

    Every failure of its files is raised as ``ValueError`` or ``OSError``.
    """

    def __init__(self, directory: Path | None) -> None:
        self._weights: Mapping[str, float] = WEIGHTS
        self._schema = _schema()
        path = None if directory is None else str(directory)
        self._index = Index(self._schema, path)
        self._analyzer = analyzer()
        self._index.register_tokenizer(_TOKENIZER, analyzer())
        # Never renewed: after another process commits, the numbers could mean other skills.
        self._searcher = self._index.searcher()
        # The searcher's view never changes, and translations look up the same words repeatedly.
        self._frequencies = lru_cache(MAX_REMEMBERED)(self._frequencies_of)
        self._asking = QueryParser(self._analyzer, self.known, self._beginning_with)

    def update(self, *, remove: Iterable[int], add: Iterable[tuple[int, Text]]) -> int:
        """Remove and add documents in one commit; return the stamp of the new state."""
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
                    glosses=glosses_of(text.description),
                )
            )
        stamp = writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()
        self._frequencies.cache_clear()
        return stamp

    def terms(self, query: str) -> list[Term]:
        """Return the terms that represent the words of a query in this index."""
        return self._asking.terms(query)

    def known(self, term: str) -> int:
        """Return how many documents contain a term, in the field where it is most frequent."""
        return max(self._frequencies(term).values(), default=0)

    def _frequencies_of(self, term: str) -> dict[str, int]:
        """Return the number of documents that contain a term, for each field."""
        count_in = self._searcher.doc_freq
        return {field: count for field in WEIGHTS if (count := count_in(field, term))}

    def words(self, text: str) -> list[str]:
        """Return the words of a text in their indexed form."""
        return list(self._analyzer.analyze(prepared(text)))

    def in_field(self, number: int, field: str, term: str) -> bool:
        """Return whether a field of a document contains a term."""
        both = [
            (Occur.Must, Query.term_query(self._schema, "number", number)),
            (Occur.Must, Query.term_query(self._schema, field, term)),
        ]
        return bool(self._searcher.search(Query.boolean_query(both), 1, count=False).hits)

    def _beginning_with(self, text: str) -> list[str]:
        found = self._searcher.terms_with_prefix("description", text, limit=MAX_BEGINNING)
        return [term for term, _ in found]

    def best(self, terms: Sequence[Term], n: int) -> list[tuple[float, int]]:
        """Return the ``n`` best documents with their scores, and those that tie with the last one."""
        searcher = self._searcher
        query = Query.boolean_query([(Occur.Should, each) for term in terms for each in self._queries(term)])
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

    def _queries(self, term: Term) -> list[Query]:
        """Return the queries for a term; of several forms, the best one counts."""
        forms = [
            [query for word in form.terms for query in self._in_fields(word, form.weight / len(form.terms))]
            for form in term.forms
        ]
        if len(forms) == 1:
            return forms[0]
        each = [
            queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Should, q) for q in queries])
            for queries in forms
        ]
        return [Query.disjunction_max_query(each)]

    def _in_fields(self, word: str, share: float) -> list[Query]:
        return [
            Query.boost_query(Query.term_query(self._schema, field, word), self._weights[field] * share)
            for field in self._frequencies(word)
        ]


def _schema() -> tantivy.Schema:
    builder = SchemaBuilder()
    builder.add_integer_field("number", stored=False, indexed=True, fast=True)
    for field in WEIGHTS:
        builder.add_text_field(field, stored=False, tokenizer_name=_TOKENIZER, index_option="freq")
    return builder.build()


def analyzer() -> TextAnalyzer:
    """Return the analyzer: words in lower case, without English stop words and endings."""
    return (
        TextAnalyzerBuilder(Tokenizer.simple())
        .filter(Filter.remove_long(MAX_WORD_CHARS))
        .filter(Filter.lowercase())
        .filter(Filter.stopword("english"))
        .filter(Filter.stemmer("english"))
        .build()
    )
