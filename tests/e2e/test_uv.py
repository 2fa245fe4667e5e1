"""G2: packages that a script declares are fetched by uv, where it is present and the network is granted."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tools.support import Bench
from vademecum.config import ExecutionSettings

pytestmark = pytest.mark.extras

SCRIPT = "# /// script\n# dependencies = ['vade-tiny']\n# ///\nimport vade_tiny\nprint(vade_tiny.WORD)\n"


def write_index(place: Path) -> None:
    """A package index with one wheel."""
    directory = place / "simple" / "vade-tiny"
    directory.mkdir(parents=True)
    wheel = directory / "vade_tiny-1.0-py3-none-any.whl"
    info = "vade_tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vade_tiny.py", "WORD = 'fetched'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vade-tiny\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            f"{info}/RECORD", f"vade_tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def index_url(tmp_path: Path) -> Iterator[str]:
    write_index(tmp_path / "site")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site")))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}/simple"
    httpd.shutdown()
    httpd.server_close()
    thread.join(timeout=5)


def test_declared_packages_are_fetched_in_the_sandbox(tmp_path: Path, index_url: str) -> None:
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*words, "--target", str(tmp_path / "uv"), "uv"], check=True)
    env = {"PATH": f"{tmp_path}/uv/bin:/usr/bin:/bin", "UV_DEFAULT_INDEX": index_url}
    settings = ExecutionSettings(environment=("UV_DEFAULT_INDEX",), processes=200, memory_mb=4096)
    bench = Bench(tmp_path, "auto", execution=settings, env=env)
    bench.script(SCRIPT)
    refused = bench.run()
    assert (refused.code, "ask for the network as well" in refused.text) == ("dependencies", True)
    assert bench.printed(network=True) == "fetched"
