"""Small makers of inputs that tests of several parts share: capture files, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ETHERNET = 1
START_NS = 1_700_000_000_123_456_789
"""A fixed clock: 2023-11-14 22:13:20.123456789 UTC."""


class Frame(NamedTuple):
    """A frame to be written."""

    time_ns: int
    data: bytes
    wire: int | None = None
    """Length on the wire; that of `data` when None."""

    @property
    def wire_bytes(self) -> int:
        return len(self.data) if self.wire is None else self.wire


def some_frames(count: int, start_ns: int = START_NS, step_ns: int = 1_000) -> list[Frame]:
    """`count` frames of different lengths, every third one snapped."""
    frames = []
    for i in range(count):
        data = bytes((i * 7 + j) % 251 for j in range(20 + i % 40))
        frames.append(Frame(start_ns + i * step_ns, data, 1000 + i if i % 3 == 2 else None))
    return frames


def pcap_bytes(
    frames: Iterable[Frame],
    *,
    order: str = "<",
    nanoseconds: bool = True,
    link_type: int = ETHERNET,
    snap_length: int = 262_144,
    modified: bool = False,
) -> bytes:
    """A classic pcap; `modified` writes Kuznetzov's format with 24 byte record headers."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    tick_ns = 1 if nanoseconds and not modified else 1_000
    out = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, snap_length, link_type)]
    for frame in frames:
        seconds, fraction = divmod(frame.time_ns, 1_000_000_000)
        head = (seconds, fraction // tick_ns, len(frame.data), frame.wire_bytes)
        out.append(struct.pack(f"{order}IIII", *head))
        if modified:
            out.append(bytes(8))
        out.append(frame.data)
    return b"".join(out)


def write_pcap(path: Path, frames: Iterable[Frame], **options: object) -> Path:
    """`pcap_bytes` into a file."""
    path.write_bytes(pcap_bytes(frames, **options))  # type: ignore[arg-type]
    return path


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """One pcapng option, padded."""
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


@dataclass
class Pcapng:
    """Writes a pcapng block by block."""

    order: str = "<"
    parts: list[bytes] = field(default_factory=list)

    def block(self, kind: int, body: bytes) -> Pcapng:
        """A block of any type."""
        body += bytes(-len(body) % 4)
        total = struct.pack(f"{self.order}I", len(body) + 12)
        self.parts.append(struct.pack(f"{self.order}I", kind) + total + body + total)
        return self

    def section(self, order: str | None = None, *, comment: str | None = None) -> Pcapng:
        """A section header, from here on in another byte order if given."""
        self.order = order or self.order
        head = struct.pack(f"{self.order}IHHq", 0x1A2B3C4D, 1, 0, -1)
        if comment is not None:
            head += option(1, comment.encode(), self.order) + option(0, b"", self.order)
        return self.block(0x0A0D0D0A, head)

    def interface(
        self,
        link_type: int = ETHERNET,
        *,
        name: str | None = None,
        resolution: int | None = 9,
        offset_seconds: int | None = None,
        speed: int | None = None,
        snap_length: int = 0,
        filter: bytes | None = None,
    ) -> Pcapng:
        """An interface description; `resolution` is the raw if_tsresol byte."""
        options = b""
        if name is not None:
            options += option(2, name.encode(), self.order)
        if speed is not None:
            options += option(8, struct.pack(f"{self.order}Q", speed), self.order)
        if resolution is not None:
            options += option(9, bytes([resolution]), self.order)
        if filter is not None:
            options += option(11, filter, self.order)
        if offset_seconds is not None:
            options += option(14, struct.pack(f"{self.order}q", offset_seconds), self.order)
        if options:
            options += option(0, b"", self.order)
        head = struct.pack(f"{self.order}HHI", link_type, 0, snap_length)
        return self.block(1, head + options)

    def enhanced(
        self,
        ticks: int,
        data: bytes,
        *,
        wire: int | None = None,
        interface: int = 0,
        dropped: int | None = None,
    ) -> Pcapng:
        """An enhanced packet block with a flags option, as dumpcap writes it; dropped: between
        this packet and the one before, after the flags and before a comment."""
        wire = len(data) if wire is None else wire
        head = (interface, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire)
        padded = data + bytes(-len(data) % 4)
        options = option(2, struct.pack(f"{self.order}I", 1), self.order)
        if dropped is not None:
            options += option(4, struct.pack(f"{self.order}Q", dropped), self.order)
            options += option(1, b"dropped", self.order) + option(0, b"", self.order)
        return self.block(6, struct.pack(f"{self.order}IIIII", *head) + padded + options)

    def simple(self, data: bytes, wire: int | None = None) -> Pcapng:
        """A simple packet block."""
        wire = len(data) if wire is None else wire
        return self.block(3, struct.pack(f"{self.order}I", wire) + data)

    def obsolete(
        self,
        ticks: int,
        data: bytes,
        *,
        wire: int | None = None,
        interface: int = 0,
        dropped: int = 0,
    ) -> Pcapng:
        """A packet block as older tools wrote it."""
        wire = len(data) if wire is None else wire
        head = (interface, dropped, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire)
        return self.block(2, struct.pack(f"{self.order}HHIIII", *head) + data)

    def statistics(self, interface: int, drops: dict[int, int]) -> Pcapng:
        """Interface statistics with counters by option code (5 ifdrop, 7 osdrop)."""
        body = struct.pack(f"{self.order}III", interface, 0, 0)
        for code, value in drops.items():
            body += option(code, struct.pack(f"{self.order}Q", value), self.order)
        return self.block(5, body)

    def bytes(self) -> bytes:
        """The file so far."""
        return b"".join(self.parts)


def pcapng_bytes(frames: Sequence[Frame], *, order: str = "<", **interface: object) -> bytes:
    """A pcapng of one section and one interface with nanosecond times."""
    file = Pcapng(order).section().interface(**interface)  # type: ignore[arg-type]
    for frame in frames:
        file.enhanced(frame.time_ns, frame.data, wire=frame.wire)
    return file.bytes()


def write_pcapng(path: Path, frames: Sequence[Frame], **options: object) -> Path:
    """`pcapng_bytes` into a file."""
    path.write_bytes(pcapng_bytes(frames, **options))  # type: ignore[arg-type]
    return path
