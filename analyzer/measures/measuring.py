"""The complete state of an analysis: the tracker and all measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.kernel import Bools, Int32s
from ...kernels.shape import forget
from ..decode.headers.cm import CmMessage
from ..results.ended import Ended
from ..statistics.per_flow import Kept
from ..track.answers import with_answers
from ..track.batch import TrackedBatch
from ..track.pairing import CmPairs
from ..track.tracker import FlowTracker
from ..wire.packets import PacketTable
from ..wire.taps import Taps
from .conformance.options import ConformanceOptions
from .congestion import CongestionMeasure
from .departed import Departed
from .hops.measure import HopMeasure
from .idle import Idle
from .late_activity import LateActivity
from .messages.measure import MessageStatistics
from .messages.times import MessageTimes
from .mrc.measure import MrcMeasure
from .packet_clock import PacketClock
from .paths.spraying import PathUsage
from .series import Activity, Totals
from .troubles import Troubles

if TYPE_CHECKING:
    from .conformance.taps import Conformance


class Measuring:
    """Takes packet tables in time order; `summarize` builds results from it at any time.

    The same object serves captures, live probes and replayed traffic.
    """

    def __init__(
        self, window_ns: int, many_taps: bool, conformance: ConformanceOptions | None = None
    ) -> None:
        self.many_taps = many_taps
        self.packets_before_taps = 0
        """Packets measured while there was one tap only; `taps` does not include them."""
        self.conformance = _conformance(conformance, many_taps) if conformance else None
        self.tracker = FlowTracker()
        self.batches = 0
        """How many batches were measured: a reader that sees the same number has all of them."""
        self.filtered = False
        """Whether a filter of the analysis drops packets: then flows may begin later than CM
        messages say."""
        self.follows = True
        """Whether `hops` follows the packets: of parts by host pair only the whole can do it."""
        self.captured_in_part = False
        """The same of the filter of a capture."""
        self.cm = CmPairs()
        self.ended = Ended()
        """Sums of the flows that were removed from memory, see `ending`."""
        self.departed: Departed | None = None
        """Set once flows left because there were too many: those that come back are counted."""
        self.most_flows: int | None = None
        """With this number of flows, packets of new ones are counted in `ended` and no more. A
        batch that reaches the limit may exceed it."""
        self.address_beyond: int | None = None
        """The number that all addresses beyond the limit of addresses have (`Endpoints.beyond`):
        packets from or to it are counted in `ended` and no more."""
        self.numbering = 0
        """How often flows left and the others got new numbers."""
        self.renumbered: list[Kept] | None = None
        """A reader that remembers flow numbers sets it to a list, and empties it: every change of
        numbers since then, oldest first."""
        self.clock = PacketClock()
        self.totals = Totals(window_ns)
        self.activity = Activity()
        self.late: LateActivity | None = None
        """Set by the screens; reports do not need it."""
        self.message_times: MessageTimes | None = None
        """Set where the logs of a job name ranks."""
        self.entropy = PathUsage("entropy")
        self.taps = PathUsage("tap")
        self.hops = HopMeasure()
        self.srv6 = PathUsage("srv6")
        self.messages = MessageStatistics()
        self.idle = Idle()
        self.troubles = Troubles()
        self.congestion = CongestionMeasure()
        self.mrc = MrcMeasure()
        self._dated = 0
        """Taps whose first frame the tracker knows."""

    def update(
        self, table: PacketTable, cm_messages: Sequence[CmMessage] = ()
    ) -> TrackedBatch | None:
        """Take in one batch; returns it as tracked, None if no packet is left."""
        beyond = self.address_beyond
        if beyond is not None:
            cm_messages = [m for m in cm_messages if beyond not in (m.src, m.dst)]
            table = self._of_known(table, (table.src != beyond) & (table.dst != beyond))
        self.cm.note(cm_messages)
        self.clock.update(table.time_ns)
        # Mirror sessions are taps that appear while reading.
        self.many_taps = self.many_taps or bool(len(table) and table.tap.max())
        if self.most_flows is not None and len(self.tracker) >= self.most_flows:
            table = self._of_known(table, self.tracker.knows(table))
        if not len(table):
            return None
        agreed = {} if self.filtered or self.captured_in_part else self.cm.first_psns
        known = len(self.tracker)
        batch = self.tracker.update(with_answers(table), agreed)
        if self.departed is not None and (
            back := self.departed.returned(self.tracker.flows[known:])
        ):
            self.ended = self.ended.joined(Ended(returned_flows=back))
        self.measure(batch)
        return batch

    def date_taps(self, taps: Taps) -> None:
        """Tell the tracker since when the capture of each tap runs at least."""
        while self._dated < len(taps) and not self.filtered:
            if taps[self._dated].leaves_out_roce:
                self.captured_in_part = True  # its first frame does not date the capture
            elif (first_ns := taps.carrier(self._dated).first_time_ns) is not None:
                self.tracker.see_taps(self._dated + 1)
                self.tracker.ran(self._dated, first_ns)
            self._dated += 1

    def _of_known(self, table: PacketTable, known: Bools) -> PacketTable:
        """The known rows; the others are counted."""
        if known.all():
            return table
        left = ~known
        self.ended = self.ended.joined(
            Ended(
                untracked_packets=int(left.sum()),
                untracked_wire_bytes=int(table.wire_bytes[left].sum(dtype=np.int64)),
            )
        )
        return table.take(known)

    def measure(self, batch: TrackedBatch) -> None:
        """Update all measures from a tracked batch."""
        self.batches += 1
        self.totals.update(batch)
        self.activity.update(batch)
        if self.late is not None:
            self.late.update(batch)
        if self.message_times is not None:
            self.message_times.update(batch)
        self.entropy.update(batch)
        if self.many_taps:
            self.taps.update(batch)
            if self.follows:
                self.hops.update(batch)
        else:
            self.packets_before_taps += len(batch)
        with_segments = batch.table.path_evidence != 0
        if with_segments.any():
            self.srv6.update(batch.take(with_segments))
        self.messages.update(batch)
        self.idle.update(batch)
        self.troubles.update(batch)
        self.congestion.update(batch)
        if batch.table.mrc is not None:
            self.mrc.update(batch, self.tracker.flows["path_mtu"])
        if self.conformance is not None:
            self.conformance.update(batch, self.tracker.flows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; conformance has no flows that can leave."""
        forget()  # else every array would stay beside its copy
        self.tracker.keep(kept)
        measures = (
            self.activity, self.entropy, self.taps, self.hops, self.srv6, self.messages, self.idle,
            self.troubles, self.congestion, self.mrc,
        )  # fmt: skip
        for measure in measures:
            measure.keep(kept)
        if self.late is not None:
            self.late.keep(kept)
        if self.message_times is not None:
            self.message_times.keep(kept)
        self.numbering += 1
        if self.renumbered is not None:
            self.renumbered.append(kept)

    def merge(self, other: Measuring) -> Int32s:
        """Add a part of the same analysis with the same numbers of hosts, taps and segment lists.

        Exactly the measures of the whole, if the parts have no host pair in common. What crosses
        host pairs is left to the caller: the order of flows and events, connection management, and
        `hops`, whose packets all flows share. Result: its flow i is our flow `result[i]`.
        """
        flow_map = self.tracker.index_records(other.tracker.flows)
        self.tracker.merge(other.tracker, flow_map)
        self.clock.update(other.clock.latest)
        self.many_taps = self.many_taps or other.many_taps
        self.packets_before_taps += other.packets_before_taps
        self.totals.merge(other.totals)
        self.activity.merge(other.activity, flow_map)
        for mine, theirs in zip(self._paths(), other._paths(), strict=True):
            mine.merge(theirs, flow_map)
        self.messages.merge(other.messages, flow_map)
        self.idle.merge(other.idle, flow_map)
        self.troubles.merge(other.troubles, flow_map)
        self.congestion.merge(other.congestion, flow_map)
        self.mrc.merge(other.mrc, flow_map)
        return flow_map

    def _paths(self) -> tuple[PathUsage, PathUsage, PathUsage]:
        return self.entropy, self.taps, self.srv6


def _conformance(options: ConformanceOptions, many_taps: bool) -> Conformance:
    from .conformance.taps import Conformance  # its kernels load slowly: only on demand

    return Conformance(options, many_taps)
