"""MRC: entropy values, planes, path feedback, round trips and windows of each flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Array, Int, Int32s, UInt16s, UInt32s, subkernel
from ....kernels.named import NamedTuple
from ...decode.multipath.mrc import ERTH, PORT_STATUS_UPDATE
from ...statistics.histogram import HistogramPool
from ...statistics.keeping import Kept, front_of, longer, places_of, rows_of
from ...track.batch import TrackedBatch
from ...wire.record import Records
from ..paths.pathtable import OTHER, LaneRecords, find_record, kept_records, no_records, reserved
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


class MrcMeasure:
    """State is bounded: `pathtable.MAX_PATHS` entropy values per flow, logs of fixed length."""

    def __init__(self) -> None:
        self.packets = 0
        self.port_changes: list[PortChange] = []
        self.omitted_port_changes = 0
        self._masks: dict[int, int] = {}
        self.histograms = HistogramPool(st.HISTOGRAMS)
        """OOO_DEPTH, ROUND_TRIP and IN_FLIGHT of each flow of responses."""
        self._flows = 0
        self._state = st.State(
            flows=np.zeros(0, st.FLOW),
            evs=no_records(st.EV),
            ring_psn=np.zeros((0, st.RING), np.int32),
            ring_ev=np.zeros((0, st.RING), np.uint32),
            ring_nacked=np.zeros((0, st.RING), np.uint8),
            log=np.zeros(0, st.LOG),
            counts=np.zeros(st.N_COUNTS, np.int64),
            votes=np.zeros(4, np.int64),
            histograms=self.histograms.arrays,
        )

    def update(self, batch: TrackedBatch, path_mtu: Array) -> None:
        """Count the MRC packets of one batch; path_mtu of each flow, 0 while unknown."""
        mrc = batch.table.mrc
        if mrc is None:
            return
        self.packets += len(mrc)
        self._grow_flows(batch.n_flows)
        row: Int = 0
        while row < len(mrc):
            self._reserve(int(self._state.evs.used[0]) + 2)
            row = count_rows(row, mrc, batch.rows, path_mtu.astype(np.int64), self._state)
            if row < len(mrc):
                self._reserve(2 * len(self._state.evs.records))
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
        a, b, c, d = self._state.votes.tolist()
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
        return self._state.flows[f] if f < self._flows else None

    def flows(self, count: int) -> Records:
        """A copy of the mrc_state.FLOW records of the first flows, zeros without MRC."""
        found = np.zeros(count, st.FLOW)
        known = self._state.flows[: min(count, self._flows)]
        found[: len(known)] = known
        return found

    def evs(self, f: int, lane: int) -> Array:
        """The mrc_state.EV records of a flow's lane."""
        used = self.all_evs()
        found: Array = used[used["lane"] == st.LANES * f + lane]
        return found

    def all_evs(self) -> Array:
        """All mrc_state.EV records."""
        evs = self._state.evs
        used: Array = evs.records[: int(evs.used[0])]
        return used

    def log(self) -> Array:
        """NACKs and returns of entropy values, mrc_state.LOG in capture order."""
        log: Array = self._state.log[: int(self._state.counts[st.USED_LOG])]
        return log

    @property
    def omitted(self) -> int:
        """Log entries dropped because a log was full."""
        return int(self._state.counts[st.OMITTED_LOG]) + self.omitted_port_changes

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; log entries of the others count as omitted."""
        if not self._flows:
            return
        s = self._state
        self.histograms.keep(kept)
        flows = rows_of(s.flows, kept)
        rings = places_of(flows["ring"])
        log = self.log()
        told = log[kept.holds(log["flow"])]
        told["flow"] = kept.number[told["flow"]]
        s.counts[st.OMITTED_LOG] += len(log) - len(told)
        s.counts[st.USED_LOG], s.counts[st.USED_RINGS] = len(told), len(rings)
        s.log[: len(told)] = told
        psn = np.full_like(s.ring_psn, -1)
        psn[: len(rings)] = s.ring_psn[rings]
        self._state = s._replace(
            flows=flows,
            evs=kept_records(s.evs, kept, st.LANES),
            ring_psn=psn,
            ring_ev=front_of(s.ring_ev, rings),
            ring_nacked=front_of(s.ring_nacked, rings),
            histograms=self.histograms.arrays,
        )
        self._flows = len(kept.of(self._flows))
        changes = [c for c in self.port_changes if kept.number[c.flow] >= 0]
        self.omitted_port_changes += len(self.port_changes) - len(changes)
        self.port_changes = [c._replace(flow=int(kept.number[c.flow])) for c in changes]

    def merge(
        self,
        other: MrcMeasure,
        flow_map: Int32s,
        endpoint_map: UInt32s,
        tap_map: UInt16s,
        evidence_map: UInt32s | None = None,
    ) -> None:
        """Add a later part of the capture; its flow i is our flow `flow_map[i]`, and so on.

        Silences of entropy values across the seam are measured from the seam.
        """
        self.packets += other.packets
        self._state.votes[:] += other._state.votes
        ports = self._state.counts[st.LAST_PORT_NS : st.LAST_PORT_NS + 1]
        ports[0] = max(ports[0], other._state.counts[st.LAST_PORT_NS])
        if not len(flow_map):
            return
        self._grow_flows(int(flow_map.max()) + 1)
        self.histograms.merge(other.histograms, flow_map)
        theirs = other._state.flows[: len(flow_map)]
        mine = self._state.flows
        before = mine["packets"].copy()
        for a in range(len(theirs)):
            _add_flow(mine[flow_map[a]], theirs[a], tap_map)
        added = other.all_evs().copy()
        if len(added):
            owner = added["lane"] // st.LANES
            added["last_index"] += before[flow_map[owner]]
            added["lane"] = flow_map[owner].astype(np.int64) * st.LANES + added["lane"] % st.LANES
            added["tap"] = tap_map[added["tap"]] if len(tap_map) else added["tap"]
            if evidence_map is not None:
                added["evidence"] = evidence_map[added["evidence"]]
            self._reserve(int(self._state.evs.used[0]) + len(added))
            _add_evs(added, self._state.evs)
        log = other.log().copy()
        log["flow"] = flow_map[log["flow"]]
        log["tap"] = tap_map[log["tap"]] if len(tap_map) else log["tap"]
        used = int(self._state.counts[st.USED_LOG])
        room = min(len(log), st.MAX_LOG - used)
        self._state.log[used : used + room] = log[:room]
        self._state.counts[st.USED_LOG] += room
        self._state.counts[st.OMITTED_LOG] += len(log) - room
        for change in other.port_changes[: _MAX_CHANGES - len(self.port_changes)]:
            host = int(endpoint_map[change.host])
            if self._masks.get(host) != change.mask:
                self._masks[host] = change.mask
                self.port_changes.append(
                    change._replace(
                        host=host, tap=int(tap_map[change.tap]), flow=int(flow_map[change.flow])
                    )
                )

    def _grow_flows(self, flows: int) -> None:
        self._flows = max(self._flows, flows)
        self.histograms.grow(flows)
        s, have = self._state, len(self._state.flows)
        log = s.log if len(s.log) else np.zeros(st.MAX_LOG, st.LOG)
        if flows > have:
            room = max(flows, 2 * have)
            evs = s.evs._replace(lanes=longer(s.evs.lanes, room * st.LANES))
            s = s._replace(flows=longer(s.flows, room), evs=evs)
        rings = min(st.MAX_RINGS, len(s.flows))
        if rings > len(s.ring_psn):
            known = len(s.ring_psn)
            psn = np.full((rings, st.RING), -1, np.int32)
            ev, nacked = np.zeros((rings, st.RING), np.uint32), np.zeros((rings, st.RING), np.uint8)
            psn[:known], ev[:known], nacked[:known] = s.ring_psn, s.ring_ev, s.ring_nacked
            s = s._replace(ring_psn=psn, ring_ev=ev, ring_nacked=nacked)
        self._state = s._replace(histograms=self.histograms.arrays, log=log)

    def _reserve(self, records: int) -> None:
        """Grow to at least `records` entropy values."""
        self._state = self._state._replace(evs=reserved(self._state.evs, records))


def _add_flow(mine: Any, added: Any, tap_map: UInt16s) -> None:
    for name in (
        "packets", "resends", "resends_after_nack", "trimmed", "timestamped", "sacks",
        "probe_responses", "skips", "always_skips", "nacks", "received_units",
    ):  # fmt: skip
        mine[name] += added[name]
    if added["told_bytes"]:
        mine["told_bytes"], mine["rcvd_bytes"] = 1, added["rcvd_bytes"]
    if added["started"]:
        for name in ("started", "next_psn", "has_clock", "clock_ns"):
            mine[name] = added[name]
    mine["mpr"] = added["mpr"] or mine["mpr"]
    mine["last_always_skip_ns"] = max(mine["last_always_skip_ns"], added["last_always_skip_ns"])
    mine["max_ooo_count"] = max(mine["max_ooo_count"], added["max_ooo_count"])
    for lane in np.flatnonzero(added["trim_frame"]).tolist():
        first, last = added["trim_first_ns"][lane], added["trim_last_ns"][lane]
        if not mine["trim_frame"][lane]:
            mine["trim_first_ns"][lane], mine["trim_last_ns"][lane] = first, last
            mine["trim_frame"][lane] = added["trim_frame"][lane]
            tap = added["trim_tap"][lane]
            mine["trim_tap"][lane] = tap_map[tap] if len(tap_map) else tap
        mine["trim_first_ns"][lane] = min(mine["trim_first_ns"][lane], first)
        mine["trim_last_ns"][lane] = max(mine["trim_last_ns"][lane], last)


@subkernel
def _add_evs(added: Records, evs: LaneRecords) -> None:
    """Add records of another table; the caller has grown the table."""
    for a in range(len(added)):
        theirs = added[a]
        mine = evs.records[find_record(np.int64(theirs.lane), np.int64(theirs.key), evs)]
        if theirs.round_trips:
            if mine.round_trips == 0:
                mine.round_trip_min_ns = theirs.round_trip_min_ns
            mine.round_trip_min_ns = min(mine.round_trip_min_ns, theirs.round_trip_min_ns)
            mine.round_trip_max_ns = max(mine.round_trip_max_ns, theirs.round_trip_max_ns)
        mine.first_ns = min(mine.first_ns, theirs.first_ns)
        mine.last_ns = max(mine.last_ns, theirs.last_ns)
        mine.packets += theirs.packets
        mine.wire_bytes += theirs.wire_bytes
        mine.marked += theirs.marked
        mine.resends += theirs.resends
        mine.lost += theirs.lost
        mine.trimmed += theirs.trimmed
        mine.last_index = max(mine.last_index, theirs.last_index)
        mine.lost_ns = max(mine.lost_ns, theirs.lost_ns)
        mine.sacks += theirs.sacks
        mine.skips += theirs.skips
        mine.always_skips += theirs.always_skips
        mine.nacks += theirs.nacks
        mine.last_always_skip_ns = max(mine.last_always_skip_ns, theirs.last_always_skip_ns)
        mine.round_trips += theirs.round_trips
        mine.round_trip_sum_ns += theirs.round_trip_sum_ns
        mine.tap = theirs.tap
        if theirs.evidence:
            mine.evidence = theirs.evidence


def sent_key(told: int, order: str) -> int:
    """The key (flow label high) of an entropy value in SACKs of this order."""
    if told == OTHER or order == LABEL_HIGH:
        return told
    return (told & 0xFFFF) << 16 | told >> 16
