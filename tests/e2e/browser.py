"""A real browser without a window, spoken to over a pipe: it opens pages, and says what is on them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Without a window, and without asking anybody for anything.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def without_policy(page: Path) -> str:
    """Return a page whose policy is removed, so that a test can add a script to it."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))


class Browser:
    """One page of a browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._number = 0
        self._waiting = b""
        self._session: dict[str, str] = {}
        self.asked: list[str] = []
        pages = [found for found in self._call("Target.getTargets")["targetInfos"] if found["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._call("Network.enable")

    def open(self, url: str) -> None:
        """Go to a page; ``wait`` says when what is wanted is there."""
        self._call("Page.navigate", url=url)
        path = url.partition("?")[0]
        self.wait(f"document.readyState == 'complete' && location.href.startsWith({path!r})")

    def wait(self, condition: str, *, seconds: float = 60) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.value(condition)):
            assert time.monotonic() < deadline, condition
            time.sleep(0.1)
        return value

    def value(self, expression: str) -> Any:
        """What an expression is on the page."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get(
            "value"
        )

    def picture(self, size: tuple[int, int], *, dark: bool = False, language: str = "en") -> bytes:
        """Return a PNG of the page, which is opened again with a window of that size."""
        width, height = size
        is_phone = width < 500
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        self._call("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setUserAgentOverride", userAgent="Chromium", acceptLanguage=language)
        self.open(self.value("location.href.split('#')[0]"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", clip=clip)["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._waiting:
                piece = os.read(self._reading, 1 << 20)
                assert piece, "the browser ended"
                self._waiting += piece
            one, self._waiting = self._waiting.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("method") == "Network.requestWillBeSent":
                self.asked.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "result" in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def browsing(chromium: str, profile: Path, size: str) -> Iterator[Browser]:
    """A browser with a window of that size, and nothing of it afterwards."""
    ours, theirs = os.pipe(), os.pipe()
    # The browser reads from 3 and writes to 4; copies further up are not in the way of each other.
    given = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 50) for descriptor in (ours[0], theirs[1])]
    words = [
        chromium,
        *FLAGS,
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        f"--window-size={size}",
        "about:blank",
    ]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{given[0]} 4>&{given[1]}', "bash", *words],
        pass_fds=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (ours[0], theirs[1], *given):
        os.close(descriptor)
    try:
        yield Browser(theirs[0], ours[1])
    finally:
        process.terminate()
        process.wait(timeout=30)
        os.close(theirs[0])
        os.close(ours[1])
