"""The streaming tracker: packet tables in, flows and verdicts out.

Packets are assigned to one-way flows by (source, destination, destination QPN).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from ...kernels.kernel import Bool, Bools, Bytes, Int, Int32s, Ints, Records, inlined, subkernel
from ..statistics.density import Densities, DensityArrays
from ..statistics.histogram import HistogramPool, Histograms
from ..statistics.per_flow import (
    CodeArrays,
    CodeCounts,
    Kept,
    PerFlow,
    Pool,
    Tables,
    longer,
    untouched,
)
from ..statistics.per_flow import Rows as FlowRows
from ..wire import bth as codes
from ..wire.bth import FULL, OPCODE_CLASS, SEQUENCED, id_distance
from ..wire.packets import HAS_AETH, HAS_RETH, IPV6, RTX, SNAPPED, PacketTable, TableArrays
from . import state as st
from .answers import hear_answer
from .batch import (
    AHEAD,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
    TrackedBatch,
)
from .matching import Matching
from .sequence import (
    ask_again,
    asks_at_a_gap,
    dates_transmissions,
    forget_answers,
    judge,
    note_below_the_start,
    note_disorder,
    note_resend,
)
from .state import USED_FLOWS, USED_PAIRS, FlowRecord, State
from .window import CNP_OPCODE, UNKNOWN_LENGTH, Packet, judge_unordered, responses_of

# The tracker's one pass over a batch, in capture order.

SLOTS_AHEAD = 4 * st.MAX_WINDOW
"""Most free slots one packet can need: every window size once, for two streams."""

RECENTS_AHEAD = 2 << st.MAX_RECENT_BITS
"""Most free recent entries one packet can need: every table size once."""


_CE = 3
_BTH_BYTES, _AETH_BYTES, _RETH_BYTES = 12, 4, 16


@inlined
def _record(
    state: State, kind: Int, f: Int, time: Int, frame_number: Int, tap: Int, psn: Int, value: Int
) -> None:
    """Store an event for the report; beyond MAX_EVENTS it is only counted."""
    if state.used[st.USED_EVENTS] >= st.MAX_EVENTS:
        state.used[st.OMITTED_EVENTS] += 1
        return
    event = state.events[state.used[st.USED_EVENTS]]
    state.used[st.USED_EVENTS] += 1
    event.kind = kind
    event.flow = f
    event.time = time
    event.frame_number = frame_number
    event.tap = tap
    event.psn = psn
    event.value = value


@inlined
def _note_id(flow: FlowRecord, verdict: Int, ip_id: Int, overtaken: Bool) -> None:
    """Learn whether the flow's IPv4 identifications move forward (see sequence.py).

    Only the newest packets count: late packets and duplicates are no evidence about the counter.
    """
    if verdict == IN_ORDER or verdict == AHEAD:
        if flow.id_started:
            step = (ip_id - np.int64(flow.last_id)) & 0xFFFF
            if step == 0:
                flow.ids_same += 1
            elif step < 0x4000:
                flow.ids_ascending += 1
            else:
                flow.ids_other += 1
        flow.id_started = 1
        flow.last_id = ip_id
    elif (verdict == RETRANSMITTED or verdict == RECOVERED) and not overtaken:
        flow.last_id = ip_id


@inlined
def _note_cut(flow: FlowRecord, table: TableArrays, i: Int, header_bytes: Int) -> None:
    """Note a frame cut off before the end of this many bytes of BTH and extension headers."""
    flow.cut_to = max(np.int64(flow.cut_to), np.int64(table.captured_bytes[i]))
    flow.cut_needs = max(np.int64(flow.cut_needs), np.int64(table.bth_offset[i]) + header_bytes)


@subkernel
def walk(
    state: State,
    histograms: Histograms,
    densities: DensityArrays,
    table: TableArrays,
    opcodes: CodeArrays,
    start: Int,
    flow_of_row: Int32s,
    verdict_of_row: Bytes,
) -> Int:
    """Judge rows from `start`; fills `verdict_of_row` and the flows' counts.

    Returns the row at which it stopped: the number of rows, or less if the pools must grow first or
    the opcode of that row has no column yet.
    """
    for i in range(start, len(flow_of_row)):
        if (
            state.used[st.USED_SLOTS] + SLOTS_AHEAD > len(state.slots)
            or state.used[st.USED_RECENTS] + RECENTS_AHEAD > len(state.recents)
            or state.used[st.USED_LATES] == len(state.lates)
        ):  # fmt: skip
            return i
        opcode = np.int64(table.opcode[i])
        if opcodes.column[opcode] < 0:
            return i
        f = np.int64(flow_of_row[i])
        flow = state.flows[f]
        bits = np.int64(codes.OPCODE_CLASS[opcode])
        psn = np.int64(table.subject_psn[i])
        time = table.time_ns[i]
        ip_id = np.int64(table.ip_id[i])
        hop_limit = np.int64(table.hop_limit[i])
        tap = np.int64(table.tap[i])
        wire_bytes = np.int64(table.wire_bytes[i])
        payload = np.int64(table.payload_bytes[i])
        flow.ports_vary |= flow.udp_sport != table.udp_sport[i]
        flow.udp_sport = table.udp_sport[i]
        if flow.packets == 0:
            state.began[tap] = min(state.began[tap], time)
        is_cut = table.decode_flags[i] & SNAPPED != 0
        is_mrc = opcode >= codes.MRC_FIRST and codes.TRANSPORT_OF[opcode] == codes.MRC
        sent_id, rtx = ip_id, 0
        if is_mrc:
            flow.no_ids = 1
            if bits & codes.MARKS_RESENDS:  # retransmitted with another EV (MRC 1.0, NACK)
                sent_id = np.int64(flow.udp_sport)
                rtx = 1 if np.int64(table.bth_flags[i]) & RTX else 0
        if bits & codes.SEQUENCED and not bits & codes.ACKNOWLEDGE:
            which = st.RESPONSES if bits & codes.RESPONSE_DATA else st.REQUESTS
            if not flow.has_transport:
                flow.has_transport = 1
                flow.transport = codes.TRANSPORT_OF[opcode]
            dma_length = np.int64(table.dma_length[i])
            if bits & codes.READ_REQUEST and is_cut and not table.decode_flags[i] & HAS_RETH:
                dma_length = np.int64(UNKNOWN_LENGTH)
                flow.cut_reads += 1
                _note_cut(flow, table, i, _BTH_BYTES + _RETH_BYTES)
            packet = Packet(psn, bits, dma_length, sent_id, rtx, hop_limit, payload, tap, time)
            verdict = judge(state, histograms, densities, f, which, packet)
            overtaken = dates_transmissions(flow) and id_distance(ip_id, np.int64(flow.last_id)) < 0
            resent = verdict == RETRANSMITTED or verdict == RECOVERED
            if resent and overtaken:
                note_disorder(state, flow, state.streams[2 * f + which])
            if which == st.REQUESTS:
                if is_mrc and resent:
                    # Only this packet is retransmitted, not all after it; measures/mrc.py has the
                    # trigger.
                    flow.retransmitted_by[st.BY_UNKNOWN] += 1
                    flow.rewound_bytes += wire_bytes
                elif resent:
                    implied = False
                    if bits & codes.READ_REQUEST:
                        implied = asks_at_a_gap(state, f, flow, psn, time)
                    stream = state.streams[2 * f + st.REQUESTS]
                    note_below_the_start(state, flow, stream, psn, bits, dma_length)
                    answers_are_cut = flow.peer >= 0 and state.flows[flow.peer].cut_answers > 0
                    begins = note_resend(
                        histograms, f, flow, psn, wire_bytes, time, implied, overtaken,
                        answers_are_cut,
                    )  # fmt: skip
                    if begins:
                        _record(
                            state, st.EVENT_REWIND, f, time, table.frame_number[i], tap, psn,
                            np.int64(flow.rewind_trigger),
                        )  # fmt: skip
                    if bits & (codes.READ_REQUEST | codes.ATOMIC) and flow.peer >= 0:
                        count = responses_of(state, flow, bits, dma_length)
                        ask_again(state.flows[flow.peer], psn, count, begins)
                elif verdict == IN_ORDER or verdict == AHEAD:
                    flow.in_rewind = 0
                elif verdict == RESTARTED:
                    forget_answers(flow)
                if verdict != TAP_COPY:
                    flow.last_request_time = time
            elif bits & codes.BEGINS and verdict != TAP_COPY:
                hear_answer(state, histograms, f, bits, 0, psn, time)
            _note_id(flow, verdict, ip_id, overtaken)
            if verdict == RESTARTED:
                _record(state, st.EVENT_RESTART, f, time, table.frame_number[i], tap, psn, 0)
        else:
            identity = psn
            if is_mrc and len(table.fingerprint) > 0:  # responses repeat PSNs
                identity ^= np.int64(table.fingerprint[i])
            told = np.int64(table.aeth[i])
            verdict = judge_unordered(
                state, flow, identity, opcode, ip_id, told, hop_limit, tap, time
            )
            # A NAK mirrored twice counts once.
            if bits & codes.ACKNOWLEDGE and verdict == NOT_SEQUENCED:
                aeth = np.int64(table.aeth[i])
                if is_cut and not table.decode_flags[i] & HAS_AETH:
                    aeth = np.int64(-1)
                    flow.cut_answers += 1
                    _note_cut(flow, table, i, _BTH_BYTES + _AETH_BYTES)
                event = hear_answer(state, histograms, f, bits, aeth, psn, time)
                if event >= 0:
                    _record(state, event, f, time, table.frame_number[i], tap, psn, aeth >> 24)
        verdict_of_row[i] = verdict
        if verdict == TAP_COPY:
            flow.tap_copies += 1
            continue
        flow.packets += 1
        opcodes.packets[f, opcodes.column[opcode]] += 1
        flow.wire_bytes += wire_bytes
        flow.payload_bytes += payload
        flow.first_time = min(flow.first_time, time)
        flow.last_time = max(flow.last_time, time)
        if np.int64(table.traffic_class[i]) & 3 == _CE:
            flow.ecn_marked += 1
        if bits & codes.REQUEST:
            flow.request_packets += 1
            if bits & codes.READ_REQUEST:
                flow.read_requests += 1
            elif bits & codes.ATOMIC:
                flow.atomic_requests += 1
        elif bits & codes.RESPONSE_DATA:
            flow.response_packets += 1
        elif bits & codes.ACKNOWLEDGE:
            flow.ack_packets += 1
        elif opcode == CNP_OPCODE:
            flow.cnps += 1
        if not flow.has_transport and (opcode != CNP_OPCODE or flow.packets == 1):
            flow.transport = codes.TRANSPORT_OF[opcode]
    return len(flow_of_row)


_EMPTY = -1
_SHIFT_1, _SHIFT_2 = np.uint64(29), np.uint64(32)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)  # from the splitmix64 finaliser


@inlined
def _mixed(a: Int, b: Int, c: Int) -> Int:
    """A well-mixed non-negative number of three 32-bit fields."""
    h = (np.uint64(a) << _SHIFT_2) | np.uint64(b)
    h ^= np.uint64(c) * _MULTIPLIER
    h ^= h >> _SHIFT_1
    h *= _MULTIPLIER
    h ^= h >> _SHIFT_2
    return np.int64(h >> np.uint64(1))


@inlined
def _pair_of(state: State, pair_slots: Int32s, src: Int, dst: Int) -> Int:
    """Index of the host pair, created when new."""
    low, high = min(src, dst), max(src, dst)
    mask = len(pair_slots) - 1
    at = _mixed(low, high, 0) & mask
    while pair_slots[at] != _EMPTY:
        index = pair_slots[at]
        if state.pairs[index].low == low and state.pairs[index].high == high:
            return np.int64(index)
        at = (at + 1) & mask
    index = state.used[USED_PAIRS]
    state.used[USED_PAIRS] += 1
    pair_slots[at] = index
    state.pairs[index].low = low
    state.pairs[index].high = high
    state.pairs[index].head[0] = _EMPTY
    state.pairs[index].head[1] = _EMPTY
    return np.int64(index)


@subkernel
def _new_flow(
    state: State, pair_slots: Int32s, src: Int, dst: Int, dest_qp: Int, udp_sport: Int, time: Int,
    no_ids: Int,
) -> Int:  # fmt: skip
    index = state.used[USED_FLOWS]
    state.used[USED_FLOWS] += 1
    flow = state.flows[index]
    flow.src, flow.dst, flow.dest_qp = src, dst, dest_qp
    flow.udp_sport = udp_sport
    flow.peer = _EMPTY
    flow.candidate = _EMPTY
    flow.recent = _EMPTY
    flow.first_time = time
    flow.last_time = time
    flow.no_ids = no_ids
    pair = _pair_of(state, pair_slots, src, dst)
    direction = 0 if src <= dst else 1
    flow.pair = pair
    flow.next_in_pair = state.pairs[pair].head[direction]
    state.pairs[pair].head[direction] = index
    return np.int64(index)


@subkernel
def assign(
    state: State,
    flow_slots: Int32s,
    pair_slots: Int32s,
    table: TableArrays,
    start: Int,
    flow_of_row: Int32s,
) -> Int:
    """Fill `flow_of_row[start:]` and learn the path MTU of flows and host pairs.

    Returns the row at which it stopped: the number of rows, or less if the tables must grow first.
    First and Middle packets carry exactly one path MTU.
    """
    mask = len(flow_slots) - 1
    last: Int = np.int64(_EMPTY)
    last_src = last_dst = last_qp = np.int64(-1)
    room = min(len(state.flows), len(flow_slots) // 2)
    for i in range(start, len(table.src)):
        s, d, q = np.int64(table.src[i]), np.int64(table.dst[i]), np.int64(table.dest_qp[i])
        if last < 0 or s != last_src or d != last_dst or q != last_qp:
            at = _mixed(s, d, q) & mask
            last = np.int64(_EMPTY)
            while flow_slots[at] != _EMPTY:
                index = np.int64(flow_slots[at])
                flow = state.flows[index]
                if flow.dest_qp == q and flow.src == s and flow.dst == d:
                    last = index
                    break
                at = (at + 1) & mask
            if last < 0:
                if state.used[USED_FLOWS] >= room:
                    return i
                last = _new_flow(
                    state,
                    pair_slots,
                    s,
                    d,
                    q,
                    np.int64(table.udp_sport[i]),
                    table.time_ns[i],
                    np.int64(table.decode_flags[i] & IPV6),
                )
                flow_slots[at] = last
            last_src, last_dst, last_qp = s, d, q
        flow_of_row[i] = last
        bits = OPCODE_CLASS[table.opcode[i]]
        if bits & FULL and bits & SEQUENCED and table.payload_bytes[i] <= 4096:
            payload = table.payload_bytes[i]
            if payload > state.flows[last].path_mtu:
                state.flows[last].path_mtu = payload
                pair = state.pairs[state.flows[last].pair]
                if payload > pair.path_mtu:
                    pair.path_mtu = payload
    return len(table.src)


@subkernel
def known_rows(state: State, flow_slots: Int32s, table: TableArrays, known: Bools) -> None:
    """Set `known` for the rows whose flow exists."""
    mask = len(flow_slots) - 1
    for i in range(len(table.src)):
        s, d, q = np.int64(table.src[i]), np.int64(table.dst[i]), np.int64(table.dest_qp[i])
        at = _mixed(s, d, q) & mask
        while flow_slots[at] != _EMPTY:
            flow = state.flows[np.int64(flow_slots[at])]
            if flow.dest_qp == q and flow.src == s and flow.dst == d:
                known[i] = True
                break
            at = (at + 1) & mask


@subkernel
def rebuild_slots(state: State, flow_slots: Int32s, pair_slots: Int32s) -> None:
    """Enter all flows and host pairs into freshly emptied hash tables."""
    mask = len(flow_slots) - 1
    for index in range(state.used[USED_FLOWS]):
        flow = state.flows[index]
        at = _mixed(np.int64(flow.src), np.int64(flow.dst), np.int64(flow.dest_qp)) & mask
        while flow_slots[at] != _EMPTY:
            at = (at + 1) & mask
        flow_slots[at] = index
    mask = len(pair_slots) - 1
    for index in range(state.used[USED_PAIRS]):
        pair = state.pairs[index]
        at = _mixed(np.int64(pair.low), np.int64(pair.high), 0) & mask
        while pair_slots[at] != _EMPTY:
            at = (at + 1) & mask
        pair_slots[at] = index


PARTIAL_VIEW_SHARE = 0.2
"""Above this share of unseen PSNs, the tap is assumed to see only some of the paths."""
_FEW_KEYS = 32
_FEW_OPCODES = 8
_PAIRING: Final = {
    "peer": ("evidence", "answers", "mismatches", "mismatches_in_row"),
    "candidate": ("candidate_hits",),
}
"""Fields that refer to another flow, and those that count what was seen of it."""
_Name = tuple[int, int, int]
"""(source, destination, destination QPN) of a flow."""
_NOTHING: Final[Mapping[_Name, Any]] = {}


class FlowTracker(PerFlow[st.State]):
    """State of all flows, updated batch by batch.

    Batches must be in time order, taps merged. Batch boundaries have two effects: the PSNs that the
    first READs of a host pair reserve are certain only if a packet of the same or an earlier batch
    shows the path MTU; and queue pairs that share a port are paired before the batch that tells
    them apart is judged.
    """

    layout: ClassVar = {
        "flows": FlowRows(),
        "streams": FlowRows(per=2),
        "lates": Pool(("streams", "late"), st.USED_LATES, full=False),
        "slots": Tables("streams", "window", "window_bits", st.USED_SLOTS, room="room_bits"),
        "recents": Tables("flows", "recent", "recent_bits", st.USED_RECENTS),
    }

    def __init__(self, taps: int = 1) -> None:
        used = np.zeros(st.USED_KINDS, np.int64)
        used[st.TAPS] = taps
        used[st.FIRST_WINDOW] = (
            st.FIRST_WINDOW_BITS if taps == 1 else st.FIRST_WINDOW_BITS_OF_MANY_TAPS
        )
        super().__init__(
            st.State(
                flows=np.zeros(0, st.FLOW),
                pairs=np.zeros(0, st.PAIR),
                streams=np.zeros(0, st.STREAM),
                lates=np.zeros(16, st.LATE),
                slots=np.zeros(SLOTS_AHEAD + st.MAX_WINDOW, st.SLOT),
                recents=np.zeros(64 * st.RECENT_ENTRIES + RECENTS_AHEAD, st.RECENT),
                events=np.zeros(st.MAX_EVENTS, st.EVENT),
                copies=np.zeros((taps, taps), np.int64),
                began=np.full(taps, st.NOT_BEGUN, np.int64),
                used=used,
            )
        )
        self.histograms = HistogramPool(st.HISTOGRAM_KINDS)
        self.densities = Densities()
        self._opcodes = CodeCounts(256, _FEW_OPCODES)
        self._matching = Matching()
        self.make_room(self.fewest)

    @property
    def state(self) -> st.State:
        """The arrays."""
        return self.arrays

    def __len__(self) -> int:
        return int(self.state.used[st.USED_FLOWS])

    @property
    def flows(self) -> Records:
        """FLOW records of the known flows, a view."""
        flows: Records = self.state.flows[: len(self)]
        return flows

    def opcodes(self, flows: Ints) -> Ints:
        """int64[flows, 256]: packets per opcode of these flows."""
        return self._opcodes.of(flows)

    @property
    def copies(self) -> Ints:
        """int64[taps, taps]: packets first seen at one tap, then at another; a view."""
        taps = int(self.state.used[st.TAPS])
        copies: Ints = self.state.copies[:taps, :taps]
        return copies

    def stream(self, flow: int, which: int) -> Any:
        """The STREAM record of a flow's REQUESTS or RESPONSES."""
        return self.state.streams[2 * flow + which]

    def update(
        self,
        table: PacketTable,
        agreed: Mapping[_Name, int] = _NOTHING,
        agreed_peers: Mapping[_Name, _Name] = _NOTHING,
    ) -> TrackedBatch:
        """Track the packets of one batch.

        agreed, agreed_peers: from CM messages, the first PSN of flows and the other flow of their
        connection. The peers of new flows are known before their first packet is judged: a short
        session has too few answers to infer them.
        """
        known = len(self)
        verdict = np.empty(len(table), np.uint8)
        if len(table):
            self.see_taps(int(table.tap.max()) + 1)
        flow = self.index_flows(table)
        if agreed or agreed_peers:
            self._agree(known, agreed, agreed_peers)
        for low, high, timed in self._matching.look_ahead(self.state, flow, table, known):
            self.pair(low, high, st.EVIDENCE_DELAYS if timed else 0)
        columns = table.arrays
        row: Int = 0
        while row < len(table):
            row = walk(
                self.state,
                self.histograms.arrays,
                self.densities.arrays,
                columns,
                self._opcodes.arrays,
                row,
                flow,
                verdict,
            )
            if row < len(table):
                opcode = int(table.opcode[row])
                if self._opcodes.arrays.column[opcode] < 0:
                    self._opcodes.see(opcode)
                else:
                    self._grow_pools()
        peer = self.flows["peer"].copy()
        return TrackedBatch(table, flow, verdict, peer, len(self))

    def _agree(
        self, known: int, agreed: Mapping[_Name, int], agreed_peers: Mapping[_Name, _Name]
    ) -> None:
        """Note what CM messages say about the flows from number `known` on."""
        partners = {}
        for f, new in enumerate(self.flows[known:], known):
            name = int(new["src"]), int(new["dst"]), int(new["dest_qp"])
            if (psn := agreed.get(name)) is not None:
                new["agreed"], new["agreed_psn"] = 1, psn
            if (partner := agreed_peers.get(name)) is not None:
                partners[f] = partner
        found = self.find(partners.values())
        for f, partner in partners.items():
            if partner in found:
                self.pair(f, found[partner], st.EVIDENCE_CM)

    def pair(self, flow: int, peer: int, evidence: int) -> None:
        """Make two flows one connection on exact evidence (CM, host probe).

        Their inferred peers are released.
        """
        flows = self.state.flows
        for this, other in ((flow, peer), (peer, flow)):
            before = int(flows[this]["peer"])
            if before >= 0 and before != other:
                flows[before]["peer"] = -1
                flows[before]["evidence"] = 0
                flows[this]["evidence"] = 0
            flows[this]["peer"] = other
            flows[this]["evidence"] |= evidence

    def index_flows(self, table: PacketTable) -> Int32s:
        """The flow of each row, created when new."""
        columns, flow = table.arrays, np.empty(len(table), np.int32)
        row: Int = 0
        while row < len(table):
            row = assign(self.state, self._flow_slots, self._pair_slots, columns, row, flow)
            if row < len(table):
                self.make_room(2 * len(self.state.flows))
        self.grow(len(self))
        return flow

    def find(self, keys: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
        """Indices of the flows with these (source, destination, destination QPN), if known."""
        wanted = set(keys)
        flows = self.flows
        if len(wanted) > _FEW_KEYS:
            columns = (flows[name].tolist() for name in ("src", "dst", "dest_qp"))
            numbers = {key: flow for flow, key in enumerate(zip(*columns, strict=True))}
            return {key: numbers[key] for key in wanted & numbers.keys()}
        numbers_of = {}
        for src, dst, qp in wanted:
            hit = np.flatnonzero(
                (flows["dest_qp"] == qp) & (flows["src"] == src) & (flows["dst"] == dst)
            )
            if len(hit):
                numbers_of[src, dst, qp] = int(hit[0])
        return numbers_of

    def knows(self, table: PacketTable) -> Bools:
        """Which rows belong to known flows."""
        known = np.zeros(len(table), np.bool_)
        known_rows(self.state, self._flow_slots, table.arrays, known)
        return known

    def missing(self, flow: int, which: int) -> tuple[int, int]:
        """PSNs never seen so far, and how many of them the peer acknowledged."""
        s, f = self.stream(flow, which), self.state.flows[flow]
        missing = int(s["missing"] + s["missing_evicted"])
        if which == st.RESPONSES:
            return missing, 0  # ACKs name requests
        acknowledged = int(s["missing_evicted_acked"])
        if s["missing"] and f["acked"]:
            window = self.state.slots[s["window"] : s["window"] + (1 << int(s["window_bits"]))]
            psns = window["psn"][window["state"] == st.MISSING].astype(np.int64)
            distance = ((int(f["ack_psn"]) - psns + (1 << 23)) & 0xFFFFFF) - (1 << 23)
            acknowledged += int(np.count_nonzero(distance >= 0))
        return missing, acknowledged

    def in_part(self, flow: int) -> bool:
        """Whether the share of unseen PSNs shows that the taps see only some paths of the flow."""
        both = self.stream(flow, st.REQUESTS), self.stream(flow, st.RESPONSES)
        missing, seen = (
            sum(int(stream[name]) for stream in both for name in names)
            for names in (("missing", "missing_evicted"), ("new_packets", "reordered", "recovered"))
        )
        return missing > PARTIAL_VIEW_SHARE * (missing + seen)

    def see_taps(self, taps: int) -> None:
        """Grow the copy counts for taps that appear while reading."""
        used, known = self.state.used, len(self.state.began)
        if taps > used[st.TAPS]:
            used[st.TAPS] = taps
            used[st.FIRST_WINDOW] = st.FIRST_WINDOW_BITS_OF_MANY_TAPS
        if taps > known:
            room = max(taps, 2 * known)  # taps may appear one by one
            copies = np.zeros((room, room), np.int64)
            copies[:known, :known] = self.state.copies
            began = np.full(room, st.NOT_BEGUN, np.int64)
            began[:known] = self.state.began
            self.arrays = self.state._replace(copies=copies, began=began)

    def ran(self, tap: int, time_ns: int) -> None:
        """Note that the capture of a known tap ran at this time."""
        self.state.began[tap] = min(int(self.state.began[tap]), time_ns)

    def expect(self, flows: int) -> None:
        """Grow to this many flows and their initial windows.

        Growing copies the used part; untouched memory costs nothing.
        """
        if flows > len(self.state.flows):
            self.make_room(flows)
        self.reserve("slots", (flows << st.LEAST_WINDOW_BITS) + SLOTS_AHEAD)
        self.reserve("recents", (flows << st.FIRST_RECENT_BITS) + RECENTS_AHEAD)

    def n_counts(self, flow: int, which: int) -> Ints:
        """int64[STACK]: packets of a stream by their degree of n-reordering, see `state.LATE`."""
        late = int(self.stream(flow, which)["late"])
        counts: Ints = self.state.lates["n_counts"][late - 1] if late else np.zeros(st.STACK, int)
        return counts

    def make_room(self, flows: int) -> None:
        """Lengthen the arrays, and the hash tables of flows and host pairs, for this many flows."""
        super().make_room(flows)
        pairs = longer(self.state.pairs, flows, int(self.state.used[st.USED_PAIRS]))
        self.arrays = self.state._replace(pairs=pairs)
        self._index_all()

    def saved(self) -> dict[str, Any]:
        """The attributes for a file. No packets follow, so nothing is left to compare."""
        attributes = super().saved()
        del attributes["_matching"]
        return attributes

    def restore(self) -> None:
        """After the attributes were read from a file."""
        self._matching = Matching()
        super().restore()

    def _index_all(self) -> None:
        """Rebuild the hash tables of flows and host pairs from `state`."""
        slots = 1 << max(2 * len(self.state.flows) - 1, 1).bit_length()  # kernels mask the hash
        self._flow_slots = np.full(slots, -1, np.int32)
        self._pair_slots = np.full(slots, -1, np.int32)
        rebuild_slots(self.state, self._flow_slots, self._pair_slots)

    def _grow_pools(self) -> None:
        used = self.state.used
        slots, recents = int(used[st.USED_SLOTS]), int(used[st.USED_RECENTS])
        self.reserve("lates", 2 * int(used[st.USED_LATES]) + 1)
        self.reserve("slots", max(slots + 2 * SLOTS_AHEAD, 3 * slots // 2))
        self.reserve("recents", max(recents + 64 * st.RECENT_ENTRIES + RECENTS_AHEAD, 2 * recents))

    def keep(self, kept: Kept) -> None:
        """Keep only these flows; events of the others count as omitted.

        A flow whose peer is removed has no peer. The path MTU of a host pair is kept while the pair
        has flows.
        """
        super().keep(kept)
        self.state.used[st.USED_FLOWS] = len(kept.flows)
        for name, counts in _PAIRING.items():
            before = self.flows[name].copy()
            self.flows[name] = np.where(kept.holds(before), kept.number[before], -1)
            left = (before >= 0) & (self.flows[name] < 0)
            for count in counts:
                self.flows[count][left] = 0
        self._keep_pairs()
        self._matching.keep(kept, self.flows)
        self._keep_events(kept)
        self._index_all()

    def _keep_pairs(self) -> None:
        """Host pairs of the kept flows, and the chain of flows of each."""
        flows, state = self.flows, self.state
        used, number = np.unique(flows["pair"], return_inverse=True)
        pairs = untouched(state.pairs)
        pairs[: len(used)] = state.pairs[used]
        heads = [[-1, -1] for _ in used]
        previous = []
        direction = (flows["src"] > flows["dst"]).astype(np.int64).tolist()
        for flow, (pair, side) in enumerate(zip(number.tolist(), direction, strict=True)):
            previous.append(heads[pair][side])
            heads[pair][side] = flow
        flows["pair"], flows["next_in_pair"] = number, previous
        pairs["head"][: len(used)] = np.array(heads, np.int32).reshape(-1, 2)
        state.used[st.USED_PAIRS] = len(used)
        self.arrays = state._replace(pairs=pairs)

    def _keep_events(self, kept: Kept) -> None:
        state = self.state
        events = state.events[: int(state.used[st.USED_EVENTS])]
        stay = events[kept.holds(events["flow"])]
        stay["flow"] = kept.number[stay["flow"]]
        state.used[st.OMITTED_EVENTS] += len(events) - len(stay)
        state.used[st.USED_EVENTS] = len(stay)
        state.events[: len(stay)] = stay

    def index_records(self, flows: Records) -> Int32s:
        """The flows with the names of these FLOW records, created when new."""
        table = PacketTable.zeros(len(flows))
        for name in ("src", "dst", "dest_qp"):
            getattr(table, name)[:] = flows[name]
        table.decode_flags[:], table.time_ns[:] = flows["no_ids"], flows["first_time"]
        return self.index_flows(table)

    def merge(self, other: FlowTracker, flow_map: Int32s) -> None:
        """Take the flows of another tracker; see `PerFlow.merge`. No packets may follow.

        `flow_map` is the result of `index_records` for them. The two have no host pair in common:
        flows of the same pair may be peers, and their packets share the search for peers. Events,
        which are in the order of the capture, are left to the caller.
        """
        ours = self.flows[flow_map]
        taps = len(other.copies)
        self.see_taps(taps)
        super().merge(other, flow_map)
        for name in ("pair", "next_in_pair"):
            self.flows[name][flow_map] = ours[name]
        for name in ("peer", "candidate"):
            numbers = other.flows[name]
            self.flows[name][flow_map] = np.where(numbers >= 0, flow_map[numbers], -1)
        self.state.copies[:taps, :taps] += other.copies
