"""Packets and bits per second, of everything and of each flow."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .snapshot import SourceState

AVERAGED_NS = 1_000_000_000
"""Live rates are those of at least so long."""


class Rates(NamedTuple):
    """None where there is too little to tell."""

    packets_per_second: float | None = None
    bits_per_second: float | None = None
    by_flow: NDArray[np.float64] | None = None
    """Bits per second; of live sessions only."""


class _Sample(NamedTuple):
    """What had come at a moment of the packets' own time."""

    time_ns: int
    packets: int
    wire_bytes: NDArray[np.int64]


class RateMeter:
    """Over all of its time of what is complete; live over the last second.

    Both by the packets' own clock: whoever reads a recording gets its packets in steps, and
    after a while without the processor many at once, while they came steadily.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._grew_at = 0.0
        """When packets came last, by the clock of those who look."""

    def of(
        self,
        source: SourceState,
        wire_bytes: NDArray[np.int64],
        span: tuple[int, int],
        now: float,
    ) -> Rates:
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
        else:  # time goes on without packets, but those under way have a moment to come
            silent_ns = int((now - self._grew_at) * 1e9)
            end_ns = end_ns + silent_ns if silent_ns > AVERAGED_NS else samples[-1].time_ns
        end_ns = max(end_ns, samples[-1].time_ns)
        samples.append(_Sample(end_ns, source.packets, wire_bytes))
        while samples[1].time_ns <= end_ns - AVERAGED_NS:
            samples.popleft()
        return _grown(samples[0], samples[-1])


def _is_live(source: SourceState) -> bool:
    """Whether packets come as fast as they are sent: not from a file that is read again."""
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
