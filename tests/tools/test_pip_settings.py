"""P3: the user's indexes, proxy and certificates, set for pip or for uv, are those that packages come by."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.package_index import Index, package_index
from vademecum import Context
from vademecum.tools.packages.environments import Environments
from vademecum.tools.packages.uv import uv_environment


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as served:
        served.add("tiny")
        yield served


def environment(place: Path, **env: str) -> dict[str, str]:
    """Return what uv gets in a home of one's own; files of the machine are not read."""
    return uv_environment(Context(cwd=place, home=place, env={"PIP_CONFIG_FILE": os.devnull, **env}))


def configured(place: Path, text: str, **env: str) -> dict[str, str]:
    file = place / "pip.conf"
    file.write_text(text)
    found = environment(place, PIP_CONFIG_FILE=str(file), **env)
    return {name: value for name, value in found.items() if value in text or name in env or "a" in value}


def test_only_what_uv_needs_is_passed_on(tmp_path: Path) -> None:
    passed = {
        "HOME": "/home/ada",
        "https_proxy": "http://proxy:1",
        "NO_PROXY": "localhost",
        "SSL_CERT_FILE": "/certs.pem",
        "UV_INDEX_MINE_PASSWORD": "hunter2",
        "UV_INDEX": "mine=https://index.example/simple",
    }
    kept_back = {
        "OPENAI_API_KEY": "k",
        "LD_PRELOAD": "/x.so",
        "PYTHONPATH": "/x",
        "UV_COMPILE_BYTECODE": "1",
        "UV_CONFIG_FILE": "/x",
        "UV_LINK_MODE": "symlink",
        "UV_PYTHON": "/x",
        "VIRTUAL_ENV": "/x",
    }
    assert environment(tmp_path, **passed, **kept_back) == passed


def test_settings_of_pip_are_translated(tmp_path: Path) -> None:
    text = """
[global]
index_url = https://a.example/simple
extra-index-url =
    https://a2.example/simple
    https://a3.example/simple
cert = /a.pem
[install]
find-links = /a /a4
trusted-host = a.example
proxy = http://a:1
"""
    assert configured(tmp_path, text) == {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_EXTRA_INDEX_URL": "https://a2.example/simple https://a3.example/simple",
        "UV_FIND_LINKS": "/a,/a4",
        "UV_INSECURE_HOST": "a.example",
        "SSL_CERT_FILE": "/a.pem",
        "HTTPS_PROXY": "http://a:1",
        "HTTP_PROXY": "http://a:1",
    }


def test_variables_win_over_files_and_those_of_uv_over_those_of_pip(tmp_path: Path) -> None:
    text = "[global]\nindex-url = https://a.example\ncert = /a.pem\nproxy = http://a:1\n"
    assert (
        configured(tmp_path, text, PIP_INDEX_URL="https://ab.example")["UV_DEFAULT_INDEX"]
        == "https://ab.example"
    )
    own = configured(
        tmp_path, text, UV_FIND_LINKS="/wheels", SSL_CERT_FILE="/mine.pem", https_proxy="http://mine:1"
    )
    assert own == {
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/mine.pem",
        "https_proxy": "http://mine:1",
        "HTTP_PROXY": "http://a:1",
    }


def test_the_files_that_pip_reads(tmp_path: Path) -> None:
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / "xdg/pip").mkdir(parents=True)
    (tmp_path / ".pip/pip.conf").write_text("[global]\nindex-url = old\nno-index = true\n")

    def chosen(**env: str) -> tuple[str | None, str | None]:
        context = Context(cwd=tmp_path, home=tmp_path, env={"XDG_CONFIG_DIRS": str(tmp_path / "xdg"), **env})
        found = uv_environment(context)
        return found.get("UV_DEFAULT_INDEX"), found.get("UV_NO_INDEX")

    assert chosen() == ("old", "true")
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex-url = new\nno-index = false\n")
    assert chosen() == ("new", None)
    (tmp_path / "xdg/pip/pip.conf").write_text("[global]\nindex-url = of the machine\n")
    assert chosen() == ("new", None)
    assert chosen(PIP_CONFIG_FILE=os.devnull) == (None, None)
    (tmp_path / "own.conf").write_text("[global]\nindex-url = own\n")
    assert chosen(PIP_CONFIG_FILE=str(tmp_path / "own.conf"))[0] == "own"


@pytest.mark.parametrize(
    "text", ["no section\n", "[global\n", "\xff", "x" * 300_000, "[global]\nindex-url\n"]
)
def test_a_file_that_pip_could_not_read_either(tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_bytes(text.encode("latin-1"))
    found = environment(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), PIP_INDEX_URL="mine")
    assert found["UV_DEFAULT_INDEX"] == "mine"


def test_a_password_in_the_index_reaches_the_index_and_nothing_else(tmp_path: Path, index: Index) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = http://ada:hunter2@{index.address}/simple\n")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PIP_CONFIG_FILE": str(file)}
    context = Context(cwd=tmp_path, home=tmp_path, env=env)
    steps: list[str] = []
    built = Environments(context).get(("tiny",), progress=steps.append)
    assert f"Basic {base64.b64encode(b'ada:hunter2').decode()}" in index.authorizations
    files = [path for path in built.python.parents[1].rglob("*") if path.is_file()]
    assert not [path for path in files if path.is_relative_to(tmp_path) and b"hunter2" in path.read_bytes()]
    assert "hunter2" not in built.lock + "".join(steps)
