"""MRC: entropy values, planes, path feedback, round trips and windows of each flow."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ....kernels.kernel import Array, Int, Int32s
from ....kernels.named import NamedTuple
from ...decode.multipath.mrc import ERTH, PORT_STATUS_UPDATE
from ...statistics.histogram import HistogramPool
from ...statistics.per_flow import Kept, PerFlow, Pool
from ...statistics.per_flow import Rows as FlowRows
from ...track.batch import TrackedBatch
from ...wire.record import Records
from ..paths.pathtable import OTHER, LaneTable
from . import state as st
from .rows import count_rows

_MAX_CHANGES = 10_000
_DECIDED_BY = 3
"""One byte order of entropy values needs this multiple of the matches of the other."""

LABEL_HIGH, PORT_HIGH = "flow_label_high", "udp_port_high"


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

    layout: ClassVar = {"lanes": FlowRows(per=st.LANES)}


_OF_OTHERS: Any = None
"""In place of the arrays that a kernel also takes and others own."""


class MrcMeasure(PerFlow[st.State]):
    """State is bounded: `pathtable.MAX_PATHS` entropy values per flow, logs of fixed length."""

    layout: ClassVar = {
        "flows": FlowRows(),
        "ring_psn": Pool(("flows", "ring"), st.USED_RINGS, full=False, merges=False),
        "ring_ev": Pool(("flows", "ring"), st.USED_RINGS, full=False, merges=False),
        "ring_nacked": Pool(("flows", "ring"), st.USED_RINGS, full=False, merges=False),
    }

    def __init__(self) -> None:
        super().__init__(
            st.State(
                flows=np.zeros(0, st.FLOW),
                evs=_OF_OTHERS,
                ring_psn=np.zeros((0, st.RING), np.uint32),
                ring_ev=np.zeros((0, st.RING), np.uint32),
                ring_nacked=np.zeros((0, st.RING), np.uint8),
                log=np.zeros(0, st.LOG),
                used=np.zeros(st.N_USED, np.int64),
                votes=np.zeros(4, np.int64),
                histograms=_OF_OTHERS,
            )
        )
        self.packets = 0
        self.port_changes: list[PortChange] = []
        self.omitted_port_changes = 0
        self._masks: dict[int, int] = {}
        self.histograms = HistogramPool(st.HISTOGRAMS)
        """OOO_DEPTH, ROUND_TRIP and IN_FLIGHT of each flow of responses."""
        self._values = EntropyValues(st.EV)

    def grow(self, flows: int) -> None:
        """Have room for this many flows, for their recent packets and for the log."""
        super().grow(flows)
        rings = min(st.MAX_RINGS, len(self.arrays.flows))
        for name in ("ring_psn", "ring_ev", "ring_nacked"):
            self.reserve(name, rings)
        if not len(self.arrays.log):
            self.arrays = self.arrays._replace(log=np.zeros(st.MAX_LOG, st.LOG))

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
        told = mrc[(mrc["present"] & ERTH != 0) & (mrc["operation"] == PORT_STATUS_UPDATE)]
        if not len(told):
            return
        rows = told["row"]
        hosts, masks = batch.table.src[rows], told["port_mask"]
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
            return LABEL_HIGH, None
        if port and port >= _DECIDED_BY * label:
            return PORT_HIGH, None
        if label or port:
            return None, "SACKs match both orders"
        if both:
            return None, "both halves of all entropy values seen are equal"
        if neither:
            return None, "no SACK holds the entropy value of its packet"
        return None, "no SACK was seen together with its packet"

    def flow(self, f: int) -> Any:
        """The mrc_state.FLOW record of a flow, None without MRC."""
        return self.arrays.flows[f] if f < self.known_flows else None

    def flows(self, count: int) -> Records:
        """A copy of the mrc_state.FLOW records of the first flows, zeros without MRC."""
        found = np.zeros(count, st.FLOW)
        known = self.arrays.flows[: min(count, self.known_flows)]
        found[: len(known)] = known
        return found

    def evs(self, f: int, lane: int) -> Array:
        """The mrc_state.EV records of a flow's lane."""
        used = self.all_evs()
        found: Array = used[used["lane"] == st.LANES * f + lane]
        return found

    def all_evs(self) -> Array:
        """All mrc_state.EV records."""
        return self._values.records

    def log(self) -> Array:
        """NACKs and returns of entropy values, mrc_state.LOG in capture order."""
        log: Array = self.arrays.log[: int(self.arrays.used[st.USED_LOG])]
        return log

    @property
    def omitted(self) -> int:
        """Log entries dropped because a log was full."""
        return int(self.arrays.used[st.OMITTED_LOG]) + self.omitted_port_changes

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; log entries of the others count as omitted."""
        if not self.known_flows:
            return
        super().keep(kept)
        log, used = self.log(), self.arrays.used
        stay = log[kept.holds(log["flow"])]
        stay["flow"] = kept.number[stay["flow"]]
        used[st.OMITTED_LOG] += len(log) - len(stay)
        used[st.USED_LOG] = len(stay)
        self.arrays.log[: len(stay)] = stay
        changes = [c for c in self.port_changes if kept.number[c.flow] >= 0]
        self.omitted_port_changes += len(self.port_changes) - len(changes)
        self.port_changes = [c._replace(flow=int(kept.number[c.flow])) for c in changes]

    def merge(self, other: MrcMeasure, flow_map: Int32s) -> None:
        """Take the flows of another part; see `PerFlow.merge`."""
        super().merge(other, flow_map)
        self.packets += other.packets
        mine, theirs = self.arrays, other.arrays
        mine.votes[:] += theirs.votes
        mine.used[st.LAST_PORT_NS] = max(mine.used[st.LAST_PORT_NS], theirs.used[st.LAST_PORT_NS])
        log, used = other.log().copy(), int(mine.used[st.USED_LOG])
        log["flow"] = flow_map[log["flow"]]
        room = min(len(log), st.MAX_LOG - used)
        mine.log[used : used + room] = log[:room]
        mine.used[st.USED_LOG] += room
        mine.used[st.OMITTED_LOG] += len(log) - room
        for change in other.port_changes[: _MAX_CHANGES - len(self.port_changes)]:
            if self._masks.get(change.host) != change.mask:
                self._masks[change.host] = change.mask
                self.port_changes.append(change._replace(flow=int(flow_map[change.flow])))


def sent_key(told: int, order: str) -> int:
    """The key (flow label high) of an entropy value in SACKs of this order."""
    if told == OTHER or order == LABEL_HIGH:
        return told
    return (told & 0xFFFF) << 16 | told >> 16
