"""Captured links against predicted links, hop by hop.

The prediction does not know the captures: tables and hashes alone. A hop is checked if a tap is
on its predicted link. A captured link counts in the direction in which the tables lead to the
destination.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...kernels.kernel import Bools, Int32s, Ints
from ...replay.compare.captured import links_of
from ...replay.fabrics.fabric import Fabric
from ...replay.hashing.keys import address_text
from ...replay.traffic.traffic import Traffic
from .paths import TracedPaths, trace_paths
from .results import TapCheck, TapDisagreement

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
