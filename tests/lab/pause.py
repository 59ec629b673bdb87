"""PFC pause frames from a neighbour, and an output that holds its packets back meanwhile."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from rocescope.probes.hooks.interfaces import in_namespace

from .scenario import Lab, Spot

MAC_CONTROL = 0x8808
PFC = 0x0101
LINK_BITS_PER_SECOND = 1_000_000_000
"""Sets the time of a quantum, 512 bit times; the analysis is told."""
QUANTA = 0xFFFF
AGAIN_S = 0.02
"""A pause of QUANTA ends after 34 ms: the neighbour repeats its frame before."""
HELD = "tbf rate 8kbit burst 1500 limit 8000000"
FREE = "tbf rate 10gbit burst 9000000 limit 8000000"


def pfc(priority: int, quanta: int) -> bytes:
    """A frame of priority flow control (IEEE 802.1Q, clause 36)."""
    times = [quanta if number == priority else 0 for number in range(8)]
    head = bytes.fromhex("0180c2000001 020000000001") + struct.pack(">H", MAC_CONTROL)
    return (head + struct.pack(">HH8H", PFC, 1 << priority, *times)).ljust(60, b"\0")


def pause(lab: Lab, spot: Spot, priority: int, lengths: Sequence[float], gap_s: float) -> None:
    """Pause the output of a spot for these times, with free time between them."""
    neighbour, interface = spot.neighbour
    with _sender(lab, neighbour, interface) as sender, _holder(lab, spot) as hold:
        for length in lengths:
            until = time.monotonic() + length
            sender.send(pfc(priority, QUANTA))
            hold(HELD)
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, AGAIN_S))
                sender.send(pfc(priority, QUANTA if time.monotonic() < until else 0))
            hold(FREE)
            time.sleep(gap_s)


@contextlib.contextmanager
def _sender(lab: Lab, node: str, interface: str) -> Iterator[socket.socket]:
    def opened() -> socket.socket:
        found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        found.bind((interface, 0))
        return found

    with contextlib.closing(in_namespace(lab.fabric.name(node), opened)) as found:
        yield found


@contextlib.contextmanager
def _holder(lab: Lab, spot: Spot) -> Iterator[Callable[[str], None]]:
    """One `tc` that changes the output as soon as it reads a line."""
    command = ["ip", "netns", "exec", lab.fabric.name(spot.node), "tc", "-batch", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    verb = "add"

    def hold(shape: str) -> None:
        nonlocal verb
        print(f"qdisc {verb} dev {spot.interface} root {shape}", file=process.stdin, flush=True)
        verb = "change"

    try:
        hold(FREE)
        yield hold
    finally:
        process.stdin.close()
        assert process.wait(300) == 0
