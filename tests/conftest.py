from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Place
from vademecum.sandbox.available import Real, probe

# A shell that starts the tests in the background has them ignore Ctrl-C, and whatever they start inherits that.
for _number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty repository and an empty home."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return Place(tmp_path / "project", tmp_path / "home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty root."""
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def open_root() -> Iterator[Path]:
    """An empty root that any user of the machine may enter, which pytest's own directories do not allow."""
    directory = Path(tempfile.mkdtemp(prefix="vade-open-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    for place in directory.rglob("*"):
        if place.is_dir():
            place.chmod(0o755)
    shutil.rmtree(directory)


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Real:
    """Each sandbox that really confines; a missing one is a failure where it should have been installed."""
    name: Real = request.param
    found = probe(name)
    if name in os.environ.get("VADE_TEST_WITHOUT", "").split():
        assert found.sandbox is None, f"{name} works here, although VADE_TEST_WITHOUT names it"
        pytest.skip(found.problem)
    if found.sandbox is None:
        if os.environ.get("CI"):
            pytest.fail(found.problem)
        pytest.skip(found.problem)
    return name
