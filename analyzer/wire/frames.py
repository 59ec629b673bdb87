"""Frames as a capture source hands them to the decoder."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Link types (https://www.tcpdump.org/linktypes.html) the decoder understands.
LINKTYPE_ETHERNET = 1
LINKTYPE_RAW = 101
LINKTYPE_LINUX_SLL = 113
LINKTYPE_IPV4 = 228
LINKTYPE_IPV6 = 229
LINKTYPE_LINUX_SLL2 = 276
SUPPORTED_LINK_TYPES = frozenset(
    (
        LINKTYPE_ETHERNET,
        LINKTYPE_RAW,
        LINKTYPE_LINUX_SLL,
        LINKTYPE_IPV4,
        LINKTYPE_IPV6,
        LINKTYPE_LINUX_SLL2,
    )
)


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Frames lying in one byte buffer, in capture order.

    Every `offset[i] + captured[i]` is inside `data`; the source that built the
    batch has checked it, the decoder relies on it.
    """

    data: NDArray[np.uint8]
    """The buffer: a mapped file, a decompressed window, a ring buffer."""
    offset: NDArray[np.int64]
    """Where each frame begins in `data`, bytes."""
    captured: NDArray[np.uint32]
    """Bytes of each frame that `data` holds."""
    wire: NDArray[np.uint32]
    """Bytes of each frame on the wire, as the capture states them."""
    time_ns: NDArray[np.int64]
    """Capture time, nanoseconds since the Unix epoch."""
    tap: NDArray[np.uint16]
    """Vantage point of each frame: index into `Taps`."""
    link_type: NDArray[np.uint16]
    """LINKTYPE_ value of each frame."""
    first_frame_number: int
    """Number of the first frame in its capture, from 1; the rest follow."""
    base_offset: int
    """Position of `data[0]` in the uncompressed capture, bytes."""

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class SampledFrames:
    """RoCE packets of a tap that are samples of more (sFlow)."""

    frames: int = 0
    rates: int = 0
    """Sum of the sampling rates (one in so many) of all samples: the estimated packets."""
    wire_bytes: int = 0
    """Wire bytes of each times its rate: the estimated bytes."""

    def __add__(self, other: SampledFrames) -> SampledFrames:
        return SampledFrames(
            self.frames + other.frames,
            self.rates + other.rates,
            self.wire_bytes + other.wire_bytes,
        )


@dataclass(slots=True)
class Tap:
    """One vantage point: a capture file, a pcapng interface, a mirror session, a probe."""

    name: str
    link_type: int
    snap_length: int | None = None
    """Longest frame the capture keeps, bytes; None when unlimited or unknown."""
    speed_bits_per_second: int | None = None
    """Link rate, when the capture states it (pcapng if_speed)."""
    frames: int = 0
    dropped: int | None = None
    """Frames the capture itself says it lost (pcapng interface statistics); None if not stated."""
    carrier: int | None = None
    """Of a mirror session: index of the tap whose frames carry it."""
    sampled: SampledFrames | None = None
    """Set when what the tap saw are samples."""


@dataclass(slots=True)
class Taps:
    """All vantage points of an analysis; a tap's index is its identity in every table."""

    items: list[Tap] = field(default_factory=list)

    def add(self, tap: Tap) -> int:
        """Register a tap and return its index (at most 65,536)."""
        if len(self.items) > np.iinfo(np.uint16).max:
            raise ValueError("more than 65,536 taps in one analysis")
        self.items.append(tap)
        return len(self.items) - 1

    def carrier(self, index: int) -> Tap:
        """The file, interface or probe that a tap's frames came from: itself, but for sessions."""
        carrier = self.items[index].carrier
        return self.items[index if carrier is None else carrier]

    def interface(self, index: int) -> int:
        """The tap that stands for both directions of a probed interface, "eth0 in" and "eth0 out".

        Any other tap stands for itself.
        """
        base = self._both_directions(index)
        names = (f"{base} in", f"{base} out")
        found = (i for i, tap in enumerate(self.items) if tap.name in names)
        return index if base is None else min(found)

    def interface_name(self, index: int) -> str:
        """What the tap that stands for an interface is called: "eth0"."""
        return self._both_directions(index) or self.items[index].name

    def _both_directions(self, index: int) -> str | None:
        """The interface of a tap, where its other direction is a tap too."""
        name = self.items[index].name
        base, _, direction = name.rpartition(" ")
        other = {"in": "out", "out": "in"}.get(direction)
        if other is None or not any(tap.name == f"{base} {other}" for tap in self.items):
            return None
        return base

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tap:
        return self.items[index]
