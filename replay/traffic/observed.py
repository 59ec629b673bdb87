"""Traffic as captures show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from ...analyzer.capture.rings import concatenated
from ...analyzer.capture.source import Capture, open_capture
from ...analyzer.decode.decoder import Decoder
from ...analyzer.decode.merge import merge_tables
from ...analyzer.errors import RocescopeError, UnreadableInput, too_many_flows
from ...analyzer.filtering.compiler import Filter, Ranks
from ...analyzer.jobs.job import Job
from ...analyzer.jobs.join import Join
from ...analyzer.measures.messages import MessageStatistics
from ...analyzer.pipeline.captures import find_ranks
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.pipeline.threads import Prefetched
from ...analyzer.results.flow import Owner
from ...analyzer.track.batch import MIRROR_DUPLICATE, TAP_COPY, Rows, TrackedBatch
from ...analyzer.track.tracker import FlowTracker
from ...analyzer.wire.bth import CARRIES_DATA, ROCE_UDP_PORT
from ...analyzer.wire.packets import PacketTable
from ...analyzer.wire.registry import Endpoints, Registry
from ...analyzer.wire.taps import Taps
from ...kernels.kernel import Int, Int32s, Ints, Records, kernel, subkernel
from ..fabrics.fabric import Fabric
from ..fabrics.mapping import map_hosts
from ..hashing.keys import PacketKeys, addresses
from ..results import HostMapping
from .closed_loop import Ends, MessageLog, sent_messages
from .traffic import AckTimes, Seen, SentMessages, Traffic, WindowCells, Windows

# Packets of a capture counted per unit: one entropy value of one flow.

UNIT = np.dtype(
    [
        ("flow", "i4"),
        ("sport", "u2"),
        ("dport", "u2"),
        ("flow_label", "u4"),
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        ("has_data", "u1"),
        ("dscp", "u1"),
    ]
)


class UnitCounter:
    """Counts packets of tables with the flow and verdict of each row.

    Memory is bounded by units (and windows, see WindowCells).
    """

    def __init__(self, window_ns: int | None = None) -> None:
        self._units = np.zeros(1024, UNIT)
        self._slots = np.full(4096, -1, np.int32)
        self._used = np.zeros(1, np.int64)
        self._cells = WindowCells(window_ns) if window_ns else None

    @property
    def units(self) -> Records:
        """UNIT records in order of appearance, a view."""
        return self._units[: int(self._used[0])]

    def update(self, batch: TrackedBatch) -> Int32s:
        """Count the rows that are not copies of a packet at another tap.

        Returns the unit of each row, -1 for copies.
        """
        unit = np.empty(len(batch), np.int32)
        row: Int = 0
        while row < len(batch):
            row = _count(batch.rows, row, unit, self._units, self._slots, self._used)
            if row < len(batch):
                self._grow()
        if self._cells is not None:
            kept, table = unit >= 0, batch.table
            self._cells.add(unit[kept], table.time_ns[kept], table.wire_bytes[kept])
        return unit

    def windows(self) -> Windows | None:
        """Bytes per unit and window; None without windows."""
        return None if self._cells is None else self._cells.windows()

    def _grow(self) -> None:
        units = np.zeros(2 * len(self._units), UNIT)
        units[: len(self._units)] = self._units
        self._units = units
        self._slots = np.full(4 * len(units), -1, np.int32)
        _rehash(self._units, self._slots, self._used)


@subkernel
def _slot(flow: Int, sport: Int, dport: Int, label: Int, units: Records, slots: Int32s) -> Int:
    """The slot of a unit: used by it, or free."""
    h = np.uint64(flow) * np.uint64(0x9E3779B97F4A7C15)
    h ^= np.uint64(sport) << np.uint64(40) | np.uint64(dport) << np.uint64(20) | np.uint64(label)
    h ^= h >> np.uint64(31)
    h *= np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while slots[at] >= 0:
        unit = units[slots[at]]
        if (
            unit.flow == flow
            and unit.sport == sport
            and unit.dport == dport
            and unit.flow_label == label
        ):
            return at
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def _count(
    rows: Rows, row: Int, unit_of_row: Int32s, units: Records, slots: Int32s, used: Ints
) -> Int:
    """Count rows from `row` on; returns the first row that may not have room."""
    while row < len(rows.flow):
        if used[0] >= len(units):
            return row
        if rows.verdict[row] == TAP_COPY or rows.verdict[row] == MIRROR_DUPLICATE:
            unit_of_row[row] = -1
            row += 1
            continue
        slot = _slot(
            rows.flow[row],
            rows.udp_sport[row],
            rows.udp_dport[row],
            rows.flow_label[row],
            units,
            slots,
        )
        time = rows.time_ns[row]
        if slots[slot] < 0:
            slots[slot] = used[0]
            unit: Any = units[used[0]]
            used[0] += 1
            unit.flow = rows.flow[row]
            unit.sport = rows.udp_sport[row]
            unit.dport = rows.udp_dport[row]
            unit.flow_label = rows.flow_label[row]
            unit.first_ns = time
            unit.last_ns = time
            unit.dscp = rows.traffic_class[row] >> np.uint8(2)
        unit = units[slots[slot]]
        unit.packets += 1
        if CARRIES_DATA[rows.opcode[row]] and not unit.has_data:  # ACKs may have another DSCP
            unit.has_data = 1
            unit.dscp = rows.traffic_class[row] >> np.uint8(2)
        unit.wire_bytes += np.int64(rows.wire_bytes[row])
        unit.first_ns = min(unit.first_ns, time)
        unit.last_ns = max(unit.last_ns, time)
        unit_of_row[row] = slots[slot]
        row += 1
    return row


@kernel
def _rehash(units: Records, slots: Int32s, used: Ints) -> None:
    for i in range(used[0]):
        unit = units[i]
        slots[_slot(unit.flow, unit.sport, unit.dport, unit.flow_label, units, slots)] = i


_BATCH_FRAMES = 1 << 16
MOST_FLOWS = 100_000
"""Most flows of captured traffic; the tracker takes about 16 KB for each."""
MOST_UNITS = 1 << 21
"""Most entropy values of all flows together; placing each takes about 1 KB."""
_TAPS = 1024
"""Most taps whose loads are told apart."""


def traffic_from_capture(
    paths: Sequence[str],
    fabric: Fabric,
    mapping: str = "exact",
    *,
    window_ns: int | None = None,
    filter: str | None = None,
    concat: bool = False,
    tap_names: Mapping[str, str] | None = None,
    ethers: Mapping[int, str] | None = None,
    udp_ports: Sequence[int] = (ROCE_UDP_PORT,),
    messages: bool = False,
    links: bool = False,
    job: Job | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Traffic:
    """The traffic of captures, mapped to the hosts of a fabric.

    Several files are several taps (unless `concat`); a packet at several taps counts once.
    mapping: see mapping.py; units of addresses without a host have host -1, and `unmapped` lists
    the addresses. tap_names: names of taps by path, default those of the files. ethers: of
    `read_ethers`. window_ns: also
    count bytes per window. messages: also return messages with their packets and dependencies
    (`closed_loop`), with `links` also those between queue pairs. job: logs that name the ranks of
    queue pairs. progress: called with the bytes read and the size of the captures.
    UnreadableInput without RoCE packets, UsageError for invalid options.
    """
    with ExitStack() as stack:
        registry = Registry(ethers=ethers or {})
        opened = _open(paths, registry.taps, concat, tap_names or {})
        captures = [stack.enter_context(capture) for capture in opened]
        keep = Filter(filter) if filter else None
        ranks = None
        if keep is not None and keep.of_job is not None:
            options = AnalyzeOptions(
                concat=concat, tap_names=tap_names or {}, udp_ports=tuple(udp_ports)
            )
            ranks, _ = find_ranks(paths, options, None, job, needed_by=keep.of_job)

        def tables(capture: Capture) -> Iterator[PacketTable]:
            decoder = Decoder(registry, udp_ports=udp_ports)
            for frames in capture.batches():
                table = decoder.decode(frames)
                yield table if keep is None else table.take(keep.mask(table, registry, ranks))

        def report() -> None:
            if progress is not None:
                totals = [c.total_bytes for c in captures]
                known = None if None in totals else sum(t or 0 for t in totals)
                progress(sum(c.bytes_read for c in captures), known)

        merged = Prefetched(lambda: merge_tables([tables(c) for c in captures]), report)
        loop = ClosedLoop(links) if messages else None
        at_taps = UnitCounter()
        counting = Counting(window_ns, loop, at_taps)
        for table in merged:
            counting.update(table)
            report()
        tracker, counter = counting.tracker, counting.counter
        if not len(counter.units):
            which = "RoCE packet" if keep is None else "packet that passes the filter"
            raise UnreadableInput(f"no {which} in {', '.join(paths)}")
        sent = None if loop is None else loop.messages(tracker, counter)
        traffic = counting.traffic(registry.endpoints, fabric, mapping, sent, job)
        several = len(registry.taps) > 1
        seen = _seen(counter, at_taps, registry.tap_names) if several else None
        if ranks is not None:
            traffic = replace(traffic, owners=_owners(tracker, counter, registry.endpoints, ranks))
        warnings = (*(w for c in captures for w in c.warnings), *traffic.warnings)
        return replace(traffic, warnings=warnings, seen=seen)


def _owners(
    tracker: FlowTracker, counter: UnitCounter, endpoints: Endpoints, ranks: Ranks
) -> dict[int, Owner]:
    """By flow of the traffic, as a pass without the filter found them."""
    texts, flows = endpoints.texts(), tracker.flows
    used = flows[np.unique(counter.units["flow"])]
    named = ((texts[flow["src"]], texts[flow["dst"]], int(flow["dest_qp"])) for flow in used)
    return {i: ranks.owners[name] for i, name in enumerate(named) if name in ranks.owners}


class ClosedLoop:
    """Collects messages, their packets, and the statistics for their dependencies."""

    def __init__(self, links: bool) -> None:
        self._log, self._statistics = MessageLog(), MessageStatistics()
        self._acks = AckTimes() if links else None

    def update(self, batch: TrackedBatch, unit: Int32s) -> None:
        """Add a batch and the units of its rows; batches must be in capture order."""
        self._log.update(batch, unit)
        if self._acks is not None:
            self._acks.update(batch)
        self._statistics.update(batch)

    def messages(self, tracker: FlowTracker, counter: UnitCounter) -> SentMessages | None:
        """The messages after all batches; None if there were too many."""
        flows = tracker.flows
        acks = self._acks
        ends = None if acks is None else Ends(flows["src"], flows["dst"], acks)
        sent = sent_messages(self._log, self._statistics, flows["peer"], ends)
        if sent is None:
            return None
        used = np.unique(counter.units["flow"])
        return sent._replace(flow=np.searchsorted(used, sent.flow).astype(np.int32))


def _open(
    paths: Sequence[str], taps: Taps, concat: bool, names: Mapping[str, str]
) -> Iterator[Capture]:
    if concat:
        yield concatenated(paths, taps, batch_frames=_BATCH_FRAMES)  # type: ignore[misc]
        return
    for path in paths:
        yield open_capture(path, taps, batch_frames=_BATCH_FRAMES, tap_name=names.get(path))


class Counting:
    """Counts packet tables, in the order of their packets, as flows and units."""

    def __init__(
        self,
        window_ns: int | None = None,
        loop: ClosedLoop | None = None,
        at_taps: UnitCounter | None = None,
    ) -> None:
        """`loop` also gets the batches; at_taps counts every copy of a packet, by flow and tap."""
        self.tracker, self.counter = FlowTracker(), UnitCounter(window_ns)
        self._loop, self._at_taps = loop, at_taps
        self._packets = 0

    def update(self, table: PacketTable) -> None:
        """Count a table. RocescopeError with more flows or units than fit in memory."""
        if not len(table):
            return
        batch = self.tracker.update(table)
        self._packets += len(table)
        if len(self.tracker) > MOST_FLOWS:
            raise RocescopeError(too_many_flows(MOST_FLOWS, self._packets))
        unit = self.counter.update(batch)
        if len(self.counter.units) > MOST_UNITS:
            raise RocescopeError(
                f"more than {MOST_UNITS} entropy values of flows after {self._packets} packets:"
                " replay a part of them, for example with --filter 'ip.addr == 10.0.0.0/28'"
            )
        if self._at_taps is not None:
            flow = batch.flow * np.int32(_TAPS) + table.tap.astype(np.int32)
            self._at_taps.update(replace(batch, flow=flow, verdict=np.zeros_like(batch.verdict)))
        if self._loop is not None:
            self._loop.update(batch, unit)

    def traffic(
        self,
        endpoints: Endpoints,
        fabric: Fabric,
        mapping: str = "exact",
        messages: SentMessages | None = None,
        job: Job | None = None,
    ) -> Traffic:
        """The traffic so far, mapped to the hosts of a fabric; units keep their rows. What logs of
        the job leave open is in its warnings."""
        traffic = _traffic(self.tracker, self.counter, endpoints, fabric, mapping, messages)
        if job is None:
            return traffic
        joined = Join(job, self.tracker, endpoints).result()
        used = np.unique(self.counter.units["flow"]).tolist()
        owners = {
            i: joined.owners[number] for i, number in enumerate(used) if number in joined.owners
        }
        return replace(traffic, owners=owners, warnings=tuple(joined.notes))


def _seen(counter: UnitCounter, at_taps: UnitCounter, taps: Sequence[str]) -> Seen | None:
    """The units at every tap; None if there are too many flows or taps to tell them apart."""
    units, rows = counter.units, at_taps.units
    if len(taps) > _TAPS or int(units["flow"].max(initial=0)) >= (1 << 31) // _TAPS:
        return None
    keys = ["flow", "sport", "dport", "flow_label"]
    numbers = {tuple(row): i for i, row in enumerate(units[keys].tolist())}
    flow, tap = np.divmod(rows["flow"], _TAPS)
    others = zip(flow.tolist(), *(rows[key].tolist() for key in keys[1:]), strict=True)
    unit = np.array([numbers.get(other, -1) for other in others], np.int32)
    known = unit >= 0  # the first packet of a unit is no copy: every unit is known
    return Seen(
        tuple(taps),
        unit[known],
        tap[known].astype(np.int32),
        rows["packets"][known],
        rows["wire_bytes"][known],
    )


def _traffic(
    tracker: FlowTracker,
    counter: UnitCounter,
    endpoints: Endpoints,
    fabric: Fabric,
    mapping: str,
    messages: SentMessages | None = None,
) -> Traffic:
    units, texts = counter.units, endpoints.texts()
    flow = units["flow"].astype(np.int32)
    used = np.unique(flow)
    src, dst = (tracker.flows[name][flow].astype(np.int64) for name in ("src", "dst"))
    hosts = np.full(len(texts), -1, np.int32)
    seen = np.unique(np.concatenate([src, dst]))
    host_map = map_hosts([texts[i] for i in seen], fabric, mapping)
    hosts[seen] = host_map.hosts
    packed = addresses(texts)
    return Traffic(
        keys=PacketKeys(
            src=packed[src],
            dst=packed[dst],
            ipv6=np.array([":" in text for text in texts], np.bool_)[src],
            protocol=np.full(len(units), 17, np.uint8),
            sport=units["sport"].copy(),
            dport=units["dport"].copy(),
            flow_label=units["flow_label"].copy(),
            dest_qp=tracker.flows["dest_qp"][flow].astype(np.uint32),
        ),
        src_host=hosts[src],
        dst_host=hosts[dst],
        flow=np.searchsorted(used, flow).astype(np.int32),
        packets=units["packets"].copy(),
        wire_bytes=units["wire_bytes"].copy(),
        first_ns=units["first_ns"].copy(),
        last_ns=units["last_ns"].copy(),
        windows=counter.windows(),
        unmapped=tuple(texts[i] for i in seen if hosts[i] < 0),
        messages=messages,
        mapping=HostMapping(
            rule=host_map.rule,
            hosts={
                texts[i]: fabric.host_name(int(hosts[i]))
                for i in sorted(seen.tolist(), key=lambda i: int(hosts[i]))
                if hosts[i] >= 0
            },
        ),
        has_data=units["has_data"].astype(np.bool_),
        dscp=units["dscp"].copy(),
    )
