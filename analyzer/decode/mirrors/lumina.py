"""Lumina mirrors: a programmable switch that numbers, timestamps and marks mirrored packets.

The source address is the number of the packet (1 to 0x7fffffff, then 1 again), the
destination address the ingress time in nanoseconds, the TTL the event the switch injected.
Mirrored packets leave the switch with another UDP destination port, and with the source port in the
checksum; the capture files of Lumina's own dumper have both restored.

The switch mirrors every received packet and then drops or corrupts selected ones, so it is known
for every packet whether it was forwarded. There are thus two taps in series, before and after the
switch, and losses, recovery and conformance are judged at both.

Source: Lumina's switch program and dumper (Yu et al., SIGCOMM 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ....kernels.kernel import Bytes, Int, Ints, kernel
from ...results.captures import MirrorChecks, SwitchCheck, UndeliveredPackets
from ...wire.frames import LINKTYPE_ETHERNET
from ...wire.packets import I64, U8, U32, PacketTable
from ...wire.ports import ROCE_UDP_PORT
from ...wire.taps import Tap, Taps
from ..headers.load import be16, be32

LAST_NUMBER = 0x7FFF_FFFF
DROP, MARK, CORRUPT = 1, 2, 3
EVENTS: Final = {DROP: "drop", MARK: "ecn_mark", CORRUPT: "bit_error"}
OTHER_EVENT = "unknown"
"""TTLs that Lumina does not write: the capture is not a Lumina mirror."""
BACKWARDS_NS = 50
BEFORE, BEHIND = "before the switch", "behind the switch"
"""Names of the two taps."""
_CE = 3


@kernel
def read_marks(data: U8, begin: I64, time_ns: I64, numbers: I64) -> None:
    """Ingress times and numbers from the addresses of the frames at these positions."""
    for i in range(len(begin)):
        u = np.uint64(i)
        time_ns[u] = (be16(data, begin[u]) << 32) | be32(data, begin[u] + 2)
        numbers[u] = be32(data, begin[u] + 8)


@kernel
def count_backwards(order: I64, src: U32, time_ns: I64, latest: I64) -> Int:
    """Number of packets earlier than the previous one of the same sender in `order`.

    latest: int64[endpoints], the time of the last packet of each, updated.
    """
    count = 0
    for i in order:
        u = np.uint64(i)
        sender = np.uint64(src[u])
        count += time_ns[u] < latest[sender]
        latest[sender] = time_ns[u]
    return count


class LuminaMirror:
    """Restores the packets of one capture and checks its numbers."""

    def __init__(self, taps: Taps) -> None:
        self._before, self.behind = (_tap(taps, name) for name in (BEFORE, BEHIND))
        self.undelivered: dict[tuple[int, int, int], list[int]] = {}
        """Dropped and damaged packets by source and destination (endpoints) and queue pair."""
        self.packets = 0
        self.gaps = 0
        self.late = 0
        self.backwards = 0
        self.direction_backwards = 0
        self._latest = np.zeros(0, np.int64)
        """Time of the latest packet, in order of the numbers, of each sender (endpoint)."""
        self.injected = dict.fromkeys((*EVENTS.values(), OTHER_EVENT), 0)
        self.lowest = self.highest = 0
        """Numbers seen, unwrapped."""
        self._last: tuple[int, int] | None = None
        """Unwrapped number of the last packet, and its time."""

    def restored(self, data: U8, base_offset: int, table: PacketTable) -> PacketTable:
        """Every packet with its ingress time and ports, and a second time if forwarded."""
        if not len(table):
            return table
        event = self._restore(data, base_offset, table)
        table.tap[:] = self._before
        delivered = (event != DROP) & (event != CORRUPT)
        for row in np.flatnonzero(~delivered).tolist():
            flow = int(table.src[row]), int(table.dst[row]), int(table.dest_qp[row])
            self.undelivered.setdefault(flow, [0, 0])[int(event[row] == CORRUPT)] += 1
        both = table.take(np.repeat(np.arange(len(table)), 1 + delivered))
        second = np.cumsum(1 + delivered)[delivered] - 1
        both.tap[second] = self.behind
        return both

    def _restore(self, data: U8, base_offset: int, table: PacketTable) -> Bytes:
        """Restore the packets in place and check their numbers; returns the events."""
        begin = table.file_offset - base_offset
        time_ns, numbers = np.empty(len(table), np.int64), np.empty(len(table), np.int64)
        read_marks(data, begin, time_ns, numbers)
        rewritten = (table.udp_dport != ROCE_UDP_PORT) & (table.udp_dport != 0)
        at = (begin + table.bth_offset)[rewritten]
        table.udp_sport[rewritten] = _number(data[at[:, None] + np.array([-2, -1])])
        table.udp_dport[rewritten] = ROCE_UDP_PORT
        event = table.hop_limit.copy()
        table.hop_limit[:] = 0  # the packet's own value is unknown
        table.traffic_class[(event == MARK) & (table.traffic_class & _CE != 0)] |= _CE
        table.time_ns[:] = time_ns
        for kind, name in EVENTS.items():
            self.injected[name] += int(np.count_nonzero(event == kind))
        self.injected[OTHER_EVENT] += int(np.count_nonzero(event > CORRUPT))
        order = np.argsort(self._check(numbers, time_ns), kind="stable")
        more = int(table.src.max()) + 1 - len(self._latest)
        self._latest = np.pad(self._latest, (0, max(more, 0)))
        self.direction_backwards += int(count_backwards(order, table.src, time_ns, self._latest))
        return event

    def _check(self, numbers: Ints, time_ns: Ints) -> Ints:
        """Count gaps and disorder of the numbers; returns them unwrapped."""
        self.packets += len(numbers)
        if self._last is None:
            self._last = int(numbers[0]) - 1, int(time_ns[0])
            self.lowest = int(numbers[0])
        number, time = self._last
        half = LAST_NUMBER // 2
        steps = (np.diff(numbers, prepend=number) + half) % LAST_NUMBER - half
        counted = number + np.cumsum(steps)
        self.gaps += int(np.count_nonzero(steps > 1))
        self.late += int(np.count_nonzero(steps < 1))
        self.backwards += int(np.count_nonzero(np.diff(time_ns, prepend=time) < -BACKWARDS_NS))
        self.lowest = min(self.lowest, int(counted.min()))
        self.highest = max(self.highest, int(counted.max()))
        self._last = int(counted[-1]), int(time_ns[-1])
        return counted


def _number(octets: Bytes) -> Ints:
    """Big-endian numbers, one per row."""
    value = np.zeros(len(octets), np.int64)
    for column in octets.T:
        value = value << 8 | column
    return value


def _tap(taps: Taps, name: str) -> int:
    """The tap of this name, shared by all dumpers of a switch."""
    for index, tap in enumerate(taps.items):
        if tap.name == name:
            return index
    return taps.add(Tap(name, LINKTYPE_ETHERNET, carrier=0))


def _undelivered(mirrors: Sequence[LuminaMirror], addresses: list[str]) -> list[UndeliveredPackets]:
    flows: dict[tuple[int, int, int], list[int]] = {}
    for mirror in mirrors:
        for flow, counts in mirror.undelivered.items():
            mine = flows.setdefault(flow, [0, 0])
            mine[0] += counts[0]
            mine[1] += counts[1]
    return [
        UndeliveredPackets(addresses[src], addresses[dst], qp, *counts)
        for (src, dst, qp), counts in flows.items()
    ]


def mirror_checks(
    mirrors: Sequence[LuminaMirror], addresses: list[str], switch: SwitchCheck | None
) -> MirrorChecks:
    """The checks over all files: the dumpers of a switch share its numbers."""
    seen = [mirror for mirror in mirrors if mirror.packets]
    packets = sum(mirror.packets for mirror in seen)
    numbers = max((m.highest for m in seen), default=0) - min((m.lowest for m in seen), default=1)
    return MirrorChecks(
        packets=packets,
        lost_packets=max(numbers + 1 - packets, 0),
        gaps=sum(mirror.gaps for mirror in seen),
        out_of_order_packets=sum(mirror.late for mirror in seen),
        times_backwards=sum(mirror.backwards for mirror in seen),
        direction_times_backwards=sum(mirror.direction_backwards for mirror in seen),
        injected={
            name: n
            for name in (*EVENTS.values(), OTHER_EVENT)
            if (n := sum(mirror.injected[name] for mirror in seen))
        },
        undelivered=_undelivered(seen, addresses),
        switch=switch,
    )
