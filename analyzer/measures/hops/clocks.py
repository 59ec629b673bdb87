"""Clocks that are set forward, found from the times of the same packets at several taps.

A sample of all packets is kept, the same ones at every tap: those with a low hash of what no hop
changes. A tap that leaves out some time, and whose packets from then on all come later than
elsewhere, by that time, has a clock that was set; a queue leaves no gap, and empties. Packets that
wait while others pass them come after packets that were sent later: a clock changes no order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Array, Ints, UInt16s, kernel
from ...statistics.per_flow import longer
from ...wire.packets import PacketTable
from .passing import LEAST_HORIZON_NS

MOST_SAMPLES = 1 << 17
LEAST_SAMPLES = 8
"""Packets before and after a jump that show it."""
_EVEN = 4
"""After a jump, most packets are later than the earliest of them by less than this part of it."""
_ALL = np.uint64(2**64 - 1)
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_SHIFT = np.uint64(32)

SAMPLE = np.dtype([("key", np.uint64), ("time", np.int64), ("tap", np.uint16)], align=True)


@kernel
def _sample(
    samples: NDArray[np.void],
    used: int,
    limit: np.uint64,
    start: int,
    tap: UInt16s,
    time_ns: Ints,
    dest_qp: NDArray[np.uint32],
    psn: NDArray[np.uint32],
    opcode: NDArray[np.uint8],
    ip_id: UInt16s,
    udp_sport: UInt16s,
) -> tuple[int, int]:
    """Add the rows from `start` whose hash is at most `limit`; (the row without room, samples)."""
    for i in range(start, len(tap)):
        key = (np.uint64(dest_qp[i]) << _SHIFT) | np.uint64(psn[i])
        key = (key ^ (key >> _SHIFT)) * _FACTORS[0]
        key += (np.uint64(opcode[i]) << _SHIFT) | (np.uint64(udp_sport[i]) << np.uint64(16))
        key = (key ^ (key >> _SHIFT)) * _FACTORS[1] + np.uint64(ip_id[i])
        key = (key ^ (key >> _SHIFT)) * _FACTORS[0]
        key ^= key >> _SHIFT
        if key > limit:
            continue
        if used == len(samples):
            return i, used
        samples[used].key = key
        samples[used].time = time_ns[i]
        samples[used].tap = tap[i]
        used += 1
    return len(tap), used


class SampledTimes:
    """The times of the sampled packets at each tap; at most `MOST_SAMPLES`."""

    def __init__(self) -> None:
        self._samples = np.zeros(1 << 10, SAMPLE)
        self._used = 0
        self._limit = _ALL

    def update(self, table: PacketTable) -> None:
        """Take in packets, of all taps merged by time."""
        row = 0
        while row < len(table.tap):
            row, self._used = _sample(
                self._samples, self._used, self._limit, row, table.tap, table.time_ns,
                table.dest_qp, table.psn, table.opcode, table.ip_id, table.udp_sport,
            )  # fmt: skip
            if row < len(table.tap):
                self._make_room()

    @property
    def samples(self) -> Array:
        """SAMPLE records in order of appearance."""
        return self._samples[: self._used]

    def copy(self) -> SampledTimes:
        """An independent copy."""
        other = SampledTimes()
        other._samples, other._used, other._limit = self._samples.copy(), self._used, self._limit
        return other

    def _make_room(self) -> None:
        if len(self._samples) < MOST_SAMPLES:
            room = min(max(2 * len(self._samples), 1 << 10), MOST_SAMPLES)
            self._samples = longer(self._samples, room, self._used)
            return
        self._limit //= np.uint64(2)
        kept = self.samples[self.samples["key"] <= self._limit]
        self._samples, self._used = longer(kept, MOST_SAMPLES), len(kept)

    def jumps(self, clocks: Sequence[int], set_back: set[int]) -> dict[int, tuple[int, int]]:
        """By tap whose clock is set forward: how many times, and by how much in all, ns.

        clocks: the number of the clock of each tap. set_back: taps whose times go back.
        """
        seen = self.samples[~np.isin(self.samples["tap"], list(set_back))]
        at_tap = seen[np.lexsort((seen["tap"], seen["key"]))]
        # What a tap sees twice is retransmitted, maybe after it was lost before the other taps.
        same = (np.diff(at_tap["key"]) == 0) & (np.diff(at_tap["tap"].astype(np.int32)) == 0)
        seen = seen[~np.isin(seen["key"], at_tap["key"][1:][same])]
        clock = np.asarray(clocks, np.int64)[seen["tap"]]
        order = np.lexsort((seen["time"], clock, seen["key"]))
        seen, clock = seen[order], clock[order]
        seen_before = (np.diff(seen["key"]) == 0) & (np.diff(clock) == 0)
        once = np.insert(~seen_before, 0, np.ones(min(len(seen), 1), np.bool_))
        seen, clock = seen[once], clock[once]
        order = np.lexsort((seen["time"], seen["key"]))
        time, clock = seen["time"][order], clock[order]
        _, packet, sightings = np.unique(seen["key"], return_inverse=True, return_counts=True)
        earliest = time[np.cumsum(sightings) - sightings]
        several = sightings[packet] > 1
        jumps: dict[int, tuple[int, int]] = {}
        for number in np.unique(clock[several]).tolist():
            mine = several & (clock == number)
            in_time = np.argsort(time[mine], kind="stable")
            its_times = time[mine][in_time]
            jump = _jumps(its_times, its_times - earliest[packet[mine]][in_time])
            if jump is not None:
                jumps |= {t: jump for t, its in enumerate(clocks) if its == number}
        return jumps


def _jumps(times: Ints, offsets: Ints) -> tuple[int, int] | None:
    """How many times a clock jumps forward to stay, and how far in all.

    times: its times of packets, ascending. offsets: from the earliest clock to them. Queues delay
    some packets, so that the minimum offset from now on decides; and a clock leaves out what it
    jumps over.
    """
    floor = np.minimum.accumulate(offsets[::-1])[::-1]
    step = np.diff(floor)
    at = np.flatnonzero((step > LEAST_HORIZON_NS) & (np.diff(times) > step - step // _EVEN)) + 1
    parts = np.split(offsets, at)
    if len(parts) < 2 or min(map(len, parts)) < LEAST_SAMPLES:
        return None
    sent = times - offsets
    for part, its, begin, ns in zip(
        parts[1:], np.split(sent, at)[1:], at.tolist(), step[at - 1], strict=True
    ):
        if np.median(part) - part.min() > ns / _EVEN:
            return None
        if np.median(its) < sent[:begin].max():
            return None
    return len(at), int(step[at - 1].sum())
