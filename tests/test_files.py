"""Reads are capped, writes are atomic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vademecum.errors import FileRefused
from vademecum.files import read_capped, write_atomic


def test_cap_is_the_last_size_that_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert read_capped(file, cap=5) == b"12345"
    with pytest.raises(FileRefused, match="larger than 4 bytes"):
        read_capped(file, cap=4)


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises((FileRefused, IsADirectoryError)):
            read_capped(path, cap=10)


def test_write_replaces_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "f"
    write_atomic(file, b"one", mode=0o600)
    write_atomic(file, b"two", mode=0o600)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o600)
    assert os.listdir(file.parent) == ["f"]


def test_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    # A file size limit stands for a full disk.
    file = tmp_path / "f"
    file.write_bytes(b"old")
    code = (
        "import resource, signal, sys; from pathlib import Path; from vademecum.files import write_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_atomic(Path(sys.argv[1]), b'x' * 100_000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False
    )
    assert "File too large" in done.stderr
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"old", ["f"])
