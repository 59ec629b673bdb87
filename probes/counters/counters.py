"""Flow counters of interfaces, read at intervals: flows, their differences, results.

Every CPU has its own part of the table, so no packet waits for another. The counts of an
evicted entry are added to the evictions; counts that an earlier reading has seen are kept.
So the flows miss only packets after that reading, and their exact number is known.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...analyzer.errors import CaptureError, UsageError
from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.measures.spraying import LISTED_FLOWS, SPRAYED_WIDTH, imbalance_of
from ...analyzer.results.analysis import Analysis
from ...analyzer.results.base import Imbalance, Series, Spraying
from ...analyzer.results.captures import CaptureSummary, TapSummary
from ...analyzer.results.diagnosis import Diagnosis
from ...analyzer.results.flow import Congestion, Flow, IdleGaps, Latency, Messages, Recovery
from ...analyzer.statistics.shares import Carried, jain, path_shares, width
from ...analyzer.wire.bth import CNP, RC, ROCE_UDP_PORT, TRANSPORT_NAMES, UC, XRC
from ...analyzer.wire.packets import LINKTYPE_ETHERNET
from ...kernels.kernel import Array, Ints
from ...version import VERSION
from .. import bpf, live
from ..bpf import WallClock
from ..hooks.attach import Attachment, Direction, Hook, attach, directions_of, privileges_of
from ..hooks.interfaces import Interface, find_interfaces
from ..hooks.others import OthersBefore
from ..live import Opened
from ..program.compile import find_bcc
from ..program.filter import c_condition
from ..program.program import ProgramOptions
from .program import (
    COUNTERS,
    IS_IPV6,
    ORDER_BYTES,
    TALLY,
    WAYS,
    CompiledCounters,
    CounterMaps,
    address_text,
    by_key,
    opcode_map,
    together,
)

_SLOTS_PER_FLOW = 2
_ALL_TABLES_BYTES = 256 << 20
_LARGEST_DEFAULT, _SMALLEST, _LARGEST = 8192, 4, 1 << 20
_MOST_TAPS = 256  # a key has one byte for its tap
_SETTLE_S = 0.05
_TRIES = 100
_MOST_KEPT = 1 << 18


@dataclass(frozen=True, slots=True)
class CounterOptions:
    """How to count."""

    hook: Hook = "tc"
    namespace: str | None = None
    """Network namespace of interfaces that do not name their own."""
    max_flows: int | None = None
    """Flows times UDP source ports per CPU; None: 8192, less on many CPUs."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    mirror: bool = True
    """Also search GRE and ERSPAN for RoCE."""
    filter: str | None = None
    """Packets to count, as a filter of the analyzer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one time, since the start.

    Exact after the probes are detached; before, a packet that is being counted may be
    included in some of the numbers only.
    """

    time_ns: int
    """Wall time."""
    clock_offset_ns: int
    """Offset from the entries' times to wall time."""
    entries: Array
    """COUNTERS[n], one per key; includes evicted entries as far as they were read before."""
    tally: Array
    """TALLY[taps, cpus]."""
    lost_packets: Ints
    """[taps]: packets counted, but in no entry: evicted before they were read."""
    lost_bytes: Ints

    def total(self, field: str) -> int:
        """A field of the tally over all taps and CPUs."""
        return int(self.tally[field].sum())


class CounterSource(Opened):
    """Counters on some interfaces; a context manager.

    Tap number `i` of the keys is `taps[i]`. Call `read()` at intervals, the last
    time after `detach()`: that reading is exact.
    """

    def __init__(self, interfaces: Sequence[str], options: CounterOptions | None = None) -> None:
        self.options = options or CounterOptions()
        self.interfaces: list[Interface] = []
        self.taps: list[tuple[Interface, Direction]] = []
        self.attachments: list[Attachment] = []
        self.others = OthersBefore(())
        """Programs of others that run before the probes."""
        self._names = list(interfaces)
        super().__init__()
        self._clock = WallClock()

    def _open(self) -> None:
        options = self.options
        if not self._names:
            raise UsageError("name the interfaces to count on")
        live.check([options.namespace, *(n.rpartition(":")[0] for n in self._names)])
        find_bcc()
        condition = c_condition(options.filter) if options.filter else "1"
        self.interfaces = find_interfaces(self._names, options.namespace)
        self.taps = [(i, d) for i in self.interfaces for d in directions_of(options.hook)]
        if len(self.taps) > _MOST_TAPS:
            raise UsageError(f"counters know at most {_MOST_TAPS} interfaces times directions")
        maps = self._create_maps()
        program = ProgramOptions(
            udp_ports=options.udp_ports,
            mirror=options.mirror,
            condition=condition,
        )
        compiled = CompiledCounters(program, maps)
        self._stack.callback(self.detach)
        for tap, (interface, direction) in enumerate(self.taps):
            self.attachments.append(attach(compiled, interface, direction, options.hook, tap))
        self.others = OthersBefore(self.attachments)
        self._stack.callback(self.others.close)

    def _create_maps(self) -> CounterMaps:
        cpus = bpf.possible_cpus()
        flows = _room(self.options.max_flows, cpus)
        sets = max(1 << (_SLOTS_PER_FLOW * flows // WAYS - 1).bit_length(), 1)
        try:
            table = self._map(
                bpf.MAP_ARRAY, WAYS * COUNTERS.itemsize, cpus * sets, "table", bpf.MAPPABLE
            )
            order = self._map(bpf.MAP_ARRAY, WAYS * ORDER_BYTES, 2 * sets, "order")
            self._tally_fd = self._map(
                bpf.MAP_PERCPU_ARRAY, TALLY.itemsize, len(self.taps), "tally"
            )
            size, page = cpus * sets * WAYS * COUNTERS.itemsize, bpf.page_bytes()
            mapped = mmap.mmap(table, -(-size // page) * page, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            if error.errno not in (errno.ENOMEM, errno.E2BIG):
                raise
            raise CaptureError(
                f"no memory for counters of {flows} flows on {cpus} CPUs: give a smaller"
                " --max-flows"
            ) from None
        self._table: Array = np.frombuffer(mapped, COUNTERS, cpus * sets * WAYS)
        self._created = np.zeros(len(self._table), np.uint64)
        self._last = np.zeros(0, COUNTERS)
        self._last_slots = np.zeros(0, np.int64)
        self._past = np.zeros(0, COUNTERS)
        codes = opcode_map()
        self._stack.callback(os.close, codes)
        return CounterMaps(table, sets, order, 2 * sets, self._tally_fd, codes)

    def _map(self, kind: int, value_bytes: int, entries: int, name: str, flags: int = 0) -> int:
        fd = bpf.create_map(kind, 4, value_bytes, entries, flags=flags, name=f"rs_{name}")
        self._stack.callback(os.close, fd)
        return fd

    def detach(self) -> None:
        """End counting; no probe runs after it returns."""
        attached = [a for a in self.attachments if a.link >= 0 or a.filter is not None]
        for attachment in reversed(attached):  # in reverse order of creation
            attachment.close()
        if attached:
            time.sleep(_SETTLE_S)  # running probes have ended after this time

    @property
    def slots(self) -> int:
        """Number of slots of the tables of all CPUs."""
        return len(self._table)

    def gone(self) -> list[Interface]:
        """Interfaces that have disappeared, or from which another program took the probes."""
        missing = [a.interface for a in self.attachments if a.gone()]
        return [interface for interface in self.interfaces if interface in missing]

    def privileges(self) -> tuple[str, ...]:
        """Capabilities that are still needed after everything is attached."""
        return privileges_of(self.attachments)

    def note(self) -> None:
        """Store the current counts, so that evictions do not lose them."""
        self._keep_evicted(*self.entries())

    def read(self) -> Reading:
        """The current counters."""
        self.note()
        tally = self.read_tally()  # after the entries: includes what was evicted from them
        taps = len(self.taps)
        kept = self._past["key"]["tap"]
        lost = []
        for total, field in (("evicted_packets", "packets"), ("evicted_bytes", "wire_bytes")):
            known = np.zeros(taps, np.uint64)
            np.add.at(known, kept, self._past[field])
            lost.append((tally[total].sum(axis=1) - known).astype(np.int64))
        self._clock.check()
        return Reading(
            time_ns=time.time_ns(),
            clock_offset_ns=self._clock.offset_ns,
            entries=by_key(np.concatenate((self._past, self._last))),
            tally=tally,
            lost_packets=lost[0],
            lost_bytes=lost[1],
        )

    def entries(self) -> tuple[Ints, Array]:
        """Slots and copies of all entries in use, without entries replaced during the read.

        An entry has the key of its slot as long as its `created_ns` stays the same.
        """
        created = self._table["created_ns"].copy()
        slots = np.flatnonzero(created).astype(np.int64)
        entries = self._table[slots]
        for _ in range(_TRIES):
            torn = np.flatnonzero(
                (self._table["created_ns"][slots] != created[slots])
                | (entries["created_ns"] != created[slots])
            )
            if not len(torn):
                break
            created[slots[torn]] = self._table["created_ns"][slots[torn]]
            entries[torn] = self._table[slots[torn]]
        complete = entries["created_ns"] > 0
        return (slots, entries) if complete.all() else (slots[complete], entries[complete])

    def _keep_evicted(self, slots: Ints, entries: Array) -> None:
        """Keep the last counts of entries that were evicted since the last reading."""
        self._created[slots] = entries["created_ns"]
        gone = self._created[self._last_slots] != self._last["created_ns"]
        if gone.any() and len(self._past) < _MOST_KEPT:
            self._past = by_key(np.concatenate((self._past, self._last[gone])))
        self._last_slots, self._last = slots, entries

    def read_tally(self) -> Array:
        """TALLY[taps, cpus]."""
        cpus = bpf.possible_cpus()
        values = [
            bpf.lookup(self._tally_fd, struct.pack("I", tap), TALLY.itemsize * cpus)
            for tap in range(len(self.taps))
        ]
        return np.frombuffer(b"".join(values), TALLY).reshape(len(self.taps), cpus)


def default_max_flows(cpus: int, most: int = _LARGEST_DEFAULT) -> int:
    """`most` per CPU, less if all tables together would exceed 256 MiB; a power of two."""
    share = _ALL_TABLES_BYTES // (cpus * _SLOTS_PER_FLOW * COUNTERS.itemsize)
    # Tables have powers of two of entries: other numbers would be rounded up.
    return max(1 << min(most, share).bit_length() - 1, _SMALLEST)


def _room(wanted: int | None, cpus: int) -> int:
    if wanted is None:
        return default_max_flows(cpus)
    if not _SMALLEST <= wanted <= _LARGEST:
        raise UsageError(f"--max-flows must be a number from {_SMALLEST} to {_LARGEST}")
    return wanted


# From counters to flows; values that counters lack are None, with a note.

_ORDERED = (RC, UC, XRC)
_MODE = (
    "counted in the kernel: opcodes, DSCPs, latencies, retransmission, rewinds and the times of"
    " messages need the headers (capture without --counters)"
)


_NO_PORT = 1 << 16
"""Replaces the port of control packets, which count as a path only if there are no others."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of one flow."""

    name: tuple[str, str, int]
    total: Any
    """COUNTERS."""
    transport: int
    paths: list[tuple[int, Carried]]
    """Per UDP source port of the flow's representative packets, the largest first."""
    control: Carried | None
    """All other packets."""
    taps: dict[str, int]


def flows_of(reading: Reading, taps: Sequence[str]) -> tuple[list[Flow], list[Imbalance]]:
    """The flows in order of their first packet, and the imbalance over their source ports."""
    counted = _counted(reading, taps)
    flows = [_flow(number, flow) for number, flow in enumerate(counted)]
    sprayed = [
        (-int(entry.total["wire_bytes"]), i)
        for i, entry in enumerate(counted)
        if flows[i].spraying_width >= SPRAYED_WIDTH
    ]
    imbalances = [_imbalance(counted[i]) for _, i in sorted(sprayed)[:LISTED_FLOWS]]
    return flows, [imbalance for imbalance in imbalances if imbalance is not None]


def _imbalance(counted: _Counted) -> Imbalance | None:
    src, dst, qp = counted.name
    labels = [str(port) for port, _ in counted.paths]
    carried = [path for _, path in counted.paths]
    name = f"entropy values of {src} > {dst} QP 0x{qp:06x}"
    return imbalance_of(name, "entropy", True, labels, carried, 1)


def _counted(reading: Reading, taps: Sequence[str]) -> list[_Counted]:
    entries, offset_ns = reading.entries, reading.clock_offset_ns
    names, of = _numbered(entries)
    totals = together(entries, of, len(names))
    transports = entries["key"]["flags"] >> 1 & 7
    # Data packets represent a flow; without data its ACKs do, and without ACKs its CNPs.
    rank = np.where(entries["requests"] + entries["responses"] > 0, 0, 1 + (transports == CNP))
    best = np.full(len(names), 2)
    np.minimum.at(best, of, rank)
    transport = np.full(len(names), RC)
    transport[of[transports != CNP]] = transports[transports != CNP]
    port = np.where(rank == best[of], entries["key"]["sport"].astype(np.int64), _NO_PORT)
    paths: list[list[tuple[int, Carried]]] = [[] for _ in names]
    keys, group = np.unique(of << 17 | port, return_inverse=True)
    sums = together(entries, group, len(keys))
    counts = zip(
        *(sums[f].tolist() for f in ("packets", "wire_bytes", "late", "ecn_marked")), strict=True
    )
    first = (sums["created_ns"].astype(np.int64) + offset_ns).tolist()
    last = (sums["last_ns"].astype(np.int64) + offset_ns).tolist()
    for i, (packets, wire_bytes, late, marked) in enumerate(counts):
        carried = Carried(packets, wire_bytes, late, marked, first[i], last[i])
        paths[keys[i] >> 17].append((int(keys[i]) & 0x1FFFF, carried))
    seen_at: list[dict[str, int]] = [{} for _ in names]
    for flow, tap, packets in zip(
        of.tolist(), entries["key"]["tap"].tolist(), entries["packets"].tolist(), strict=True
    ):
        seen_at[flow][taps[tap]] = seen_at[flow].get(taps[tap], 0) + packets
    totals["created_ns"] += np.uint64(offset_ns)
    totals["last_ns"] += np.uint64(offset_ns)
    order = np.argsort(totals["created_ns"], kind="stable").tolist()
    return [
        _Counted(
            name=names[f],
            total=totals[f],
            transport=int(transport[f]),
            paths=sorted(
                (path for path in paths[f] if path[0] != _NO_PORT),
                key=lambda path: (-path[1].wire_bytes, -path[1].packets, path[0]),
            ),
            control=next((part for number, part in paths[f] if number == _NO_PORT), None),
            taps=seen_at[f],
        )
        for f in order
    ]


def _numbered(entries: Array) -> tuple[list[tuple[str, str, int]], Ints]:
    """The flows by source, destination and queue pair, and the flow number of each entry."""
    numbers: dict[tuple[str, str, int], int] = {}
    of = np.zeros(len(entries), np.int64)
    keys = entries["key"]
    is_ipv6 = (keys["flags"] & IS_IPV6 != 0).tolist()
    qps = keys["dest_qp"].tolist()
    for i, (src, dst) in enumerate(zip(keys["src"].tolist(), keys["dst"].tolist(), strict=True)):
        flow = (address_text(src, is_ipv6[i]), address_text(dst, is_ipv6[i]), qps[i])
        of[i] = numbers.setdefault(flow, len(numbers))
    return list(numbers), of


def _flow(number: int, counted: _Counted) -> Flow:
    total = counted.total
    has_order = bool(counted.transport in _ORDERED and total["requests"] + total["responses"])
    late, missing, notes = _order(total, has_order)
    if len(counted.taps) > 1:
        notes.append(
            f"seen at {len(counted.taps)} taps: copies cannot be distinguished from other"
            " packets, so all are counted"
        )
    spraying = _spraying(counted)
    src, dst, dest_qp = counted.name
    over_10us, over_50us, over_100us, over_500us = total["idle"].tolist()
    return Flow(
        id=number,
        src=src,
        dst=dst,
        dest_qp=dest_qp,
        transport=TRANSPORT_NAMES[counted.transport],
        connection=None,
        first_time_ns=int(total["created_ns"]),
        last_time_ns=int(total["last_ns"]),
        packets=int(total["packets"]),
        wire_bytes=int(total["wire_bytes"]),
        payload_bytes=int(total["payload_bytes"]),
        request_packets=int(total["requests"]),
        response_packets=int(total["responses"]),
        ack_packets=int(total["acks"]),
        opcodes={},
        path_mtu=None,
        messages=int(total["messages"]),
        reordered_packets=late,
        retransmitted_packets=None,
        recovered_packets=None,
        duplicate_packets=None,
        mirror_duplicates=None,
        tap_copies=0,
        missing_packets=missing,
        capture_loss_suspected_packets=None,
        sequence_restarts=int(total["restarts"]),
        naks=int(total["naks"]),
        rnr_naks=int(total["rnr_naks"]),
        cnps=int(total["cnps"]),
        ecn_marked_packets=int(total["ecn_marked"]),
        entropy_values=spraying.paths_seen,
        spraying_width=spraying.width,
        paths=spraying.paths,
        spraying=[spraying],
        reordering=None,
        recovery=Recovery({}, None, None, None, None, None, None, None),
        message_statistics=Messages(int(total["messages"]), None, None, None, None, None),
        latency=Latency(None, None),
        congestion=Congestion(
            ecn_capable_packets=int(total["ecn_capable"]),
            ecn_marked_packets=int(total["ecn_marked"]),
            cnps=int(total["cnps"]),
            cnp_spacing_ns=None,
            dscp={},
        ),
        idle_gaps=IdleGaps(over_10us, over_50us, over_100us, over_500us, int(total["idle_max_ns"])),
        goodput_bits_per_second=None,
        activity_bytes=[],
        activity_bin_ns=DEFAULT_WINDOW_NS,
        taps=counted.taps,
        notes=notes,
    )


def _order(total: Any, has_order: bool) -> tuple[int | None, int | None, list[str]]:
    """Late packets, missing PSNs, and what limits both."""
    notes = [_MODE]
    if not has_order:
        notes.append("datagrams, ACKs and CNPs have no PSN order: no packet can be late or missing")
        return None, None, notes
    passed = int(total["gap_psns"])
    late: int | None = int(total["late"])
    missing: int | None = passed
    if late:
        notes.append(
            f"{late} packets arrived after higher PSNs, including retransmissions, which"
            " counters cannot distinguish"
        )
    if passed and late:
        missing = None
        notes.append(
            f"{passed} PSNs were skipped in {int(total['gaps'])} gaps; at most {late} of them"
            " arrived later"
        )
    if total["jumps"]:
        notes.append(
            f"{int(total['jumps'])} times the PSN skipped values after a READ request or between"
            " responses: the valid distance is unknown, so no PSN counts as missing there"
        )
    if total["restarts"]:
        missing = None
        notes.append(
            f"{int(total['restarts'])} times the PSN jumped far: the queue pair restarted or many"
            " packets were not seen"
        )
    if total["unordered"]:
        late = missing = None
        notes.append(
            f"{int(total['unordered'])} packets were counted but their order is unknown: several"
            " processors handled this flow at the same time"
        )
    return late, missing, notes


def _spraying(counted: _Counted) -> Spraying:
    """The UDP source ports of a flow: those of its data packets, if it has any."""
    weights = np.array([path.wire_bytes for _, path in counted.paths], np.int64)
    lines = [(str(port), path) for port, path in counted.paths]
    if counted.control is not None:
        lines.append(("control packets", counted.control))
    return Spraying(
        path_by="entropy",
        inferred=True,
        paths_seen=len(weights),
        width=width(weights),
        jain=jain(weights),
        switches=None,
        switches_per_second=None,
        path_lifetime_ns=None,
        paths=path_shares(lines),
    )


# From counters to the records of an analysis of the same traffic.


def analysis_of(source: CounterSource, reading: Reading) -> Analysis:
    """All counters, in the form of an analysis of the same traffic."""
    names = [f"{interface.label} {direction}" for interface, direction in source.taps]
    flows, imbalance = flows_of(reading, names)
    return Analysis(
        version=VERSION,
        complete=True,
        captures=[_capture(source, reading, names, flows)],
        diagnosis=Diagnosis(
            "Not diagnosed: counters hold no packets.",
            findings=[],
            healthy=[],
            limits=["counters show neither loss nor order: capture packets for a diagnosis"],
        ),
        flows=flows,
        connections=[],
        imbalance=imbalance,
        hops=[],
        capture_losses=[],
        clocks=[],
        events=[],
        events_omitted=0,
        series=Series(
            DEFAULT_WINDOW_NS, _first(flows) or 0, [], [], [], [], [], [], [], [], [], {}
        ),
        warnings=[*_warnings(reading), *source.others.lines()],
    )


def _capture(
    source: CounterSource, reading: Reading, names: Sequence[str], flows: Sequence[Flow]
) -> CaptureSummary:
    first, last = _first(flows), max((flow.last_time_ns for flow in flows), default=None)
    matched = reading.total("counted") + reading.total("filtered")
    short = reading.total("too_short")
    others = reading.total("seen") - matched - short
    return CaptureSummary(
        name=", ".join(interface.label for interface in source.interfaces),
        format="counters",
        compression=None,
        frames=reading.total("seen"),
        roce_packets=matched,
        first_time_ns=first,
        last_time_ns=last,
        duration_ns=None if first is None or last is None else last - first,
        snapped_frames=0,
        out_of_order_frames=0,
        undecodable_frames={"too short": short} if short else {},
        later_fragments=0,
        icrc=None,
        contents={"not RoCE": others} if others else {},
        taps=[
            TapSummary(
                name=name,
                link_type=LINKTYPE_ETHERNET,
                frames=int(reading.tally[tap]["seen"].sum()),
                roce_packets=int(reading.tally[tap]["counted"].sum()),
                wire_bytes=int(reading.tally[tap]["counted_bytes"].sum()),
                dropped_frames=int(reading.lost_packets[tap]),
                speed_bits_per_second=source.taps[tap][0].speed_bits_per_second,
                pauses=[],
            )
            for tap, name in enumerate(names)
        ],
        warnings=[],
    )


def _first(flows: Sequence[Flow]) -> int | None:
    return min((flow.first_time_ns for flow in flows), default=None)


def _warnings(reading: Reading) -> list[str]:
    """Limits of trust in the results, the most important first."""
    lines = []
    lost, lost_bytes = int(reading.lost_packets.sum()), int(reading.lost_bytes.sum())
    if lost:
        lines.append(
            f"{lost} packets ({lost_bytes} bytes) of {reading.total('counted')} are missing from"
            f" the flows: {reading.total('evicted')} entries were evicted before they were"
            " read: give a larger --max-flows or a shorter --interval"
        )
    forgotten = reading.total("orders_lost")
    if forgotten:
        lines.append(
            f"the PSN order of a flow was evicted {forgotten} times: more packets may"
            " have been late or missing than counted: give a larger --max-flows"
        )
    merged = reading.total("merged")
    if merged:
        lines.append(
            f"{merged} packets are merges of several packets by the kernel (GRO or GSO): --hook xdp"
            " sees each"
        )
    ultra_ethernet = reading.total("ultra_ethernet")
    if ultra_ethernet:
        lines.append(
            f"{ultra_ethernet} packets of Ultra Ethernet were seen; they belong to no flow"
        )
    if reading.total("filtered"):
        lines.append("a filter is set: excluded packets count as neither seen nor lost")
    return lines
