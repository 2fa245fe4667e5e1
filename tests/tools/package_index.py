"""A package index on loopback, with wheels that are made on the spot."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def wheel(
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str | bytes] | None = None,
    requires: Sequence[str] = (),
    entries: Sequence[zipfile.ZipInfo] = (),
    python: str = "",
) -> bytes:
    """Return a wheel with these files; without any, a module of its name that knows its version."""
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Python: {python}"] if python else []
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    content = {
        **({f"{plain}.py": f"VERSION = {version!r}\n"} if files is None else files),
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        for entry in entries:
            archive.writestr(entry, entry.comment)
    return data.getvalue()


@dataclass
class Index:
    """What the index offers, and what it was asked for."""

    address: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.address}/simple"

    def add(self, name: str, data: bytes | None = None, *, version: str = "1.0", file: str = "") -> None:
        """Offer a wheel, or a file of another name."""
        file = file or f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files.setdefault(name, {})[file] = wheel(name, version) if data is None else data

    def answer(self, path: str) -> bytes | None:
        """Return what is at a path."""
        match path.strip("/").split("/"):
            case ["simple", name] if name in self.files:
                links = [self._link(name, file) for file in self.files[name]]
                return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
            case ["files", name, file]:
                return self.files.get(name, {}).get(file)
        return None

    def _link(self, name: str, file: str) -> str:
        digest = self.hashes.get(file) or hashlib.sha256(self.files[name][file]).hexdigest()
        return f'<a href="/files/{name}/{file}#sha256={digest}">{file}</a>\n'


@contextmanager
def package_index() -> Iterator[Index]:
    """Serve an index; while ``silent`` is set it takes requests and does not answer."""
    index = Index()
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            index.authorizations.append(self.headers.get("Authorization", ""))
            if index.silent.is_set():
                index.waiting.set()
                over.wait(60)
                return
            data = index.answer(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Type", "text/html" if "/simple/" in self.path else "application/zip")
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data or b"")

        do_HEAD = do_GET  # noqa: N815 - the name that the server asks for

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield index
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
