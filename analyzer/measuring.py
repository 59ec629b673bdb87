"""Everything that is kept about the flows while packets pass: the tracker and all measures."""

from __future__ import annotations

from collections.abc import Sequence

from .decode.cm import CmMessage
from .measures.congestion import CongestionMeasure
from .measures.idle import Idle
from .measures.messages import MessageStatistics
from .measures.series import Activity, Totals
from .measures.spraying import PathUsage
from .packets import PacketTable
from .track.connections import CmPairs
from .track.tracker import FlowTracker


class Measuring:
    """Takes packet tables in time order; `summarize` makes the results of it at any time.

    The same object serves captures, live probes and replayed traffic.
    """

    def __init__(self, window_ns: int, many_taps: bool) -> None:
        self.many_taps = many_taps
        self.tracker = FlowTracker()
        self.cm = CmPairs()
        self.totals = Totals(window_ns)
        self.activity = Activity()
        self.entropy = PathUsage("entropy")
        self.taps = PathUsage("tap")
        self.messages = MessageStatistics()
        self.idle = Idle()
        self.congestion = CongestionMeasure()

    def update(self, table: PacketTable, cm_messages: Sequence[CmMessage] = ()) -> None:
        """Take in one batch."""
        self.cm.note(cm_messages)
        if not len(table):
            return
        batch = self.tracker.update(table)
        self.totals.update(batch)
        self.activity.update(batch)
        self.entropy.update(batch)
        if self.many_taps:
            self.taps.update(batch)
        self.messages.update(batch)
        self.idle.update(batch)
        self.congestion.update(batch)
