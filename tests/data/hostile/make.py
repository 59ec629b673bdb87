"""Writes the hostile captures beside it, each a kind that once cost much or raised an error.

`python tests/data/hostile/make.py` in the checkout, with tests/support on the path.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import zstandard

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

import encapsulations  # noqa: E402
from factories import Frame, Pcapng, pcap_bytes  # noqa: E402

TIME_NS = 1_700_000_000_000_000_000


def packet(psn: int, qp: int = 0x12, source: int = 1) -> bytes:
    """A SEND with 16 bytes, from 10.0.0.`source` to 11.0.0.1."""
    bth = struct.pack(">BBHII", 4, 0, 0xFFFF, qp, psn) + bytes(20)
    udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), psn, 0x4000, 64, 17, 0)
    return bytes(12) + b"\x08\x00" + ip + struct.pack(">II", 0x0A000000 + source, 0x0B000001) + udp


def _many_taps() -> bytes:
    """Every packet at every one of 800 interfaces: the search for parallel taps was cubic."""
    made = Pcapng().section()
    for _ in range(800):
        made.interface()
    for tap in range(800):
        made.enhanced(TIME_NS + tap, packet(0), interface=tap)
    return made.bytes()


def _most_interfaces() -> bytes:
    """65,600 interfaces, and mirror sessions (ERSPAN) at the last ones."""
    made = Pcapng().section()
    for _ in range(65_600):
        made.interface()
    for i in range(300):
        mirrored = encapsulations.erspan2(packet(i // 3), session=i)
        carrier = encapsulations.ethernet(0x0800, encapsulations.ipv4(47, mirrored))
        made.enhanced(TIME_NS + i * 1000, carrier, interface=65_599 - i)
    return made.bytes()


def _wild_time() -> bytes:
    """One of 60 packets, at 60 taps, is 190 years late: windows between were all kept."""
    made = Pcapng().section()
    for _ in range(60):
        made.interface()
    for i in range(60):
        late = 6_000_000_000_000_000_000 if i == 30 else 0
        made.enhanced(TIME_NS + i * 1000 + late, packet(i), interface=i)
    return made.bytes()


def _set_back() -> bytes:
    """The clock is set back by an hour in the middle."""
    return pcap_bytes(
        Frame(TIME_NS + i * 1000 + (3_600_000_000_000 if i < 50 else 0), packet(i))
        for i in range(100)
    )


def _owner_comments() -> bytes:
    """12,000 owners of one queue pair, and one comment of a megabyte."""
    made = Pcapng().section(comment="owner: " + "QP 0x000012 at 11.0.0.1 or " * 2000)
    made.interface()
    for pid in range(12_000):
        made.section(comment=f"owner: QP 0x000012 at 11.0.0.1: pid {pid} python")
    made.interface()
    for i in range(20):
        made.enhanced(TIME_NS + i * 1000, packet(i))
    return made.bytes()


def _ranks() -> bytes:
    """A rank of 5,000 digits, and one of 10."""
    made = Pcapng().section(comment=f"owner: QP 0x000012 at 11.0.0.1: pid 7 a, rank {'9' * 5000}")
    made.section(comment="owner: QP 0x000012 at 11.0.0.1: pid 7 a, rank 9999999999").interface()
    for i in range(20):
        made.enhanced(TIME_NS + i * 1000, packet(i))
    return made.bytes()


def _names() -> bytes:
    """Interfaces whose names steer a terminal, break lines, or look like markup or a formula."""
    names = ("\x1b]0;x\x07", "[/]", "[link=http://x]y[/link]", "a\nb\tc", "\u202ey", "=cmd|'x'!A0")
    made = Pcapng().section()
    for name in names:
        made.interface(name=name)
    for i in range(60):
        made.enhanced(TIME_NS + i * 1000, packet(i // 6), interface=i % 6)
    return made.bytes()


def _bomb() -> bytes:
    """96 MB of one record."""
    frame = pcap_bytes([Frame(TIME_NS, packet(0))])
    return frame + frame[24:] * ((96 << 20) // len(frame[24:]))


def _zeros() -> bytes:
    """One packet and 200 MB of zeros, which is no record."""
    return pcap_bytes([Frame(TIME_NS, packet(0))]) + bytes(200 << 20)


MADE: dict[str, Callable[[], bytes]] = {
    "many_taps.pcapng": _many_taps,
    "most_interfaces.pcapng": _most_interfaces,
    "wild_time.pcapng": _wild_time,
    "set_back.pcap": _set_back,
    "owner_comments.pcapng": _owner_comments,
    "ranks.pcapng": _ranks,
    "names.pcapng": _names,
    "bomb.pcap": _bomb,
    "zeros.pcap": _zeros,
}


def main() -> None:
    for name, make in MADE.items():
        squeezed = zstandard.ZstdCompressor(19).compress(make())
        (HERE / f"{name}.zst").write_bytes(squeezed)


if __name__ == "__main__":
    main()
