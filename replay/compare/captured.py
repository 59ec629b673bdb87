"""The row "as captured" of a comparison: the loads that the captured links really carried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from ...analyzer.measures.hops.vantage import parts_of, short_names
from ...kernels.kernel import Int32s, Ints
from ..fabrics.fabric import Fabric
from ..flows.loads import Placement
from ..flows.spread import even_loads
from ..results.replay import AS_CAPTURED, StrategyResult
from ..strategies.placed import Outcome
from ..traffic.traffic import Seen, Traffic
from .flows import result_of
from .summaries import SHORT, Listed, mapped

_NUMBERED = re.compile(r"#([1-9][0-9]{0,4})\b")
_MOST_PAIRS = 4096
"""Pairs of hosts; the direction on a link is found for each."""


def as_captured(traffic: Traffic, fabric: Fabric, listed: Listed = SHORT) -> StrategyResult | None:
    """Loads of captured links; None unless all links from or to one switch were captured.

    A tap is the capture of a link if its name has the names of both ends: `leaf1-spine2`.
    """
    inside, _ = mapped(traffic, fabric)
    seen = inside.seen
    if seen is None or not len(seen.unit):
        return None
    links = links_of(seen.taps, fabric)
    link = _directed(inside, seen, links, fabric)
    rows = np.flatnonzero(link >= 0)
    covered = np.zeros(len(fabric.links.source), np.bool_)
    covered[links[links >= 0]] = True
    if not len(rows):
        return None
    bare = replace(inside, windows=None, messages=None, seen=None)
    parts = replace(
        bare.take(seen.unit[rows]), packets=seen.packets[rows], wire_bytes=seen.wire_bytes[rows]
    )
    placement = Placement(link[rows].reshape(-1, 1), np.zeros(len(rows), np.bool_))
    outcome = Outcome(parts, placement, {})
    result = result_of(AS_CAPTURED, outcome, fabric, offered=inside, covered=covered, listed=listed)
    if not any(layer.choice for layer in result.layers):
        return None
    left = int(np.count_nonzero(~covered))
    note = f"{left:,} links were not captured; they are left out"
    return msgspec.structs.replace(result, notes=[note]) if left else result


def links_of(taps: Sequence[str], fabric: Fabric) -> Ints:
    """int64[taps, 2]: the link that a tap captured, in both directions; -1 if its name tells none.

    A name has both ends, `leaf1-spine2`, with the number of one of several parallel links,
    `leaf1-spine2#2`; or device and port of a fabric that was read from devices, `leaf1-swp3`.
    """
    number = {name: i for i, name in enumerate(fabric.nodes.names)}
    port = links_by_port(fabric)
    found = np.full((len(taps), 2), -1, np.int64)
    for tap, name in enumerate(short_names(taps)):
        parts = parts_of(name)
        ends = [number[part] for part in parts if part in number]
        if len(ends) == 1:
            here = fabric.nodes.names[ends[0]]
            links = {port[here, part] for part in parts if (here, part) in port}
            if len(links) == 1:
                link = links.pop()
                found[tap] = link, link ^ 1
        if len(ends) != 2:
            continue
        numbered = _NUMBERED.search(name)
        for way, (source, target) in enumerate((ends, ends[::-1])):
            parallel = np.flatnonzero(
                (fabric.links.source == source) & (fabric.links.target == target)
            )
            which = int(numbered[1]) - 1 if numbered else 0
            if which < len(parallel) and (numbered or len(parallel) == 1):
                found[tap, way] = parallel[which]
    return found


def links_by_port(fabric: Fabric) -> dict[tuple[str, str], int]:
    """The link that leaves a device by a port, where the ports are known."""
    names, found = fabric.nodes.names, {}
    for cable, ports in enumerate(fabric.origin.ports if fabric.origin is not None else ()):
        for link, port in zip((2 * cable, 2 * cable + 1), ports, strict=True):
            if port:
                found[names[int(fabric.links.source[link])], port] = link
    return found


def _directed(traffic: Traffic, seen: Seen, links: Ints, fabric: Fabric) -> Int32s:
    """int32[rows of seen]: the link in the direction of the unit; -1 if it cannot go there."""
    link = np.full(len(seen.unit), -1, np.int32)
    source, target = traffic.src_host[seen.unit], traffic.dst_host[seen.unit]
    pairs, pair = np.unique(np.stack([source, target], axis=1), axis=0, return_inverse=True)
    if len(pairs) > _MOST_PAIRS:
        return link
    pair = pair.reshape(-1)
    bare = replace(traffic, windows=None, messages=None, seen=None)
    for number in range(len(pairs)):
        rows = np.flatnonzero(pair == number)
        one = bare.take(seen.unit[rows[:1]])
        reachable = even_loads(one, fabric, np.ones(1, np.int64)) > 0
        for way in (0, 1):
            there = links[seen.tap[rows], way]
            fits = (there >= 0) & reachable[there]
            link[rows[fits]] = there[fits]
    return link
