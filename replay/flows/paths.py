"""All equal-cost paths between two points of a fabric, for strategies that assign paths."""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
from ...kernels.named import NamedTuple
from ..fabrics.fabric import Fabric
from ..traffic.traffic import Traffic
from .entering import MOST_HOPS, enter

MOST_PATHS = 1 << 22
"""Maximum number of paths of all pairs together."""


class PathChoices(NamedTuple):
    """The possible paths of each unit between switches."""

    pair: Int32s
    """int32[units]: row of `first`; -1 if the host cannot be reached."""
    first: Ints
    """int64[pairs + 1]: start of the paths of each pair in `links`."""
    links: Int32s
    """int32[paths, hops]: the links between switches, -1 after the last."""
    switch: Ints
    """int64[pairs]: start of the paths of each pair."""
    edge: Ints
    """int64[pairs]: edge of the destination hosts of each pair."""


def path_choices(traffic: Traffic, fabric: Fabric) -> PathChoices:
    """The equal-cost paths of every unit, from its first switch to one of its destination's.

    UsageError if there are too many to enumerate.
    """
    start = enter(traffic, fabric)
    edges = fabric.forwarding.group_of.shape[1]
    reached = start.switch >= 0
    key = np.where(reached, start.switch.astype(np.int64) * edges + start.edge, -1)
    keys, pair = np.unique(key, return_inverse=True)
    number = (pair - int((keys < 0).any())).astype(np.int32)
    number[~reached] = -1
    found: list[list[int]] = []
    first = [0]
    keys = keys[keys >= 0]
    for one in keys.tolist():
        _extend(fabric, one // edges, one % edges, [], found)
        first.append(len(found))
    hops = max((len(path) for path in found), default=0)
    links = np.full((len(found), hops), -1, np.int32)
    for row, path in zip(links, found, strict=True):
        row[: len(path)] = path
    return PathChoices(number, np.array(first, np.int64), links, keys // edges, keys % edges)


def _extend(
    fabric: Fabric, switch: int, edge: int, so_far: list[int], found: list[list[int]]
) -> None:
    """Add to `found` every further path from a switch."""
    members, _ = fabric.group(switch, edge)
    if not len(members):
        found.append(so_far)
        if len(found) > MOST_PATHS:
            raise UsageError(f"{fabric.name} has more than {MOST_PATHS:,} paths for this traffic")
        return
    if len(so_far) >= MOST_HOPS:
        raise UsageError(f"the routes of {fabric.name} form a loop")
    for link in members.tolist():
        _extend(fabric, int(fabric.links.target[link]), edge, [*so_far, link], found)


def links_of_paths(
    traffic: Traffic, fabric: Fabric, choices: PathChoices, path: Ints
) -> list[Int32s]:
    """The links of every unit hop by hop, as columns; unit i takes path[i] (-1: none)."""
    n = len(traffic)
    start = enter(traffic, fabric)
    columns = [np.where(path >= 0, start.access, -1).astype(np.int32)]
    inner = np.where(path[:, None] >= 0, choices.links[path], -1)
    last = np.where(path >= 0, start.switch, -1)
    for hop in range(inner.shape[1]):
        last = np.where(inner[:, hop] >= 0, fabric.links.target[inner[:, hop]], last)
    exits = np.where(path >= 0, fabric.exit_link_at(last, np.maximum(traffic.dst_host, 0)), -1)
    whole = np.concatenate([inner, np.full((n, 1), -1, np.int32)], axis=1)
    whole[np.arange(n), (inner >= 0).sum(1)] = exits
    return columns + [np.ascontiguousarray(c, dtype=np.int32) for c in whole.T]
