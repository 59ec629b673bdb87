"""Devices that are network namespaces of this machine, as labs make them."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ...analyzer.words import printable
from .commands import Request, Said

SECONDS = 30.0
_AT_ONCE = 8
_PIECE_BYTES = 1 << 16


class Namespaces:
    """Runs commands with `ip netns exec` in the namespaces PREFIX + device."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._listening: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._lock = threading.Lock()
        """No command begins to listen beside `close`, which would not know it."""

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._ask, requests))

    def listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        """As `Line.listen`."""
        with self._lock:
            if self._closed:
                return "closed"
            try:
                process = subprocess.Popen(
                    self.command(device, command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                return (error.strerror or str(error)).lower()
            self._listening.add(process)
        heard()
        last = b""
        with process:
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), _PIECE_BYTES):
                last = piece
                heard()
        with self._lock:
            self._listening.discard(process)
        lines = last.decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(lines[-1][:200])}" if lines else ""
        return f"exit status {process.returncode}{reason}"

    def close(self) -> None:
        """End the commands that listen."""
        with self._lock:
            self._closed = True
            for process in self._listening:
                process.kill()

    def _ask(self, request: Request) -> Said:
        command = self.command(request.device, request.command)
        try:
            done = subprocess.run(
                command, input=request.stdin, capture_output=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Said(b"", f"not finished within {SECONDS:g} s")
        except OSError as error:
            return Said(b"", (error.strerror or str(error)).lower())
        if done.returncode == 0:
            return Said(done.stdout, "")
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(lines[-1][:200])}" if lines else ""
        return Said(done.stdout, f"exit status {done.returncode}{reason}")

    def command(self, device: str, command: str) -> list[str]:
        """The arguments of a command in the namespace of a device."""
        return ["ip", "netns", "exec", self._prefix + device, *shlex.split(command)]
