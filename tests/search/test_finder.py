"""D1: ranked, persistent, exact about who may see what."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import write_skill
from vademecum import Finder, IndexOptions, Root, SkillIndex, VademecumError, build_index

LATER = 4_000_000_000.0


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def skill(root: Path, name: str, description: str, body: str = "Steps.") -> Path:
    return write_skill(root, name, f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")


def library(root: Path) -> None:
    skill(root, "pdf-forms", "Fill in PDF forms and sign them.", "Uses the acroform fields of a document.")
    skill(root, "csv-tables", "Summarise tables of numbers.", "Works on spreadsheets exported as text.")
    skill(root, "meeting", "把会议记录整理成纪要，列出待办事项。", "步骤：先通读全文。")
    skill(root, "gitHelper", "x")  # an invalid name: skipped
    skill(root, "code-review", "Review JavaScript and TypeScript code.", "Look for race conditions.")


def index_at(root: Path, cache: Path | None, *, bodies: bool = True) -> SkillIndex:
    return build_index(root, IndexOptions(cache=cache, index_bodies=bodies), clock=lambda: LATER)


def names(finder: Finder, query: str, n: int = 5) -> list[str]:
    return [hit.name for hit in finder.search(query, n)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("fill in a PDF form", "pdf-forms"),
        ("filling forms", "pdf-forms"),
        ("会议", "meeting"),
        ("整理待办", "meeting"),
        ("帮我写会议纪要", "meeting"),
        ("javascript", "code-review"),
        ("type script", "code-review"),
        ("acroform", "pdf-forms"),
        ("ＣＳＶ", "csv-tables"),
        ("csv_tables", "csv-tables"),
    ],
)
def test_finds(root: Path, query: str, first: str) -> None:
    library(root)
    assert names(Finder(index_at(root, None)), query)[:1] == [first]


def test_hits_are_whole_and_ordered(root: Path) -> None:
    library(root)
    hits = Finder(index_at(root, None)).search("review tables of code", 10)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].to_json() == {
        "name": "code-review",
        "description": "Review JavaScript and TypeScript code.",
        "source": "extra",
        "score": hits[0].score,
    }


@pytest.mark.parametrize("query", ["", "   ", "?!,.", "zzzqqq", "the of and", "\0\x1b", "\ud800"])
def test_queries_that_find_nothing(root: Path, query: str) -> None:
    library(root)
    assert Finder(index_at(root, None)).search(query) == []


def test_numbers_of_hits(root: Path) -> None:
    library(root)
    finder = Finder(index_at(root, None))
    assert finder.search("forms", 0) == []
    assert len(finder.search("forms tables code 会议", 10_000)) == 4
    with pytest.raises(VademecumError, match="n is -1"):
        finder.search("forms", -1)


def test_hundred_kilobytes_of_query(root: Path) -> None:
    library(root)
    noise = " ".join(f"word{number}" for number in range(12_000))
    assert names(Finder(index_at(root, None)), f"javascript review {noise}")[0] == "code-review"


def test_no_skills_at_all(root: Path, cache: Path) -> None:
    assert Finder(index_at(root, cache)).search("anything") == []


def test_bodies_can_be_left_out(root: Path, cache: Path) -> None:
    library(root)
    assert names(Finder(index_at(root, cache)), "acroform") == ["pdf-forms"]
    assert names(Finder(index_at(root, cache, bodies=False)), "acroform") == []


def test_updated_by_the_difference_only(root: Path, cache: Path) -> None:
    library(root)
    for number in range(60):  # enough that two changes are few
        skill(root, f"filler-{number}", f"Filler {number}.", f"{number}")
    assert Finder(index_at(root, cache)).updated == 64
    assert Finder(index_at(root, cache)).updated == 0
    skill(root, "csv-tables", "Summarise tables of numbers.", "Now also about parquet.")
    finder = Finder(index_at(root, cache))
    assert (finder.updated, names(finder, "parquet"), names(finder, "spreadsheets")) == (
        2,
        ["csv-tables"],
        [],
    )
    shutil.rmtree(root / "meeting")
    skill(root, "added", "About zebras.")
    finder = Finder(index_at(root, cache))
    assert (finder.updated, names(finder, "会议"), names(finder, "zebra")) == (2, [], ["added"])


def test_touched_but_unchanged_file_changes_nothing(root: Path, cache: Path) -> None:
    library(root)
    Finder(index_at(root, cache))
    os.utime(root / "meeting" / "SKILL.md", (5, 5))
    assert Finder(index_at(root, cache)).updated == 0


def test_incremental_and_fresh_indexes_rank_alike(root: Path, cache: Path, tmp_path: Path) -> None:
    skill(root, "pdf-forms", "Fill in PDF forms and sign them.")
    Finder(index_at(root, cache))
    library(root)
    grown, fresh = Finder(index_at(root, cache)), Finder(index_at(root, tmp_path / "other"))
    for query in ("sign tables", "review code", "会议 forms"):
        assert names(grown, query) == names(fresh, query)


def test_removed_skills_do_not_distort_the_ranking_for_long(root: Path, cache: Path, tmp_path: Path) -> None:
    skill(root, "one", "alpha topic", "x")
    skill(root, "two", "beta topic", "y")
    for number in range(100):
        skill(root, f"gone-{number}", "alpha thing", f"{number}")
    Finder(index_at(root, cache))
    for number in range(100):
        shutil.rmtree(root / f"gone-{number}")
    Finder(index_at(root, cache))
    finder, fresh = Finder(index_at(root, cache)), Finder(index_at(root, tmp_path / "other"))
    skill(root, "three", "gamma", "z")
    again = Finder(index_at(root, cache))
    assert again.search("alpha beta")[:2] != []
    assert [hit.name for hit in fresh.search("alpha beta")] == ["one", "two"]
    assert Finder(index_at(root, cache)).search("alpha beta") == Finder(index_at(root, None)).search(
        "alpha beta"
    )
    assert finder.problem is None


def test_an_edit_among_few_skills_ranks_as_if_it_had_always_been_so(root: Path, cache: Path) -> None:
    library(root)
    Finder(index_at(root, cache))
    skill(root, "csv-tables", "Summarise tables of numbers.", "Works on spreadsheets, and forms of text.")
    edited = Finder(index_at(root, cache))
    assert edited.search("forms of tables") == Finder(index_at(root, None)).search("forms of tables")
    assert edited.updated == 2


def test_a_finder_keeps_its_view_while_others_update(root: Path, cache: Path) -> None:
    library(root)
    first = Finder(index_at(root, cache))
    before = {query: first.search(query) for query in ("forms", "tables", "review", "会议")}
    shutil.rmtree(root / "csv-tables")
    skill(root, "another", "About forms and tables.")
    Finder(index_at(root, cache))
    index = index_at(root, cache)
    Finder(index, skills=[s for s in index.skills if s.name != "pdf-forms"])
    time.sleep(1)  # long enough for a reader that reloads by itself
    assert {query: first.search(query) for query in before} == before


@pytest.mark.parametrize("n", [10**6, 10**12, 10**30])
def test_any_number_of_hits_may_be_asked_for(root: Path, n: int) -> None:
    library(root)
    assert names(Finder(index_at(root, None)), "forms", n) == ["pdf-forms"]


def test_linked_document_is_searched_and_a_swapped_one_is_not(
    root: Path, tmp_path: Path, cache: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("---\nname: linked\ndescription: x\n---\nzebraword\n")
    (root / "linked").mkdir()
    (root / "linked" / "SKILL.md").symlink_to(outside)
    index = index_at(root, cache)
    assert names(Finder(index), "zebraword") == ["linked"]
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch codeword is giraffe")
    (root / "linked" / "SKILL.md").unlink()
    (root / "linked" / "SKILL.md").symlink_to(secret)
    assert names(Finder(index), "giraffe") == []
    assert names(Finder(build_index(root, IndexOptions(cache=tmp_path / "c2"))), "giraffe") == []


def test_foreign_state_is_not_believed(root: Path, cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    library(root)
    Finder(index_at(root, cache))
    (state,) = cache.glob("search-*/state.msgpack")
    os.chown(state, 65534, 65534)
    assert Finder(index_at(root, cache)).updated == 4


@pytest.mark.parametrize("suffix", ["fast", "idx", "term", "fieldnorm", "store", "pos"])
def test_any_damaged_segment_file_is_survived(root: Path, cache: Path, suffix: str) -> None:
    library(root)
    Finder(index_at(root, cache))
    for file in cache.glob(f"search-*/tantivy/*.{suffix}"):
        data = bytearray(file.read_bytes())
        for place in range(0, len(data), 3):
            data[place] ^= 0xFF
        file.write_bytes(bytes(data))
    assert names(Finder(index_at(root, cache)), "fill forms")[:1] == ["pdf-forms"]


def test_directory_name_that_is_not_text_spoils_nothing(root: Path, cache: Path) -> None:
    library(root)
    odd = os.fsencode(root) + b"/bad-\xff"
    os.mkdir(odd)
    with open(odd + b"/SKILL.md", "w") as out:
        out.write("---\nname: bad\ndescription: zebra\n---\n")
    finder = Finder(index_at(root, cache))
    assert (names(finder, "zebra"), finder.problem) == (["bad"], None)
    assert names(Finder(index_at(root, cache)), "zebra") == ["bad"]


def test_old_indexes_are_pruned(tmp_path: Path, cache: Path) -> None:
    for number in range(20):
        skill(tmp_path / f"r{number}", "a", "x")
        Finder(index_at(tmp_path / f"r{number}", cache))
    assert len(list(cache.glob("search-*"))) <= 17


def test_hidden_skills_neither_appear_nor_change_the_ranking(root: Path, cache: Path, tmp_path: Path) -> None:
    # E3: scores, not only the order, are those of a library without them.
    library(root)
    bare = tmp_path / "bare"
    shutil.copytree(root, bare)
    for number in range(30):
        skill(
            root,
            f"secret-{number}",
            "Sign secret PDF forms, review code and tables.",
            "race conditions " * 50,
        )
    index = index_at(root, cache)
    visible = [s for s in index.skills if not s.name.startswith("secret")]
    Finder(index, skills=index.skills)  # once the agent saw everything
    finder = Finder(index, skills=visible)  # now it may not
    expected = Finder(index_at(bare, None))
    for query in ("sign forms", "review race conditions", "tables"):
        assert finder.search(query) == expected.search(query)


def test_skills_with_the_same_text_are_all_found(root: Path, cache: Path) -> None:
    for name in ("beta", "alpha"):
        skill(root, name, "Fold paper cranes.", "Fold.")
    finder = Finder(index_at(root, cache))
    assert names(finder, "cranes") == ["alpha", "beta"]
    assert names(finder, "beta")[0] == "beta"
    shutil.rmtree(root / "alpha")
    assert names(Finder(index_at(root, cache)), "cranes") == ["beta"]


def test_ties_go_to_the_higher_root_then_to_the_name(tmp_path: Path) -> None:
    for place, name in (("low", "aa"), ("high", "cc"), ("high", "bb")):
        skill(tmp_path / place, name, "Fold cranes.", f"{ord(name[0])}")
    index = build_index([Root(tmp_path / "high"), Root(tmp_path / "low")], IndexOptions())
    assert names(Finder(index), "cranes") == ["bb", "cc", "aa"]
    assert names(Finder(index), "cranes", 1) == ["bb"]


def test_many_ties_are_cut_the_same_way(root: Path) -> None:
    for number in range(200):
        skill(root, f"s{number:03d}", "Fold cranes.", f"{number:03d}")
    finder = Finder(index_at(root, None))
    assert names(finder, "cranes", 3) == ["s000", "s001", "s002"]


@pytest.mark.parametrize("damage", ["state", "engine", "meta", "no-state", "old-state"])
def test_damaged_files_are_built_anew(root: Path, cache: Path, damage: str) -> None:
    library(root)
    Finder(index_at(root, cache))
    (place,) = cache.glob("search-*")
    match damage:
        case "state":
            (place / "state.msgpack").write_bytes(b"garbage")
        case "engine":
            shutil.rmtree(place / "tantivy")
        case "meta":
            (place / "tantivy" / "meta.json").write_text("{")
        case "no-state":
            (place / "state.msgpack").unlink()
        case "old-state":
            state = (place / "state.msgpack").read_bytes()
            skill(root, "added", "About zebras.")
            Finder(index_at(root, cache))
            (place / "state.msgpack").write_bytes(state)  # killed between the commit and the state
    finder = Finder(index_at(root, cache))
    assert (names(finder, "forms"), finder.problem) == (["pdf-forms"], None)


def test_segment_files_that_were_damaged_fall_back_to_memory(root: Path, cache: Path) -> None:
    library(root)
    Finder(index_at(root, cache))
    for file in next(iter(cache.glob("search-*"))).joinpath("tantivy").glob("*.term"):
        file.write_bytes(b"x")
    finder = Finder(index_at(root, cache))
    assert names(finder, "forms") == ["pdf-forms"]


def test_segment_files_that_were_damaged_are_built_anew_with_the_next_skill(root: Path, cache: Path) -> None:
    library(root)
    Finder(index_at(root, cache))
    for file in next(iter(cache.glob("search-*"))).joinpath("tantivy").glob("*.term"):
        file.write_bytes(b"x")
    skill(root, "added", "About zebras.")
    finder = Finder(index_at(root, cache))
    assert (names(finder, "zebras"), finder.problem) == (["added"], None)
    assert Finder(index_at(root, cache)).updated == 0


def test_disk_that_does_not_take_it(root: Path, tmp_path: Path) -> None:
    library(root)
    index = index_at(root, Path("/proc/vademecum"))
    finder = Finder(index)
    assert names(finder, "forms") == ["pdf-forms"]
    assert finder.problem is not None
    assert finder.problem.code == "search-not-kept"


def test_body_that_vanished_is_searched_by_its_description(root: Path, cache: Path) -> None:
    library(root)
    index = index_at(root, cache)
    shutil.rmtree(root / "pdf-forms")
    assert names(Finder(index), "forms") == ["pdf-forms"]


def test_many_processes_at_once(root: Path, cache: Path) -> None:
    for number in range(300):
        skill(root, f"s{number}", f"About topic{number}.")
    code = (
        "import sys, vademecum as vm; from pathlib import Path\n"
        "index = vm.build_index(sys.argv[1], vm.IndexOptions(cache=Path(sys.argv[2])), clock=lambda: 4e9)\n"
        "finder = vm.Finder(index)\n"
        "print([h.name for h in finder.search('topic7 topic8')], finder.problem)"
    )

    def run(_: int) -> str:
        words = [sys.executable, "-c", code, str(root), str(cache)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(6) as pool:
        outputs = set(pool.map(run, range(12)))
    assert outputs == {"['s7', 's8'] None\n"}


def test_killed_while_building_it_is_built_anew(root: Path, cache: Path) -> None:
    for number in range(1500):
        skill(root, f"s{number}", f"About topic{number}.", "word " * 200)
    code = (
        "import sys, vademecum as vm; from pathlib import Path\n"
        "index = vm.build_index(sys.argv[1], vm.IndexOptions(cache=Path(sys.argv[2])), clock=lambda: 4e9)\n"
        "print('ready', flush=True); vm.Finder(index)"
    )
    for delay in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4):
        words = [sys.executable, "-c", code, str(root), str(cache)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
            assert started.stdout is not None
            started.stdout.readline()
            time.sleep(delay)
            started.kill()
    assert names(Finder(index_at(root, cache)), "topic77") == ["s77"]


def test_renamed_skill_is_found_by_its_new_name(root: Path, cache: Path) -> None:
    for number in range(40):
        skill(root, f"filler-{number}", f"Filler {number}.", f"{number}")
    skill(root, "oldname", "About paper.", "Fold.")
    Finder(index_at(root, cache))
    shutil.rmtree(root / "oldname")
    skill(root, "newname", "About paper.", "Fold.")
    finder = Finder(index_at(root, cache))
    assert (names(finder, "newname"), names(finder, "oldname")) == (["newname"], [])
