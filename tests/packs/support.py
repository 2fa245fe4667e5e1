"""What the tests of packs share: skills to pack, and a web server that does as it is told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support import write_skill


def make(place: Path, name: str, text: str = "one") -> Path:
    """A skill with a script."""
    skill = write_skill(place, name)
    (skill / "scripts").mkdir(exist_ok=True)
    (skill / "scripts/run.sh").write_text(f"echo {text}\n")
    (skill / "scripts/run.sh").chmod(0o755)
    return skill


@dataclass
class Answer:
    """What the server says: a body, once or without end, perhaps slowly, perhaps with a lying length."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    pause: float = 0.0


@dataclass
class Web:
    """A server on loopback: fixed answers first, then the files of a folder."""

    folder: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> Answer:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        file = self.folder / unquote(urlsplit(path).path).lstrip("/")
        return Answer(file.read_bytes()) if file.is_file() else Answer(status=404)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Web]:
    """A server that hands out a folder, until the end of the block."""
    web = Web(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = web.answer(self.path)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if not answer.endless and "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer.body)
                while answer.endless:
                    self.wfile.write(b"x" * 65536)
                    time.sleep(answer.pause)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
