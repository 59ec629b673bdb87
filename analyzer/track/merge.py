"""Merges the trackers of separately tracked parts of a capture.

Flows with equal source, destination and destination QPN are the same. The later part lacks the
state of the earlier one, so equality with the tracker of the whole has conditions; `merge_trackers`
states them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.kernel import Bools, Int32s, Records, UInt16s, UInt32s
from ..statistics.histogram import observe
from ..wire.packets import PacketTable
from ..wire.psn import PSN_MASK, psn_distance
from . import state as st
from .psn.copies import ids_say_nothing, spread, ways_of
from .tracker import FlowTracker

_FLOW_SUMS = (
    "ids_ascending", "ids_other", "ids_same", "loose_ids_same", "loose_ids_different",
    "packets", "wire_bytes", "payload_bytes",
    "request_packets", "read_requests", "atomic_requests", "response_packets", "ack_packets",
    "tap_copies", "naks", "rnr_naks", "cnps", "ecn_marked", "answers", "mismatches", "nak_codes",
    "rnr_received", "rewinds", "rewound_bytes", "retransmitted_by",
)  # fmt: skip
_STREAM_SUMS = (
    "arrivals", "missing_evicted", "missing_evicted_acked", "new_packets", "reordered",
    "recovered", "retransmitted", "duplicates", "mirror_duplicates", "restarts", "runs",
    "run_packets", "run_packets_squared",
)  # fmt: skip
_START = ("start_psn", "start_id", "start_tap", "start_time", "start_arrival", "start_dense")
_NAMED = ("named", "named_psn", "named_time")
_BELOW = ("below", "below_next", "below_psn", "below_end")
_NOT_COPIED = ("src", "dst", "dest_qp", "pair", "next_in_pair", "peer", "candidate", "recent")
_NEW_SEQUENCE = 1 << 20  # the step of the unwrapped numbers at a restart


def merge_trackers(
    mine: FlowTracker, theirs: FlowTracker, endpoint_map: UInt32s, tap_map: UInt16s
) -> Int32s:
    """Add `theirs`, a later part, to `mine`; its flow i is our flow result[i].

    Equal to the tracker of the whole:

    - always, if the parts have no host pair in common;
    - if the cut is clean: in every stream of both parts, the first packet of the later part is the
      next expected one, no PSN is missing, no READ waits for its first response, no packet or
      answer from before the cut arrives after it, and the later part is in order until it has
      relearned the state of the earlier one (8 identifications, the path MTU if there are READs,
      the other flow of the connection).

    Otherwise counts are plain sums, and at the seam:

    - a PSN missing before it stays missing even if it arrives after it, where it counts as late
      (within 32 PSNs) or retransmitted; PSNs between the parts are not counted;
    - runs, gaps between discontinuities and RFC 5236's windows end there;
    - a duplicate, or a copy at another tap, of a packet before it counts as a packet;
    - answers in the later part before its flows were paired are lost, as at the start of any
      capture; of two different peers neither is kept, unless one of them is known from CM messages
      or from the host.
    """
    flow_map = _flow_map(mine, theirs, endpoint_map)
    if not len(flow_map):
        return flow_map
    ours = mine.flows[flow_map]
    is_new = ours["packets"] + ours["tap_copies"] == 0
    mine.see_taps(int(tap_map.max()) + 1 if len(tap_map) else 0)
    _add_pools(mine, theirs, flow_map, tap_map)
    for flow in range(len(flow_map)):
        into = int(flow_map[flow])
        if is_new[flow]:
            _adopt_flow(mine.state.flows[into], theirs.state.flows[flow])
        else:
            _join_flows(mine.state.flows[into], theirs.state.flows[flow])
        for which in (st.REQUESTS, st.RESPONSES):
            _join_streams(mine, theirs, into, flow, which, tap_map)
        _take_recents(mine, theirs, into, flow, tap_map)
    _join_peers(mine, theirs, flow_map, is_new)
    _join_events(mine, theirs, flow_map, tap_map)
    return flow_map


def index_records(tracker: FlowTracker, flows: Records, src: UInt32s, dst: UInt32s) -> Int32s:
    """The tracker's flows for FLOW records with these addresses, created when new."""
    table = PacketTable.zeros(len(flows))
    table.src[:], table.dst[:], table.dest_qp[:] = src, dst, flows["dest_qp"]
    table.decode_flags[:], table.time_ns[:] = flows["no_ids"], flows["first_time"]
    return tracker.index_flows(table)


def _flow_map(mine: FlowTracker, theirs: FlowTracker, endpoint_map: UInt32s) -> Int32s:
    flows = theirs.flows
    flow_map = index_records(mine, flows, endpoint_map[flows["src"]], endpoint_map[flows["dst"]])
    ours, pairs = mine.state.pairs, theirs.state.pairs
    for flow, into in enumerate(flow_map.tolist()):
        pair = ours[mine.state.flows[into]["pair"]]
        pair["path_mtu"] = max(pair["path_mtu"], pairs[flows[flow]["pair"]]["path_mtu"])
    return flow_map


def _add_pools(mine: FlowTracker, theirs: FlowTracker, flow_map: Int32s, tap_map: UInt16s) -> None:
    mine.histograms.merge(theirs.histograms, flow_map)
    mine.densities.merge(theirs.densities, flow_map)
    mine.add_opcodes(theirs, flow_map)
    taps = tap_map[: len(theirs.copies)].astype(np.int64)
    np.add.at(mine.state.copies, (taps[:, None], taps[None, :]), theirs.copies)
    np.minimum.at(mine.state.began, taps, theirs.state.began[: len(taps)])
    used, other = mine.state.used, theirs.state.used
    for kind in (st.FIRST_WINDOW, st.CANDIDATES_SEEN):
        used[kind] = max(used[kind], other[kind])
    used[st.UNFOLLOWED_TAPS] |= other[st.UNFOLLOWED_TAPS]
    for tap in np.flatnonzero(mine.copies.any(axis=1)).tolist():
        used[st.FOLLOWED_TAPS] |= 1 << min(tap, 62)


def _adopt_flow(flow: Any, other: Any) -> None:
    """Copy a flow that only the later part has; peers and pools follow later."""
    for name in st.FLOW.names or ():
        if name not in _NOT_COPIED:
            flow[name] = other[name]


def _join_flows(flow: Any, other: Any) -> None:
    for name in _FLOW_SUMS:
        flow[name] += other[name]
    if not flow["has_transport"]:
        flow["has_transport"], flow["transport"] = other["has_transport"], other["transport"]
    flow["udp_sport"] = other["udp_sport"]
    flow["path_mtu"] = max(flow["path_mtu"], other["path_mtu"])
    flow["first_time"] = min(flow["first_time"], other["first_time"])
    flow["last_time"] = max(flow["last_time"], other["last_time"])
    if other["id_started"]:
        flow["id_started"], flow["last_id"] = 1, other["last_id"]
    if other["recent"] >= 0:
        flow["loose_id"], flow["loose_psn"] = other["loose_id"], other["loose_psn"]
    if other["asked_count"]:
        flow["asked_psn"], flow["asked_count"] = other["asked_psn"], other["asked_count"]
    if other["acked"]:
        flow["acked"], flow["ack_psn"] = 1, other["ack_psn"]
    if other["nak_kind"].any():
        for name in ("nak_next", "nak_kind", "nak_psn", "nak_time"):
            flow[name] = other[name]
    if other["request_packets"]:
        for name in ("in_rewind", "rewind_trigger", "rewind_next", "last_request_time"):
            flow[name] = other[name]
    flow["pairing_tries"] = min(int(flow["pairing_tries"]) + int(other["pairing_tries"]), 0xFFFF)


def _join_streams(
    mine: FlowTracker, theirs: FlowTracker, into: int, flow: int, which: int, tap_map: UInt16s
) -> None:
    stream, other = mine.stream(into, which), theirs.stream(flow, which).copy()
    if not other["started"]:
        return
    size = 1 << int(other["window_bits"])
    window = theirs.state.slots[other["window"] : other["window"] + size]
    window = _with_skipped(other, window)
    _rename_taps(window, tap_map)
    late = theirs.state.lates[other["late"] - 1].copy() if other["late"] else None
    if len(tap_map):
        other["start_tap"] = tap_map[other["start_tap"]]
    if stream["started"]:
        if not other["forgets"]:
            other["forgets"], other["held_from"] = 1, other["first"]
        clean = not stream["missing"] and not stream["read_pending"]
        clean = clean and psn_distance(int(other["first"]), int(stream["next"])) == 0
        _move_numbers(other, window, late, stream, clean)
        if clean and not other["restarts"]:
            for name in _START:
                other[name] = stream[name]
        _join_below(stream, other, clean)
        _join_runs(mine, into, stream, other, clean)
        if not clean:
            missing, acknowledged = mine.missing(into, which)
            stream["missing_evicted"], stream["missing_evicted_acked"] = missing, acknowledged
        for name in _STREAM_SUMS:
            other[name] += stream[name]
        for name in ("max_extent", "max_n"):
            other[name] = max(other[name], stream[name])
        other["first"] = stream["first"]
    room, start = int(stream["room_bits"]), int(stream["window"])
    if room < other["window_bits"]:
        room, start = int(other["window_bits"]), mine.reserve_slots(len(window))
    mine.state.slots[start : start + len(window)] = window
    other["window"], other["room_bits"] = start, room
    if late is not None:
        late["n_counts"] += mine.n_counts(into, which)
        kept = mine.late_of(into, which)
        for name in late.dtype.names:
            kept[name] = late[name]
    other["late"] = mine.stream(into, which)["late"]
    mine.state.streams[2 * into + which] = other


def _join_below(stream: Any, other: Any, clean: bool) -> None:
    """Join what is known about PSNs below the start of the sequence.

    From the later part, only PSNs below the start of the earlier one. Without a clean cut nothing
    is known: the sequence begins at the seam.
    """
    if other["restarts"]:
        return
    below_both = psn_distance(int(other["named_psn"]), int(stream["first"])) < 0
    known = _BELOW if other["named"] and below_both else _NAMED + _BELOW
    for name in known if clean else _NAMED + _BELOW:
        other[name] = stream[name] if clean else 0


def _with_skipped(stream: Any, window: Any) -> Any:
    """A copy of the window with slots for the PSNs that the first packet skipped.

    The joined stream may begin with another packet.
    """
    if not stream["skips"]:
        return window.copy()
    before = np.flatnonzero(int(stream["skips"]) >> np.arange(st.SKIPPED_KEPT) & 1) + 1
    skipped = np.zeros(len(before), st.SLOT)
    skipped["psn"] = (int(stream["start_psn"]) - before) & PSN_MASK
    skipped["state"] = st.SKIPPED
    skipped["sent_id"], skipped["time"] = stream["start_id"], stream["start_time"]
    skipped["arrival"] = stream["start_arrival"]
    skipped["dense"] = int(stream["start_dense"]) - before
    slots = np.concatenate([window[window["state"] != st.EMPTY], skipped])
    size = max(len(window), 2 * st.SKIPPED_KEPT)
    while len(np.unique(slots["psn"] % size)) < len(slots):
        size *= 2
    wider = np.zeros(size, st.SLOT)
    wider[slots["psn"] % size] = slots
    stream["skips"], stream["window_bits"] = 0, size.bit_length() - 1
    return wider


def _rename_taps(records: Any, tap_map: UInt16s) -> None:
    """Taps and sets of taps of slots or recent packets (bit 63 is shared by all from 63 on)."""
    if np.array_equal(tap_map, np.arange(len(tap_map))):
        return
    before = records["taps"].copy()
    records["taps"] = 0
    for tap, name in enumerate(tap_map.tolist()):
        held = (before >> np.uint64(min(tap, 63))) & np.uint64(1)
        records["taps"] |= held << np.uint64(min(name, 63))
    records["tap"] = tap_map[records["tap"]]


def _move_numbers(other: Any, window: Any, late: Any, stream: Any, clean: bool) -> None:
    """Arrival indices and unwrapped numbers of the later part continue those of the earlier one."""
    arrivals = int(stream["arrivals"])
    dense = int(stream["next_dense"]) - st.SKIPPED_KEPT + (0 if clean else _NEW_SEQUENCE)
    window["arrival"] += arrivals
    window["dense"] += dense
    other["next_dense"] += dense
    other["start_arrival"] += arrivals
    other["start_dense"] += dense
    if late is not None:
        late["late_arrival"] += arrivals
        late["late_dense"] += dense
    if other["floor_arrival"] >= 0:
        other["floor_arrival"] += arrivals
        other["floor_dense"] += dense
    for name in ("first_gap_arrival", "last_gap_arrival"):
        other[name] += arrivals


def _join_runs(mine: FlowTracker, into: int, stream: Any, other: Any, clean: bool) -> None:
    """Runs (RFC 4737 4.6) and gaps between discontinuities (4.5) across the seam."""
    first = int(other["first_run"])
    if not other["reordered"]:
        other["last_gap_arrival"] = stream["last_gap_arrival"]
        other["last_gap_time"] = stream["last_gap_time"]
        if clean:
            other["run"] += stream["run"]
    elif clean:
        run = int(stream["run"]) + first
        other["run_packets"] += run - first
        other["run_packets_squared"] += run * run - first * first
        other["first_run"] = run
        if stream["reordered"]:
            gap = int(other["first_gap_arrival"] - stream["last_gap_arrival"])
            observe(mine.histograms.arrays, into, st.GAP_PACKETS, gap)
            gap = int(other["first_gap_time"]) - int(stream["last_gap_time"])
            observe(mine.histograms.arrays, into, st.GAP_TIME, gap)
    if stream["reordered"]:
        for name in ("first_gap_arrival", "first_gap_time", "first_run"):
            other[name] = stream[name]


def _take_recents(
    mine: FlowTracker, theirs: FlowTracker, into: int, flow: int, tap_map: UInt16s
) -> None:
    """The latest packets without PSN order are those of the later part."""
    start = int(theirs.state.flows[flow]["recent"])
    if start < 0:
        return
    bits = int(theirs.state.flows[flow]["recent_bits"])
    recents = _of_first_size(theirs, mine, flow)
    _rename_taps(recents, tap_map)
    record, bits = mine.state.flows[into], max(bits, st.FIRST_RECENT_BITS)
    if record["recent"] >= 0 and record["recent_bits"] < st.FIRST_RECENT_BITS:
        known = _of_first_size(mine, mine, into)
        at = mine.reserve_recents(len(known))
        record = mine.state.flows[into]
        mine.state.recents[at : at + len(known)] = known
        record["recent"], record["recent_bits"] = at, st.FIRST_RECENT_BITS
    taken = np.ones(len(recents), bool)
    if record["recent"] >= 0 and record["recent_bits"] == bits:
        taken = recents["used"] > 0
    else:
        at = mine.reserve_recents(len(recents))
        record = mine.state.flows[into]
        record["recent"], record["recent_bits"] = at, bits
    at = int(record["recent"])
    mine.state.recents[at : at + len(recents)][taken] = recents[taken]


def _of_first_size(tracker: FlowTracker, whole: FlowTracker, flow: int) -> Records:
    """A copy of a flow's recent packets, of at least `FIRST_RECENT_BITS`.

    whole: the tracker that knows all taps.
    """
    record = tracker.state.flows[flow]
    start, bits = int(record["recent"]), int(record["recent_bits"])
    recents = tracker.state.recents[start : start + (1 << bits)].copy()
    if bits >= st.FIRST_RECENT_BITS:
        return recents
    table = np.zeros(1 << st.FIRST_RECENT_BITS, st.RECENT)
    spread(recents, table, st.FIRST_RECENT_BITS, ids_say_nothing(record), ways_of(whole.state))
    return table


def _join_peers(mine: FlowTracker, theirs: FlowTracker, flow_map: Int32s, is_new: Bools) -> None:
    flows, others = mine.state.flows, theirs.state.flows
    for flow, into in enumerate(flow_map.tolist()):
        if is_new[flow]:
            candidate = int(others[flow]["candidate"])
            flows[into]["peer"] = -1
            flows[into]["candidate"] = flow_map[candidate] if candidate >= 0 else -1
    exact = st.EVIDENCE_CM | st.EVIDENCE_HOST_PROBE
    for flow, into in enumerate(flow_map.tolist()):
        peer = int(others[flow]["peer"])
        if peer < flow:  # none, or already handled from the other side
            continue
        wanted, evidence = int(flow_map[peer]), int(others[flow]["evidence"])
        sides = ((into, flow, wanted), (wanted, peer, into))
        if all(flows[one]["peer"] in (-1, partner) for one, _, partner in sides):
            for one, source, partner in sides:
                flows[one]["peer"] = partner
                flows[one]["evidence"] |= others[source]["evidence"]
        elif evidence & exact:
            mine.pair(into, wanted, evidence)
        else:
            for one, _, _ in sides:
                _release(flows, one, exact)


def _release(flows: Any, flow: int, exact: int) -> None:
    """Dissolve a connection that another part contradicts, unless its evidence is exact."""
    peer = int(flows[flow]["peer"])
    if peer < 0 or flows[flow]["evidence"] & exact:
        return
    for one in (flow, peer):
        flows[one]["peer"] = -1
        flows[one]["evidence"] = 0


def _join_events(
    mine: FlowTracker, theirs: FlowTracker, flow_map: Int32s, tap_map: UInt16s
) -> None:
    used, other = mine.state.used, theirs.state.used
    ours = mine.state.events[: int(used[st.USED_EVENTS])]
    more = theirs.state.events[: int(other[st.USED_EVENTS])].copy()
    more["flow"] = flow_map[more["flow"]]
    more["tap"] = tap_map[more["tap"]]
    events = np.concatenate([ours, more])
    events = events[np.argsort(events["time"], kind="stable")]
    kept = min(len(events), st.MAX_EVENTS)
    mine.state.events[:kept] = events[:kept]
    used[st.USED_EVENTS] = kept
    used[st.OMITTED_EVENTS] += other[st.OMITTED_EVENTS] + len(events) - kept
