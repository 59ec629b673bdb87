"""The complete state of an analysis: the tracker and all measures.

Measures that count one number per flow stand here; the declarations of `Flow` name their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import numpy as np

from ...kernels.kernel import Array, Bools, Int32s, Ints, Records
from ...kernels.libraries import forget
from ..decode.control import CmMessage
from ..results.captures import Ended
from ..results.flow import counted_facts
from ..statistics.per_flow import Kept, front_of, roomier
from ..track.answers import with_answers
from ..track.batch import Rows, TrackedBatch
from ..track.pairing import CmPairs
from ..track.tracker import FlowTracker
from ..wire.packets import PacketTable
from ..wire.taps import Taps
from .conformance.options import ConformanceOptions
from .congestion import CongestionMeasure
from .hops.measure import HopMeasure
from .messages import MessageStatistics, MessageTimes
from .mrc import MrcMeasure
from .series import Activity, Idle, LateActivity, Totals
from .spraying import PathUsage
from .troubles import Troubles


@cache
def kernels() -> dict[str, Callable[[Ints, Rows], None]]:
    """The functions that add the packets of a batch to the counts of flows, by field of `Flow`."""
    by_field = {}
    for fact in counted_facts():
        module, _, name = fact.measure.partition(":")
        by_field[fact.name] = getattr(import_module(f".{module}", __package__), name)
    return by_field


class Counters:
    """All counters that `Flow` declares."""

    def __init__(self) -> None:
        self._counts: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in kernels()}

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches come in capture order."""
        for name, count in kernels().items():
            self._counts[name] = roomier(self._counts[name], batch.n_flows)
            count(self._counts[name], batch.rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        for name, counts in self._counts.items():
            self._counts[name] = front_of(counts, kept.of(len(counts)))

    def merge(self, other: Counters, flow_map: Int32s) -> None:
        """Add the other's flows; its flow i is our flow `flow_map[i]`."""
        for name, counts in other._counts.items():
            theirs = counts[: len(flow_map)]
            if len(theirs):
                into = flow_map[: len(theirs)]
                self._counts[name] = roomier(self._counts[name], int(into.max()) + 1)
                np.add.at(self._counts[name], into, theirs)

    def of(self, flow: int) -> dict[str, int]:
        """The counts of one flow."""
        return {
            name: int(counts[flow]) if flow < len(counts) else 0
            for name, counts in self._counts.items()
        }

    def columns(self, flows: int) -> Ints:
        """The counts of the first flows, a column per counter in the order of `counted_facts`."""
        columns = np.zeros((flows, len(self._counts)), np.int64)
        for column, counts in enumerate(self._counts.values()):
            known = counts[:flows]
            columns[: len(known), column] = known
        return columns


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
        self.counters = Counters()
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
        batch = self.tracker.update(with_answers(table), agreed, self.cm.peers)
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
        self.counters.update(batch)
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
            self.troubles, self.congestion, self.mrc, self.counters,
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

        Exactly the measures of the whole, if the parts have no host pair in common; no packets may
        follow. What crosses host pairs is left to the caller: the order of flows and events,
        connection management, and `hops`, whose packets all flows share. MRC is never in parts.
        Result: its flow i is our flow `result[i]`.
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
        self.counters.merge(other.counters, flow_map)
        return flow_map

    def _paths(self) -> tuple[PathUsage, PathUsage, PathUsage]:
        return self.entropy, self.taps, self.srv6


def _conformance(options: ConformanceOptions, many_taps: bool) -> Conformance:
    from .conformance.taps import Conformance  # its kernels load slowly: only on demand

    return Conformance(options, many_taps)


LATEST: Final = 15
"""Packets whose median time is the present: up to seven wild ones among them do no harm."""


class PacketClock:
    """The median time of the latest packets, the lower one of two; memory is constant."""

    def __init__(self) -> None:
        self.latest: Ints = np.zeros(0, np.int64)
        """Times of the latest packets, ns, oldest first."""

    def update(self, time_ns: Ints) -> None:
        """Take in the times of further packets, in capture order."""
        if len(time_ns):
            self.latest = np.concatenate((self.latest, time_ns[-LATEST:]))[-LATEST:]

    @property
    def now_ns(self) -> int | None:
        """The present; None before the first packet."""
        if not len(self.latest):
            return None
        return int(np.sort(self.latest)[(len(self.latest) - 1) // 2])


_SRC, _DST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)


class Departed:
    """Sorted 64-bit hashes of (source, destination, destination QPN).

    Two different flows share one with a chance of flows^2 / 2^65: then one that is new counts as
    one that came back.
    """

    def __init__(self) -> None:
        self._names: Array = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, flows: Records) -> None:
        """Take in FLOW records that leave."""
        self._names = np.union1d(self._names, _hashes(flows))

    def returned(self, flows: Records) -> int:
        """How many of these FLOW records are of flows that left before."""
        hashes = _hashes(flows)
        at = np.searchsorted(self._names, hashes)
        known = at < len(self._names)
        return int(np.count_nonzero(self._names[at[known]] == hashes[known]))


def _hashes(flows: Records) -> Array:
    src, dst, qp = (flows[name].astype(np.uint64) for name in ("src", "dst", "dest_qp"))
    mixed = (src * _SRC) ^ ((dst + np.uint64(1)) * _DST)
    mixed = (mixed ^ (mixed >> _HALF)) * _MIX + qp
    mixed = (mixed ^ (mixed >> _HALF)) * _MIX
    return mixed ^ (mixed >> _HALF)
