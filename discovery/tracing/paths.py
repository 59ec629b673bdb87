"""Paths of units with evidence per hop, by one vectorised walk over the tables of all switches.

A path ends where the next hop is not known: a group of links is no path. The evidence of a hop,
best first: a tap saw the packets on the link; the switch has a single next hop; the switch was
asked and named it; the hash of the switch was computed with a seed that was read, or recovered
from the choices of the switch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Bools, Int32s, Ints, UInt16s
from ...replay.compare.captured import links_of
from ...replay.fabrics.fabric import Fabric
from ...replay.fabrics.switch_hashing import hash_known
from ...replay.flows.loads import Placement, Start
from ...replay.flows.placement import Walk, walk
from ...replay.hashing.settings import HashSettings
from ...replay.strategies.base import Outcome
from ...replay.traffic.traffic import Traffic
from .asking import ELSEWHERE, NO_ANSWER, Asking

NONE, CAPTURED, SINGLE, ASKED, COMPUTED, RECOVERED = range(6)
"""Evidence of a hop."""
EVIDENCE = (
    "",
    "captured",
    "single next hop",
    "asked",
    "computed, seed read",
    "computed, seed recovered",
)
(
    KNOWN,
    SEVERAL_PORTS,
    NO_TABLES,
    NO_HASH,
    SEVERAL_LINKS,
    NOT_SEEN,
    IPV4_ONLY,
    NO_ROUTE,
    NAMED_ANOTHER,
    CIRCLE,
) = range(10)
"""Why a path ends before its destination; KNOWN: it does not."""
REASONS = (
    "",
    "the host has several ports",
    "the tables of the switch were not read",
    "the hash or the seed of the switch is not known",
    "packets were captured on several links",
    "the packets were not captured on the computed link",
    "the switch hashes IPv6 differently, or its IPv6 routes are not known",
    "no route",
    "the switch names a next hop that its tables did not contain",
    "the tables form a loop",
)


class TracedPaths(NamedTuple):
    """Equally long columns, one row per unit."""

    placement: Placement
    """Links hop by hop, up to the end of what is known; dropped: not known to the destination."""
    evidence: NDArray[np.int8]
    """int8[units, hops]"""
    reason: NDArray[np.int8]
    """Why the path ends early."""
    switch: Int32s
    """The switch at which it ends early, -1 otherwise."""
    contradicted: Bools
    """A captured hop differs from the computed one."""


def complete(traffic: Traffic, paths: TracedPaths) -> Outcome | None:
    """The flows whose path is known to the destination; None without any."""
    known = ~paths.placement.dropped
    if not known.any():
        return None
    placed = replace(traffic, windows=None, messages=None, seen=None).take(known)
    placement = Placement(paths.placement.links[known], paths.placement.dropped[known])
    return Outcome(placed, placement, {})


def trace_paths(traffic: Traffic, fabric: Fabric, asking: Asking | None = None) -> TracedPaths:
    """The paths of units whose hosts are on the fabric.

    Every switch hashes with its own settings of the fabric; the packets of `traffic.seen` are
    evidence on links whose name a tap has. asking: asks switches where it can.
    """
    settings = [setting or HashSettings() for setting in fabric.hash_settings]
    known = np.array([hash_known(setting) for setting in fabric.hash_settings], np.bool_)
    recovered = np.array([setting.seed_recovered for setting in settings], np.bool_)
    tables = fabric.origin.tables if fabric.origin is not None else ("declared",) * fabric.switches
    read = np.array([bool(table) for table in tables], np.bool_)
    four = np.zeros(fabric.switches, np.bool_)
    if fabric.origin is not None and fabric.origin.ipv4_only:
        four[:] = fabric.origin.ipv4_only
    n = len(traffic)
    if asking is not None:
        asking.begin(traffic, fabric)
    ports = fabric.usable_ports(traffic.src_host, traffic.dst_host, traffic.keys.ipv6)
    several = ports.sum(1) > 1
    walked = Walk(traffic, fabric, settings)
    start = Start(*(np.where(several, -1, column).astype(np.int32) for column in walked.start))
    computed = walked.chooser(np.array([[setting.seed for setting in settings]], np.uint64))
    seen = _Seen(traffic, fabric)
    sizes = np.append(np.diff(fabric.forwarding.group_start), 0)  # the last serves group -1
    columns: list[Int32s] = []
    marks: list[NDArray[np.int8]] = []
    reason = np.where(several, SEVERAL_PORTS, KNOWN).astype(np.int8)
    ended = np.full(n, -1, np.int32)
    contradicted = np.zeros(n, np.bool_)
    mark = np.full(n, SINGLE, np.int8)

    def choose(node: Int32s, came_by: Int32s, group: Int32s, member: UInt16s) -> None:
        computed(node, came_by, group, member)
        rows = np.flatnonzero((group[0] >= 0) & (sizes[group[0]] > 1))
        at, groups = node[0, rows], group[0, rows]
        hits, first, covered = seen.members(rows, groups)
        hashed = member[0, rows].astype(np.int64)
        trusted = known[at] & read[at]
        captured = hits == 1
        answers = np.full(len(rows), NO_ANSWER, np.int64)
        if asking is not None and len(rows):
            same = trusted & ~(traffic.keys.ipv6[rows] & four[at])
            answers = asking.members(rows, at, came_by[0, rows], groups, hashed, same)
        asked = answers >= 0
        best = np.where(asked, answers, hashed)
        contradicted[rows] |= captured & (trusted | asked) & (first != best)
        missed = (hits == 0) & (trusted | asked) & covered(best)
        why = np.select(
            [hits > 1, captured, answers == ELSEWHERE, missed, asked, ~read[at], ~trusted],
            [SEVERAL_LINKS, KNOWN, NAMED_ANOTHER, NOT_SEEN, KNOWN, NO_TABLES, NO_HASH],
            KNOWN,
        )
        member[0, rows] = np.where(captured, first, best)
        by_seed = np.where(recovered[at], RECOVERED, COMPUTED)
        mark[rows] = np.where(captured, CAPTURED, np.where(asked, ASKED, by_seed))
        open_ = why != KNOWN
        reason[rows[open_]], ended[rows[open_]] = why[open_], at[open_]
        group[0, rows[open_]] = -1

    def visit(hop: int, link: Int32s) -> None:
        columns.append(link[0].copy())
        marks.append(np.where(link[0] >= 0, mark, NONE).astype(np.int8))
        mark[:] = SINGLE

    walk(traffic, fabric, start, 1, choose, visit)
    links, evidence = np.stack(columns, axis=1), np.stack(marks, axis=1)
    source = np.where(links >= 0, fabric.links.source[links], -1)
    source[source >= fabric.switches] = -1
    exits = fabric.links.target[links] >= fabric.switches
    passed = seen.on(links)
    shown = passed | (evidence == ASKED)
    # Next hops of switches whose tables were not read are assumed, unless something shows them.
    unread = np.append(~read, False)[source] & ~shown
    other_family = traffic.keys.ipv6[:, None] & np.append(four, False)[source] & ~shown
    elsewhere = seen.elsewhere(links, source)
    contradicted |= (elsewhere & ~passed & ~unread & ~other_family).any(1)
    for wrong, why in (
        (unread, NO_TABLES),
        (other_family & ~exits, IPV4_ONLY),
        (elsewhere, SEVERAL_LINKS),
        (seen.covers(links) & ~passed, NOT_SEEN),
    ):
        cut = np.logical_or.accumulate(wrong & (links >= 0), axis=1)
        rows = np.flatnonzero(cut.any(1))
        reason[rows] = why
        ended[rows] = source[rows, cut[rows].argmax(1)]
        links[cut], evidence[cut] = -1, NONE
    evidence[(links >= 0) & seen.on(links)] = CAPTURED
    end = _last(links, fabric)
    dropped = end != traffic.dst_host + fabric.switches
    lost = dropped & (reason == KNOWN)
    circle_hop = _first_again(links, fabric)
    circle = lost & (circle_hop < links.shape[1])
    behind = np.arange(links.shape[1]) > circle_hop[:, None]
    links[circle[:, None] & behind], evidence[circle[:, None] & behind] = -1, NONE
    end[circle] = _last(links, fabric)[circle]
    ended[lost] = np.where(end[lost] < fabric.switches, end[lost], -1)
    entered = fabric.attachments.switch[traffic.src_host]
    at_first = lost & (end < 0) & ((entered >= 0).sum(1) == 1)
    ended[at_first] = entered[at_first].max(1)
    reason[lost] = np.where(np.append(~read, False)[ended[lost]], NO_TABLES, NO_ROUTE)
    reason[circle] = CIRCLE
    return TracedPaths(Placement(links, dropped), evidence, reason, ended, contradicted)


def _last(links: Int32s, fabric: Fabric) -> Int32s:
    """int32[units]: the node after the last link, -1 without a link."""
    at = np.maximum((links >= 0).sum(1) - 1, 0)
    last = np.take_along_axis(links, at[:, None], 1)[:, 0]
    return np.where(last >= 0, fabric.links.target[last], -1).astype(np.int32)


def _first_again(links: Int32s, fabric: Fabric) -> Ints:
    """int64[units]: the first hop that leads to a switch for the second time, else all hops."""
    hops = links.shape[1]
    node = np.where(links >= 0, fabric.links.target[links], -1)
    circle_hop = np.full(len(links), hops, np.int64)
    for hop in range(hops - 1, 0, -1):
        back = (node[:, :hop] == node[:, hop : hop + 1]).any(1) & (node[:, hop] >= 0)
        circle_hop[back] = hop
    return circle_hop


class _Seen:
    """The links on which taps saw each unit."""

    def __init__(self, traffic: Traffic, fabric: Fabric) -> None:
        self._forwarding = fabric.forwarding
        self._links = len(fabric.links.source)
        self._source = fabric.links.source
        self._covered = np.zeros(self._links + 1, np.bool_)
        self._keys: Ints = np.zeros(0, np.int64)
        seen = traffic.seen
        if seen is not None:
            of_tap = links_of(seen.taps, fabric)
            both = np.array([not tap.endswith((" in", " out")) for tap in seen.taps], np.bool_)
            self._covered[of_tap[(of_tap >= 0) & both[:, None]]] = True
            link = of_tap[seen.tap]
            keys = seen.unit.astype(np.int64)[:, None] * self._links + link
            self._keys = np.unique(keys[link >= 0])

    def on(self, links: Int32s) -> Bools:
        """bool[units, hops]: whether a tap saw the unit of each row on its link."""
        unit = np.arange(len(links), dtype=np.int64)[:, None]
        return self._has(unit * self._links + links)

    def covers(self, links: Int32s) -> Bools:
        """bool[units, hops]: whether a tap sees both directions of the link."""
        covered: Bools = self._covered[links]  # the last item serves -1
        return covered

    def elsewhere(self, links: Int32s, source: Int32s) -> Bools:
        """bool[units, hops]: whether a tap saw the unit also on another link from its switch.

        source: the switch of each hop, -1 for none. A tap captures both directions: the
        reverse of the link before does not count.
        """
        seen = np.zeros(links.shape, np.bool_)
        if not len(self._keys):
            return seen
        nodes = int(self._source.max()) + 1
        unit, link = np.divmod(self._keys, self._links)
        leaving = np.sort(unit * nodes + self._source[link])
        on, back = self.on(links), self.on(links ^ 1)
        for hop in range(1, links.shape[1]):
            wanted = np.arange(len(links), dtype=np.int64) * nodes + source[:, hop]
            begin, end = (np.searchsorted(leaving, wanted, side) for side in ("left", "right"))
            on_path = (on[:, hop]).astype(np.int64) + back[:, hop - 1]
            seen[:, hop] = (source[:, hop] >= 0) & (end - begin > on_path)
        return seen

    def _has(self, keys: Ints) -> Bools:
        if not len(self._keys):
            return np.zeros(keys.shape, np.bool_)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        held: Bools = self._keys[at] == keys
        return held

    def members(self, rows: Ints, groups: Int32s) -> tuple[Ints, Ints, _Covered]:
        """(number of members on which each unit was seen, the first of them, where taps are)."""
        begin = self._forwarding.group_start[groups]
        size = self._forwarding.group_start[groups + 1] - begin
        hits, first = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        if len(self._keys):
            for i in range(int(size.max(initial=0)) - 1, -1, -1):
                inside = i < size
                link = self._forwarding.group_links[np.where(inside, begin + i, 0)]
                seen = inside & self._has(rows.astype(np.int64) * self._links + link)
                hits += seen
                first[seen] = i
        return hits, first, _Covered(self._covered, self._forwarding.group_links, begin)


class _Covered(NamedTuple):
    covered: Bools
    group_links: Int32s
    begin: Ints

    def __call__(self, member: Ints) -> Bools:
        covered: Bools = self.covered[self.group_links[self.begin + member]]
        return covered
