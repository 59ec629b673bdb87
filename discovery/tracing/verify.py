"""Traced paths against reality: captures of links, counters of ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...kernels.kernel import Bools, Floats, Int32s, Ints, kernel
from ...replay.compare.captured import links_of
from ...replay.fabrics.fabric import Fabric
from ...replay.flows.shares import even_loads
from ...replay.hashing.keys import address_text
from ...replay.traffic.traffic import Traffic
from ..port_counters import Port, Reading
from .paths import TracedPaths, trace_paths
from .results import CounterCheck, PortDisagreement, TapCheck, TapDisagreement

# The growth of port counters against the bytes that the traced paths put on every link.
#
# Counters also contain routing protocols, LLDP and neighbour discovery: what all ports have in
# excess, their median, is this background. A port disagrees if its excess leaves the background by
# more than the spread of all ports explains, or if it grew by less than the prediction: no
# background makes a counter smaller. Where background and spread could hide a flow, agreement says
# nothing: such a link is not checked.

_SPREADS = 9.0
"""Median deviations from the median: 6 standard deviations of a normal distribution."""
_SHARE = 0.02
_LEAST_BYTES = 2000
"""A few frames of neighbour discovery on one port."""


def verify_counters(
    traffic: Traffic, fabric: Fabric, paths: TracedPaths, grown: Reading
) -> CounterCheck:
    """Compare the growth of counters with the prediction.

    A link is checked if one of its ports was read, no path that may use it is open, and other
    traffic is too small to hide a flow. Disagreement counts as checked in any case.
    """
    links = len(fabric.links.source)
    predicted, largest = np.zeros(links, np.int64), np.zeros(links, np.int64)
    _add(paths.placement.links, traffic.wire_bytes, predicted, largest)
    open_ = np.zeros(links, np.bool_)
    if paths.placement.dropped.any():
        rest = replace(traffic, windows=None, messages=None, seen=None)
        rest = rest.take(paths.placement.dropped)
        open_ = even_loads(rest, fabric, np.ones(len(rest), np.int64)) > 0
    ports = [_port(fabric, link, grown) for link in range(links)]
    checked = np.array([port is not None for port in ports], np.bool_) & ~open_
    measured = np.array([0 if port is None else port[1] for port in ports], np.int64)
    rows = np.flatnonzero(checked)
    # A flow that moves to a link without one may be any.
    flow = np.where(largest > 0, largest, traffic.wire_bytes.max(initial=0))[rows]
    own_slack = _SHARE * predicted[rows]
    excess = measured[rows] - predicted[rows]
    background = max(0.0, float(np.median(excess))) if len(rows) else 0.0
    spread = _SPREADS * float(np.median(np.abs(excess - background))) if len(rows) else 0.0
    slack = _LEAST_BYTES + own_slack + spread
    wrong = (np.abs(excess - background) > slack) | (-excess > _LEAST_BYTES + own_slack)
    hidden = _LEAST_BYTES + background + spread > np.maximum(flow, own_slack)
    decided = wrong | ~hidden
    vague = np.zeros(links, np.bool_)
    vague[rows[~decided]] = True
    return CounterCheck(
        links_checked=int(np.count_nonzero(decided)),
        links_agreeing=int(np.count_nonzero(decided & ~wrong)),
        links_not_checked=[
            fabric.link_name(int(link))
            for link in np.flatnonzero((~checked & ((predicted > 0) | open_)) | vague)
        ],
        background_bytes=int(background),
        flows_too_small=_too_small(paths, traffic, rows[~hidden], slack[~hidden]),
        disagreements=[
            PortDisagreement(
                link=fabric.link_name(link),
                device=port[0].device,
                port=port[0].name,
                predicted_bytes=int(predicted[link]),
                measured_bytes=int(measured[link]),
            )
            for link in rows[wrong].tolist()
            if (port := ports[link]) is not None
        ],
    )


def _too_small(paths: TracedPaths, traffic: Traffic, rows: Ints, slack: Floats) -> int:
    """Units that no checked link of their path would show if they took another one."""
    most = np.full(int(paths.placement.links.max(initial=-1)) + 2, np.inf)
    inside = rows < len(most) - 1
    most[rows[inside]] = slack[inside]
    visible = (traffic.wire_bytes[:, None] > most[paths.placement.links]).any(1)
    return int(np.count_nonzero(~visible))


def _port(fabric: Fabric, link: int, grown: Reading) -> tuple[Port, int] | None:
    """The port that measured a link, and its bytes: the sender's, else the receiver's."""
    if fabric.origin is None or link // 2 >= len(fabric.origin.ports):
        return None
    ports = fabric.origin.ports[link // 2]
    near, far = ports if link % 2 == 0 else ports[::-1]
    names = fabric.nodes.names
    sender = Port(names[int(fabric.links.source[link])], near)
    if sender in grown:
        return sender, grown[sender].sent
    receiver = Port(names[int(fabric.links.target[link])], far)
    return (receiver, grown[receiver].received) if receiver in grown else None


@kernel
def _add(links: Int32s, unit_bytes: Ints, loads: Ints, largest: Ints) -> None:
    """The bytes of all units on every link, and those of the largest unit."""
    for unit in range(links.shape[0]):
        for hop in range(links.shape[1]):
            link = links[unit, hop]
            if 0 <= link < len(loads):
                loads[link] += unit_bytes[unit]
                largest[link] = max(largest[link], unit_bytes[unit])


# Captured links against predicted links, hop by hop.
#
# The prediction does not know the captures: tables and hashes alone. A hop is checked if a tap is
# on its predicted link. A captured link counts in the direction in which the tables lead to the
# destination.

LISTED = 1000
"""Most disagreements in a result."""


def verify_taps(traffic: Traffic, fabric: Fabric) -> TapCheck:
    """Compare the prediction with what the taps of `traffic.seen` captured.

    Nothing is checked without `traffic.seen`. Units need hosts of the fabric.
    """
    paths = trace_paths(replace(traffic, seen=None), fabric)
    taps = _Taps(traffic, fabric)
    links = paths.placement.links
    rows, hops = np.nonzero(links >= 0)
    predicted = links[rows, hops]
    seen_here = taps.saw(rows, predicted)
    checked = taps.covered[predicted] | seen_here
    disagree = _disagreements(traffic, fabric, paths, taps)
    unchecked = np.unique(predicted[~checked])
    return TapCheck(
        hops_checked=int(np.count_nonzero(checked)),
        hops_agreeing=int(np.count_nonzero(seen_here)),
        hops_not_checked=int(np.count_nonzero(~checked)),
        links_not_checked=[fabric.link_name(int(link)) for link in unchecked],
        taps_not_used=[tap for tap, known in zip(taps.names, taps.known, strict=True) if not known],
        disagreeing_flows=len(disagree),
        disagreements=disagree[:LISTED],
    )


class _Taps:
    """What the taps saw, as sorted (unit, link) in the direction of the unit."""

    def __init__(self, traffic: Traffic, fabric: Fabric) -> None:
        self._links = len(fabric.links.source)
        self.covered = np.zeros(self._links, np.bool_)
        self.names: tuple[str, ...] = ()
        self.known: Bools = np.zeros(0, np.bool_)
        self.unit: Ints = np.zeros(0, np.int64)
        self.link: Ints = np.zeros(0, np.int64)
        seen = traffic.seen
        if seen is not None:
            of_tap = links_of(seen.taps, fabric)
            both = np.array([not tap.endswith((" in", " out")) for tap in seen.taps], np.bool_)
            self.names, self.known = seen.taps, of_tap.max(1) >= 0
            self.covered[of_tap[(of_tap >= 0) & both[:, None]]] = True
            link = of_tap[seen.tap]
            unit = np.broadcast_to(seen.unit.astype(np.int64)[:, None], link.shape)
            forward = (link >= 0) & leads_to(
                link,
                traffic.src_host[unit],
                traffic.dst_host[unit],
                fabric,
                traffic.keys.ipv6[unit],
            )
            key = np.unique(unit[forward] * self._links + link[forward])
            self.unit, self.link = np.divmod(key, self._links)
        self._keys = self.unit * self._links + self.link

    def saw(self, unit: Ints, link: Int32s) -> Bools:
        """bool[n]: whether a tap saw the unit on the link."""
        seen: Bools = np.isin(unit * self._links + link, self._keys)
        return seen


def leads_to(link: Ints, source_host: Int32s, host: Int32s, fabric: Fabric, ipv6: Bools) -> Bools:
    """bool, shape of `link`: whether a packet may pass each link in its direction on its way.

    Links to other hosts count too: a switch that floods sends there.
    """
    source, target = fabric.links.source[link], fabric.links.target[link]
    switches, n = fabric.switches, np.int64(len(fabric.links.source))
    from_host = source == source_host + switches
    to_host = (target >= switches) & (target != source_host + switches)
    edge = fabric.edge_of(host, ipv6)
    at = np.where(source < switches, source, 0)
    group = np.where(edge >= 0, fabric.forwarding.group_of[at, edge], -1)
    sizes = np.diff(fabric.forwarding.group_start)
    members = np.repeat(np.arange(len(sizes)), sizes) * n + fabric.forwarding.group_links
    between = (source < switches) & (target < switches) & (group >= 0)
    between &= np.isin(group * n + link, members)
    possible: Bools = from_host | to_host | between
    return possible


def _disagreements(
    traffic: Traffic, fabric: Fabric, paths: TracedPaths, taps: _Taps
) -> list[TapDisagreement]:
    """The first hop of every unit that was captured elsewhere, or not where a tap is.

    Later hops follow from it.
    """
    links = paths.placement.links
    rows, hops = np.nonzero(links >= 0)
    predicted = links[rows, hops]
    first: dict[int, tuple[int, list[int]]] = {}

    def note(unit: int, hop: int, captured: list[int]) -> None:
        known = first.get(unit)
        if known is None or hop < known[0]:
            first[unit] = hop, captured
        elif hop == known[0]:
            known[1].extend(captured)

    missing = taps.covered[predicted] & ~taps.saw(rows, predicted)
    for unit, hop in zip(rows[missing].tolist(), hops[missing].tolist(), strict=True):
        note(unit, hop, [])
    stray = ~(links[taps.unit] == taps.link[:, None]).any(1)
    for unit, link in zip(taps.unit[stray].tolist(), taps.link[stray].tolist(), strict=True):
        hop = _hop_of(links[unit], link, fabric)
        if hop is not None:
            note(unit, hop, [link])
    keys = traffic.keys
    return [
        TapDisagreement(
            flow=int(traffic.flow[unit]),
            src=address_text(keys.src[unit]),
            dst=address_text(keys.dst[unit]),
            src_port=int(keys.sport[unit]),
            dest_qp=int(keys.dest_qp[unit]),
            predicted=fabric.link_name(int(links[unit, hop])),
            captured=[fabric.link_name(link) for link in sorted(captured)],
        )
        for unit, (hop, captured) in sorted(first.items())
    ]


def _hop_of(path: Int32s, link: int, fabric: Fabric) -> int | None:
    """The hop of a path that a captured link contradicts.

    It leaves the same node, or else enters the same node; None where the prediction does not go.
    """
    for ends in (fabric.links.source, fabric.links.target):
        same = np.flatnonzero((path >= 0) & (ends[path] == ends[link]))
        if len(same):
            return int(same[0])
    return None
