"""A bounded generator of RoCE frames inside the kernel, and the link it sends over.

An XDP program makes each frame a different one (source port, QPN, PSN) and
sends it out of a veth interface; BPF_PROG_TEST_RUN runs it so many times and
ends. Nothing leaves the network namespace that is made for it.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from typing import Self

from bpf_runs import run_program

from rocescope.probes import bpf
from rocescope.probes.hooks.interfaces import in_namespace
from rocescope.probes.program.compile import load, machine_code

LIVE_FRAMES = 1 << 1  # BPF_F_TEST_XDP_LIVE_FRAMES
BATCH = 64
FLOWS = 64

# Frame i: flow i % FLOWS with its own QPN (0x100 on) and source port, PSN i / FLOWS.
_SOURCE = """
int generate(struct xdp_md *ctx)
{
    unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    unsigned int zero = 0, *next, number, psn;
    unsigned short flow;

    next = ((void *(*)(void *, const void *))1)((void *)pseudo(1, STATE_FD), &zero);
    if (!next || data + 54 > end)
        return 1;
    number = (*next)++;
    flow = number % FLOWS;
    psn = number / FLOWS;
    data[34] = 0xc0 | flow >> 8;
    data[35] = flow;
    data[48] = 1 + (flow >> 8);
    data[49] = flow;
    data[51] = psn >> 16;
    data[52] = psn >> 8;
    data[53] = psn;
    return 3; /* XDP_TX */
}
"""


def frame(size: int = 128) -> bytes:
    """A RoCEv2 frame of `size` bytes; the generator fills in port, QPN and PSN."""
    payload = bytes(size - 14 - 20 - 8)
    bth = struct.pack(">BBHII", 0x07, 0, 0xFFFF, 0x100, 0)
    udp = struct.pack(">HHHH", 0xC000, 4791, 8 + len(payload), 0) + bth + payload[12:]
    ip = struct.pack(
        ">BBHHHBBH4s4s",
        *(0x45, 2, 20 + len(udp), 0, 0, 64, 17, 0),
        *(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])),
    )
    return bytes.fromhex("0200000000020200000000010800") + ip + udp


@dataclass(frozen=True)
class Sent:
    """What one run of the generator did."""

    frames: int
    seconds: float

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.seconds


class Link:
    """A namespace with the linked interfaces `left` and `right`, and a generator on `left`.

    flows: at most 16,384, so many are the source ports a sender varies.
    """

    def __init__(self, flows: int = FLOWS) -> None:
        self.name = f"rsbench{os.getpid()}"
        self._state = bpf.create_map(bpf.MAP_ARRAY, 4, 4, 1)
        source = (
            f"#define STATE_FD {self._state}\n#define FLOWS {flows}u\n"
            "unsigned long long pseudo(unsigned long long, unsigned long long)"
            f' asm("llvm.bpf.pseudo");\n{_SOURCE}'
        )
        code = machine_code(source, ["generate"])["generate"]
        self._program = load(bpf.PROG_XDP, code, "generate")

    def __enter__(self) -> Self:
        self._run("ip", "netns", "add", self.name)
        self.ip("link", "add", "left", "type", "veth", "peer", "name", "right")
        for interface in ("left", "right"):
            self.ip("link", "set", interface, "addrgenmode", "none", "up")
        # Without NAPI on its peer, veth drops what XDP sends.
        self._run("ip", "netns", "exec", self.name, "ethtool", "-K", "right", "gro", "on")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("ip", "netns", "del", self.name)

    def _run(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def ip(self, *arguments: str) -> str:
        """Output of `ip` inside the namespace."""
        return self._run("ip", "-n", self.name, *arguments)

    def send(self, frames: int, size: int = 128) -> Sent:
        """Send N frames out of `left`, PSNs from 0 on in every flow."""
        bpf.update(self._state, bytes(4), bytes(4))
        data = frame(size)

        return in_namespace(
            self.name, lambda: self._send(data, frames, socket.if_nametoindex("left"))
        )

    def _send(self, data: bytes, frames: int, ifindex: int) -> Sent:
        context = struct.pack("6I", 0, len(data), 0, ifindex, 0, 0)
        begin = time.perf_counter()
        run_program(
            self._program, data, repeat=frames, flags=LIVE_FRAMES, batch=BATCH, context=context
        )
        return Sent(frames, time.perf_counter() - begin)
