"""CONGA: leaves send flowlets by the least congested path from leaf to leaf.

Every link has a discounting rate estimator: bytes sent, less an eighth per `TAU_PS` / 8, quantised
to 3 bits of the line rate. A packet collects the highest value along its path. The last leaf
stores it per source leaf and first link, and returns one stored value with each packet in the
other direction. At the start of a flowlet a leaf selects the link with the smallest maximum of its
own estimate and the returned value; on ties the previous link, else a random link.

Source: Alizadeh et al., "CONGA", SIGCOMM 2014: Q = 3, tau = 160 us, flowlet gap 500 us. Assumed:
the eighth, the order of returned values (in turn), only data bytes count, from the time the packet
is queued, values do not age, retransmitted packets carry no value.
"""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Ints, inlined
from ..fabrics.fabric import Fabric
from ..packets.model.arrays import fabric_arrays
from ..packets.model.draws import SWITCH_PORT, drawn
from ..packets.model.model import ACK, AGAIN, Workload, message_of, number_of
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from .adaptive import flowlet_entry, flowlet_options, flowlet_tables
from .base import WITHOUT_FLAGS, Configured, state_of
from .shortest_queue import NONE, random_least, scratch_levels

GAP = "500us"
TAU_PS = 160_000_000
_PERIOD_PS = TAU_PS // 8
_LEVELS = 8
_LINKS = 256
"""Maximum of equal-cost links of a leaf: the tag in a packet has 8 bits."""
_VALID = 1 << 22


class Conga(Configured, Strategy):
    """Options: `gap` (500us), `table`, entries per leaf (4096)."""

    name = "conga"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("gap", "table")
        gap, entries, parameters = flowlet_options(self, GAP)
        arrays = fabric_arrays(fabric)
        tiers = np.unique(fabric.nodes.tier[: fabric.switches])
        if fabric.ports > 1 or len(tiers) != 2:
            raise UsageError(
                f"{self.name} is for leaves and spines and hosts with one port; "
                f"{fabric.name} has {len(tiers)} tiers and up to {fabric.ports} ports"
            )
        most = int(np.diff(arrays.group_start).max(initial=1))
        if most > _LINKS:
            raise UsageError(f"{self.name}: a leaf has {most} links, more than {_LINKS}")
        edges = arrays.route.shape[1]
        leaf = np.full(edges, -1, np.int64)
        leaf[arrays.host_edge[arrays.host_edge >= 0]] = arrays.host_switch[arrays.host_edge >= 0, 0]
        ends = (arrays.host_edge[hosts[workload.flow]] for hosts in (workload.src, workload.dst))
        full = fabric.links.rate_bits_per_second // 8 * (TAU_PS // 10**6) // 10**6
        links = np.zeros((len(full), 2), np.int64)
        metrics = np.zeros((edges, edges, most), np.int64)
        state = state_of(
            [seed, gap, entries, edges, most, int(workload.packet_start[-1])],
            workload.flow,
            *ends,
            workload.packet_start,
            workload.packet_bytes,
            leaf,
            np.maximum(1, full),
            links,
            metrics,
            metrics,
            np.zeros((edges, edges), np.int64),
            np.zeros(2 * int(workload.packet_start[-1]), np.int64),
            *flowlet_tables(fabric, entries),
            scratch_levels(fabric),
        )
        return Rules(_choose(), no_label(), state, parameters=parameters, sees_all=True)


SEED, GAP_PS, ENTRIES, EDGES, MOST, PACKETS = range(6)
(
    FLOW,
    SRC_EDGE,
    DST_EDGE,
    FIRST,
    BYTES,
    LEAF,
    FULL,
    SENT,
    TO_LEAF,
    FROM_LEAF,
    NEXT_BACK,
    CARRIED,
    LAST,
    POSITION,
    ROOM,
) = range(6, 21)
"""Positions of tables: flow, edge of source and destination, first packet and bytes of messages;
leaf of edges; of links the bytes in tau at line rate, and (bytes, period) of the estimator;
metrics returned from leaves, metrics to return to them, the next metric to return; values in
packets; flowlets; scratch space for the levels of a group."""


@inlined
def level(state: Ints, link: Int, time: Int, add: Int) -> Int:
    """Congestion of a link, 0 to 7, with `add` more bytes."""
    at, period = state[SENT] + 2 * link, time // np.int64(_PERIOD_PS)
    sent, periods = state[at], min(period - state[at + 1], np.int64(400))
    for _ in range(periods):
        sent -= (sent + 7) >> np.int64(3)
    state[at], state[at + 1] = sent + add, period
    return min(np.int64(_LEVELS - 1), state[at] * _LEVELS // state[state[FULL] + link])


@inlined
def _best(state: Ints, at: Choice, pair: Int, before: Int) -> Int:
    """Position of the least congested link to a leaf; on ties `before` (or NONE), else random."""
    leaf_metrics = state[TO_LEAF] + pair * state[MOST]
    for i in range(at.size):
        congestion = level(state, nth_link(at, i), at.time, np.int64(0))
        state[state[ROOM] + i] = max(congestion, state[leaf_metrics + i])
    what = at.packet & np.int64(WITHOUT_FLAGS)
    return random_least(state, state[ROOM], at.size, state[SEED], what, pair, before)


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    message = message_of(at.packet)
    source = state[state[SRC_EDGE] + message]
    is_ack, is_retransmitted = at.packet & np.int64(ACK), at.packet & np.int64(AGAIN)
    if is_ack:
        source = state[state[DST_EDGE] + message]
    carried = state[CARRIED] + state[state[FIRST] + message] + number_of(at.packet)
    if is_ack:
        carried += state[PACKETS]
    if is_retransmitted:
        carried = state[CARRIED]
    back = at.edge * state[EDGES] + source
    if at.size == 0:  # the last leaf
        if source != at.edge and not is_retransmitted:
            what = state[carried]
            metrics = back * state[MOST]
            state[state[FROM_LEAF] + metrics + (what >> 3 & 255)] = what & 7
            if what & _VALID:
                state[state[TO_LEAF] + metrics + (what >> 11 & 255)] = what >> 19 & 7
        return np.int64(0)
    added = np.int64(0) if is_ack else state[state[BYTES] + message]
    what = at.packet & np.int64(WITHOUT_FLAGS)
    if at.switch != state[state[LEAF] + source]:  # a spine
        position: Int = np.int64(0)
        if at.size > 1:
            position = drawn(state[SEED], SWITCH_PORT, what, at.switch, at.size)
        congestion = level(state, nth_link(at, position), at.time, added)
        if not is_retransmitted:
            state[carried] = state[carried] & ~np.int64(7) | max(state[carried] & 7, congestion)
        return position
    pair = source * state[EDGES] + at.edge
    entry = flowlet_entry(at.packet, state[state[FLOW] + message], at.switch, state[ENTRIES])
    last, taken = state[LAST] + entry, state[POSITION] + entry
    position = state[taken]
    if state[last] < 0 or at.time - state[last] > state[GAP_PS] or position >= at.size:
        before = np.int64(NONE) if state[last] < 0 else position
        position = _best(state, at, pair, before)
        state[taken] = position
    state[last] = at.time
    congestion = level(state, nth_link(at, position), at.time, added)
    if not is_retransmitted:
        tag = state[state[NEXT_BACK] + pair]
        state[state[NEXT_BACK] + pair] = (tag + 1) % state[MOST]
        metric = state[state[FROM_LEAF] + pair * state[MOST] + tag]
        state[carried] = congestion | position << 3 | tag << 11 | metric << 19 | _VALID
    return position
