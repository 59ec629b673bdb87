"""Packets and bits per second, in total and by flow."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from ....analyzer.statistics.per_flow import Kept
from ....kernels.kernel import Floats, Ints
from .snapshot import SourceState

AVERAGED_NS = 1_000_000_000
"""Shortest time of a live rate."""


class Rates(NamedTuple):
    """None if the time is too short."""

    packets_per_second: float | None = None
    bits_per_second: float | None = None
    by_flow: Floats | None = None
    """Bits per second by flow; only in live sessions."""


class _Sample(NamedTuple):
    """Counts at a time of the packets' clock."""

    time_ns: int
    packets: int
    wire_bytes: Ints


class RateMeter:
    """Rates over the whole time of complete sources; over the last second of live sources.

    Both use the clock of the packets: a reader of a recording gets packets in steps, and many
    at once after a pause, although they arrived steadily.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._grew_at = 0.0
        """Arrival of the last packets, by the clock of the reader."""

    def keep(self, kept: Kept) -> None:
        """Only these flows are left."""
        self._samples = deque(
            sample._replace(wire_bytes=sample.wire_bytes[kept.of(len(sample.wire_bytes))])
            for sample in self._samples
        )

    def of(self, source: SourceState, wire_bytes: Ints, span: tuple[int, int], now: float) -> Rates:
        """wire_bytes: of each flow; span: of the packets, ns; now: seconds."""
        start_ns, end_ns = span
        if not _is_live(source):
            length = end_ns - start_ns
            if length <= 1:
                return Rates()
            total = int(wire_bytes.sum())
            return Rates(source.packets * 1e9 / length, total * 8e9 / length)
        if not len(wire_bytes):
            return Rates()
        samples = self._samples
        if not samples:
            samples.append(_Sample(start_ns, 0, np.zeros(0, np.int64)))
        if source.packets > samples[-1].packets:
            self._grew_at = now
        else:  # time continues without packets, but packets in transit have a short time to arrive
            silent_ns = int((now - self._grew_at) * 1e9)
            end_ns = end_ns + silent_ns if silent_ns > AVERAGED_NS else samples[-1].time_ns
        end_ns = max(end_ns, samples[-1].time_ns)
        samples.append(_Sample(end_ns, source.packets, wire_bytes))
        while samples[1].time_ns <= end_ns - AVERAGED_NS:
            samples.popleft()
        return _grown(samples[0], samples[-1])


def _is_live(source: SourceState) -> bool:
    """Whether packets are read at the rate of their arrival, not from a file that is read again."""
    return source.kind == "live" and source.running and source.progress is None


def _grown(before: _Sample, now: _Sample) -> Rates:
    seconds = max(AVERAGED_NS, now.time_ns - before.time_ns) / 1e9
    grown = now.wire_bytes.astype(np.float64)
    grown[: len(before.wire_bytes)] -= before.wire_bytes
    return Rates(
        (now.packets - before.packets) / seconds,
        float(grown.sum()) * 8 / seconds,
        grown * 8 / seconds,
    )
