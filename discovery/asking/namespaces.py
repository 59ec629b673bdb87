"""Devices that are network namespaces of this machine, as labs make them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ...analyzer.words import printable
from .commands import Request, Said

SECONDS = 30.0
_AT_ONCE = 8


class Namespaces:
    """Runs commands with `ip netns exec` in the namespaces PREFIX + device."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._one, requests))

    def _one(self, request: Request) -> Said:
        command = self.command(request.device, request.command)
        try:
            done = subprocess.run(
                command, input=request.stdin, capture_output=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Said(b"", f"no end within {SECONDS:g} s")
        except OSError as error:
            return Said(b"", (error.strerror or str(error)).lower())
        if done.returncode == 0:
            return Said(done.stdout, "")
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(told[-1][:200])}" if told else ""
        return Said(done.stdout, f"exit status {done.returncode}{reason}")

    def command(self, device: str, command: str) -> list[str]:
        """The arguments of a command in the namespace of a device."""
        return ["ip", "netns", "exec", self._prefix + device, *shlex.split(command)]
