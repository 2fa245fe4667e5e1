"""P3: `vade doctor` counts the environments with packages of scripts, `vade refresh --environments` removes them."""

from __future__ import annotations

from pathlib import Path

from tests.support import Place
from tests.tools.package_index import package_index, wheel
from vademecum import Context
from vademecum.tools.packages.environments import Environments


def build(place: Place) -> Path:
    """Build an environment of 2 MB and return its directory."""
    with package_index() as index:
        index.add("large", wheel("large", files={"large.txt": "x" * 2_000_000}))
        env = place.env | {"UV_DEFAULT_INDEX": index.url}
        context = Context(cwd=place.cwd, home=place.home, env=env)
        return Environments(context).get(("large",)).python.parents[1]


def packages_check(place: Place) -> tuple[str, str, str | None]:
    checks = place.vade("doctor", "--json").json["checks"]
    (found,) = (check for check in checks if check["name"] == "packages")
    return found["status"], found["message"], found["fix"]


def test_doctor_counts_environments(place: Place) -> None:
    assert packages_check(place) == ("ok", "0 environments for scripts, 0.0 MB", None)
    build(place)
    assert packages_check(place) == ("ok", "1 environment for scripts, 2.0 MB", None)
    assert "✓ packages: 1 environment for scripts, 2.0 MB\n" in place.vade("doctor").out
    found = place.vade("doctor", "--json").json["environments"]
    assert (found["number"], 2_000_000 < found["bytes"] < 2_010_000) == (1, True)


def test_refresh_removes_environments_only_when_asked(place: Place) -> None:
    home = build(place)
    assert place.vade("refresh").code == 0
    assert home.is_dir()
    done = place.vade("refresh", "--environments")
    assert (done.code, done.out.splitlines()[1:]) == (0, ["Removed 1 environment, 2.0 MB"])
    assert not home.exists()
    build(place)
    found = place.vade("refresh", "--environments", "--json").json
    assert list(found) == ["report", "hash", "changed", "environments"]
    assert found["environments"]["number"] == 1
    assert place.vade("refresh", "--environments", "--json").json["environments"] == {"number": 0, "bytes": 0}
    assert not home.exists()
