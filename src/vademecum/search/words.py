"""Words as the search engine keeps them."""

from __future__ import annotations

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

MAX_WORD_CHARS = 64


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
