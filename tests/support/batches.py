"""Frame batches for decoder tests: from byte strings and from captures."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.wire.packets import LINKTYPE_ETHERNET, FrameBatch, PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

T0 = 1_700_000_000_000_000_000


def batch(
    frames: Sequence[bytes],
    *,
    link_type: int | Sequence[int] = LINKTYPE_ETHERNET,
    wire: Sequence[int] | None = None,
    time_ns: Sequence[int] | None = None,
    tap: int | Sequence[int] = 0,
    first_frame_number: int = 1,
    base_offset: int = 0,
) -> FrameBatch:
    """`frames` one behind the other in a buffer that ends with the last byte of the last one."""
    n = len(frames)
    captured = np.array([len(f) for f in frames], np.uint32)
    return FrameBatch(
        data=np.frombuffer(b"".join(frames), np.uint8),
        offset=np.concatenate([[0], np.cumsum(captured, dtype=np.int64)[:-1]])[:n].astype(np.int64),
        captured=captured,
        wire=captured if wire is None else np.array(wire, np.uint32),
        time_ns=T0 + np.arange(n) if time_ns is None else np.array(time_ns, np.int64),
        tap=np.broadcast_to(np.array(tap, np.uint16), n).copy(),
        link_type=np.broadcast_to(np.array(link_type, np.uint16), n).copy(),
        first_frame_number=first_frame_number,
        base_offset=base_offset,
    )


def read_pcap(path: Path) -> FrameBatch:
    """A whole small capture (little-endian, nanoseconds) as one batch."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as f:
        content = f.read()
    magic, link_type = struct.unpack_from("<I16xI", content)
    assert magic == 0xA1B23C4D
    frames, wire, time_ns = [], [], []
    at = 24
    while at < len(content):
        seconds, nanoseconds, captured, on_wire = struct.unpack_from("<IIII", content, at)
        frames.append(content[at + 16 : at + 16 + captured])
        wire.append(on_wire)
        time_ns.append(seconds * 10**9 + nanoseconds)
        at += 16 + captured
    return batch(frames, link_type=link_type, wire=wire, time_ns=time_ns)


def write_pcap(path: Path, frames: Sequence[bytes], link_type: int) -> None:
    """A nanosecond capture of `frames`, for tshark."""
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type))
        f.writelines(
            struct.pack("<IIII", 1_700_000_000, i, len(frame), len(frame)) + frame
            for i, frame in enumerate(frames)
        )


def decoder(taps: int = 1, *, speed: int | None = None, **options: object) -> Decoder:
    """A decoder with its own endpoints and so many taps."""
    registry = Registry()
    for i in range(taps):
        registry.taps.add(Tap(f"tap{i}", LINKTYPE_ETHERNET, speed_bits_per_second=speed))
    return Decoder(registry, **options)  # type: ignore[arg-type]


def decode(frames: Sequence[bytes], **options: object) -> PacketTable:
    """The rows of Ethernet frames."""
    return decoder().decode(batch(frames, **options))  # type: ignore[arg-type]
