"""MRC: entropy values, planes, path feedback, round trips and windows of each flow."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Array, Int, Ints, NamedTuple, Record, RecordArray, inlined, subkernel
from ..decode import mrc as headers
from ..decode.mrc import ERTH, PORT_STATUS_UPDATE, MrcRecord
from ..statistics.histogram import HistogramPool, Histograms, observe
from ..statistics.per_flow import Kept, PerFlow, Pool
from ..statistics.per_flow import Rows as FlowRows
from ..track.batch import DUPLICATE, MIRROR_DUPLICATE, TAP_COPY, Rows, TrackedBatch
from ..wire.bth import FULL, OPCODE_CLASS, REQUEST, psn_add, psn_distance
from ..wire.packets import RTX
from .path_table import OTHER, LaneRecords, LaneTable, find_record

SENT, TOLD = range(2)
"""Lanes of a flow: entropy values of its own packets, and those in its SACKs and NACKs, stored as
received, because the order of the halves is detected later."""
LANES = 2

EV = np.dtype(
    [
        ("lane", "i8"),  # LANES * flow + SENT or TOLD
        ("key", "i8"),  # the entropy value; path_table.OTHER beyond MAX_PATHS
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        # SENT
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("marked", "i8"),  # with CE
        ("resends", "i8"),  # retransmissions sent with it
        ("lost", "i8"),  # packets with it that were retransmitted
        ("trimmed", "i8"),
        ("last_index", "i8"),  # index of its latest packet in the flow
        ("lost_ns", "i8"),  # first retransmission without a NACK since its last packet
        ("evidence", "u4"),  # path evidence of its latest packet with evidence
        ("tap", "u2"),
        # TOLD
        ("sacks", "i8"),
        ("skips", "i8"),
        ("always_skips", "i8"),
        ("nacks", "i8"),
        ("last_always_skip_ns", "i8"),
        ("round_trips", "i8"),
        ("round_trip_sum_ns", "i8"),
        ("round_trip_min_ns", "i8"),
        ("round_trip_max_ns", "i8"),
    ],
    align=True,
)

REASONS = 8
"""Counts of NACKs: the reasons of decode.mrc.NACK_REASONS in order, then all others."""

FLOW = np.dtype(
    [
        # as sender
        ("packets", "i8"),  # data packets, without copies
        ("resends", "i8"),
        ("resends_after_nack", "i8"),
        ("trimmed", "i8"),
        ("timestamped", "i8"),
        ("started", "u1"),
        ("has_clock", "u1"),
        ("next_psn", "u4"),  # after the highest PSN sent
        ("clock_ns", "i8"),  # tap time minus the sender's timestamps, modulo their wrap
        ("ring", "i4"),  # its recent packets; 0 = none yet, else number + 1
        # as responder
        ("sacks", "i8"),
        ("probe_responses", "i8"),
        ("skips", "i8"),
        ("always_skips", "i8"),
        ("last_always_skip_ns", "i8"),
        ("nacks", "i8", (REASONS,)),
        ("told_bytes", "u1"),
        ("rcvd_bytes", "u4"),  # latest counter, units of 256 bytes
        ("received_units", "i8"),
        ("mpr", "u1"),  # latest value other than 0
        ("max_ooo_count", "u2"),
        # its trimmed packets (SENT) and the NACKs of trimmed packets that it carries (TOLD)
        ("trim_first_ns", "i8", (LANES,)),
        ("trim_last_ns", "i8", (LANES,)),
        ("trim_frame", "i8", (LANES,)),  # of the first one; 0: none
        ("trim_tap", "u2", (LANES,)),
    ],
    align=True,
)

RING = 1024
"""Recent packets of a flow by PSN, to find the packet of a SACK, NACK or retransmission."""
MAX_RINGS = 4096
"""At most 36 MB; responses of further flows are counted but not matched."""

LOG = np.dtype(
    [
        ("kind", "u1"),
        ("flow", "i4"),
        ("time_ns", "i8"),
        ("frame_number", "i8"),
        ("tap", "u2"),
        ("key", "u4"),  # entropy value
        ("psn", "u4"),
        ("value", "i8"),  # NACK: reason; RETURNED: time of its last use before, ns
        ("without", "i8"),  # RETURNED: packets that the flow sent during the silence
        ("lost_ns", "i8"),  # RETURNED: first retransmission with it during the silence, 0: none
    ],
    align=True,
)
LOG_NACK, LOG_RETURNED = range(2)
MAX_LOG = 10_000

RETIRED_AFTER_ROUNDS = 16
"""An entropy value is retired when the flow sends this many packets per value in use without it:
even random selection hardly ever skips a value for so long."""
RETIRED_AFTER_PACKETS = 64
CAUSED_ROUNDS = 4
"""Limit with a cause: loss of a packet with the value, ALWAYS_SKIP, or a port down."""

# Kinds of histograms, per flow of responses.
OOO_DEPTH, ROUND_TRIP, IN_FLIGHT = range(3)
HISTOGRAMS = 3

# The order of an entropy value that a SACK matches.
LABEL_HIGH, PORT_HIGH, BOTH, NEITHER = range(4)


class FlowRecord(Record):
    """An element of `State.flows`."""


class State(NamedTuple):
    """The arrays of the kernel."""

    flows: RecordArray
    evs: LaneRecords
    """EV records by entropy value."""
    ring_psn: NDArray[np.uint32]
    """uint32[rings, RING]: 1 + PSN, 0 for none."""
    ring_ev: NDArray[np.uint32]
    ring_nacked: NDArray[np.uint8]
    log: RecordArray
    used: NDArray[np.int64]
    """int64[N_USED], indexed by the constants below."""
    votes: NDArray[np.int64]
    """int64[4]: SACKs by the matching order."""
    histograms: Histograms


USED_RINGS, USED_LOG, OMITTED_LOG, LAST_PORT_NS = range(4)
N_USED = 4
"""LAST_PORT_NS is not a count but the time of the latest port status update."""


_CE = 3
_WRAP_NS = headers.TIMESTAMP_NS << 16
_BEHIND_NS = _WRAP_NS - _WRAP_NS // 16
"""A round trip in the last sixteenth of the wrap is slightly negative: coarse timestamps."""
_OTHER_RESOLUTION = 0x8000  # TSR


@inlined
def reason_index(reason: Int) -> Int:
    """Index of a NACK reason in the counts, see REASONS."""
    if reason == headers.TRIMMED or reason == headers.TRIMMED_LASTHOP:
        return reason - headers.TRIMMED
    if reason == 0x06 or reason == 0x07:
        return reason - 4
    if reason == 0x0A or reason == 0x0B:
        return reason - 6
    if reason == 0x19:
        return 6
    return REASONS - 1


@inlined
def _note(
    state: State, kind: Int, f: Int, rows: Rows, row: Int, key: Int, psn: Int, value: Int,
    without: Int, lost_ns: Int,
) -> None:  # fmt: skip
    if state.used[USED_LOG] >= MAX_LOG:
        state.used[OMITTED_LOG] += 1
        return
    entry = state.log[state.used[USED_LOG]]
    state.used[USED_LOG] += 1
    entry.kind = kind
    entry.flow = f
    entry.time_ns = rows.time_ns[row]
    entry.frame_number = rows.frame_number[row]
    entry.tap = rows.tap[row]
    entry.key = key
    entry.psn = psn
    entry.value = value
    entry.without = without
    entry.lost_ns = lost_ns


@inlined
def _note_trim(flow: FlowRecord, lane: Int, rows: Rows, row: Int) -> None:
    """A trimmed packet that `flow` has, or a NACK of one."""
    time = rows.time_ns[row]
    if flow.trim_frame[lane] == 0:
        flow.trim_first_ns[lane] = time
        flow.trim_last_ns[lane] = time
        flow.trim_frame[lane] = rows.frame_number[row]
        flow.trim_tap[lane] = rows.tap[row]
    flow.trim_first_ns[lane] = min(np.int64(flow.trim_first_ns[lane]), time)
    flow.trim_last_ns[lane] = max(np.int64(flow.trim_last_ns[lane]), time)


@inlined
def _may_be_caused(state: State, peer: Int, since: Int, time: Int) -> bool:
    """Whether ALWAYS_SKIP or a port status update since then may explain the silence of a value."""
    before = since - (time - since)
    said = peer >= 0 and state.flows[peer].last_always_skip_ns >= before
    return bool(said or state.used[LAST_PORT_NS] >= before)


@inlined
def _ring_of(state: State, flow: FlowRecord) -> Int:
    """The ring of a sending flow, allocated if available; -1 otherwise."""
    if flow.ring == 0:
        if state.used[USED_RINGS] >= min(MAX_RINGS, len(state.ring_psn)):
            return -1
        state.used[USED_RINGS] += 1
        flow.ring = state.used[USED_RINGS]
    return np.int64(flow.ring) - 1


@inlined
def _is_short(rows: Rows, row: Int, path_mtu: Int) -> bool:
    """Whether a WRITE has less payload than its place in the message requires.

    The payload of a Last follows from DMALen, as length of the whole operation or of the packet:
    below a path MTU both are the same.
    """
    bits, payload = OPCODE_CLASS[rows.opcode[row]], np.int64(rows.payload_bytes[row])
    if bits & FULL:
        return bool(payload < path_mtu)
    length = np.int64(rows.dma_length[row])
    if path_mtu == 0 or length == 0 or path_mtu & (path_mtu - 1):
        return False
    return bool(payload <= (length - 1) & (path_mtu - 1))


@inlined
def _sent(
    state: State,
    mrc: MrcRecord,
    rows: Rows,
    row: Int,
    f: Int,
    peer: Int,
    number: Int,
    last_ns: Int,
    path_mtu: Int,
) -> None:
    """A WRITE; `number` is the record of its entropy value, last used at `last_ns`."""
    flow, ev = state.flows[f], state.evs.records[number]
    time, psn = rows.time_ns[row], np.int64(rows.psn[row])
    key = np.int64(mrc.ev)
    values = np.int64(state.evs.lanes[LANES * f + SENT].paths)
    unused = flow.packets - ev.last_index - 1
    if ev.packets and unused > CAUSED_ROUNDS * values:
        lost = ev.lost_ns > last_ns
        certain = unused > max(RETIRED_AFTER_PACKETS, RETIRED_AFTER_ROUNDS * values)
        if lost or certain or _may_be_caused(state, peer, last_ns, time):
            lost_ns = ev.lost_ns if lost else np.int64(0)
            _note(state, LOG_RETURNED, f, rows, row, key, psn, last_ns, unused, lost_ns)
    ev.last_index = flow.packets
    ev.packets += 1
    ev.wire_bytes += np.int64(rows.wire_bytes[row])
    ev.tap = rows.tap[row]
    if rows.path_evidence[row]:
        ev.evidence = rows.path_evidence[row]
    if rows.traffic_class[row] & 3 == _CE:
        ev.marked += 1
    if mrc.trimmed or _is_short(rows, row, path_mtu):
        ev.trimmed += 1
        flow.trimmed += 1
        _note_trim(flow, SENT, rows, row)
    flow.packets += 1
    if not flow.started or psn_distance(psn, np.int64(flow.next_psn)) >= 0:
        flow.started = 1
        flow.next_psn = psn_add(psn, 1)
    if mrc.present & headers.TSETH and not mrc.timestamp_flags & _OTHER_RESOLUTION:
        flow.timestamped += 1
        flow.has_clock = 1
        flow.clock_ns = (time - np.int64(mrc.timestamp) * headers.TIMESTAMP_NS) % _WRAP_NS
    ring = _ring_of(state, flow)
    at = psn & (RING - 1)
    resent = np.int64(rows.bth_flags[row]) & RTX
    if resent:
        ev.resends += 1
        flow.resends += 1
    if ring < 0:
        return
    if resent and state.ring_psn[ring, at] == psn + 1:
        nacked = state.ring_nacked[ring, at]
        if nacked:
            flow.resends_after_nack += 1
        first = find_record(LANES * f + SENT, np.int64(state.ring_ev[ring, at]), state.evs)
        if first >= 0:
            lost = state.evs.records[first]
            lost.lost += 1
            if not nacked and lost.lost_ns <= lost.last_ns:
                lost.lost_ns = time
    state.ring_psn[ring, at] = psn + 1
    state.ring_ev[ring, at] = key
    state.ring_nacked[ring, at] = 0


@inlined
def _round_trip(state: State, mrc: MrcRecord, f: Int, peer: Int, number: Int, time: Int) -> None:
    """Time from the packet to its response at the tap, by the reflected timestamp."""
    if peer < 0 or not state.flows[peer].has_clock:
        return
    passed = state.flows[peer].clock_ns + np.int64(mrc.timestamp) * headers.TIMESTAMP_NS
    elapsed = (time - passed) % _WRAP_NS
    if elapsed > _BEHIND_NS:
        elapsed = np.int64(0)
    ev = state.evs.records[number]
    if ev.round_trips == 0:
        ev.round_trip_min_ns = elapsed
    ev.round_trips += 1
    ev.round_trip_sum_ns += elapsed
    ev.round_trip_min_ns = min(ev.round_trip_min_ns, elapsed)
    ev.round_trip_max_ns = max(ev.round_trip_max_ns, elapsed)
    observe(state.histograms, f, ROUND_TRIP, elapsed)


@inlined
def _vote(state: State, peer: Int, psn: Int, entropy: Int) -> None:
    """Compare the entropy of a SACK with that of its packet."""
    ring = np.int64(state.flows[peer].ring) - 1
    if ring < 0 or state.ring_psn[ring, psn & (RING - 1)] != psn + 1:
        return
    ev = np.int64(state.ring_ev[ring, psn & (RING - 1)])
    turned = ((ev & 0xFFFF) << 16) | (ev >> 16)
    if entropy == ev:
        state.votes[BOTH if entropy == turned else LABEL_HIGH] += 1
    else:
        state.votes[PORT_HIGH if entropy == turned else NEITHER] += 1


@inlined
def _depth(bitmap: np.uint64, sack_offset: Int) -> Int:
    """PSNs from the cumulative PSN to the highest in a SACK's bitmap."""
    if bitmap == np.uint64(0):
        return 0
    highest = sack_offset
    rest = bitmap >> np.uint64(1)
    while rest:
        highest += 1
        rest >>= np.uint64(1)
    return max(0, highest)


@inlined
def _sacked(state: State, mrc: MrcRecord, f: Int, peer: Int, number: Int, time: Int) -> None:
    """A SACK that flow `f` carries about flow `peer` (-1 while unknown)."""
    flow, ev = state.flows[f], state.evs.records[number]
    flow.sacks += 1
    ev.sacks += 1
    cumulative = np.int64(mrc.psn)
    if mrc.feedback == headers.SKIP_ONCE:
        flow.skips += 1
        ev.skips += 1
    elif mrc.feedback == headers.ALWAYS_SKIP:
        flow.always_skips += 1
        ev.always_skips += 1
        ev.last_always_skip_ns = time
        flow.last_always_skip_ns = time
    if mrc.probe_response:
        flow.probe_responses += 1
    elif peer >= 0:
        _vote(state, peer, psn_add(cumulative, np.int64(mrc.psn_offset)), np.int64(mrc.entropy))
    depth = _depth(np.uint64(mrc.sack_bitmap), np.int64(mrc.sack_offset))
    observe(state.histograms, f, OOO_DEPTH, depth)
    if mrc.mpr:
        flow.mpr = mrc.mpr
    if peer >= 0 and state.flows[peer].started:
        behind = psn_distance(np.int64(state.flows[peer].next_psn), cumulative) - 1
        observe(state.histograms, f, IN_FLIGHT, behind)
    if not mrc.present & headers.CC_STATE:
        return
    if mrc.timestamp:  # 0 when the request had none
        _round_trip(state, mrc, f, peer, number, time)
    flow.max_ooo_count = max(np.int64(flow.max_ooo_count), np.int64(mrc.ooo_count))
    counter = np.int64(mrc.rcvd_bytes)
    grown = (counter - np.int64(flow.rcvd_bytes)) & 0xFFFFFF
    if not flow.told_bytes:
        flow.told_bytes = 1
        flow.rcvd_bytes = counter
    elif grown < 0x800000:  # otherwise the SACK was overtaken
        flow.received_units += grown
        flow.rcvd_bytes = counter


@inlined
def _refused(
    state: State, mrc: MrcRecord, rows: Rows, row: Int, f: Int, peer: Int, number: Int
) -> None:
    """A NACK that flow `f` carries."""
    psn, reason = np.int64(mrc.psn), np.int64(mrc.reason)
    state.flows[f].nacks[reason_index(reason)] += 1
    if reason == headers.TRIMMED or reason == headers.TRIMMED_LASTHOP:
        _note_trim(state.flows[f], TOLD, rows, row)
    state.evs.records[number].nacks += 1
    _note(state, LOG_NACK, f, rows, row, np.int64(mrc.entropy), psn, reason, 0, 0)
    if peer < 0:
        return
    ring = np.int64(state.flows[peer].ring) - 1
    if ring >= 0 and state.ring_psn[ring, psn & (RING - 1)] == psn + 1:
        state.ring_nacked[ring, psn & (RING - 1)] = 1
    if mrc.timestamp:
        _round_trip(state, mrc, f, peer, number, rows.time_ns[row])


@subkernel
def count_rows(start: Int, mrc: RecordArray, rows: Rows, path_mtu: Ints, state: State) -> Int:
    """Count MRC packets from `start`; returns their number, or the index where the table is full.

    path_mtu, int64[flows], is 0 where it is not known.
    """
    for i in range(start, len(mrc)):
        record = mrc[i]
        row = record.row
        seen = rows.verdict[row]
        if seen == TAP_COPY or seen == DUPLICATE or seen == MIRROR_DUPLICATE:
            continue
        f = np.int64(rows.flow[row])
        peer = np.int64(rows.peer[f])
        time = rows.time_ns[row]
        if OPCODE_CLASS[rows.opcode[row]] & REQUEST:
            lane, key = SENT, np.int64(record.ev)
        elif record.present & (headers.SETH | headers.NETH):
            lane, key = TOLD, np.int64(record.entropy)
        else:
            if record.present & headers.ERTH and record.operation == headers.PORT_STATUS_UPDATE:
                state.used[LAST_PORT_NS] = time
            continue
        # At most two records: of the packet and of the packet that it retransmits.
        if state.evs.used[0] + 2 > len(state.evs.records):
            return i
        number = find_record(LANES * f + lane, key, state.evs)
        ev = state.evs.records[number]
        last_ns = ev.last_ns
        ev.first_ns = min(ev.first_ns, time)
        ev.last_ns = max(last_ns, time)
        if lane == SENT:
            _sent(state, record, rows, row, f, peer, number, last_ns, path_mtu[f])
        elif record.present & headers.SETH:
            _sacked(state, record, f, peer, number, time)
        else:
            _refused(state, record, rows, row, f, peer, number)
    return len(mrc)


_MAX_CHANGES = 10_000
_DECIDED_BY = 3
"""One byte order of entropy values needs this multiple of the matches of the other."""

ORDER_LABEL_HIGH, ORDER_PORT_HIGH = "flow_label_high", "udp_port_high"


class PortChange(NamedTuple):
    """A port status update with a change."""

    time_ns: int
    host: int
    """Index in Endpoints."""
    mask: int
    frame_number: int
    tap: int
    flow: int


class EntropyValues(LaneTable):
    """Records of entropy values of all flows."""

    layout: ClassVar = {"lanes": FlowRows(per=LANES)}


_OF_OTHERS: Any = None
"""In place of the arrays that a kernel also takes and others own."""


class MrcMeasure(PerFlow[State]):
    """State is bounded: `path_table.MAX_PATHS` entropy values per flow, logs of fixed length."""

    layout: ClassVar = {
        "flows": FlowRows(),
        "ring_psn": Pool(("flows", "ring"), USED_RINGS, full=False),
        "ring_ev": Pool(("flows", "ring"), USED_RINGS, full=False),
        "ring_nacked": Pool(("flows", "ring"), USED_RINGS, full=False),
    }

    def __init__(self) -> None:
        super().__init__(
            State(
                flows=np.zeros(0, FLOW),
                evs=_OF_OTHERS,
                ring_psn=np.zeros((0, RING), np.uint32),
                ring_ev=np.zeros((0, RING), np.uint32),
                ring_nacked=np.zeros((0, RING), np.uint8),
                log=np.zeros(0, LOG),
                used=np.zeros(N_USED, np.int64),
                votes=np.zeros(4, np.int64),
                histograms=_OF_OTHERS,
            )
        )
        self.packets = 0
        self.port_changes: list[PortChange] = []
        self.omitted_port_changes = 0
        self._masks: dict[int, int] = {}
        self.histograms = HistogramPool(HISTOGRAMS)
        """OOO_DEPTH, ROUND_TRIP and IN_FLIGHT of each flow of responses."""
        self._values = EntropyValues(EV)

    def grow(self, flows: int) -> None:
        """Have room for this many flows, for their recent packets and for the log."""
        super().grow(flows)
        rings = min(MAX_RINGS, len(self.arrays.flows))
        for name in ("ring_psn", "ring_ev", "ring_nacked"):
            self.reserve(name, rings)
        if not len(self.arrays.log):
            self.arrays = self.arrays._replace(log=np.zeros(MAX_LOG, LOG))

    def update(self, batch: TrackedBatch, path_mtu: Array) -> None:
        """Count the MRC packets of one batch; path_mtu of each flow, 0 while unknown."""
        mrc = batch.table.mrc
        if mrc is None:
            return
        self.packets += len(mrc)
        self.grow(batch.n_flows)
        row: Int = 0
        while row < len(mrc):
            self._values.reserve_records(len(self._values.records) + 2)
            state = self.arrays._replace(evs=self._values.arrays, histograms=self.histograms.arrays)
            row = count_rows(row, mrc, batch.rows, path_mtu.astype(np.int64), state)
            if row < len(mrc):
                self._values.reserve_records(2 * len(self._values.arrays.records))
        self._note_ports(batch, mrc)

    def _note_ports(self, batch: TrackedBatch, mrc: Array) -> None:
        """Port status updates: one mask per host, sent to all its peers."""
        updates = mrc[(mrc["present"] & ERTH != 0) & (mrc["operation"] == PORT_STATUS_UPDATE)]
        if not len(updates):
            return
        rows = updates["row"]
        hosts, masks = batch.table.src[rows], updates["port_mask"]
        # Consecutive updates of a host that differ from the previous one.
        order = np.argsort(hosts, kind="stable")
        same = (np.diff(hosts[order]) == 0) & (np.diff(masks[order].astype(np.int64)) == 0)
        new = np.sort(order[np.concatenate([[True], ~same])])
        for i in new.tolist():
            host, mask, row = int(hosts[i]), int(masks[i]), int(rows[i])
            if self._masks.get(host) == mask:
                continue
            self._masks[host] = mask
            if len(self.port_changes) == _MAX_CHANGES:
                self.omitted_port_changes += 1
                continue
            table = batch.table
            self.port_changes.append(
                PortChange(
                    int(table.time_ns[row]),
                    host,
                    mask,
                    int(table.frame_number[row]),
                    int(table.tap[row]),
                    int(batch.flow[row]),
                )
            )

    @property
    def votes(self) -> tuple[int, int, int, int]:
        """SACKs that match with: flow label high, port high, both, neither."""
        a, b, c, d = self.arrays.votes.tolist()
        return a, b, c, d

    def entropy_order(self) -> tuple[str | None, str | None]:
        """Position of the UDP source port in a reflected entropy, or why it is unknown."""
        label, port, both, neither = self.votes
        if label and label >= _DECIDED_BY * port:
            return ORDER_LABEL_HIGH, None
        if port and port >= _DECIDED_BY * label:
            return ORDER_PORT_HIGH, None
        if label or port:
            return None, "SACKs match both orders"
        if both:
            return None, "both halves of all entropy values seen are equal"
        if neither:
            return None, "no SACK holds the entropy value of its packet"
        return None, "no SACK was seen together with its packet"

    def flow(self, f: int) -> Any:
        """The FLOW record of a flow, None without MRC."""
        return self.arrays.flows[f] if f < self.known_flows else None

    def flows(self, count: int) -> RecordArray:
        """A copy of the FLOW records of the first flows, zeros without MRC."""
        records = np.zeros(count, FLOW)
        known = self.arrays.flows[: min(count, self.known_flows)]
        records[: len(known)] = known
        return records

    def evs(self, f: int, lane: int) -> Array:
        """The EV records of a flow's lane."""
        used = self.all_evs()
        records: Array = used[used["lane"] == LANES * f + lane]
        return records

    def all_evs(self) -> Array:
        """All EV records."""
        return self._values.records

    def log(self) -> Array:
        """NACKs and returns of entropy values, LOG in capture order."""
        log: Array = self.arrays.log[: int(self.arrays.used[USED_LOG])]
        return log

    @property
    def omitted(self) -> int:
        """Log entries dropped because a log was full."""
        return int(self.arrays.used[OMITTED_LOG]) + self.omitted_port_changes

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; log entries of the others count as omitted."""
        if not self.known_flows:
            return
        super().keep(kept)
        log, used = self.log(), self.arrays.used
        stay = log[kept.holds(log["flow"])]
        stay["flow"] = kept.number[stay["flow"]]
        used[OMITTED_LOG] += len(log) - len(stay)
        used[USED_LOG] = len(stay)
        self.arrays.log[: len(stay)] = stay
        changes = [c for c in self.port_changes if kept.number[c.flow] >= 0]
        self.omitted_port_changes += len(self.port_changes) - len(changes)
        self.port_changes = [c._replace(flow=int(kept.number[c.flow])) for c in changes]


def sent_key(key: int, order: str) -> int:
    """The key (flow label high) of an entropy value in SACKs of this order."""
    if key == OTHER or order == ORDER_LABEL_HIGH:
        return key
    return (key & 0xFFFF) << 16 | key >> 16
