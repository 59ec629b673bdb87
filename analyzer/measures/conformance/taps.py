"""The rules at every tap: each tap is judged by its own packets, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Int, inlined, subkernel
from ...track import batch as verdicts
from ...track.batch import Rows, TrackedBatch
from ...track.tracker import FlowTracker
from ...wire import bth
from ...wire.bth import psn_add, psn_distance
from ...wire.packets import ACK_REQUEST as ASKS_FOR_ACK
from ...wire.packets import HAS_AETH, HAS_RETH, IPV6, SNAPPED, PacketTable
from .cnp import CnpPacing
from .go_back_n import (
    UNKNOWN_LENGTH,
    after_fatal,
    answers,
    arrives,
    asks,
    asks_again,
    asks_for_answer,
    comes_again,
    learn_path_mtu,
    misses_the_first,
    reserves,
    responds,
    sends_again,
    sends_new,
    start,
)
from .options import ConformanceOptions
from .state import UNPAIRED, Book, BookKeeper, SeenAt


@subkernel
def walk(book: Book, rows: Rows) -> None:
    """Judge all rows of a batch."""
    for i in range(len(rows.flow)):
        g = np.int64(rows.flow[i])
        opcode = np.int64(rows.opcode[i])
        bits = np.int64(bth.OPCODE_CLASS[opcode])
        v = np.int64(rows.verdict[i])
        if opcode >> 5 != bth.RC and opcode >> 5 != bth.XRC:
            continue  # the only go-back-N transports
        if not bits & bth.SEQUENCED or v == verdicts.TAP_COPY or v == verdicts.MIRROR_DUPLICATE:
            continue
        f = np.int64(rows.peer[g])
        psn = np.int64(rows.psn[i])
        time = rows.time_ns[i]
        seen_at = SeenAt(np.int64(rows.tap[i]), time, rows.frame_number[i])
        payload = np.int64(rows.payload_bytes[i])
        dma_length = np.int64(rows.dma_length[i])
        if rows.decode_flags[i] & (SNAPPED | HAS_RETH) == SNAPPED and bits & bth.READ_REQUEST:
            dma_length = np.int64(UNKNOWN_LENGTH)
        learn_path_mtu(book.states[g], bits, payload)
        if bits & bth.REQUEST:
            asks_for_ack = np.int64(rows.bth_flags[i]) & ASKS_FOR_ACK != 0
            _request(book, g, f, bits, v, psn, dma_length, asks_for_ack, seen_at)
            continue
        if f < 0:
            book.used[UNPAIRED] += 1
            continue
        s = book.states[f]
        learn_path_mtu(s, bits, payload)
        if not s.started or v == verdicts.DUPLICATE:
            continue
        if bits & bth.RESPONSE_DATA:
            responds(book, f, s, bits, v, psn, seen_at)
        elif bits & bth.ACKNOWLEDGE and rows.decode_flags[i] & HAS_AETH:
            has_ids = rows.decode_flags[i] & IPV6 == 0
            ip_id = np.int64(rows.ip_id[i])
            aeth = np.int64(rows.aeth[i])
            answers(book, f, s, psn, aeth, ip_id, has_ids, seen_at)


@inlined
def _request(
    book: Book,
    f: Int,
    peer: Int,
    bits: Int,
    verdict: Int,
    psn: Int,
    dma_length: Int,
    asks_for_ack: bool,
    seen_at: SeenAt,
) -> None:
    s = book.states[f]
    s.requests += 1
    if not s.started or verdict == verdicts.RESTARTED:
        start(s, psn)
    if peer >= 0 and s.path_mtu == 0:
        s.path_mtu = book.states[peer].path_mtu
    if verdict == verdicts.RECOVERED and psn_distance(psn, np.int64(s.first)) < 0:
        misses_the_first(s, psn)
    is_read = bits & bth.READ_REQUEST != 0
    count = reserves(s, dma_length) if is_read else np.int64(1)
    in_order = verdict == verdicts.IN_ORDER or verdict == verdicts.RESTARTED
    arrives(s, psn, max(count, 1), in_order, seen_at.time)
    asks_for_data = bits & (bth.READ_REQUEST | bth.ATOMIC) != 0
    if verdict == verdicts.DUPLICATE or verdict == verdicts.OVERTAKEN:
        if asks_for_data:
            comes_again(book, s, psn)
        s.reordered += verdict == verdicts.OVERTAKEN  # judged at its retransmission
        return
    if s.fatal:
        after_fatal(book, f, s, psn, seen_at)
    resent = verdict == verdicts.RETRANSMITTED or verdict == verdicts.RECOVERED
    if verdict == verdicts.RECOVERED:
        s.lost_before += 1
    if verdict == verdicts.REORDERED:
        s.reordered += 1
    if resent:
        sends_again(book, f, s, psn, max(count, 1), is_read, seen_at)
    elif verdict != verdicts.REORDERED:
        sends_new(book, f, s, psn, max(count, 1), is_read, seen_at)
    first_here = verdict != verdicts.RETRANSMITTED
    if asks_for_data:
        if first_here:
            asks(book, s, psn, dma_length)
        else:
            asks_again(book, f, s, psn, dma_length, seen_at)
    if first_here:
        if bits & bth.ENDS:
            s.ended += 1
        if asks_for_ack and psn_distance(psn, np.int64(s.unacked)) >= 0:
            if s.asked == 0 or psn_distance(psn, np.int64(s.asked_psn)) > 0:
                s.asked_psn = psn
            s.asked += 1
            if not s.loose and s.arrived == psn_add(psn, max(count, 1)):
                asks_for_answer(s, psn, seen_at.time, seen_at.frame)
    s.loose = is_read and count == 0
    s.request_time = seen_at.time


class TapConformance:
    """The rules at one tap."""

    def __init__(self, options: ConformanceOptions) -> None:
        self.tracker: FlowTracker | None = None
        """A separate tracker when the analysis merges several taps."""
        self.keeper = BookKeeper(options.reaction_ns)
        self.cnp = CnpPacing(
            options.cnp_interval_ns, options.cnp_for_nak, options.same_port, options.address_of
        )

    def update(self, batch: TrackedBatch, flows: NDArray[np.void]) -> None:
        """Judge the rows of a batch; `flows` are the FLOW records of its tracker."""
        if not len(batch):
            return
        self.keeper.grow(batch.n_flows)
        walk(self.keeper.book, batch.rows)
        self.cnp.update(batch, flows, self.keeper.book)


class Conformance:
    """The rules at all taps of an analysis."""

    def __init__(self, options: ConformanceOptions, many_taps: bool) -> None:
        self.options = options
        self._many_taps = many_taps
        self.taps: dict[int, TapConformance] = {}

    def update(self, batch: TrackedBatch, flows: NDArray[np.void]) -> None:
        """Judge a batch of the analysis.

        In an analysis of several taps the tracker's verdicts refer to the merged packets, so each
        tap's rows are also tracked separately, both directions of an interface together. Taps that
        appear while reading (mirror sessions) are added to the first one.
        """
        several = bool(batch.table.tap.any())
        if not self.taps:
            self._many_taps = self._many_taps or several
        if not (self._many_taps or several):
            self._tap(0).update(batch, flows)
            return
        of_interface: dict[int, list[int]] = {}
        for tap in np.unique(batch.table.tap).tolist():
            of_interface.setdefault(self.options.interface_of(tap), []).append(tap)
        for tap, both in of_interface.items():
            checks = self._tap(tap)
            if tap == 0 and not self._many_taps:
                checks.update(batch.take(batch.table.tap == 0), flows)
                continue
            if checks.tracker is None:
                checks.tracker = FlowTracker()
            tracked = checks.tracker.update(_rows_of(batch.table, both))
            checks.update(tracked, checks.tracker.flows)

    def _tap(self, tap: int) -> TapConformance:
        if tap not in self.taps:
            self.taps[tap] = TapConformance(self.options)
        return self.taps[tap]


def _rows_of(table: PacketTable, taps: list[int]) -> PacketTable:
    """The rows of one tap, as if it were the only tap."""
    rows = table.take(np.isin(table.tap, taps))
    rows.tap[:] = 0
    return rows
