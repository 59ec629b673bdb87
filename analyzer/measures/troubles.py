"""When each flow was in trouble: lost, late, marked and refused packets with their frames.

Only flows with such packets take memory. The diagnosis reads these records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final, Literal

import numpy as np

from ...kernels.kernel import (
    Bool,
    Bools,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    Record,
    RecordArray,
    inlined,
    subkernel,
)
from ..statistics.per_flow import PerFlow, Pool
from ..statistics.per_flow import Rows as FlowRows
from ..track import batch as verdicts
from ..track.batch import Rows, TrackedBatch
from ..wire import bth
from ..wire.bth import psn_add, psn_distance
from ..wire.packets import ACK_REQUEST, FIRST_FRAGMENT, HAS_AETH, ICRC_BAD, IPV6, SNAPPED

# Kinds of trouble, columns of `TroubleArrays.record_of`.
(
    LATE,  # reordered before the tap
    RECOVERED_LOSS,  # retransmission of a packet that was lost before the tap
    RESENT,  # any retransmission
    RESENT_AFTER_ACK,  # a rewind to a PSN that an ACK at this tap covers
    COPIED,  # duplicated before the tap
    MARKED,  # CE
    CNP_SENT,
    NAK_SENT,  # PSN sequence errors that the flow carries
    RNR_SENT,
    FATAL_SENT,  # other NAKs
    LATE_AFTER,  # NAKed, then acknowledged without a retransmission: late after the tap
    ACKED_AGAIN,  # ACKs for packets that an earlier ACK covers: the receiver had them twice
    JUMPED,  # PSNs that a run of requests skips: lost before the tap, or LATE
    LOST_AFTER,  # NAKed although the tap saw the packet in order: lost after the tap, or LATE_AFTER
    CORRUPT,  # wrong ICRC, at any tap
    FRAGMENTED,  # in IP fragments at the first tap
) = range(16)
KINDS = 16

KEPT = 4
"""Frames kept per flow and kind."""
_MOST_PER_ROW = 8
_CE = 3
_CNP_OPCODE = 0x81
_LOST_RESENDS = 64
"""Most retransmissions after a NAK that may be lost before the tap sees one."""

TROUBLE = np.dtype(
    [
        ("count", "i8"),
        ("kept", "i8"),
        ("first", "i8"),  # ns
        ("last", "i8"),
        ("pause", "i8"),  # longest time between two of them
        ("time", "i8", (KEPT,)),
        ("frame", "i8", (KEPT,)),
        ("tap", "u2", (KEPT,)),
    ],
    align=True,
)

PROGRESS = np.dtype(
    [
        ("new_time", "i8"),  # latest request that was not a retransmission; 0: none
        ("answer_time", "i8"),  # latest answer of the peer; 0: none
        ("asked_time", "i8"),  # first request for an ACK since then
        ("resent_unanswered", "i8"),  # retransmissions since then
        ("resent_unanswered_time", "i8"),  # of the first of them
        ("acked", "u1"),
        ("ack_psn", "u4"),
        ("nak_open", "u1"),
        ("nak_psn", "u4"),
        ("resending", "u1"),
        ("started", "u1"),
        ("first_psn", "u4"),
        ("run_known", "u1"),
        ("run_next", "u4"),  # PSN after the latest request
        ("run_resent", "u4"),  # consecutive retransmissions up to the latest request
        ("run_naked", "u1"),  # a NAK asked for the first of them
        ("resent_alone", "u4"),  # times the sender went on without what followed them
        ("gone_back", "u4"),  # times it retransmitted all that followed
        ("sent_id", "u2"),  # IPv4 identification of the latest request
        ("ids_count", "u1"),  # consecutive PSNs in a row whose identifications count up
        ("expected_known", "u1"),
        ("expected", "u4"),  # what a go-back-N receiver at the tap would expect
        ("base_psn", "u4"),  # where the latest rewind began
        ("rounds", "u4"),  # rewinds to this PSN in a row
        ("rounds_unanswered", "u4"),  # of these, since the latest answer
        ("unasked", "u4"),  # rewinds while no seen request for an ACK was without an answer
        ("max_rounds", "u4"),
        ("max_rounds_psn", "u4"),
        ("max_rounds_naked", "u4"),  # NAKs of LOST_AFTER for this PSN in a row
        ("naked_psn", "u4"),  # of the latest NAK of LOST_AFTER
        ("naked", "u4"),  # such NAKs for this PSN in a row
        ("hop_limit", "u1"),  # largest at the first tap of the flow's packets
    ],
    align=True,
)


class ProgressRecord(Record):
    """An element of `TroubleArrays.progress`."""


class TroubleArrays(NamedTuple):
    """Arrays of the kernel."""

    record_of: Int32s
    """int32[flows, KINDS]: number of the record plus 1; 0 without one."""
    records: RecordArray
    """TROUBLE[capacity]."""
    progress: RecordArray
    """PROGRESS[flows]."""
    used: Ints
    """int64[1]: records in use."""


class Trouble(NamedTuple):
    """Packets of one flow and kind."""

    packets: int
    first_ns: int
    last_ns: int
    pause_ns: int
    """Longest time between two of them."""
    frames: list[tuple[int, int, int]]
    """(time_ns, frame number, tap) of the first ones."""
    flow: int


@inlined
def _note(
    arrays: TroubleArrays, f: Int, kind: Int, time: Int, frame: Int, tap: Int, count: Int
) -> None:
    at = np.int64(arrays.record_of[f, kind]) - 1
    if at < 0:
        at = np.int64(arrays.used[0])
        arrays.used[0] = at + 1
        arrays.record_of[f, kind] = np.int32(at + 1)
        arrays.records[at].first = time
        arrays.records[at].last = time
    record = arrays.records[at]
    n = np.int64(record.kept)
    if n < KEPT:
        record.time[n] = time
        record.frame[n] = frame
        record.tap[n] = tap
        record.kept = n + 1
    record.count += count
    record.pause = max(np.int64(record.pause), time - np.int64(record.last))
    record.first = min(np.int64(record.first), time)
    record.last = max(np.int64(record.last), time)


_IDS_COUNT = 8
"""Consecutive PSNs with ascending identifications after which these count transmissions."""
_NEAR_IDS = 256


@inlined
def _count_ids(p: ProgressRecord, psn: Int, ip_id: Int) -> Int:
    """Most packets that the sender can have sent between its latest request and this one: as many
    as its identifications leave out. A large number if they do not count."""
    step = (ip_id - np.int64(p.sent_id)) & 0xFFFF
    p.sent_id = ip_id
    if p.run_known and psn == np.int64(p.run_next):
        p.ids_count = min(np.int64(p.ids_count) + 1, _IDS_COUNT) if 0 < step <= _NEAR_IDS else 0
    if p.ids_count < _IDS_COUNT or step == 0:
        return np.int64(_UNCOUNTED)
    return step - 1


_UNCOUNTED = 1 << 24
_LONG_RUN = 8
"""Retransmissions of consecutive PSNs that are not all lost packets."""


@inlined
def _end_resending(p: ProgressRecord, psn: Int, in_order: bool, between: Int) -> None:
    """The sender retransmitted `run_resent` PSNs in a row and goes on with `psn`: it goes back N,
    or repeats only what was lost.

    between: most packets it sent before this one, see `_count_ids`. Without that, only a new
    packet shows that none was retransmitted between.
    """
    left_out = psn_distance(psn, np.int64(p.run_next))
    if left_out <= 0:
        p.gone_back += p.run_resent >= (2 if left_out == 0 else _LONG_RUN)
        return
    if p.acked and psn_distance(psn, np.int64(p.ack_psn)) <= 1 and not p.run_naked:
        return  # an ACK that was lost at first: all that it left out has arrived
    if between < left_out or (between == _UNCOUNTED and in_order and p.run_resent == 1):
        p.resent_alone += 1
        if in_order:
            p.expected = psn  # the tap saw all before it
            p.expected_known = 1
    elif p.run_resent >= _LONG_RUN:
        p.gone_back += 1


@inlined
def _send(
    p: ProgressRecord,
    psn: Int,
    is_read: Bool,
    resent: Bool,
    recovered: Bool,
    restarted: Bool,
    between: Int,
) -> Int:
    """A request passes: the PSNs before it that are missing in the sender's present run, at most as
    many as the sender can have sent between.

    A run is a stretch of consecutive PSNs: the first transmissions, or a rewind. How many PSNs a
    READ reserves is not judged here: the request after it begins its own run.
    """
    skipped: Int = 0
    if not p.started or restarted:
        p.started = 1
        p.first_psn = psn
    elif resent and not recovered and psn_distance(psn, np.int64(p.first_psn)) < 0:
        p.first_psn = psn  # first sent before the capture
        p.expected = psn
        p.expected_known = 1
    elif recovered and psn_distance(psn, np.int64(p.first_psn)) < 0:
        skipped = psn_distance(np.int64(p.first_psn), psn)  # the first packets were lost
        p.first_psn = psn
    elif p.run_known:
        skipped = psn_distance(psn, np.int64(p.run_next))
        if skipped < 0:  # a rewind; the first packets after a NAK may be lost as well
            skipped = psn_distance(psn, np.int64(p.nak_psn)) if p.nak_open and resent else 0
            if not 0 < skipped < _LOST_RESENDS:
                skipped = 0
        if skipped > 0 and p.acked:  # acknowledged packets are not skipped
            skipped = min(skipped, max(psn_distance(psn, np.int64(p.ack_psn)) - 1, 0))
    p.run_known = not is_read
    p.run_next = psn_add(psn, 1)
    return min(skipped, between)


@inlined
def _receive(p: ProgressRecord, psn: Int, is_read: Bool, restarted: Bool) -> None:
    """The same request at a go-back-N receiver that stands at the tap."""
    if not p.expected_known or restarted or psn == np.int64(p.expected):
        p.expected = psn_add(psn, 1)
        p.expected_known = not is_read


@inlined
def _rewinds(p: ProgressRecord, psn: Int) -> None:
    """Count a rewind to `psn`."""
    same = p.rounds > 0 and psn == np.int64(p.base_psn)
    p.rounds = np.int64(p.rounds) + 1 if same else 1
    p.rounds_unanswered = np.int64(p.rounds_unanswered) + 1 if same else 1
    p.base_psn = psn
    if p.rounds > p.max_rounds:
        p.max_rounds = p.rounds
        p.max_rounds_psn = psn
        p.max_rounds_naked = p.naked if psn == np.int64(p.naked_psn) else 0


@inlined
def _refused(p: ProgressRecord, psn: Int) -> None:
    """Count a NAK for a packet that the tap saw in order."""
    p.naked = np.int64(p.naked) + 1 if psn == np.int64(p.naked_psn) else 1
    p.naked_psn = psn
    if p.max_rounds > 0 and psn == np.int64(p.max_rounds_psn):
        p.max_rounds_naked = p.naked


@inlined
def _hear(p: ProgressRecord, covered: Int, time: Int) -> bool:
    """An answer that covers PSNs up to `covered`; True where a NAKed packet was only late."""
    p.answer_time = time
    p.resent_unanswered = 0
    p.rounds_unanswered = 0
    if not p.acked or psn_distance(covered, np.int64(p.ack_psn)) > 0:
        p.acked = 1
        p.ack_psn = covered
    if p.expected_known and psn_distance(covered, np.int64(p.expected)) >= 0:
        p.expected = psn_add(covered, 1)
    late = p.nak_open and psn_distance(covered, np.int64(p.nak_psn)) >= 0
    if late:
        p.nak_open = 0
    return bool(late)


@subkernel
def _update(arrays: TroubleArrays, start: Int, rows: Rows) -> Int:
    """Take in rows from `start`; returns their number, or the row before which the pool is full."""
    for i in range(start, len(rows.flow)):
        if arrays.used[0] + _MOST_PER_ROW > len(arrays.records):
            return i
        v = np.int64(rows.verdict[i])
        f = np.int64(rows.flow[i])
        if rows.icrc_state[i] == ICRC_BAD:
            _note(
                arrays, f, CORRUPT, rows.time_ns[i], rows.frame_number[i], np.int64(rows.tap[i]), 1
            )
        if v == verdicts.TAP_COPY or v == verdicts.MIRROR_DUPLICATE:
            continue
        hop_limit_of = arrays.progress[f]
        if rows.hop_limit[i] > hop_limit_of.hop_limit:
            hop_limit_of.hop_limit = rows.hop_limit[i]
        op = np.int64(rows.opcode[i])
        bits = np.int64(bth.OPCODE_CLASS[op])
        psn = np.int64(rows.subject_psn[i])
        time, frame, tap = rows.time_ns[i], rows.frame_number[i], np.int64(rows.tap[i])
        if rows.decode_flags[i] & FIRST_FRAGMENT:
            _note(arrays, f, FRAGMENTED, time, frame, tap, 1)
        if rows.traffic_class[i] & 3 == _CE:
            _note(arrays, f, MARKED, time, frame, tap, 1)
        if v == verdicts.DUPLICATE:
            _note(arrays, f, COPIED, time, frame, tap, 1)
            continue
        if op == _CNP_OPCODE:
            _note(arrays, f, CNP_SENT, time, frame, tap, 1)
            continue
        late = v == verdicts.REORDERED or v == verdicts.OVERTAKEN
        if bits & bth.REQUEST:
            p = arrays.progress[f]
            if rows.bth_flags[i] & ACK_REQUEST and p.asked_time <= p.answer_time:
                p.asked_time = time
            is_read = bits & bth.READ_REQUEST != 0
            resent = v == verdicts.RETRANSMITTED or v == verdicts.RECOVERED
            if resent:
                if not p.resending or not p.run_known or psn != np.int64(p.run_next):
                    _rewinds(p, psn)
                    acked = p.acked and psn_distance(psn, np.int64(p.ack_psn)) <= 0
                    if acked and v == verdicts.RETRANSMITTED:
                        _note(arrays, f, RESENT_AFTER_ACK, time, frame, tap, 1)
                    elif p.asked_time <= p.answer_time or p.asked_time == time:
                        p.unasked += 1
                if p.resent_unanswered == 0:
                    p.resent_unanswered_time = time
                p.resent_unanswered += 1
            elif v == verdicts.RESTARTED:
                p.acked = 0
                p.nak_open = 0
                p.rounds = 0
                p.naked = 0
            if not late and v != verdicts.NOT_SEQUENCED:
                if v == verdicts.RETRANSMITTED and rows.hop_limit[i] < p.hop_limit:
                    # Perhaps an earlier transmission that was overtaken behind the first tap: the
                    # sender need not continue from here.
                    p.run_known = 0
                else:
                    between: Int = np.int64(_UNCOUNTED)
                    if rows.decode_flags[i] & IPV6 == 0:
                        between = _count_ids(p, psn, np.int64(rows.ip_id[i]))
                    goes_on = resent and p.run_known and psn == np.int64(p.run_next)
                    if p.resending and not goes_on:
                        _end_resending(p, psn, v == verdicts.IN_ORDER, between)
                    if not goes_on:
                        p.run_naked = p.nak_open and psn == np.int64(p.nak_psn)
                    p.run_resent = (np.int64(p.run_resent) if goes_on else 0) + resent
                    skipped = _send(
                        p,
                        psn,
                        is_read,
                        resent,
                        v == verdicts.RECOVERED,
                        v == verdicts.RESTARTED,
                        between,
                    )
                    if skipped > 0:
                        _note(arrays, f, JUMPED, time, frame, tap, skipped)
                p.resending = resent
                if not resent:
                    p.new_time = time
            if resent and p.nak_open and psn_distance(psn, np.int64(p.nak_psn)) >= 0:
                p.nak_open = 0
            if v != verdicts.NOT_SEQUENCED:
                _receive(p, psn, is_read, v == verdicts.RESTARTED)
        if late:
            _note(arrays, f, LATE, time, frame, tap, 1)
        elif v == verdicts.RECOVERED:
            _note(arrays, f, RECOVERED_LOSS, time, frame, tap, 1)
            _note(arrays, f, RESENT, time, frame, tap, 1)
        elif v == verdicts.RETRANSMITTED:
            _note(arrays, f, RESENT, time, frame, tap, 1)
        if bits & (bth.ACKNOWLEDGE | bth.RESPONSE_DATA) == 0:
            continue
        g = np.int64(rows.peer[f])
        known = 0 <= g < len(rows.peer)
        if bits & bth.RESPONSE_DATA:
            if known:
                _hear(arrays.progress[g], psn, time)
            continue
        if rows.decode_flags[i] & HAS_AETH == 0:
            if known and rows.decode_flags[i] & SNAPPED:  # an ACK or a NAK
                _hear(arrays.progress[g], psn_add(psn, -1), time)
            continue
        syndrome = np.int64(rows.aeth[i]) >> 24
        kind = syndrome & bth.SYNDROME_KIND_MASK
        sequence_error = kind == bth.SYNDROME_NAK and syndrome & 0x1F == 0
        if kind == bth.SYNDROME_RNR_NAK:
            _note(arrays, f, RNR_SENT, time, frame, tap, 1)
        elif sequence_error:
            _note(arrays, f, NAK_SENT, time, frame, tap, 1)
        elif kind == bth.SYNDROME_NAK:
            _note(arrays, f, FATAL_SENT, time, frame, tap, 1)
        if not known:
            continue
        p = arrays.progress[g]
        if kind == bth.SYNDROME_ACK:
            if p.acked and psn_distance(psn, np.int64(p.ack_psn)) <= 0:
                _note(arrays, g, ACKED_AGAIN, time, frame, tap, 1)
            if _hear(p, psn, time):
                _note(arrays, g, LATE_AFTER, time, frame, tap, 1)
            continue
        if _hear(p, psn_add(psn, -1), time):
            _note(arrays, g, LATE_AFTER, time, frame, tap, 1)
        if not sequence_error and kind != bth.SYNDROME_RNR_NAK:
            continue
        if not p.started:
            continue
        # A NAK for a PSN before the first one is about packets that the capture does not hold.
        if sequence_error and psn_distance(psn, np.int64(p.first_psn)) >= 0:
            p.nak_open = 1
            p.nak_psn = psn
            if p.expected_known and psn_distance(psn, np.int64(p.expected)) < 0:
                _note(arrays, g, LOST_AFTER, time, frame, tap, 1)
                _refused(p, psn)
        if p.resent_alone <= p.gone_back:  # else the receiver keeps what came after this packet
            p.expected = psn
            p.expected_known = 1
    return len(rows.flow)


class Troubles(PerFlow[TroubleArrays]):
    """Records of trouble, and the progress of the requests of each flow."""

    layout: ClassVar = {
        "record_of": FlowRows(),
        "records": Pool(("record_of", None), used=0, full=False),
        "progress": FlowRows(),
    }

    def __init__(self) -> None:
        super().__init__(
            TroubleArrays(
                np.zeros((0, KINDS), np.int32),
                np.zeros(64, TROUBLE),
                np.zeros(0, PROGRESS),
                np.zeros(1, np.int64),
            )
        )

    def update(self, batch: TrackedBatch) -> None:
        """Take in one batch; batches come in time order."""
        self.grow(batch.n_flows)
        row: Int = 0
        while row < len(batch):
            row = _update(self.arrays, row, batch.rows)
            if row < len(batch):
                self.reserve("records", 2 * len(self.arrays.records) + _MOST_PER_ROW)

    def of(self, flow: int, kind: int) -> Trouble | None:
        """Packets of `kind` of one flow; None without any."""
        if flow >= self.known_flows or not self.arrays.record_of[flow, kind]:
            return None
        r = self.arrays.records[self.arrays.record_of[flow, kind] - 1]
        kept = int(r["kept"])
        frames = zip(
            r["time"][:kept].tolist(),
            r["frame"][:kept].tolist(),
            r["tap"][:kept].tolist(),
            strict=True,
        )
        return Trouble(
            int(r["count"]), int(r["first"]), int(r["last"]), int(r["pause"]), sorted(frames), flow
        )

    def by_flow(self, kind: int, flows: Iterable[int] | None = None) -> dict[int, Trouble]:
        """Packets of `kind` of the flows that have any; default of all flows."""
        flows = self.flows(kind) if flows is None else flows
        return {f: trouble for f in flows if (trouble := self.of(f, kind))}

    def flows(self, kind: int) -> list[int]:
        """Flows with packets of `kind`, in ascending order."""
        numbers: list[int] = np.flatnonzero(
            self.arrays.record_of[: self.known_flows, kind]
        ).tolist()
        return numbers

    def packets(self, flows: int) -> Ints:
        """int64[flows]: packets in trouble of each flow, all kinds together."""
        a, packets = self.arrays, np.zeros(flows, np.int64)
        counts = np.concatenate([[0], a.records["count"][: int(a.used[0])]])
        known = a.record_of[: min(flows, self.known_flows)]
        packets[: len(known)] = counts[known].sum(axis=1)
        return packets

    def unanswered(self, flows: int) -> Bools:
        """bool[flows]: whose latest request for an answer got none, or was retransmitted."""
        p, unanswered = (
            self.arrays.progress[: min(flows, self.known_flows)],
            np.zeros(flows, np.bool_),
        )
        asked = (p["acked"] > 0) & (p["asked_time"] > p["answer_time"])
        unanswered[: len(p)] = (p["resent_unanswered"] > 0) | asked
        return unanswered

    def retransmits(self, flow: int) -> Literal["go-back-n", "selective"] | None:
        """Whether the sender goes back N or retransmits only lost packets; None: not seen."""
        p = self.progress(flow)
        alone, back = int(p["resent_alone"]), int(p["gone_back"])
        return None if alone == back else "selective" if alone > back else "go-back-n"

    def progress(self, flow: int) -> Any:
        """The PROGRESS record of one flow."""
        return self.arrays.progress[flow] if flow < self.known_flows else _NO_PROGRESS


_NO_PROGRESS: Final = np.zeros(1, PROGRESS)[0]
