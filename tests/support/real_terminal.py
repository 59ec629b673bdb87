"""Programs in a real terminal: tmux, driven by keys."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminals(folder) -> Iterator[type]:
    """`Terminal(command, width, height)`: keys in, the screen out; gone afterwards."""
    server = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]

    def tmux(*arguments):
        run = subprocess.run([*server, *arguments], capture_output=True, text=True, check=True)
        return run.stdout

    class Terminal:
        def __init__(self, command, width=80, height=24):
            line = f"{shlex.join(command)}; echo exit code $?; exec cat"
            environment = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            environment["XDG_CONFIG_HOME"] = str(folder)
            pairs = [f"{k}={v}" for k, v in environment.items()]
            size = ["-x", str(width), "-y", str(height)]
            unset = ["-u", "COLUMNS", "-u", "LINES"]  # they would fix the size
            tmux("new-session", "-d", *size, "env", *unset, *pairs, "sh", "-c", line)

        def keys(self, *keys):
            tmux("send-keys", *keys)

        def resize(self, width, height):
            tmux("resize-window", "-x", str(width), "-y", str(height))

        def screen(self):
            return tmux("capture-pane", "-p")

        def close(self):
            """As somebody closes the window of a terminal."""
            tmux("kill-session")

        def wait(self, text, seconds=300):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if text in self.screen():
                    return self.screen()
                time.sleep(0.1)
            raise AssertionError(f"{text!r} did not come:\n{self.screen()}")

    try:
        yield Terminal
    finally:
        subprocess.run([*server, "kill-server"], check=False)
