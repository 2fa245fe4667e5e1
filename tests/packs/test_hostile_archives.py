"""O3, K2: archives that mean harm. Each is refused by name, and nothing is written."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.install import Options, install
from vademecum.packs.install_root import InstallRoot
from vademecum.packs.sources import archive, zips
from vademecum.packs.sources.fetching import local_source

GOOD = b"---\nname: good\ndescription: What good does.\n---\n# Body\n"
Build = Callable[[Path], None]


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes], good: bool = True) -> Build:
    def build(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            if good:
                out.writestr("good/SKILL.md", GOOD)
            for name, data in entries:
                out.writestr(name, data)

    return build


def raw_name(name: bytes) -> Build:
    """A zip whose entry has exactly these bytes as its name, which `zipfile` would not write."""

    def build(path: Path) -> None:
        placeholder = "x" * len(name)
        zipped((placeholder, b"data"))(path)
        path.write_bytes(path.read_bytes().replace(placeholder.encode(), name))

    return build


def with_mode(mode: int, name: str = "good/x", data: bytes = b"/etc/passwd") -> Build:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return zipped((info, data))


def edited(build: Build, edit: Callable[[bytes], bytes]) -> Build:
    def again(path: Path) -> None:
        build(path)
        path.write_bytes(edit(path.read_bytes()))

    return again


def tarred(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz", good: bool = True) -> Build:
    def build(path: Path) -> None:
        with tarfile.open(path, mode) as out:  # type: ignore[call-overload]
            if good:
                info = tarfile.TarInfo("good/SKILL.md")
                info.size = len(GOOD)
                out.addfile(info, io.BytesIO(GOOD))
            for info, data in members:
                if info.isreg():
                    info.size = info.size or len(data)
                out.addfile(info, io.BytesIO(data))

    return build


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **pax: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.pax_headers = {key.replace("__", "."): value for key, value in pax.items()}
    return info


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("good/SKILL.md", GOOD)
        with out.open("good/zeros", "w", force_zip64=True) as file:
            for _ in range(300):
                file.write(bytes(1_000_000))


def many(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        out.writestr("good/SKILL.md", GOOD)
        for number in range(60_000):
            out.writestr(f"good/{number}", b"")


def overlapping(path: Path) -> None:
    """Two directory entries that share the bytes of one file, as the best bombs do."""
    zipped(("good/a", b"a" * 1000), ("good/b", b"b" * 1000))(path)
    data = bytearray(path.read_bytes())
    start = data.rfind(b"PK\x01\x02")
    first = data.find(b"PK\x01\x02")
    second = data.find(b"PK\x01\x02", first + 4)
    data[start + 42 : start + 46] = data[second + 42 : second + 46]
    path.write_bytes(bytes(data))


def two_directories(path: Path) -> None:
    zipped(("good/hidden", b"hidden"))(path)
    first = path.read_bytes()
    zipped()(path)
    path.write_bytes(first + path.read_bytes())


def end_in_the_comment(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("good/SKILL.md", GOOD)
        out.comment = b"PK\x05\x06" + bytes(18)


def lying_size(path: Path) -> None:
    zipped(("good/a", b"a" * 5000))(path)
    data = bytearray(path.read_bytes())
    place = data.rfind(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<I", 10)
    path.write_bytes(bytes(data))


def encrypted(data: bytes) -> bytes:
    found = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = found.rfind(mark)
        found[place + offset] |= 1
    return bytes(found)


def lying_manifest(**changes: object) -> Build:
    file = {"path": "SKILL.md", "sha256": "0" * 64, "size": len(GOOD), "executable": False, **changes}
    skill = {"name": "good", "version": None, "directory": "good", "digest": "x", "files": [file]}
    return zipped(("manifest.json", json.dumps({"format_version": 1, "skills": [skill]}).encode()))


def huge_tar(path: Path) -> None:
    info = member("good/zeros")
    info.size = 20 * 1024 * 1024 * 1024
    header = info.tobuf()
    path.write_bytes(header + bytes(1024))


def huge_long_name(path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 1 << 30
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


def flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 255]) + data[len(data) // 2 + 1 :]


def own_header(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Change the header of the last entry, and leave the directory as it is."""

    def edit(data: bytes) -> bytes:
        place = data.rfind(b"PK\x03\x04") + offset
        return data[:place] + value + data[place + len(value) :]

    return edit


def unicode_path(name: bytes) -> zipfile.ZipInfo:
    """An entry with an extra field that gives it another name, which some tools prefer."""
    info = zipfile.ZipInfo("good/x")
    field = b"\1" + struct.pack("<I", zlib.crc32(b"good/x")) + name
    info.extra = struct.pack("<HH", 0x7075, len(field)) + field
    return info


def end_record(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Change the record at the very end."""

    def edit(data: bytes) -> bytes:
        place = data.rfind(b"PK\x05\x06") + offset
        return data[:place] + value + data[place + len(value) :]

    return edit


def lying_zip64(*, needed: bool) -> Build:
    """The entry's own header says another size in the field for large files, which counts if it is ``needed``."""

    def build(path: Path) -> None:
        zipped(("good/a", b"a" * 99))(path)
        data = bytearray(path.read_bytes())
        start = data.rfind(b"PK\x03\x04")
        name = start + 30
        field = struct.pack("<HHQQ", 1, 16, 5, 5)
        if needed:
            data[start + 18 : start + 26] = b"\xff" * 8
        data[start + 28 : start + 30] = struct.pack("<H", len(field))
        data[name + len("good/a") : name + len("good/a")] = field
        end = data.rfind(b"PK\x05\x06")
        (offset,) = struct.unpack_from("<I", data, end + 16)
        data[end + 16 : end + 20] = struct.pack("<I", offset + len(field))
        path.write_bytes(bytes(data))

    return build


def lying_end64(path: Path) -> None:
    """A record for large archives that contradicts the usual one."""
    zipped(("good/a", b"a"))(path)
    data = path.read_bytes()
    end = data.rfind(b"PK\x05\x06")
    _, _, _, _, count, length, offset, _ = struct.unpack("<4s4H2IH", data[end:])
    large = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count - 1, count - 1, length, offset)
    path.write_bytes(data[:end] + large + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1) + data[end:])


def hidden_between(path: Path) -> None:
    """Bytes between two entries that no directory lists."""
    zipped(("good/a", b"a" * 99))(path)
    data = path.read_bytes()
    start = data.find(b"PK\x01\x02")
    end = data.rfind(b"PK\x05\x06")
    moved = data[:start] + b"x" * 12 + data[start:end]
    path.write_bytes(moved + end_record(16, struct.pack("<I", start + 12))(data[end:]))


def many_deep(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("good/SKILL.md", GOOD)
        for number in range(40_000):
            out.writestr(f"good/{number}/" + "d/" * 29 + "x", b"")


def zip_bz2(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as out:
        out.writestr("good/SKILL.md", GOOD)


def written(data: bytes) -> Build:
    def build(path: Path) -> None:
        path.write_bytes(data)

    return build


LONG = "n" * 256
CASES: dict[str, tuple[Build, str]] = {
    "traversal": (zipped(("../evil", b"x")), "'../evil'"),
    "traversal inside": (zipped(("good/../../evil", b"x")), "goes up"),
    "traversal at the end": (zipped(("good/..", b"x")), "goes up"),
    "traversal with backslashes": (raw_name(b"good\\..\\..\\evil"), "backslash"),
    "traversal with a dot step": (zipped(("good/./../evil", b"x")), "evil"),
    "traversal encoded as it is": (zipped(("good/%2e%2e/../../evil", b"x")), "goes up"),
    "absolute": (zipped(("/etc/evil", b"x")), "absolute"),
    "two slashes": (zipped(("//server/evil", b"x")), "absolute"),
    "drive": (zipped(("C:/evil", b"x")), "absolute"),
    "drive without a slash": (zipped(("c:evil", b"x")), "absolute"),
    "stream of another system": (zipped(("good/a:b", b"x")), "not every system"),
    "link": (with_mode(0o120777), "is a link"),
    "link as SKILL.md": (with_mode(0o120777, "other/SKILL.md"), "is a link"),
    "device": (with_mode(0o020666), "not a plain file"),
    "pipe": (with_mode(0o010644), "not a plain file"),
    "socket": (with_mode(0o140644), "not a plain file"),
    "twice": (zipped(("good/a", b"1"), ("good/a", b"2")), "twice"),
    "same but for case": (zipped(("good/A", b"1"), ("good/a", b"2")), "some systems"),
    "same directory but for case": (zipped(("good/D/a", b"1"), ("good/d/b", b"2")), "some systems"),
    "same but for normal form": (zipped(("good/\u00e9", b"1"), ("good/e\u0301", b"2")), "some systems"),
    "file where a directory must be": (zipped(("good/a", b"1"), ("good/a/b", b"2")), "directory must be"),
    "NUL": (raw_name(b"good/a\0.py"), "control"),
    "control character": (zipped(("good/a\x1b[2J", b"x")), "control"),
    "line break": (zipped(("good/a\nb", b"x")), "control"),
    "direction override": (zipped(("good/\u202egpj.exe", b"x")), "hidden"),
    "long name": (zipped((f"good/{LONG}", b"x")), "255 bytes"),
    "long path": (zipped(("good/" + f"{'d' * 99}/" * 11 + "x", b"x")), "1024 bytes"),
    "deep path": (zipped(("good/" + "d/" * 40 + "x", b"x")), "directories deep"),
    "another size in its own header": (
        edited(zipped(("good/a", b"a" * 99)), own_header(22, b"\1")),
        "own header",
    ),
    "another method in its own header": (
        edited(zipped(("good/a", b"a" * 99)), own_header(8, b"\0")),
        "own header",
    ),
    "another name for other tools": (zipped((unicode_path(b"../../evil"), b"x")), "read in two ways"),
    "another size for large files": (lying_zip64(needed=True), "own header"),
    "another size that no tool needs": (lying_zip64(needed=False), "own header"),
    "another record for large files": (lying_end64, "contradicts itself"),
    "more entries than it says": (
        edited(zipped(("good/a", b"x")), end_record(8, b"\1\0\1\0")),
        "more entries",
    ),
    "fewer entries than it says": (edited(zipped(), end_record(8, b"\2\0\2\0")), "fewer entries"),
    "something between the entries": (hidden_between, "nothing was installed"),
    "many deep directories": (many_deep, "more than 20,000 directories"),
    "reserved name with a superscript": (zipped(("good/COM¹.txt", b"x")), "not every system"),
    "reserved name of the console": (zipped(("good/CONIN$", b"x")), "not every system"),
    "empty step": (zipped(("good//a", b"x")), "empty step"),
    "reserved name": (zipped(("good/nul.txt", b"x")), "not every system"),
    "trailing dot": (zipped(("good/a.", b"x")), "not every system"),
    "too many entries": (many, "entries"),
    "bomb": (bomb, "would unpack"),
    "overlapping entries": (overlapping, "overlaps"),
    "two directories": (two_directories, "nothing was installed"),
    "a directory in the comment": (end_in_the_comment, "nothing was installed"),
    "lying size": (lying_size, "nothing was installed"),
    "cut short": (
        edited(zipped(("good/a", b"x" * 5000)), lambda data: data[: len(data) // 2]),
        "not an archive",
    ),
    "garbage before": (edited(zipped(), lambda data: b"#!/bin/sh\n" + data), "not an archive"),
    "garbage behind": (edited(zipped(), lambda data: data + b"more"), "nothing was installed"),
    "damaged content": (
        edited(zipped(("good/a", os.urandom(3000))), lambda data: data[:200] + bytes(50) + data[250:]),
        "installed",
    ),
    "encrypted": (edited(zipped(("good/a", b"x")), encrypted), "encrypted"),
    "unknown compression": (zip_bz2, "not supported"),
    "a format of later": (
        edited(zipped(), lambda data: data.replace(b"PK\1\2\x14\x03\x14", b"PK\1\2\x14\x03\x63")),
        "not an archive",
    ),
    "no skill": (zipped(("readme.md", b"x"), good=False), "no SKILL.md"),
    "empty": (written(b""), "not an archive"),
    "no archive": (written(b"hello" * 100), "not an archive"),
    "invalid skill": (zipped(("bad/SKILL.md", b"---\nname: bad\n---\n")), "not valid"),
    "SKILL.md that is no text": (zipped(("bad/SKILL.md", b"\xff\xfe\0")), "not valid"),
    "two of one name": (zipped(("other/SKILL.md", GOOD)), "two skills called 'good'"),
    "name that leads out": (
        zipped(("bad/SKILL.md", b"---\nname: ../../evil\ndescription: x\n---\n")),
        "not valid",
    ),
    "high-risk tools": (
        zipped(("bad/SKILL.md", b"---\nname: bad\ndescription: x\nallowed-tools: Write\n---\n")),
        "--allow-unsafe",
    ),
    "manifest with another hash": (lying_manifest(), "manifest does not match"),
    "manifest with another size": (lying_manifest(size=1), "manifest does not match"),
    "manifest without a file": (zipped(("manifest.json", b'{"skills": []}')), "manifest does not match"),
    "manifest that is nonsense": (zipped(("manifest.json", b"[[[")), "cannot be understood"),
    "tar: traversal": (tarred((member("../evil"), b"x")), "goes up"),
    "tar: absolute": (tarred((member("/etc/evil"), b"x")), "absolute"),
    "tar: link": (tarred((member("good/x", tarfile.SYMTYPE, "/etc/passwd"), b"")), "is a link"),
    "tar: hard link": (tarred((member("good/x", tarfile.LNKTYPE, "/etc/passwd"), b"")), "is a link"),
    "tar: device": (tarred((member("good/x", tarfile.CHRTYPE), b"")), "not a plain file"),
    "tar: pipe": (tarred((member("good/x", tarfile.FIFOTYPE), b"")), "not a plain file"),
    "tar: sparse": (
        tarred((member("good/x", GNU__sparse__major="1", GNU__sparse__name="y"), b"x"), mode="w"),
        "nothing was installed",
    ),
    "tar: path from a PAX header": (
        tarred((member("good/x", path="../../evil"), b"x"), mode="w"),
        "nothing was installed",
    ),
    "tar: huge": (huge_tar, "too large"),
    "tar: twice": (tarred((member("good/a"), b"1"), (member("./good/a"), b"2")), "twice"),
    "tar: cut short": (
        edited(tarred((member("good/a"), os.urandom(50_000))), lambda data: data[:20_000]),
        "not an archive",
    ),
    "tar: end missing": (edited(tarred(mode="w"), lambda data: data[:1024]), "cut short"),
    "tar: something after the end": (
        edited(tarred(mode="w"), lambda data: data + b"x" * 512),
        "after its end",
    ),
    "tar: damaged": (edited(tarred((member("good/a"), os.urandom(5000))), flipped), "be read"),
    "tar: damaged xz": (
        edited(tarred((member("good/a"), os.urandom(5000)), mode="w:xz"), flipped),
        "be read",
    ),
    "tar: negative size": (tarred((member("good/a", size="-1024"), b""), mode="w"), "installed"),
    "tar: a name of a gigabyte": (huge_long_name, "header of"),
    "tar: a file called like a directory": (
        tarred((member("good/x/"), b"x"), mode="w"),
        "name of a directory",
    ),
    "tar: directory as SKILL.md": (
        tarred((member("bad/SKILL.md", tarfile.DIRTYPE), b""), good=False),
        "no SKILL.md",
    ),
}


def everything(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.name[0] != ".")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", CASES)
def test_refused_by_name_with_nothing_written(tmp_path: Path, name: str) -> None:
    build, words = CASES[name]
    pack = tmp_path / "pack"
    build(pack)
    root = tmp_path / "project" / ".agent" / "skills"
    (root / "there").mkdir(parents=True)
    (root / "there" / "SKILL.md").write_bytes(GOOD.replace(b"good", b"there"))
    before = everything(tmp_path)
    with pytest.raises((PackRefused, IntegrityFailed)) as caught:
        install(local_source(pack), InstallRoot(root), Options())
    assert words in str(caught.value)
    assert everything(tmp_path) == before


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40


def test_good_archives_are_taken(tmp_path: Path) -> None:
    for number, build in enumerate((zipped(), tarred(), tarred(mode="w"), tarred(mode="w:xz"))):
        pack = tmp_path / f"pack{number}"
        build(pack)
        root = tmp_path / str(number) / "skills"
        (change,) = install(local_source(pack), InstallRoot(root), Options()).changes
        assert (change.name, change.action) == ("good", "new")
        assert (root / "good/SKILL.md").read_bytes() == GOOD
        assert everything(root) == ["good", "good/SKILL.md"]


def test_archives_that_other_programs_write(tmp_path: Path) -> None:
    skill = tmp_path / "good"
    (skill / "PK").mkdir(parents=True)
    (skill / "SKILL.md").write_bytes(GOOD)
    (skill / "PK/é.txt").write_text("é" * 5000)
    ways = {
        "zip": "zip -qr - good | cat > pack",
        "zip -0": "zip -q0r pack.zip good && mv pack.zip pack",
        "zip64": "cat good/SKILL.md | (cd good && zip -q ../pack.zip SKILL.md PK/* -) && zip -qd pack.zip - ; mv pack.zip pack",
        "zstd": "tar -c --zstd -f pack good",
        "tar": "cd good && tar -cf ../pack PK SKILL.md",
    }
    for way, line in ways.items():
        if shutil.which(line.split()[0]) is None or (way == "zstd" and shutil.which("zstd") is None):
            continue
        (tmp_path / "pack").unlink(missing_ok=True)
        subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
        root = tmp_path / way / "skills"
        (change,) = install(local_source(tmp_path / "pack"), InstallRoot(root), Options()).changes
        assert change.added == ("PK/é.txt", "SKILL.md"), way
        assert (root / "good/PK/é.txt").read_text() == "é" * 5000


def test_a_refusal_from_the_directory_is_cheap(tmp_path: Path) -> None:
    many_deep(tmp_path / "pack")
    words = "import sys\nfrom pathlib import Path\nfrom vademecum.packs.sources.archive import open_archive\n"
    words += "import resource\nbefore = resource.getrusage(0).ru_maxrss\n"
    words += "try:\n    open_archive(Path(sys.argv[1])).__enter__()\nexcept Exception as error:\n    print(error)\n"
    words += "print(resource.getrusage(0).ru_maxrss - before)"
    done = subprocess.run(
        [sys.executable, "-c", words, str(tmp_path / "pack")], capture_output=True, text=True, check=True
    )
    refusal, kilobytes = done.stdout.splitlines()
    assert "directories" in refusal
    assert int(kilobytes) < 100_000


def test_an_archive_in_a_pack_is_a_file_and_stays_one(tmp_path: Path) -> None:
    """A bomb in a bomb: nothing here ever unpacks what it unpacked."""
    bomb(tmp_path / "inner")
    zipped(("good/inner.zip", (tmp_path / "inner").read_bytes()))(tmp_path / "pack")
    install(local_source(tmp_path / "pack"), InstallRoot(tmp_path / "root"), Options())
    assert everything(tmp_path / "root") == ["good", "good/SKILL.md", "good/inner.zip"]
    assert (tmp_path / "root/good/inner.zip").stat().st_size < 1_000_000


def test_limits_are_as_documented() -> None:
    assert (zips.MAX_ENTRIES, archive.MAX_UNPACKED_BYTES) == (50_000, 1024**3)
