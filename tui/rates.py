"""Packets and bits per second, of everything and of each flow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .snapshot import SourceState


class Rates(NamedTuple):
    """None where it is too early to tell."""

    packets_per_second: float | None = None
    bits_per_second: float | None = None
    by_flow: NDArray[np.float64] | None = None
    """Bits per second; of live sessions only."""


class RateMeter:
    """Of a capture over all of its time; live from one snapshot to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, NDArray[np.int64], int, int] | None = None

    def of(
        self, source: SourceState, wire_bytes: NDArray[np.int64], span_ns: int, now: float
    ) -> Rates:
        """wire_bytes: of each flow; span_ns: from the first packet to the last; now: seconds."""
        total = int(wire_bytes.sum())
        if source.kind != "live":
            if not len(wire_bytes) or span_ns <= 1:
                return Rates()
            return Rates(source.packets * 1e9 / span_ns, total * 8e9 / span_ns)
        before, self._before = self._before, (now, wire_bytes, source.packets, total)
        if before is None or now <= before[0]:
            return Rates()
        passed = now - before[0]
        grown = wire_bytes.astype(np.float64)
        grown[: len(before[1])] -= before[1]
        return Rates(
            (source.packets - before[2]) / passed,
            (total - before[3]) * 8 / passed,
            grown * 8 / passed,
        )
