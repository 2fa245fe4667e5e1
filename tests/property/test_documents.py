"""Whatever the bytes are: our own values come out, nothing is raised, and YAML agrees where it has an opinion."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum import Reading
from vademecum.skill import names
from vademecum.skill.document import parse_document
from vademecum.skill.frontmatter import read_plain_lines
from vademecum.skill.skill import Document
from vademecum.skill.text import HIDDEN_CHARACTERS, visible, without_hidden
from vademecum.skill.yaml_subset import read_fields

PIECES = st.sampled_from(
    ["---", "\n", "\r\n", "name", "description", ": ", ":", "- ", "[", "]", "{", "}", "&a", "*a", "!t", "|", ">", "#",
     "'", '"', "\\", "\t", " ", "  ", "x", "技能", "\ufeff", "\u200b", "<", "%YAML 1.2\n", "...", "?", "<<: ", "metadata:", "allowed-tools:"]
)  # fmt: skip
MODES = st.builds(Reading, lenient=st.booleans(), block_angle_brackets=st.booleans())


@given(st.lists(PIECES, max_size=60).map("".join), MODES)
@settings(max_examples=600, deadline=None)
def test_yaml_like_documents_never_raise(text: str, reading: Reading) -> None:
    for document in (f"---\n{text}\n---\n", text):
        parsed = parse_document(document.encode(), directory="x", reading=reading)
        assert parsed.valid == all(problem.severity != "error" for problem in parsed.problems)
        if parsed.valid:
            assert names.check(parsed.name) == []
            assert parsed.description
            assert HIDDEN_CHARACTERS.search(parsed.description) is None
            assert not reading.block_angle_brackets or not set("<>") & set(parsed.description)
        else:
            assert all(problem.message and problem.code for problem in parsed.problems)


@given(st.binary(max_size=300), MODES)
@settings(max_examples=300, deadline=None)
def test_bytes_never_raise(data: bytes, reading: Reading) -> None:
    for document in (
        data,
        b"---\n" + data + b"\n---\n",
        b"---\nname: x\ndescription: y\n" + data + b"\n---\n",
    ):
        assert isinstance(parse_document(document, directory="x", reading=reading), Document)


WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff"),
    max_size=30,
)


@given(st.dictionaries(st.sampled_from(["name", "description", "license", "x", "y-z"]), WORDS, min_size=1))
@settings(max_examples=300, deadline=None)
def test_scalars_are_what_yaml_says(fields: dict[str, str]) -> None:
    for style in (None, '"', "'", "|", ">"):
        text = yaml.safe_dump(fields, allow_unicode=True, default_style=style, sort_keys=False)
        ours = {name: field.value for name, field in read_fields(text, lenient=True).by_name.items()}
        theirs = yaml.load(text, Loader=yaml.BaseLoader)
        assert ours == theirs


@given(st.text(max_size=50))
def test_slug_is_a_name_or_nothing(text: str) -> None:
    slug = names.slug(text)
    assert slug == "" or names.check(slug) == []


@given(st.text(max_size=80))
def test_cleaned_text_has_nothing_left_to_clean(text: str) -> None:
    cleaned, removed = without_hidden(text)
    assert len(text) - len(cleaned) == removed
    assert visible(text).isprintable()


ODD = st.one_of(
    st.text(max_size=12),
    st.lists(PIECES, max_size=6).map("".join),
    st.sampled_from(
        ["a: b", "a #b", "a:", "~", "'it''s'", '"a\\n"', "'a' b", '"a" # c', "a\x85b", "a\u2028b", "[a]", "{a: b}", "| ",
         "> x", "&a b", "%x", "@x", "a\\b", "-", "- a", "? a", "a: ", "a:  #", "a\ufeff", "\xa0a", "a\t", "a\tb"]
    ),
)  # fmt: skip
PLAIN = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\"), max_size=12),
    st.sampled_from(
        ["", "a b", "a#b", "a:b", "null", "Null", "'it'", '"a b"  ', '"a: b"', "' #a '", "技能：说明", "1.10", "yes", "a  ",
         "é", "😀 ok", "a --- b", "a & b", "a, [b] {c} *d", "0x1f", "2024-01-01", "a'b", 'a"b']
    ),
)  # fmt: skip
KEYS = ["name", "description", "x", "Name", "a-b", "yes", "null", "k_1"]


def lines(keys: list[str], indent: str = "") -> st.SearchStrategy[list[str]]:
    """Lines with different keys and plain values."""
    parts = st.tuples(st.sampled_from(keys), st.sampled_from([": ", ":  "]), PLAIN)
    return st.lists(parts, unique_by=lambda part: part[0], max_size=4).map(
        lambda found: [indent + "".join(part if part[2] else (part[0], ":")) for part in found]
    )


ODD_LINE = st.tuples(
    st.sampled_from(["", "  ", "    ", "\t", "- ", "# "]),
    st.sampled_from([*KEYS, "1", "k k", "'q'", "<<", ""]),
    st.sampled_from([": ", ":", " : ", "：", ":\t", ""]),
    ODD,
).map("".join)
LINES = st.tuples(
    lines(KEYS),
    st.one_of(st.just([]), lines(KEYS, "  ").map(lambda found: ["metadata:", *found])),
    st.one_of(st.just([]), st.just([]), ODD_LINE.map(lambda line: [line])),
).map(lambda parts: "\n".join([*parts[0], *parts[1], *parts[2]]))


@given(LINES)
@settings(max_examples=1500, deadline=None)
def test_plain_lines_are_read_as_the_parser_reads_them(text: str) -> None:
    for each in (text, f"{text}\n"):
        plain = read_plain_lines(each)
        assert plain is None or plain == read_fields(each)
