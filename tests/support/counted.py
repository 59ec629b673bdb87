"""Frames for the counters, and what they say of them."""

from __future__ import annotations

from typing import Any, Self

from network import bth, ethernet, ipv4, udp

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow
from rocescope.probes.counters.counters import CounterOptions, CounterSource, analysis_of

READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST = 0x0C, 0x0D, 0x0E, 0x0F
ACK, CNP, SEND_ONLY, UD_SEND = 0x11, 0x81, 0x04, 0x64


def packet(
    psn: int,
    *,
    opcode: int = SEND_ONLY,
    qp: int = 0x11,
    sport: int = 50000,
    ecn: int = 2,
    extension: bytes = b"",
    payload: int = 64,
    source: str = "10.0.0.1",
) -> bytes:
    head = bth(psn, qp, opcode) + extension + bytes(payload + 4)
    frame = bytearray(ethernet(ipv4(udp(head, sport), source)))
    frame[15] = ecn
    return bytes(frame)


def ack(psn: int, syndrome: int, **options: Any) -> bytes:
    extension = bytes([syndrome, 0, 0, 1])
    return packet(psn, opcode=ACK, extension=extension, payload=0, **options)


class Counted:
    """What the counters say of frames sent while they are attached."""

    def __init__(self, net: Any, interface: str = "left", **options: Any) -> None:
        self.source = CounterSource([net.interface(interface)], CounterOptions(**options))

    def __enter__(self) -> Self:
        self.source.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.detach()
        self.reading = self.source.read()
        self.analysis: Analysis = analysis_of(self.source, self.reading)
        self.source.__exit__()

    def flow(self, qp: int = 0x11) -> Flow:
        (found,) = [flow for flow in self.analysis.flows if flow.dest_qp == qp]
        return found


def traffic() -> list[bytes]:
    """Crafted so that nothing is sent twice: late is late, not resent."""
    frames = []
    order = list(range(400))
    for i in range(10, 390, 20):
        order[i], order[i + 2] = order[i + 2], order[i]
    for qp in (0x11, 0x12, 0x13):
        frames += [
            packet(psn, qp=qp, sport=50000 + psn % (qp - 0x10), ecn=3 if psn % 9 == qp % 9 else 2)
            for psn in order
            if not (qp == 0x13 and psn in (50, 51))
        ]
        frames += [ack(psn, 0, qp=qp + 0x100) for psn in range(0, 400, 10)]
        frames += [ack(3, 0x60, qp=qp + 0x100), ack(3, 0x20, qp=qp + 0x100)]
        frames += [packet(0, opcode=CNP, qp=qp + 0x100, sport=77, payload=16)] * (qp - 0x10)
    return frames
