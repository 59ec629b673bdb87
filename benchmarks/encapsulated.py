"""Decoding and analysing what mirrors send, beside the same packets without them, in one run.

    python benchmarks/encapsulated.py [PACKETS]

Prints CPU seconds and the ratio to plain packets. The smallest of interleaved runs counts.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rocescope.analyzer.analyze import AnalyzeOptions, analyze
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.endpoints import Endpoints
from rocescope.analyzer.frames import Taps

ROUNDS = 7
PAYLOAD = 1024
HELD = 40
"""Payload bytes kept of each packet."""
MACS = bytes.fromhex("020000000001020000000002")


def ipv4(protocol: int, content: bytes, more: int, hosts: bytes) -> bytes:
    """`more`: bytes on the wire that the capture does not hold."""
    length = 20 + len(content) + more
    return struct.pack(">BBHHHBBH", 0x45, 2, length, 1, 0x4000, 64, protocol, 0) + hosts + content


def plain(i: int) -> bytes:
    bth = struct.pack(">BBHII", 7, 0, 0xFFFF, 0x12 + i % 64, i // 64 & 0xFFFFFF) + bytes(HELD)
    udp = struct.pack(">HHHH", 0xC000 + i % 64, 4791, 24 + PAYLOAD, 0) + bth
    hosts = bytes((10, 0, 0, 1 + i % 64 // 8, 10, 0, 1, 1 + i % 8))
    return MACS + b"\x08\x00" + ipv4(17, udp, PAYLOAD + 4 - HELD, hosts)


def erspan3(frame: bytes) -> bytes:
    gre = struct.pack(">HHI", 0x1000, 0x22EB, 7)
    header = struct.pack(">HHIHH", 0x2000, 12, 5, 0, 2)
    more = PAYLOAD + 4 - HELD
    return MACS + b"\x08\x00" + ipv4(47, gre + header + frame, more, bytes(8))


def vxlan(frame: bytes) -> bytes:
    more = PAYLOAD + 4 - HELD
    udp = struct.pack(">HHHH", 9, 4789, 16 + len(frame) + more, 0)
    header = struct.pack(">II", 0x08 << 24, 5000 << 8)
    return MACS + b"\x08\x00" + ipv4(17, udp + header + frame, more, bytes(8))


def write(path: Path, packets: int, wrap: Callable[[bytes], bytes]) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for i in range(packets):
            data = wrap(plain(i))
            seconds, ns = divmod(1_700_000_000_000_000_000 + 100 * i, 10**9)
            wire = len(data) + PAYLOAD + 4 - HELD
            file.write(struct.pack("<IIII", seconds, ns, len(data), wire) + data)


def decode_seconds(path: str) -> float:
    taps, spent = Taps(), 0.0
    with open_capture(path, taps, batch_frames=1 << 16) as capture:
        decoder = Decoder(Endpoints(), taps)
        for frames in capture.batches():
            began = time.process_time()
            decoder.decode(frames)
            spent += time.process_time() - began
    return spent


def analyze_seconds(path: str) -> float:
    began = time.process_time()
    analyze([path], AnalyzeOptions())
    return time.process_time() - began


def main(packets: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, wrap in (("plain", bytes), ("ERSPAN III", erspan3), ("VXLAN", vxlan)):
            paths[name] = Path(folder) / name
            write(paths[name], packets, wrap)
        for what, measure in (("decode", decode_seconds), ("analyze", analyze_seconds)):
            best = dict.fromkeys(paths, float("inf"))
            for _ in range(ROUNDS):
                for name, path in paths.items():
                    best[name] = min(best[name], measure(str(path)))
            for name, seconds in best.items():
                rate, ratio = packets / seconds / 1e6, seconds / best["plain"]
                print(f"{what:8} {name:11} {seconds:.3f} s  {rate:5.1f} M/s  {ratio:.2f} x plain")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
