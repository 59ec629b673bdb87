"""A process with a rank that makes queue pairs through libibverbs's real symbols."""

import json
import os
import subprocess
import sys
from pathlib import Path

from network import bth, ethernet, ipv4, udp

FAKE = Path(__file__).with_name("fake_verbs.py")
MASK = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20
HERE, THERE = "10.0.0.1", "10.0.0.2"


class Job:
    """A process with a rank that makes queue pairs."""

    def __init__(self, rank):
        self._process = subprocess.Popen(
            [sys.executable, str(FAKE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RANK": str(rank)},
        )
        self.pid = self._process.pid

    def __call__(self, *command):
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def connect(self, local, remote):
        gid = "0" * 20 + "ffff" + "0a000002"
        assert self("create", local, {}) is True
        assert self("modify", local, MASK, {"state": 2, "remote_qp": remote, "gid": gid}) == 0

    def kill(self):
        self._process.kill()
        self._process.communicate()


def frame(source, destination, qp, psn, opcode):
    return ethernet(ipv4(udp(bth(psn, qp, opcode) + bytes(68)), source, destination))
