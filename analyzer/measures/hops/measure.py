"""The hop measure: batches in, counts per hop out; clocks that are set forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Array, Bools, Int32s, Ints, UInt16s, kernel
from ...statistics.histogram import HistogramPool
from ...statistics.per_flow import Kept, front_of, longer
from ...track.batch import Rows, TrackedBatch
from ...wire.packets import PacketTable
from ...wire.registry import salt
from . import passing, state
from .passing import (
    FIRST_HORIZON_NS,
    LEAST_HORIZON_NS,
    MOST_MOMENTS,
    MOST_TAPS,
    conclude_until,
    follow,
    hash_rows,
    rehash,
)
from .state import Passing

# Clocks that are set forward, found from the times of the same packets at several taps.
#
# A sample of all packets is kept, the same ones at every tap: those with a low hash of what no hop
# changes. A tap that leaves out some time, and whose packets from then on all come later than
# elsewhere, by that time, has a clock that was set; a queue leaves no gap, and empties. Packets
# that wait while others pass them come after packets that were sent later: a clock changes no
# order.

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


FIRST_WINDOW_NS = 1_000_000
MOST_IN_FLIGHT = 1 << 20
"""Sightings, and transmissions, kept at most."""
Prepared: TypeAlias = tuple[Rows, Ints]
"""The columns of a batch, and a hash of each row."""
_RINGS = "sightings", "transmissions", "buckets"


class HopMeasure:
    """The path of every packet between taps; packets in flight and flows bound its memory."""

    def __init__(self) -> None:
        self.histograms = HistogramPool(3)
        self.times = SampledTimes()
        self.left_at: dict[int, int] = {}
        """Packets by tap of flows that left (`keep`)."""
        self.state = Passing(
            sightings=np.zeros(1 << 10, state.SIGHTING),
            transmissions=np.zeros(1 << 10, state.TRANSMISSION),
            buckets=np.full(1 << 11, -1, np.int64),
            edges=np.zeros(256, state.EDGE),
            edge_slots=np.full(512, -1, np.int32),
            visits=np.zeros(256, state.VISIT),
            visit_slots=np.full(512, -1, np.int32),
            hops=np.zeros(64, np.int32),
            windows=np.zeros((64, state.WINDOWS, state.WINDOW_VALUES), np.int64),
            ends=np.zeros(1024, state.MOMENT),
            resent=np.zeros(1024, state.MOMENT),
            outputs=np.zeros(state.MOST_OUTPUTS, state.OUTPUT),
            moves=np.zeros(1024, state.MOVE),
            lags=np.zeros((state.ORDERED_TAPS, state.ORDERED_TAPS, 2, 3), np.int64),
            captured=np.array([[2**63 - 1, -(2**63)]] * state.ORDERED_TAPS, np.int64),
            clock=np.zeros(9, np.int64),
            used=np.zeros(12, np.int64),
            salt=salt(3) | np.uint64(1),
        )
        self.state.outputs["hop"] = -1
        clock = self.state.clock
        clock[state.HORIZON] = FIRST_HORIZON_NS
        clock[state.NEWEST] = state.NOT_BEGUN
        clock[state.WIDTH] = FIRST_WINDOW_NS
        clock[state.FROM], clock[state.TO] = 1, 0
        self.histograms.grow(64)
        self._path = np.zeros(MOST_TAPS, np.int64)
        self._copies = np.zeros(MOST_TAPS, np.int64)
        self._reason = np.zeros(1, np.int64)

    def update(self, batch: TrackedBatch) -> None:
        """Take in one batch, of all taps merged by time."""
        self.follow(self.prepared(batch))

    def prepared(self, batch: TrackedBatch) -> Prepared:
        """What `follow` needs of a batch; another thread may follow the batch before meanwhile."""
        self.times.update(batch.table)
        hashes = np.empty(len(batch), np.int64)
        hash_rows(batch.rows, self.state.salt, hashes)
        return batch.rows, hashes

    def follow(self, prepared: Prepared) -> None:
        """Follow the packets of a batch from tap to tap."""
        rows, hashes = prepared
        row, may_grow = 0, True
        while row < len(hashes):
            self._grow_moments()
            row = follow(
                self.state, self.histograms.arrays, rows, row, may_grow, self._reason, self._path,
                self._copies, hashes,
            )  # fmt: skip
            if row < len(hashes):
                may_grow = self._grow(int(self._reason[0]))

    def conclude(self) -> None:
        """Follow the transmissions still in flight to their end: no more packets come."""
        self._conclude(np.iinfo(np.int64).max)

    def _conclude(self, before_ns: int) -> None:
        done = False
        while not done:
            self._grow_moments()
            reason = conclude_until(
                self.state, self.histograms.arrays, self._path, self._copies, before_ns,
            )  # fmt: skip
            done = reason == passing.DONE
            if not done:
                self._grow(reason)

    def settled(self) -> HopMeasure:
        """An independent measure without transmissions in flight: all are followed to their end."""
        other = HopMeasure()
        # What is in flight is only read, and large.
        rings = {name: getattr(self.state, name) for name in _RINGS}
        without = self.state._replace(**{name: ring[:0] for name, ring in rings.items()})
        other.state = copied(without)._replace(**rings)
        other.histograms.arrays = copied(self.histograms.arrays)
        other.left_at = dict(self.left_at)
        other.times = self.times.copy()
        other.conclude()
        return other

    def between_taps(self) -> bool:
        """Whether any packet, of those followed to their end, was seen at two taps."""
        real = (self.edges["from_tap"] < state.START) & (self.edges["to_tap"] < state.START)
        return bool(real.any())

    @property
    def horizon_ns(self) -> int:
        """How long a packet is waited for at further taps."""
        return int(self.state.clock[state.HORIZON])

    def conclude_before(self, time_ns: int) -> Int32s:
        """Follow the transmissions first seen before this time to their end.

        Result: the flows of those still in flight, one entry per transmission.
        """
        self._conclude(time_ns)
        used, ring = self.state.used, self.state.transmissions
        numbers = np.arange(int(used[state.TAIL]), int(used[state.HEAD])) & (len(ring) - 1)
        flows: Int32s = ring["flow"][numbers]
        return flows

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; none of the others may have a transmission in flight.

        Counts of all flows together do not change.
        """
        of_all, of_flow = self.edges["flow"] < 0, kept.holds(self.edges["flow"])
        number = np.full(len(of_all), -1, np.int64)
        number[of_all | of_flow] = np.arange(int((of_all | of_flow).sum()))
        left = self.visits[["flow", "tap", "packets"]]
        left = left[~kept.holds(left["flow"]) & (left["tap"] < state.START)]
        for tap, packets in zip(left["tap"].tolist(), left["packets"].tolist(), strict=True):
            self.left_at[tap] = self.left_at.get(tap, 0) + packets
        self._keep("edges", state.EDGES, of_all | of_flow, kept)
        for name, item in (
            ("visits", state.VISITS), ("ends", state.ENDS), ("resent", state.RESENT),
            ("moves", state.MOVES),
        ):  # fmt: skip
            self._keep(name, item, kept.holds(getattr(self, name)["flow"]), kept)
        self.ends["edge"] = number[self.ends["edge"]]
        self.state.outputs["waiting"] = 0  # ends have new numbers
        s, used = self.state, self.state.used
        hops = s.hops.copy()
        hops[: int(used[state.HOPS])] = number[s.hops[: int(used[state.HOPS])]]
        ring = s.transmissions
        in_flight = np.arange(int(used[state.TAIL]), int(used[state.HEAD])) & (len(ring) - 1)
        ring["flow"][in_flight] = kept.number[ring["flow"][in_flight]]
        self._replace(hops=hops)
        self._rehash_all()

    def _keep(self, name: str, item: int, stays: Bools, kept: Kept) -> None:
        """Only these records of an array stay, with the new numbers of their flows."""
        places = np.flatnonzero(stays)
        self._replace(**{name: front_of(getattr(self.state, name), places)})
        self.state.used[item] = len(places)
        flow = getattr(self, name)["flow"]
        flow[:] = np.where(flow < 0, flow, kept.number[flow])

    @property
    def edges(self) -> Array:
        """EDGE records of flows and of all flows together, in order of appearance."""
        return self.state.edges[: int(self.state.used[state.EDGES])]

    @property
    def visits(self) -> Array:
        """VISIT records."""
        return self.state.visits[: int(self.state.used[state.VISITS])]

    @property
    def ends(self) -> Array:
        """MOMENT records of ends and starts."""
        return self.state.ends[: int(self.state.used[state.ENDS])]

    @property
    def resent(self) -> Array:
        """MOMENT records of retransmissions."""
        return self.state.resent[: int(self.state.used[state.RESENT])]

    @property
    def moves(self) -> Array:
        """MOVE records."""
        return self.state.moves[: int(self.state.used[state.MOVES])]

    def _grow_moments(self) -> None:
        """Keep room for the moments of a batch; further ones are counted, not kept."""
        for name, item in (
            ("ends", state.ENDS), ("resent", state.RESENT), ("moves", state.MOVES),
        ):  # fmt: skip
            array, used = getattr(self.state, name), int(self.state.used[item])
            if len(array) < min(used + (1 << 15), MOST_MOMENTS):
                room = min(max(2 * len(array), used + (1 << 15)), MOST_MOMENTS)
                self._replace(**{name: longer(array, room)})

    def _grow(self, reason: int) -> bool:
        """Make room; False when the rings have their largest size."""
        s, used = self.state, self.state.used
        tail, head = int(used[state.TAIL]), int(used[state.HEAD])
        if reason == passing.NO_SIGHTINGS:
            if len(s.sightings) >= MOST_IN_FLIGHT:
                return False
            oldest = int(s.transmissions[tail & (len(s.transmissions) - 1)]["first_sighting"])
            ring = _wider_ring(s.sightings, oldest, int(used[state.SIGHTED]))
            self._replace(sightings=ring)
        elif reason == passing.NO_TRANSMISSIONS:
            if len(s.transmissions) >= MOST_IN_FLIGHT:
                return False
            ring = _wider_ring(s.transmissions, tail, head)
            self._replace(transmissions=ring, buckets=np.full(2 * len(ring), -1, np.int64))
            self._rehash_all()
        elif reason == passing.NO_EDGES:
            edges = longer(s.edges, 2 * len(s.edges))
            self._replace(edges=edges, edge_slots=np.full(2 * len(edges), -1, np.int32))
            self._rehash_all()
        elif reason == passing.NO_VISITS:
            visits = longer(s.visits, 2 * len(s.visits))
            self._replace(visits=visits, visit_slots=np.full(2 * len(visits), -1, np.int32))
            self._rehash_all()
        else:
            windows = np.zeros((2 * len(s.hops), *s.windows.shape[1:]), np.int64)
            windows[: len(s.windows)] = s.windows
            self._replace(hops=longer(s.hops, 2 * len(s.hops)), windows=windows)
            self.histograms.grow(len(self.state.hops))
        return True

    def _rehash_all(self) -> None:
        self.state.edge_slots[:] = -1
        self.state.visit_slots[:] = -1
        self.state.buckets[:] = -1
        rehash(self.state)

    def _replace(self, **arrays: Array) -> None:
        self.state = self.state._replace(**arrays)


def copied(arrays: Any) -> Any:
    """A tuple of arrays of the same type, copied."""
    return type(arrays)(*(array.copy() for array in arrays))


def _wider_ring(ring: Array, first: int, stop: int) -> Array:
    """A ring of twice the size with the items first..stop, which are counted from the beginning."""
    wider = np.zeros(2 * len(ring), ring.dtype)
    numbers = np.arange(first, stop)
    # Rows of bytes: numpy copies records item by item.
    old, new = (records.view(np.uint8).reshape(len(records), -1) for records in (ring, wider))
    new[numbers & (len(new) - 1)] = old[numbers & (len(old) - 1)]
    return wider
