"""Headless Chromium, driven over its DevTools pipe: JSON messages that end with NUL, on descriptors 3 and 4."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE = 60  # seconds for one answer, on a busy machine


class Browser:
    """One tab."""

    def __init__(self, writer: int, reader: int) -> None:
        self._writer, self._reader = writer, reader
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, file: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this size; returns when it has loaded."""
        self.size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))

    def size(self, width: int, height: int = 900) -> None:
        phone = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element."""
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', inline: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Of the page, or of what the window shows."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    @property
    def complaints(self) -> list[str]:
        """Exceptions, console errors and warnings since the page was opened."""
        found = []
        for event in self.events:
            method, what = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(what["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                found.append(str(what["args"]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """What the page asked for, itself included."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        found: list[dict[str, Any]] = []
        self._until(lambda: bool(found), lambda answer: found.append(answer) if answer["id"] == message["id"] else None)
        assert "error" not in found[0], f"{method}: {found[0]['error']}"
        result: dict[str, Any] = found[0]["result"]
        return result

    def _until(self, done: Any, answered: Any = lambda answer: None) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._reader], [], [], max(0.0, end - time.monotonic()))
                assert ready, "Chromium does not answer"
                more = os.read(self._reader, 1 << 16)
                assert more, "Chromium has ended"
                self._buffer += more
            text, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(text)
            if "id" in message:
                answered(message)
            else:
                self.events.append(message)


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser of its own with an empty profile; gone afterwards."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no Chromium: scripts/install-system-packages --tests installs it"
    theirs_in, ours_out = _pipe()
    ours_in, theirs_out = _pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    moves = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)]
    moves += [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    environment = {**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)}
    pid = os.posix_spawn(program, command, environment, file_actions=moves, setpgroup=0)
    for fd in (theirs_in, theirs_out, nothing):
        os.close(fd)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_out)  # it ends by itself when nobody can talk to it
        os.close(ours_in)
        _reap(pid)


def _pipe() -> tuple[int, int]:
    """With numbers above those that the browser uses."""
    high = []
    for fd in os.pipe():
        high.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20))
        os.close(fd)
    return high[0], high[1]


def _reap(pid: int) -> None:
    end = time.monotonic() + 10
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # its own group, made for it
            os.waitpid(pid, 0)
            return
        time.sleep(0.05)
