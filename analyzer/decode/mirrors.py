"""Mirrors that change packets: duplicates, hardware timestamps, Lumina's numbered mirrors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ...kernels.kernel import Bool, Bools, Bytes, Int, Ints, UInt64s, inlined, kernel, subkernel
from ..errors import RocescopeError, UnreadableInput
from ..results.captures import MirrorChecks, SwitchCheck, UndeliveredPackets
from ..wire.bth import ROCE_UDP_PORT
from ..wire.packets import (
    I64,
    LINKTYPE_ETHERNET,
    U8,
    U16,
    U32,
    FrameBatch,
    PacketTable,
    TableArrays,
)
from ..wire.registry import salt
from ..wire.taps import Tap, Taps
from .headers import be16, be32, byte
from .merge import OrderCounts, in_time_order
from .tunnels import ARISTA_STAMP, arista_timestamp

# Drops duplicates of packets that were mirrored twice to one tap.
#
# For mirrors with indistinguishable sessions, for example both directions of a switch in one GRE
# tunnel. A packet equals another by its addresses, ports, identification, opcode, queue pair and
# PSN, within a time that must be shorter than any retransmission.

ENTRIES = 1 << 16
"""Most packets remembered; a newer packet replaces one with the same low bits."""


@inlined
def _mixed(h: np.uint64, value: np.uint64) -> np.uint64:
    h = (h ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64(h ^ (h >> np.uint64(29)))


@subkernel
def keep_first(
    table: TableArrays,
    within_ns: Int,
    salt: np.uint64,
    keys: UInt64s,
    times: I64,
    keep: Bools,
) -> None:
    """Mark rows that do not repeat a packet of at most `within_ns` before.

    keys, times: uint64 and int64[ENTRIES], recent packets, updated.
    """
    for i in range(len(table.src)):
        h = salt
        h = _mixed(h, np.uint64(table.src[i]) << np.uint64(32) | np.uint64(table.dst[i]))
        h = _mixed(h, np.uint64(table.dest_qp[i]) << np.uint64(32) | np.uint64(table.psn[i]))
        ports = np.uint64(table.udp_sport[i]) << np.uint64(32) | np.uint64(
            table.ip_id[i]
        ) << np.uint64(8)
        h = _mixed(h, ports | np.uint64(table.opcode[i]))
        slot = h & np.uint64(ENTRIES - 1)
        distance = table.time_ns[i] - times[slot]
        keep[i] = keys[slot] != h or distance > within_ns or distance < -within_ns
        if keep[i]:
            keys[slot] = h
            times[slot] = table.time_ns[i]


class Duplicates:
    """Drops repetitions from the tables of one capture."""

    def __init__(self, within_ns: int) -> None:
        self.within_ns = within_ns
        self.dropped = 0
        self._salt = salt(1)[0] | np.uint64(1)
        self._keys = np.zeros(ENTRIES, np.uint64)
        self._times = np.full(ENTRIES, -(1 << 62), np.int64)

    def without(self, table: PacketTable) -> PacketTable:
        """The table without repeated packets."""
        keep = np.ones(len(table), np.bool_)
        keep_first(
            table.arrays,
            self.within_ns,
            self._salt,
            self._keys,
            self._times,
            keep,
        )
        dropped = len(keep) - int(keep.sum())
        self.dropped += dropped
        return table.take(keep) if dropped else table


# Hardware timestamps of mirroring switches in place of capture times.
#
# ERSPAN III has 32 bits in a unit of its own (draft-foschiano-erspan-03); some platforms add upper
# bits or seconds in a sub-header. Arista has seconds and nanoseconds. A timestamp that wraps is
# unwrapped with the capture time, which must be right within half a period. A counter with an
# unknown start is set to the capture time of the first frame of its tap; times of day stay
# unchanged.

# State of the clock of a tap, int64[taps, N_FIELDS].
STATE, OFFSET, LAST_HARDWARE, LAST_CAPTURE, STAMPED, UNSTAMPED, COARSE = range(7)
N_FIELDS = 7
UNKNOWN, OF_DAY, COUNTER = 0, 1, 2

_SECOND = 1_000_000_000
_DAY_NS = 86_400 * _SECOND
_WIDE_BITS = 45
"""Bits kept of stamps with upper bits: the time in nanoseconds stays within 63."""
_TICK_100_US, _TICK_100_NS, _IEEE_1588 = 0, 1, 2


@inlined
def _of_erspan(data: U8, at: Int) -> tuple[Int, Int, Int]:
    """(stamp in ns, its period in ns or 0, unit) of the ERSPAN III header at `at`; unit -1: none.

    The walk has checked that the header and its sub-header are captured.
    """
    stamp, last = be32(data, at + 4), be16(data, at + 10)
    unit = (last >> 1) & 3
    platform: Int = -1
    extra: Int = 0
    if last & 1:
        platform = byte(data, at + 12) >> 2
        extra = be32(data, at + 16)
    upper = platform == 0 or platform == 3 or platform == 7
    if unit == _IEEE_1588:
        if (platform == 5 or platform == 6) and stamp < _SECOND:
            return extra * _SECOND + stamp, 0, unit
        if upper:
            return ((extra & 0x3FFFFFFF) << 32) | stamp, 1 << 62, unit
        return stamp, _SECOND if stamp < _SECOND else 1 << 32, unit
    if unit == 3:
        return 0, 0, -1  # a unit that only the switch's configuration defines
    tick = 100_000 if unit == _TICK_100_US else 100
    if upper:
        value = ((extra << 32) | stamp) & ((1 << _WIDE_BITS) - 1)
        return value * tick, tick << _WIDE_BITS, unit
    return stamp * tick, tick << 32, unit


@inlined
def _nearest(value: Int, period: Int, expected: Int) -> Int:
    """The time that is `value` modulo `period` and nearest to `expected`."""
    if period == 0:
        return value
    return value + (expected - value + (period >> 1)) // period * period


@inlined
def _place(value: Int, period: Int, of_day: Bool, capture: Int, clock: I64) -> Int:
    """The timestamp as time since the epoch, by the state of its tap's clock.

    It differs from the capture time by at most a day, for any timestamp.
    """
    placed = capture
    if clock[STATE] == UNKNOWN and of_day:
        clock[STATE] = OF_DAY
    if clock[STATE] == OF_DAY:
        placed = _nearest(value, period, capture)
    elif clock[STATE] == COUNTER:
        expected = clock[LAST_HARDWARE] + capture - clock[LAST_CAPTURE] - clock[OFFSET]
        placed = _nearest(value, period, expected) + clock[OFFSET]
    if clock[STATE] == UNKNOWN or abs(np.float64(placed) - np.float64(capture)) > _DAY_NS:
        # A counter, or a clock that was never set: start at the capture time.
        clock[STATE] = COUNTER
        clock[OFFSET] = capture - value
        placed = capture
    clock[LAST_HARDWARE] = placed
    clock[LAST_CAPTURE] = capture
    return placed


@kernel
def set_times(data: U8, stamp: I64, tap: U16, time_ns: I64, clocks: I64) -> None:
    """Replace the times of rows with a timestamp.

    stamp: int64[rows], positions from the walk, -1 for none; clocks:
    int64[taps, N_FIELDS], updated.
    """
    for i in range(len(stamp)):
        clock = clocks[np.uint64(tap[i])]
        at = stamp[i]
        if at < 0:
            clock[UNSTAMPED] += 1
            continue
        if at & ARISTA_STAMP:
            at ^= ARISTA_STAMP
            _, seconds, nanoseconds = arista_timestamp(data, at, at + 14)
            value: Int = seconds * _SECOND + nanoseconds
            period: Int = 0 if be16(data, at + 2) == 0x10 else 65536 * _SECOND
            of_day: Bool = True
        else:
            unit: Int
            value, period, unit = _of_erspan(data, at)
            if unit < 0:
                clock[UNSTAMPED] += 1
                continue
            # Without a sub-header, IEEE 1588 stamps are the nanoseconds of a second, or, where
            # one is too large for that, the low bits of a counter.
            of_day = unit == _IEEE_1588 and period <= _SECOND
            if unit == _IEEE_1588 and period == _SECOND and clock[STATE] == COUNTER:
                period = 1 << 32
            elif period == 1 << 32 and clock[STATE] == OF_DAY:
                clock[STATE] = UNKNOWN
            if unit == _IEEE_1588 and period == 1 << 62:
                of_day = True
            clock[COARSE] += unit == _TICK_100_US
        time_ns[i] = _place(value, period, of_day, time_ns[i], clock)
        clock[STAMPED] += 1


class HardwareClock:
    """The clocks of all taps of one capture."""

    def __init__(self, taps: Taps) -> None:
        self._taps = taps
        self._clocks = np.zeros((0, N_FIELDS), np.int64)

    def set_times(self, data: U8, stamp: I64, table: PacketTable) -> None:
        """Set the rows of a table to the times of their timestamps; stamp: -1 for rows without."""
        more = len(self._taps) - len(self._clocks)
        self._clocks = np.pad(self._clocks, ((0, more), (0, 0)))
        set_times(data, stamp, table.tap, table.time_ns, self._clocks)

    @property
    def stamped(self) -> int:
        """Rows with a usable timestamp."""
        return int(self._clocks[:, STAMPED].sum())

    def warnings(self) -> list[str]:
        """Warnings about taps that keep capture time, and about coarse timestamps."""
        lines = []
        for tap, clock in enumerate(self._clocks.tolist()):
            name = self._taps[tap].name
            if clock[UNSTAMPED]:
                lines.append(
                    f"{name}: {clock[UNSTAMPED]} packets have no hardware timestamp and keep"
                    " capture time"
                )
            if clock[COARSE]:
                lines.append(f"{name}: its hardware timestamps have a resolution of 100 us")
        return lines


# Lumina mirrors: a programmable switch that numbers, timestamps and marks mirrored packets.
#
# The source address is the number of the packet (1 to 0x7fffffff, then 1 again), the destination
# address the ingress time in nanoseconds, the TTL the event the switch injected. Mirrored packets
# leave the switch with another UDP destination port, and with the source port in the checksum; the
# capture files of Lumina's own dumper have both restored.
#
# The switch mirrors every received packet and then drops or corrupts selected ones, so it is known
# for every packet whether it was forwarded. There are thus two taps in series, before and after the
# switch, and losses, recovery and conformance are judged at both.
#
# Source: Lumina's switch program and dumper (Yu et al., SIGCOMM 2023).

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
        before = np.concatenate([[time], time_ns[:-1]])
        back = (before - time_ns).view(np.uint64)  # exact: no two times are 2^64 ns apart
        self.backwards += int(np.count_nonzero((time_ns < before) & (back > BACKWARDS_NS)))
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


# Packet counters of Lumina's switch: checks that all packets were mirrored and captured.
#
# The file (`switch_state_snapshot.yml` of a test's results) is YAML: RoCE packets by port,
# `counter: {ingress: {132: 100}, egress: {148: 50}}`, as the switch's controller dumps them.

_MAX_BYTES = 1 << 20
_EXPECTED = "counter with ingress and egress, each a list of port: packets"


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """Packets by port."""

    ingress: dict[str, int]
    egress: dict[str, int]


def read_switch_counters(path: Path) -> SwitchCounters:
    """The counters in a file; UnreadableInput for other formats than Lumina's."""
    import yaml

    try:
        with path.open("rb") as file:
            content: Any = yaml.safe_load(file.read(_MAX_BYTES))
    except OSError as error:
        raise UnreadableInput(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UnreadableInput(f"{path} is not YAML: expected {_EXPECTED}") from None
    counter = content.get("counter") if isinstance(content, dict) else None
    if not isinstance(counter, dict):
        raise UnreadableInput(f"{path}: expected {_EXPECTED}")
    return SwitchCounters(_ports(path, counter, "ingress"), _ports(path, counter, "egress"))


def _ports(path: Path, counter: dict[Any, Any], way: str) -> dict[str, int]:
    ports = counter.get(way)
    if not isinstance(ports, dict) or not ports:
        raise UnreadableInput(f"{path}: no {way}: expected {_EXPECTED}")
    for port, packets in ports.items():
        if type(packets) is not int or packets < 0:
            raise UnreadableInput(f"{path}: {way} of port {port} is not a number of packets")
    return {str(port): packets for port, packets in ports.items()}


def check_switch(counters: SwitchCounters, captured: int) -> SwitchCheck:
    """The counters compared with the captured packets.

    Ports that send and never receive are mirror ports: dumpers only listen. All packets received at
    other ports should leave at the mirror ports, and all of these should be captured.
    """
    mirrors = [
        port for port, sent in counters.egress.items() if sent and not counters.ingress.get(port)
    ]
    received = sum(counters.ingress.values())
    mirrored = sum(counters.egress[port] for port in mirrors)
    return SwitchCheck(
        mirror_ports=mirrors,
        received_packets=received,
        mirrored_packets=mirrored,
        captured_packets=captured,
        agrees=received == mirrored == captured,
    )


# Options for captures from mirrors, and the restoration of their packets.

Clock = Literal["capture", "hardware"]
MirrorFormat = Literal["lumina"]


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """How to restore mirrored packets."""

    clock: Clock = "capture"
    """Source of times; hardware: timestamps of the switches."""
    format: MirrorFormat | None = None
    """A mirror that overwrites header fields of the packets."""
    drop_duplicates_ns: int | None = None
    """Drop packets that repeat one within this time, ns."""
    switch_counters: SwitchCounters | None = None
    """Counters of the mirroring switch."""


class Mirrors:
    """Applies the options to the tables of one capture."""

    def __init__(self, options: MirrorOptions, taps: Taps) -> None:
        self.clock = HardwareClock(taps) if options.clock == "hardware" else None
        self.lumina = LuminaMirror(taps) if options.format == "lumina" else None
        self.duplicates = (
            None if options.drop_duplicates_ns is None else Duplicates(options.drop_duplicates_ns)
        )
        self.order = OrderCounts()

    def restored(self, frames: FrameBatch, stamp: I64, table: PacketTable) -> PacketTable:
        """The table before the mirror; stamp: timestamp positions from the walk, -1 for none."""
        if self.clock is not None:
            self.clock.set_times(frames.data, stamp, table)
        if self.lumina is not None:
            table = self.lumina.restored(frames.data, frames.base_offset, table)
            return self.without_duplicates(table)
        return table

    def without_duplicates(self, table: PacketTable) -> PacketTable:
        """The packets that do not repeat an earlier one of their tap."""
        return table if self.duplicates is None else self.duplicates.without(table)

    def ordered(self, tables: Iterator[PacketTable]) -> Iterator[PacketTable]:
        """The tables sorted by time when times are not those of the capture."""
        if self.clock is None and self.lumina is None:
            return tables
        return in_time_order(tables, self.order)

    def warnings(self, name: str) -> list[str]:
        """Warnings about the restored packets; RocescopeError without any timestamp."""
        lines = []
        if self.clock is not None:
            if not self.clock.stamped:
                raise RocescopeError(
                    f"{name}: no packet has a hardware timestamp (ERSPAN III, Arista):"
                    " analyse it without --clock hardware"
                )
            lines += self.clock.warnings()
        if self.order.late_rows:
            lines.append(
                f"{name}: {self.order.late_rows} packets were more than 10 ms too late for"
                " sorting by timestamp"
            )
        if self.duplicates is not None:
            lines.append(
                f"{name}: {self.duplicates.dropped} packets repeat a packet of at most"
                f" {self.duplicates.within_ns / 1000:g} us before: dropped"
            )
        return lines
