"""The vantage points of an analysis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .packets import U16

MANY_TAPS = 2048
"""From here on interfaces and mirror sessions of a capture share a tap: tables of taps against taps
grow with the square."""


@dataclass(frozen=True, slots=True)
class SampledFrames:
    """RoCE packets of a tap that are samples (sFlow)."""

    frames: int = 0
    rates: int = 0
    """Sum of the sampling rates (one in N) of all samples: the estimated packets."""
    wire_bytes: int = 0
    """Sum of wire bytes times sampling rate: the estimated bytes."""

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
    first_time_ns: int | None = None
    """Of the first frame, RoCE or not, where it is among the first that were read."""
    dropped: int | None = None
    """Frames lost according to the capture (pcapng interface statistics); None if not stated."""
    clock_steps: int = 0
    """Frames more than a second before the previous one: the clock was set back, or captures were
    joined. 0 for one of several interfaces of a file, whose frames may be in any order."""
    carrier: int | None = None
    """For a mirror session: index of the tap that carries its frames."""
    sampled: SampledFrames | None = None
    """Set when the frames of the tap are samples."""


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

    @property
    def are_many(self) -> bool:
        """Whether further interfaces and mirror sessions share a tap."""
        return len(self.items) >= MANY_TAPS

    def carrier(self, index: int) -> Tap:
        """The file, interface or probe of a tap's frames: the tap itself, except for sessions."""
        carrier = self.items[index].carrier
        return self.items[index if carrier is None else carrier]

    def interface(self, index: int) -> int:
        """The tap that represents both directions of a probed interface, "eth0 in" and "eth0 out".

        Any other tap represents itself.
        """
        base = self._both_directions(index)
        names = (f"{base} in", f"{base} out")
        found = (i for i, tap in enumerate(self.items) if tap.name in names)
        return index if base is None else min(found)

    def interface_name(self, index: int) -> str:
        """Name of the tap that represents an interface: "eth0"."""
        return self._both_directions(index) or self.items[index].name

    def _both_directions(self, index: int) -> str | None:
        """The interface of a tap, if its other direction is also a tap."""
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

    def joined(self, other: Taps) -> U16:
        """Add the taps of a part of the same analysis; its tap i is our result[i].

        Taps with the same name and link type are one; their frames and stated drops add up.
        """
        known = {(tap.name, tap.link_type): index for index, tap in enumerate(self.items)}
        result: list[int] = []
        for tap in other.items:
            index = known.get((tap.name, tap.link_type))
            if index is None:
                index = known[tap.name, tap.link_type] = self.add(
                    replace(tap, carrier=None if tap.carrier is None else result[tap.carrier])
                )
            else:
                mine = self[index]
                mine.frames += tap.frames
                mine.clock_steps += tap.clock_steps
                if tap.dropped is not None:
                    mine.dropped = (mine.dropped or 0) + tap.dropped
                if tap.sampled is not None:
                    mine.sampled = (mine.sampled or SampledFrames()) + tap.sampled
            result.append(index)
        return np.array(result, np.uint16)
