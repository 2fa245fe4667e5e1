"""P2: the page of a run links to the files that were made and shows what they look like."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from vademecum.pages.run import run_page
from vademecum.runs.record import Event
from vademecum.runs.stored import PastRun, outputs_of


def called(place: Path, **files: bytes) -> PastRun:
    listed: list[dict[str, Any]] = []
    for name, data in files.items():
        path = place / name.replace("__", ".")
        path.write_bytes(data)
        listed.append(
            {"path": path.name, "file": str(path), "bytes": len(data), "sha256": "", "output": "output:1/x"}
        )
    result = {"text": "", "outputs": listed, "exit_code": 0}
    about = {"tool": "run_script", "code": "", "ok": True, "seconds": 0.1, "risk": "medium", "result": result}
    return PastRun("run", str(place), (Event(1, 0.0, "tool_called", about),))


def test_pictures_tables_and_texts(tmp_path: Path) -> None:
    page = run_page(
        called(
            tmp_path,
            chart__png=b"\x89PNG",
            table__csv="城市,people\nOslo,<b>1</b>\n".encode(),
            notes__txt=b"<script>alert(1)</script>\n",
            data__bin=b"\0\1",
        )
    )
    assert f'src="data:image/png;base64,{base64.b64encode(bytes([0x89]) + b"PNG").decode()}"' in page
    assert "<tr><th>城市</th><th>people</th></tr><tr><td>Oslo</td><td>&lt;b&gt;1&lt;/b&gt;</td></tr>" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>" in page
    assert (
        f'<a href="{(tmp_path / "data.bin").as_uri()}">data.bin</a> (<span class="en">2 bytes</span>' in page
    )
    assert page.count("<script>") == 1


def test_only_files_of_the_record_are_shown(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "run/link.txt").symlink_to(tmp_path / "outside.txt")
    run = called(tmp_path / "run", a__txt=b"a")
    for name in ("../outside.txt", "link.txt", "/etc/passwd"):
        run.events[0].data["result"]["outputs"].append(
            {"path": "x", "file": str(tmp_path / "run" / name), "bytes": 1, "sha256": ""}
        )
    run.events[0].data["result"]["outputs"].append("not an output")
    assert [output.path for output in outputs_of(run.events[0], run.place)] == ["a.txt"]
    assert "outside</pre>" not in run_page(run)


def test_a_file_with_a_secret_is_not_shown(tmp_path: Path) -> None:
    run = called(tmp_path, a__txt=b"token")
    run.events[0].data["result"]["outputs"][0]["secret"] = True
    page = run_page(run)
    assert 'a.txt (<span class="en">5 bytes</span>' in page
    assert "contains a secret" in page
    assert "token" not in page
