"""Counters that only grow, per tap, peer and flow, from the tables of the kernel.

A table entry is one flow, UDP source port and CPU; the kernel reuses entries. The growth of each
entry since the last reading is added here, so that sums do not shrink when entries leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ..analyzer.statistics.per_flow import longer
from ..analyzer.wire.bth import RC, UC, XRC
from ..kernels.kernel import Array, Ints
from ..probes.counters.program import COUNTERS, IS_IPV6, KEY


class Count(NamedTuple):
    """Declaration of a sum, and of its metric."""

    field: str
    """Of COUNTERS."""
    metric: str = ""
    """Without `rocescope_`; empty: it is not exported."""
    meaning: str = ""
    of_peers: bool = False
    """Exported by peer too."""


COUNTS: Final = (
    Count("packets", "packets", "RoCE packets", True),
    Count("wire_bytes", "wire_bytes", "Bytes of RoCE packets on the wire", True),
    Count("payload_bytes", "payload_bytes", "RDMA payload of the packets"),
    Count("requests"),
    Count("responses"),
    Count("messages", "messages", "Requests that begin a message"),
    Count("acks"),
    Count(
        "late", "late_packets", "Packets with a PSN below the expected, and retransmissions", True
    ),
    Count(
        "gap_psns",
        "skipped_psns",
        "PSNs skipped: late packets may fill them, others are lost",
        True,
    ),
    Count("naks", "naks", "NAKs without RNR NAKs", True),
    Count("rnr_naks", "rnr_naks", "RNR NAKs: the receiver was not ready", True),
    Count("cnps", "cnps", "Congestion notification packets", True),
    Count("ecn_capable", "ecn_capable_packets", "ECN-capable packets, marked packets included"),
    Count("ecn_marked", "ecn_marked_packets", "Packets marked by ECN (CE)", True),
    Count("jumps"),
    Count(
        "restarts",
        "sequence_restarts",
        "PSNs that jumped far: a new connection, or loss of many",
    ),
    Count(
        "unordered",
        "unordered_packets",
        "Packets that were counted, but whose order is unknown",
    ),
    Count("ordered"),
)
"""In the order of the columns of all sums.

Last, and of our own: data packets of transports whose PSNs have an order.
"""
COUNTED: Final = tuple(count.field for count in COUNTS)
REQUESTS, RESPONSES = COUNTED.index("requests"), COUNTED.index("responses")
ORDERED = COUNTED.index("ordered")
PACKETS, WIRE_BYTES = COUNTED.index("packets"), COUNTED.index("wire_bytes")
LATE, SKIPPED = COUNTED.index("late"), COUNTED.index("gap_psns")
IDLE_NS: Final = 60_000_000_000
"""A flow without a packet for this time leaves the list of flows; the sums keep it."""
PEER_IDLE_NS: Final = 3_600_000_000_000
"""A peer without a packet for this time gives way to a new one."""
MOST_FLOWS: Final = 50_000
"""Listed flows, at most; the packets of others are in the sums only."""
MOST_PEERS: Final = 256
"""Peers with their own sums, on each tap."""
WIDTH_BOUNDS: Final = (1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5)
"""Upper bounds of the histogram of spraying widths; the last bin has none."""
SPRAYED_WIDTH: Final = 1.5
"""Below, an interval's packets of a flow took one path."""
_DATA_PACKETS = 32
"""Fewer data packets in an interval say nothing about spraying."""
_WORDS = COUNTERS.itemsize // 8
_COLUMNS = [COUNTERS.fields[name][1] // 8 for name in COUNTED[:-1]]  # type: ignore[index]
_LAST = COUNTERS.fields["last_ns"][1] // 8  # type: ignore[index]
_CREATED = COUNTERS.fields["created_ns"][1] // 8  # type: ignore[index]
_WITHOUT_TRANSPORT = 0xF1
_PART = 4096
_ORDERED = (RC, UC, XRC)


@dataclass(slots=True)
class Peers:
    """Sums per remote address of one tap."""

    rows: dict[bytes, int] = field(default_factory=dict)
    """Address, and a byte that is 1 for IPv6 -> row of `sums`."""
    sums: Array = field(default_factory=lambda: np.zeros((MOST_PEERS + 1, len(COUNTED)), np.uint64))
    """[MOST_PEERS + 1, COUNTED]; the last row is that of all other peers."""
    last_ns: Ints = field(default_factory=lambda: np.zeros(MOST_PEERS + 1, np.int64))

    def row(self, address: bytes, most: int, now_ns: int) -> int:
        """The row of an address; in a full table that of a peer that was idle for long."""
        row = self.rows.get(address)
        if row is not None:
            return row
        if len(self.rows) < most:
            row = len(self.rows)
        else:
            row = int(np.argmin(self.last_ns[:most])) if most else MOST_PEERS
            if not most or now_ns - self.last_ns[row] < PEER_IDLE_NS:
                return MOST_PEERS
            del self.rows[next(key for key, value in self.rows.items() if value == row)]
            self.sums[row] = 0
        self.rows[address] = row
        self.last_ns[row] = now_ns
        return row


class CountedFlows:
    """Sums of what was counted since the start.

    taps: number of taps. inbound: whether a tap sees received packets, bool[taps]: the peer is the
    source there, and the destination elsewhere. peers: peers per tap with their own sums.
    """

    def __init__(self, inbound: Array, slots: int, peers: int = MOST_PEERS) -> None:
        taps = len(inbound)
        self.sums = np.zeros((taps, len(COUNTED)), np.uint64)
        """[taps, COUNTED]"""
        self.interval = np.zeros((taps, len(COUNTED)), np.uint64)
        """The same for the last interval."""
        self.peers = [Peers() for _ in range(taps)]
        self.width_bins = np.zeros((taps, len(WIDTH_BOUNDS) + 1), np.int64)
        """Flows with data per interval, by spraying width."""
        self.width_sum = np.zeros(taps)
        self.unsprayed = np.zeros(taps, np.int64)
        """Flows with data in the last interval that took one path."""
        self.evicted_known = np.zeros(taps, np.uint64)
        """[taps]: packets of entries that the kernel has reused, as far as they are in the sums."""
        self.unlisted_packets = 0
        """Packets of flows beyond MOST_FLOWS."""
        self.keys = np.zeros(0, KEY)
        """KEY[n]; in use: flags other than 0. Its UDP source port is 0."""
        self.totals = np.zeros((0, len(COUNTED)), np.uint64)
        """[n, COUNTED] since the flow is listed."""
        self.recent = np.zeros((0, len(COUNTED)), np.uint64)
        """The same for the last interval."""
        self.last_ns = np.zeros(0, np.int64)
        """Time of the last packet by the kernel's clock."""
        self.widths = np.zeros(0)
        """Spraying width of the last interval with enough data; 0: none so far."""
        self.peer = np.zeros(0, np.int64)
        """Row in the sums of the tap's peers."""
        self._inbound, self._most_peers = inbound, peers
        self._numbers: dict[bytes, int] = {}
        self._free: list[int] = []
        self._room(1024)
        self._flow_of_slot = np.full(slots, -1, np.int64)
        self._position = np.full(slots, -1, np.int64)
        self._counts = np.zeros((0, len(COUNTED)), np.uint64)
        self._created = np.zeros(0, np.uint64)
        self._taps = np.zeros(0, np.uint8)

    def _room(self, flows: int) -> None:
        self._free = [*range(flows - 1, len(self.keys) - 1, -1), *self._free]
        for name in ("keys", "totals", "recent", "last_ns", "widths", "peer"):
            setattr(self, name, longer(getattr(self, name), flows))

    def listed(self) -> Ints:
        """Numbers of the listed flows."""
        return np.flatnonzero(self.keys["flags"]).astype(np.int64)

    def active(self) -> Ints:
        """[taps]: listed flows."""
        taps = self.keys["tap"][self.listed()]
        return np.bincount(taps, minlength=len(self.sums)).astype(np.int64)

    def missing(self) -> Ints:
        """[taps]: PSNs of listed flows that were skipped beyond their late packets.

        At least this many are missing. Retransmissions are late packets too, and hide losses.
        """
        listed = self.listed()
        skipped = self.totals[listed].astype(np.int64)
        left = np.maximum(skipped[:, SKIPPED] - skipped[:, LATE], 0)
        return np.bincount(self.keys["tap"][listed], weights=left, minlength=len(self.sums)).astype(
            np.int64
        )

    def disordered(self) -> Ints:
        """Flow, tap, skipped PSNs and late packets of the last interval, for flows with any.

        int64[n, 4]. Flow -1 is all unlisted flows of a tap.
        """
        columns = [SKIPPED, LATE]
        flows = np.flatnonzero(self.recent[:, columns].any(axis=1))
        counts = self.recent[flows][:, columns].astype(np.int64)
        taps = self.keys["tap"][flows].astype(np.int64)
        rest = self.interval[:, columns].astype(np.int64)
        np.subtract.at(rest, taps, counts)
        others = np.flatnonzero(rest.any(axis=1))
        return np.concatenate(
            (
                np.column_stack((flows, taps, counts)),
                np.column_stack((np.full(len(others), -1), others, rest[others])),
            )
        )

    def take(self, slots: Ints, entries: Array, now_ns: int) -> None:
        """Add what the entries in use (`CounterSource.entries`) grew since the last call.

        now_ns: by the kernel's clock.
        """
        words = entries.view(np.uint64).reshape(len(entries), _WORDS)
        counts, created = _columns(entries["key"], words), words[:, _CREATED].copy()
        at = self._position[slots]
        same = at >= 0
        same[same] = self._created[at[same]] == created[same]
        growth = counts.copy()
        _subtract(growth, same, self._counts, at)
        left = np.ones(len(self._counts), bool)
        left[at[same]] = False
        np.add.at(self.evicted_known, self._taps[left], self._counts[left, PACKETS])
        self._position[:] = -1
        self._position[slots] = np.arange(len(slots))
        self._counts, self._created = counts, created
        self._taps = entries["key"]["tap"].copy()
        self._forget(now_ns)
        self._number(slots, entries["key"], same, growth[:, PACKETS] > 0, now_ns)
        last = words[:, _LAST].astype(np.int64)
        self._add(self._flow_of_slot[slots], entries["key"], growth, last)

    def _number(self, slots: Ints, keys: Array, same: Array, grown: Array, now_ns: int) -> None:
        """Give every entry with new packets the number of its flow."""
        self._flow_of_slot[slots[~same]] = -1
        changed = np.flatnonzero(grown & (self._flow_of_slot[slots] < 0))
        if not len(changed):
            return
        flows = np.ascontiguousarray(keys[changed])
        flows["sport"] = 0
        flows["flags"] &= _WITHOUT_TRANSPORT  # CNPs to a queue pair are its packets too
        raw = flows.tobytes()
        size = KEY.itemsize
        for i, slot in enumerate(slots[changed].tolist()):
            key = raw[i * size : (i + 1) * size]
            number = self._numbers.get(key)
            if number is None:
                number = self._list(key, flows[i], now_ns)
            self._flow_of_slot[slot] = number

    def _list(self, key: bytes, fields: Array, now_ns: int) -> int:
        if not self._free:
            if len(self.keys) >= MOST_FLOWS:
                return -1
            self._room(min(2 * len(self.keys), MOST_FLOWS))
        number = self._free.pop()
        self._numbers[key] = number
        self.keys[number] = fields
        self.totals[number] = self.recent[number] = 0
        self.last_ns[number] = now_ns
        self.widths[number] = 0
        tap = int(fields["tap"])
        address = key[:16] if self._inbound[tap] else key[16:32]
        address += bytes([key[-1] & IS_IPV6])
        self.peer[number] = self.peers[tap].row(address, self._most_peers, now_ns)
        return number

    def _forget(self, now_ns: int) -> None:
        """Let idle flows leave the list."""
        listed = self.listed()
        idle = listed[now_ns - self.last_ns[listed] > IDLE_NS]
        if not len(idle):
            return
        raw, size = np.ascontiguousarray(self.keys[idle]).tobytes(), KEY.itemsize
        for i in range(len(idle)):
            del self._numbers[raw[i * size : (i + 1) * size]]
        self.keys["flags"][idle] = 0
        self._free += idle.tolist()
        gone = np.zeros(len(self.keys) + 1, bool)
        gone[idle] = True
        self._flow_of_slot[gone[self._flow_of_slot]] = -1

    def _add(self, flows: Ints, keys: Array, growth: Array, last: Ints) -> None:
        self.interval[:] = 0
        self.recent[:] = 0
        self.unsprayed[:] = 0
        grown = np.flatnonzero(growth[:, PACKETS])
        if not len(grown):
            return
        if len(grown) < len(growth):
            flows, keys, growth, last = flows[grown], keys[grown], growth[grown], last[grown]
        taps = keys["tap"].astype(np.int64)
        seen, totals = grouped(taps, growth)
        self.interval[seen] = totals
        self.sums += self.interval
        self.unlisted_packets += int(growth[flows < 0, PACKETS].sum())
        peer = np.where(flows < 0, MOST_PEERS, self.peer[flows])
        rows, of_peers = grouped(taps * (MOST_PEERS + 1) + peer, growth)
        for number, total in zip(rows.tolist(), of_peers, strict=True):
            tap, row = divmod(number, MOST_PEERS + 1)
            self.peers[tap].sums[row] += total
            self.peers[tap].last_ns[row] = last.max()
        listed = flows >= 0
        if listed.all():
            flow, sums = grouped(flows, growth)
        else:
            flow, sums = grouped(flows[listed], growth[listed])
        self.totals[flow] += sums
        self.recent[flow] = sums
        np.maximum.at(self.last_ns, flows[listed], last[listed])
        data = growth[:, REQUESTS] + growth[:, RESPONSES]
        with_data = listed & (data > 0)
        paths = flows[with_data] << 16 | keys["sport"][with_data]
        self._spread(paths, growth[with_data, WIRE_BYTES], data[with_data])

    def _spread(self, path: Ints, wire_bytes: Array, data_packets: Array) -> None:
        """Spraying widths of the interval, of flows with enough data packets.

        path: flow and UDP source port of each row.
        """
        paths, carried = grouped(path, np.stack((wire_bytes, data_packets), axis=1))
        flow, totals = grouped(paths >> 16, carried)
        of = np.searchsorted(flow, paths >> 16)
        share = carried[:, 0] / totals[of, 0]
        entropy = np.bincount(of, weights=-share * np.log(share), minlength=len(flow))
        enough = totals[:, 1] >= _DATA_PACKETS
        flow, width = flow[enough], np.exp(entropy[enough])
        self.widths[flow] = width
        taps = self.keys["tap"][flow].astype(np.int64)
        np.add.at(self.width_bins, (taps, np.searchsorted(WIDTH_BOUNDS, width)), 1)
        np.add.at(self.width_sum, taps, width)
        np.add.at(self.unsprayed, taps[width < SPRAYED_WIDTH], 1)


def _columns(keys: Array, words: Array) -> Array:
    """Counts as [n, COUNTED]."""
    counts = np.empty((len(keys), len(COUNTED)), np.uint64)
    for column, word in enumerate(_COLUMNS):
        counts[:, column] = words[:, word]
    data = counts[:, REQUESTS] + counts[:, RESPONSES]
    counts[:, ORDERED] = np.where(np.isin(keys["flags"] >> 1 & 7, _ORDERED), data, 0)
    return counts


def _subtract(growth: Array, same: Array, counts: Array, at: Ints) -> None:
    """Subtract the last counts of the same entries, a part at a time: copies would cost memory."""
    for first in range(0, len(growth), _PART):
        part = slice(first, first + _PART)
        rows = np.flatnonzero(same[part]) + first
        growth[rows] -= counts[at[rows]]


def grouped(group: Ints, values: Array) -> tuple[Ints, Array]:
    """The numbers in `group`, sorted, and the sums of the rows of `values` with each."""
    if not len(group):
        return group.astype(np.int64), values[:0]
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sums = np.empty((len(starts), *values.shape[1:]), values.dtype)
    for column in range(values.shape[1]):  # a copy of all columns would cost memory
        sums[:, column] = np.add.reduceat(values[order, column], starts)
    return ordered[starts], sums
