"""A real browser: Debian's Chromium, driven by the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import until

_ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--no-first-run",
]  # fmt: skip


class Browser:
    """One session of Chromium; it logs its requests and the console of each page."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        options = {"args": _ARGUMENTS, "perfLoggingPrefs": {"enableNetwork": True}}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def open(self, page: Path) -> None:
        """Load a file."""
        self._ask("POST", "/url", {"url": page.as_uri()})

    def dialog(self) -> str | None:
        """The text of an open dialog."""
        try:
            return str(self._ask("GET", "/alert/text"))
        except urllib.error.HTTPError as error:
            assert json.load(error)["value"]["error"] == "no such alert"
            return None

    def accept(self) -> None:
        """Close the open dialog."""
        self._ask("POST", "/alert/accept", {})

    def run(self, script: str, *arguments: Any) -> Any:
        """What an asynchronous script passes to its last argument."""
        return self._ask("POST", "/execute/async", {"script": script, "args": arguments})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Entries since the last call: `browser` (the console) or `performance`."""
        entries: list[dict[str, Any]] = self._ask("POST", "/se/log", {"type": kind})
        return entries

    def requests(self) -> list[str]:
        """Addresses asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def paper(self) -> None:
        """The page as the style for print shows it, until the next `look`."""
        self._command("Emulation.setEmulatedMedia", {"media": "print"})

    def look(self, width: int, height: int, scheme: str) -> None:
        """The size of the page in pixels, and `light` or `dark`."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"media": "", "features": features})

    def picture(self) -> bytes:
        """PNG of the visible part."""
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def pdf(self) -> bytes:
        """The page printed."""
        return base64.b64decode(self._ask("POST", "/print", {"background": True}))

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["value"]

    def close(self) -> None:
        """End Chromium."""
        self._ask("DELETE", "")


@contextmanager
def browser(driver: str, folder: Path) -> Iterator[Browser]:
    """A browser of its own; `folder` takes the log of its driver."""
    log = folder / "driver.log"
    with log.open("wb") as out, subprocess.Popen([driver, "--port=0"], stdout=out) as process:
        try:
            until(lambda: b"on port " in log.read_bytes().replace(b"on port 0", b""))
            told = log.read_text().split("started successfully on port ")[1]
            session = Browser(int(told.split(".")[0]))
            try:
                yield session
            finally:
                session.close()
        finally:
            process.terminate()
