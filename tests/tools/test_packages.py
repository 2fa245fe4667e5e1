"""P3: packages of scripts, built outside the sandbox without running any of them, and used inside without a network."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.package_index import Index, package_index, wheel
from vademecum import Context
from vademecum.errors import ToolRefused
from vademecum.sandbox.available import Real, choose_sandbox
from vademecum.sandbox.base import Jail
from vademecum.sandbox.process import Streams, run_command
from vademecum.tools.packages.environments import Environment, Environments, EnvironmentUsage


@dataclass
class Shop:
    """An index, a home, and the environments that are built there."""

    index: Index
    place: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.place),
            "PATH": os.environ["PATH"],
            "VADE_CACHE_DIR": str(self.place / "cache"),
            "UV_CACHE_DIR": str(self.place / "uv-cache"),
            "UV_DEFAULT_INDEX": self.index.url,
            "UV_HTTP_RETRIES": "0",
        }

    def environments(self, env: dict[str, str] | None = None, *, seconds: float = 120) -> Environments:
        context = Context(cwd=self.place, home=self.place, env=self.env | (env or {}))
        return Environments(context, seconds=seconds)

    def get(self, *wanted: str, **env: str) -> Environment:
        return self.environments(env).get(wanted)

    def refused(self, *wanted: str, **env: str) -> str:
        """Return why packages cannot be installed; nothing is left of the attempt."""
        with pytest.raises(ToolRefused) as refused:
            self.get(*wanted, **env)
        assert refused.value.code == "packages"
        assert self.left() == []
        said = str(refused.value)
        assert said.startswith("The packages cannot be installed: ")
        return said.removeprefix("The packages cannot be installed: ")

    def left(self) -> list[str]:
        """Return what lies among the environments, the lock aside."""
        return sorted(set(os.listdir(self.place / "cache/environments")) - {".lock"})


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with package_index() as index:
        yield Shop(index, tmp_path)


def printed(environment: Environment, code: str, sandbox: Real, place: Path) -> str:
    """Return what a program prints that runs with these packages in a sandbox without a network."""
    for name in ("work", "shared"):
        (place / name).mkdir(exist_ok=True)
    script = place / "script.py"
    script.write_text(code)
    streams = Streams(place / "out", place / "err")
    jail = Jail(
        directory=place / "work",
        environment={"PATH": "/usr/bin:/bin", "HOME": str(place / "work")},
        readable=(script, *environment.readable),
        writable=(place / "work",),
        shared=place / "shared",
    )
    argv = [str(environment.python), "-B", "-s", str(script)]
    ended = run_command(choose_sandbox(sandbox), argv, jail, streams=streams)
    assert ended.exit_code == 0, streams.err.read_text()
    return streams.out.read_text().strip()


def test_packages_are_there_in_the_sandbox_and_the_network_is_not(shop: Shop, sandbox: Real) -> None:
    shop.index.add("tiny", wheel("tiny", requires=["other>=1"]))
    shop.index.add("other", version="1.0")
    shop.index.add("other", version="1.1")
    built = shop.get("tiny")
    host, port = shop.index.address.split(":")
    code = f"""
import other, socket, sys, tiny
print(tiny.VERSION, other.VERSION, sys.prefix, sys.version_info[:2])
try:
    socket.create_connection(({host!r}, {port}), timeout=5)
except OSError:
    print("no network")
try:
    open(tiny.__file__, "a")
except OSError:
    print("not writable")
try:
    import click
except ImportError:
    print("nothing of ours")
"""
    expected = (
        f"1.0 1.1 {built.python.parents[1]} {sys.version_info[:2]}\nno network\nnot writable\nnothing of ours"
    )
    assert printed(built, code, sandbox, shop.place) == expected
    assert [line.split()[0] for line in built.lock.splitlines() if "==" in line] == [
        "other==1.1",
        "tiny==1.0",
    ]
    assert built.lock.count("--hash=sha256:") == 2
    assert list(built.python.parents[1].rglob("__pycache__/tiny.*.pyc"))


def test_the_second_run_needs_neither_the_index_nor_uv(shop: Shop) -> None:
    shop.index.add("tiny")
    first = shop.get("tiny")
    asked = len(shop.index.asked)
    shutil.rmtree(shop.place / "uv-cache")
    second = shop.get("tiny", UV_DEFAULT_INDEX="http://127.0.0.1:1/simple", PATH="")
    assert (first.cached, second.cached) == (False, True)
    assert (second.python, second.readable, second.lock) == (first.python, first.readable, first.lock)
    assert len(shop.index.asked) == asked


def test_other_requirements_are_another_environment(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.add("tiny", version="2.0")
    environments = shop.environments()
    assert environments.find(("tiny",)) is None
    latest, pinned = shop.get("tiny"), shop.get("tiny==1.0")
    assert latest.python != pinned.python
    assert ("tiny==2.0" in latest.lock, "tiny==1.0" in pinned.lock) == (True, True)
    assert environments.find(("tiny",)) == shop.get("tiny")


def test_progress_names_the_steps(shop: Shop) -> None:
    shop.index.add("tiny", wheel("tiny", requires=["other"]))
    shop.index.add("other")
    steps: list[str] = []
    shop.environments().get(("tiny",), progress=steps.append)
    assert steps == ["resolving tiny", "installing 2 packages", "compiling"]
    shop.environments().get(("tiny",), progress=steps.append)
    assert len(steps) == 3


# ----- hostile packages: nothing of them runs here, and they write nowhere but into their directory


def symbolic_link(name: str, target: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    entry.comment = target.encode()
    return entry


def test_what_a_package_starts_by_itself_starts_in_the_sandbox_only(shop: Shop, sandbox: Real) -> None:
    mark = shop.place / "work" / "mark"
    leave = f"open({str(mark)!r}, 'w').close()"
    (shop.place / "work").mkdir()
    files = {
        "evil.pth": f"import sys; {leave}\n",
        "sitecustomize.py": leave,
        "usercustomize.py": leave,
        "compileall.py": leave,
        "encodings.py": leave,
        "evil.py": "",
    }
    shop.index.add("evil", wheel("evil", files=files))
    built = shop.get("evil")
    shop.get("evil")
    shop.environments().usage()
    assert not mark.exists()
    assert printed(built, "import evil; print(1)", sandbox, shop.place) == "1"
    assert mark.exists()


@pytest.mark.parametrize(
    "files",
    [
        {"evil-1.0.data/data/pyvenv.cfg": "home = /evil\n"},
        {"pyvenv.cfg": "home = /evil\n", "bin/python": "#!/bin/sh\necho evil\n"},
        {"../../../pyvenv.cfg": "home = /evil\n", "../../../bin/python": "#!/bin/sh\necho evil\n"},
        {"evil-1.0.data/data/../../../../pyvenv.cfg": "home = /evil\n"},
        {"evil-1.0.data/scripts/evil": "#!python\nprint('evil')\n"},
        {"evil-1.0.data/headers/evil.h": ""},
        {"evil-1.0.dist-info/entry_points.txt": "[console_scripts]\nevil = evil:main\n"},
    ],
)
def test_a_package_writes_into_its_directory_only(shop: Shop, sandbox: Real, files: dict[str, str]) -> None:
    shop.index.add("evil", wheel("evil", files={"evil.py": "X = 1\n", **files}))
    built = shop.get("evil")
    home = built.python.parents[1]
    assert sorted(os.listdir(home)) == ["bin", "environment.json", "lib", "pyvenv.cfg"]
    assert os.listdir(home / "bin") == ["python"]
    assert os.path.samefile(built.python, os.path.realpath(sys.executable))
    assert "/evil" not in (home / "pyvenv.cfg").read_text()
    assert printed(built, "import evil; print(evil.X)", sandbox, shop.place) == "1"
    assert shop.left() == [home.name]


@pytest.mark.parametrize(
    "files",
    [
        {"evil-1.0.data/scripts/python": "#!python\n"},
        {"evil-1.0.data/data/bin/python": "#!/bin/sh\necho evil\n"},
        {"evil-1.0.dist-info/entry_points.txt": "[console_scripts]\n../../../evil = evil:main\n"},
    ],
)
def test_a_package_that_uv_does_not_install(shop: Shop, files: dict[str, str]) -> None:
    shop.index.add("evil", wheel("evil", files=files))
    assert "uv failed and said: Failed to install: evil-1.0-py3-none-any.whl" in shop.refused("evil")


def test_an_absolute_path_and_links_in_a_package(shop: Shop) -> None:
    outside = shop.place / "outside.py"
    shop.index.add("evil", wheel("evil", files={"evil.py": "", str(outside): "x = 1\n"}))
    links = [symbolic_link("link.py", "/etc/passwd"), symbolic_link("directory", "/etc")]
    shop.index.add("links", wheel("links", entries=links))
    built = [shop.get("evil"), shop.get("links")]
    assert not outside.exists()
    for environment in built:
        assert not [file for file in environment.python.parents[1].glob("lib/**/*") if file.is_symlink()]


@pytest.mark.parametrize(
    "target", ["file:///nonexistent/worse", "http://127.0.0.1:1/evil-1.0.tar.gz", "git+file:///tmp/x"]
)
def test_an_address_among_the_requirements_of_a_package(shop: Shop, target: str) -> None:
    shop.index.add("evil", wheel("evil", requires=[f"worse @ {target}"]))
    assert shop.refused("evil") == (
        "evil==1.0 requires another package by its address, which is not allowed: require another version."
    )


def test_names_that_are_not_text(shop: Shop) -> None:
    path = fake_uv(shop.place, f"{INSTALLS}\nprintf x > $target/$(printf 'a\\377')")
    built = shop.get("tiny", PATH=f"{path}:/usr/bin:/bin")
    assert (built.cached, shop.get("tiny").cached) == (False, True)


def test_files_are_not_shared_with_the_cache_of_uv(shop: Shop) -> None:
    shop.index.add("tiny")
    built = shop.get("tiny")
    files = [file for file in built.python.parents[1].glob("lib/**/*") if file.is_file()]
    assert files
    assert {file.stat().st_nlink for file in files} == {1}


def fake_uv(place: Path, script: str) -> str:
    """Return a PATH on which uv is this shell script."""
    (place / "fake").mkdir()
    (place / "fake/uv").write_text(f"#!/bin/sh\n{script}\n")
    (place / "fake/uv").chmod(0o755)
    return str(place / "fake")


INSTALLS = """
for word; do case "$previous" in --target) target=$word;; --output-file) lock=$word;; esac; previous=$word; done
[ -n "$lock" ] && echo 'tiny==1.0 --hash=sha256:00' > "$lock" && exit 0
"""


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            "ln -s /etc/passwd $target/evil.py",
            "'evil.py' in one of them is not a plain file: require another version.",
        ),
        ("mkfifo $target/pipe", "'pipe' in one of them is not a plain file: require another version."),
        (
            "echo > $target/../../../pyvenv.cfg",
            "one of them has files for a place outside its directory: require another version.",
        ),
        (
            "mkdir $target/../../../bin",
            "one of them has files for a place outside its directory: require another version.",
        ),
    ],
)
def test_an_installer_that_lets_packages_do_more(shop: Shop, harm: str, said: str) -> None:
    path = fake_uv(shop.place, f"{INSTALLS}\n{harm}")
    assert shop.refused("tiny", PATH=f"{path}:/usr/bin:/bin") == said


# ----- one sentence for each failure


def test_a_package_that_is_not_there(shop: Shop) -> None:
    assert shop.refused("nope") == "there is no package nope in the package index: check its name."


def test_versions_that_do_not_fit_together(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.add("other", wheel("other", requires=["tiny>=2"]))
    assert shop.refused("tiny>=5") == (
        "no versions fit together (only tiny==1.0 is available and you require tiny>=5): change the versions."
    )
    assert shop.refused("other").startswith(
        "no versions fit together (only tiny==1.0 is available and all versions"
    )


def test_no_wheel_for_this_platform_and_only_sources(shop: Shop) -> None:
    said = "{}==1.0 has no wheel for this Python and platform, and sources are not built: require another version."
    shop.index.add("mac", file="mac-1.0-cp311-cp311-macosx_11_0_arm64.whl")
    shop.index.add("source", b"x", file="source-1.0.tar.gz")
    assert shop.refused("mac") == said.format("mac")
    assert shop.refused("source") == said.format("source")
    with pytest.raises(ToolRefused) as refused:
        shop.get("source")
    assert "execution.build_packages" in refused.value.advice  # which a model does not see


BACKEND = """
import os, pathlib, urllib.request, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{directory}/source-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("source.py", f"SEEN = {seen()!r}")
        wheel.writestr("source-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: source\\nVersion: 1.0\\n")
        wheel.writestr("source-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("source-1.0.dist-info/RECORD", "")
    return "source-1.0-py3-none-any.whl"
def seen():
    try:
        pathlib.Path(FILE).write_text("built outside")
    except OSError:
        pass
    try:
        return pathlib.Path(FILE).read_text()
    except OSError:
        return "nothing"
"""


def source(**files: str) -> bytes:
    """Return a source distribution with a build backend of its own."""
    data = io.BytesIO()
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project += '[project]\nname = "source"\nversion = "1.0"\n'
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        info = "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n"
        for name, text in {"pyproject.toml": project, "PKG-INFO": info, **files}.items():
            member = tarfile.TarInfo(f"source-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def test_sources_are_built_in_the_sandbox_if_the_user_wants_it(shop: Shop, sandbox: Real) -> None:
    canary = shop.place / "canary"
    canary.write_text("private")
    backend = f"FILE = {str(canary)!r}\n{BACKEND}"
    shop.index.add("source", source(**{"backend.py": backend}), file="source-1.0.tar.gz")
    context = Context(cwd=shop.place, home=shop.place, env=shop.env)
    environments = Environments(context, builder=choose_sandbox(sandbox))
    built = environments.get(("source",))
    assert printed(built, "import source; print(source.SEEN)", sandbox, shop.place) == "nothing"
    assert canary.read_text() == "private"
    broken = source(**{"backend.py": "1 / 0"})
    environments.clear()
    shop.index.add("source", broken, file="source-1.0.tar.gz")
    with pytest.raises(ToolRefused, match=r"source==1\.0 cannot be built from source here"):
        environments.get(("source",))


def test_a_package_for_another_python(shop: Shop) -> None:
    shop.index.add("new", wheel("new", python=">=3.99"))
    assert shop.refused("new") == "new==1.0 requires Python >=3.99: require another version."


def test_an_index_that_is_not_there(shop: Shop) -> None:
    said = "the package index at 127.0.0.1:1 cannot be reached: check the network and your settings for pip or uv."
    assert shop.refused("tiny", UV_DEFAULT_INDEX="http://ada:hunter2@127.0.0.1:1/simple") == said


def test_an_index_that_lies_about_hashes(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.hashes["tiny-1.0-py3-none-any.whl"] = "0" * 64
    assert shop.refused("tiny") == (
        "what the package index sent for tiny==1.0 does not match its hash: try later."
    )


def test_an_index_that_changes_a_file_between_two_steps(shop: Shop) -> None:
    shop.index.add("tiny")
    environments = shop.environments()

    def swapped(step: str) -> None:
        if step.startswith("installing"):
            shop.index.add("tiny", wheel("tiny", files={"tiny.py": "evil = 1\n"}))
            shutil.rmtree(shop.place / "uv-cache")

    with pytest.raises(ToolRefused, match="does not match its hash"):
        environments.get(("tiny",), progress=swapped)
    assert shop.left() == []


def test_a_file_that_is_not_a_wheel(shop: Shop) -> None:
    shop.index.add("broken", b"not a zip")
    assert shop.refused("broken").startswith(
        "no versions fit together (broken==1.0 has an invalid package format"
    )


def test_uv_is_missing(shop: Shop) -> None:
    """The interpreter of an environment that was just made has no uv beside it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(shop.place / "bare")], check=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    code = (
        "import sys; from pathlib import Path; from vademecum import Context\n"
        "from vademecum.tools.packages.environments import Environments\n"
        "place = Path(sys.argv[1])\n"
        "try: Environments(Context(place, place, {})).get(('tiny',))\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [str(shop.place / "bare/bin/python"), "-c", code, str(shop.place)],
        env={"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    if shutil.which("uv", path="/usr/local/bin:/usr/bin:/bin"):
        pytest.skip("uv is among the system's own programs")
    assert done.stdout == (
        "The packages cannot be installed: uv, which installs them, is not installed: "
        "run pip install 'vademecum[packages]'.\n"
    )


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        ("error: No space left on device (os error 28)", "the disk is full: make room, for example with "),
        ("error: unexpected argument '--target' found", "uv is too old: update it, or run: pip install -U "),
        (
            "error: HTTP status client error (401 Unauthorized) for url",
            "the package index answered 401 Unauthorized: ",
        ),
        (
            "error: dns error for https://ada:hunter2@index.example/x",
            "uv failed and said: dns error for https://***@",
        ),
        ("error: " + "x" * 100_000, "uv failed and said: " + "x" * 300),
        ("error: " + "no solution found x.==" * 9_000, "uv failed and said: no solution found x.=="),
        ("\x1b[31moops", "uv failed and said: \\x1b[31moops"),
        ("", "uv failed and said: nothing"),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because only a==1 is\n      available and you "
            "require a>2, we can conclude",
            "no versions fit together (only a==1 is available and you require a>2): change the versions",
        ),
    ],
)
def test_what_uv_says_becomes_one_sentence(shop: Shop, complaint: str, said: str) -> None:
    (shop.place / "complaint").write_text(complaint)
    path = fake_uv(shop.place, f"cat {shop.place}/complaint >&2; exit 2")
    found = shop.refused("tiny", PATH=f"{path}:/usr/bin:/bin")
    assert found.startswith(said)
    assert len(found) < 600
    assert "hunter2" not in found


def test_the_disk_is_full(shop: Shop) -> None:
    """On a small disk of its own, which a namespace provides, a large package is stopped before it is full."""
    disk = shop.place / "disk"
    disk.mkdir()
    mount = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*mount, "mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no disk of one's own can be mounted here: {tried.stderr.decode().strip()}")
    bomb = wheel("bomb", files={f"bomb{number}.bin": b"\0" * 40_000_000 for number in range(3)})
    shop.index.add("bomb", bomb)
    code = (
        "import sys, os; from pathlib import Path; from vademecum import Context\n"
        "from vademecum.tools.packages.environments import Environments\n"
        "place = Path(sys.argv[1])\n"
        "try: Environments(Context(place, place, dict(os.environ))).get(('bomb',))\n"
        "except Exception as error: print(error)\n"
    )
    script = f"mount -t tmpfs -o size=150m tmpfs {disk} && exec {sys.executable} -c '{code.replace(chr(39), chr(34))}' {disk}"
    env = shop.env | {"VADE_CACHE_DIR": f"{disk}/cache", "UV_CACHE_DIR": f"{disk}/uv"}
    done = subprocess.run([*mount, "sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == (
        "The packages cannot be installed: the disk is full: make room, for example with "
        "`vade refresh --environments`.\n"
    ), done.stderr


def test_no_place_to_keep_them(shop: Shop) -> None:
    nowhere = Context(cwd=shop.place, home=Path("/nonexistent"), env={"PATH": os.environ["PATH"]})
    with pytest.raises(ToolRefused, match="there is no home directory to keep them in: set VADE_CACHE_DIR"):
        Environments(nowhere).get(("tiny",))
    (shop.place / "file").write_text("")
    with pytest.raises(
        ToolRefused, match=r"cannot be used \(Not a directory\): correct it, or set VADE_CACHE_DIR"
    ):
        shop.get("tiny", VADE_CACHE_DIR=str(shop.place / "file"))
    assert (Environments(nowhere).usage(), Environments(nowhere).clear()) == (
        EnvironmentUsage(),
        EnvironmentUsage(),
    )


# ----- an index that hangs, a caller that cancels, processes that are killed, several at once


def children_with(word: str) -> list[int]:
    """Return the processes whose command line contains a word."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def end_children_with(word: str) -> None:
    for orphan in children_with(word):
        with contextlib.suppress(ProcessLookupError):  # it may end by itself once its parent is gone
            os.kill(orphan, signal.SIGKILL)


def test_an_index_that_hangs(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.silent.set()
    with pytest.raises(ToolRefused, match="it takes too long: try again"):
        shop.environments(seconds=1).get(("tiny",))
    assert (shop.left(), children_with(str(shop.place))) == ([], [])
    assert "127.0.0.1" in shop.refused("tiny", UV_HTTP_TIMEOUT="1")


def test_a_caller_that_cancels(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.silent.set()
    with pytest.raises(ToolRefused) as refused:
        shop.environments().get(("tiny",), cancelled=shop.index.waiting.is_set)
    assert (refused.value.code, shop.left()) == ("stopped-cancelled", [])
    assert children_with(str(shop.place)) == []


def test_an_interrupted_caller(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.silent.set()

    def interrupted() -> bool:
        if shop.index.waiting.is_set():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        shop.environments().get(("tiny",), cancelled=interrupted)
    assert (shop.left(), children_with(str(shop.place))) == ([], [])


BUILDER = """
import os, sys
from pathlib import Path
from vademecum import Context
from vademecum.tools.packages.environments import Environments
place = Path(sys.argv[1])
steps = []
found = Environments(Context(place, place, dict(os.environ))).get(("tiny",), progress=steps.append)
print(found.cached, found.python, "; ".join(steps), sep="|")
"""


def builder(shop: Shop) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", BUILDER, str(shop.place)]
    return subprocess.Popen(words, env=shop.env, stdout=subprocess.PIPE, text=True)


def test_several_processes_build_it_once(shop: Shop) -> None:
    shop.index.add("tiny")
    builders = [builder(shop) for _ in range(4)]
    outputs = [process.communicate(timeout=60)[0].strip().split("|") for process in builders]
    assert [process.returncode for process in builders] == [0] * 4
    assert sorted(cached for cached, _, _ in outputs) == ["False", "True", "True", "True"]
    assert len({python for _, python, _ in outputs}) == 1
    assert sum("compiling" in steps for _, _, steps in outputs) == 1
    assert len(shop.left()) == 1


def test_a_builder_that_was_killed_leaves_nothing_in_the_way(shop: Shop, sandbox: Real) -> None:
    shop.index.add("tiny")
    shop.index.silent.set()
    killed = builder(shop)
    assert shop.index.waiting.wait(30)
    steps: list[str] = []
    assert [name[:5] for name in shop.left()] == [".new-"]
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    shop.index.silent.clear()
    built = shop.environments().get(("tiny",), progress=steps.append)
    assert (built.cached, steps[0]) == (False, "resolving tiny")
    assert shop.left() == [built.python.parents[1].name]
    assert printed(built, "import tiny; print(tiny.VERSION)", sandbox, shop.place) == "1.0"
    end_children_with(str(shop.place))


def test_one_that_waits_for_another_says_so_and_can_be_cancelled(shop: Shop) -> None:
    shop.index.add("tiny")
    shop.index.silent.set()
    first = builder(shop)
    assert shop.index.waiting.wait(30)
    said: list[str] = []
    with pytest.raises(ToolRefused) as refused:
        shop.environments().get(("tiny",), progress=said.append, cancelled=lambda: bool(said))
    assert refused.value.code == "stopped-cancelled"
    assert said == ["waiting for another process that installs packages"]
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    end_children_with(str(shop.place))


@pytest.mark.parametrize(
    "harm", ["module", "interpreter", "description", "half a description", "all packages"]
)
def test_a_damaged_environment_is_built_again(shop: Shop, harm: str) -> None:
    shop.index.add("tiny")
    home = shop.get("tiny").python.parents[1]
    match harm:
        case "module":
            next(home.glob("lib/**/tiny.py")).unlink()
        case "interpreter":
            (home / "bin/python").unlink()
        case "description":
            (home / "environment.json").unlink()
        case "half a description":
            os.truncate(home / "environment.json", 20)
        case "all packages":
            shutil.rmtree(home / "lib")
    again = shop.get("tiny")
    assert (again.cached, again.python.parents[1]) == (False, home)
    assert next(home.glob("lib/**/tiny.py")).exists()
    assert shop.get("tiny").cached
    assert shop.left() == [home.name]


def test_environments_are_counted_and_removed(shop: Shop) -> None:
    shop.index.add("tiny", wheel("tiny", files={"tiny.txt": "x" * 5000}))
    shop.index.add("other")
    environments = shop.environments()
    assert environments.usage() == EnvironmentUsage(0, 0)
    shop.get("tiny")
    (shop.place / "cache/environments/.new-left").mkdir()
    one = environments.usage()
    shop.get("other")
    assert (one.number, 5000 < one.bytes < 9000, environments.usage().number) == (1, True, 2)
    assert environments.clear().number == 2
    assert (environments.usage(), shop.left()) == (EnvironmentUsage(0, 0), [])


def test_environments_of_another_user_are_not_used(shop: Shop) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    shop.index.add("tiny")
    home = shop.get("tiny").python.parents[1]
    os.chown(home / "environment.json", 12345, 12345)
    assert shop.environments().find(("tiny",)) is None
    os.chown(home.parent, 12345, 12345)
    with pytest.raises(ToolRefused, match="belongs to another user: set VADE_CACHE_DIR"):
        shop.get("tiny")
