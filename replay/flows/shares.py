"""Fair shares of flows on a placement."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...kernels.kernel import Floats, Int32s, Ints, allocating
from ..fabrics.fabric import Attachments, Fabric
from ..fabrics.forwarding import Groups
from ..fabrics.routes import with_capacity_weights
from ..traffic.traffic import Traffic, rows_by
from .loads import MOST_HOPS, enter

# Traffic split evenly over every equal-cost group: the links it can reach, and their
# loads with perfect hashing.


def even_loads(traffic: Traffic, fabric: Fabric, amounts: Ints) -> Floats:
    """float64[links]: link loads if every group splits in proportion to its weights.

    amounts: int64[units], bytes or ones. Links that no unit can reach carry exactly 0.
    """
    start = enter(traffic, fabric)
    moving = np.flatnonzero(start.switch >= 0)
    links = len(fabric.links.source)
    loads = np.bincount(start.access[moving], amounts[moving], links).astype(np.float64)
    # All units of one destination host move as one.
    order = moving[rows_by(traffic.dst_host[moving])]
    _spread(
        start.switch[order],
        start.edge[order],
        traffic.dst_host[order],
        amounts[order].astype(np.float64),
        fabric.attachments,
        fabric.forwarding.groups,
        fabric.links.target,
        fabric.switches,
        MOST_HOPS,
        loads,
    )
    return loads


@allocating
def _spread(
    switch: Int32s,
    edge: Int32s,
    host: Int32s,
    amount: Floats,
    attached: Attachments,
    groups: Groups,
    target: Int32s,
    switches: int,
    most_hops: int,
    loads: Floats,
) -> None:
    """Add the loads of units sorted by destination host."""
    now, after = np.zeros(switches), np.zeros(switches)
    begin = 0
    while begin < len(host):
        now[:] = 0
        end = begin
        while end < len(host) and host[end] == host[begin]:
            now[switch[end]] += amount[end]
            end += 1
        h, e = host[begin], edge[begin]
        for _ in range(most_hops):
            after[:] = 0
            moved = False
            for s in range(switches):
                if now[s] == 0:
                    continue
                arrived = False
                for port in range(attached.switch.shape[1]):
                    if attached.switch[h, port] == s:
                        loads[attached.exit_link[h, port]] += now[s]
                        arrived = True
                        break
                g = groups.of[s, e]
                if arrived or g < 0:
                    continue
                total = 0.0
                for i in range(groups.start[g], groups.start[g + 1]):
                    total += groups.weights[i]
                for i in range(groups.start[g], groups.start[g + 1]):
                    if groups.weights[i] == 0:
                        continue
                    link = groups.links[i]
                    part = now[s] * groups.weights[i] / total
                    loads[link] += part
                    if target[link] < switches:
                        after[target[link]] += part
                        moved = True
            now, after = after, now
            if not moved:
                break
        begin = end


# Fair share of a link: its load if every switch split all traffic without collisions.
#
# Fair shares depend on the sources and destinations of the traffic. Links to unused destinations
# do not change the shares of other links; usable links count even if they are idle. With perfect
# spraying every link has 1.00. This is the fluid ECMP (WCMP with different rates) of Zhou et al.,
# EuroSys 2014.


def split_evenly(traffic: Traffic, fabric: Fabric) -> Floats:
    """float64[links]: bytes if groups split in proportion to the capacity behind each link."""
    return even_loads(traffic, by_capacity(fabric), traffic.wire_bytes)


def by_capacity(fabric: Fabric) -> Fabric:
    """The fabric with the weights of WCMP where links of a group have unlike rates."""
    forwarding, rates = fabric.forwarding, fabric.links.rate_bits_per_second
    sizes = np.diff(forwarding.group_start)
    starts = forwarding.group_start[:-1][sizes > 0]
    if not len(starts):
        return fabric
    capacities = rates[forwarding.group_links]
    if (np.minimum.reduceat(capacities, starts) == np.maximum.reduceat(capacities, starts)).all():
        return fabric
    try:
        return with_capacity_weights(fabric)
    except RecursionError:  # routes that form a loop have no capacity
        return fabric


def fair_bytes(even: Floats, wire_bytes: Ints, rates: Ints, layers: Iterable[Ints]) -> Floats:
    """float64[links]: fair shares of what every layer carried, by the loads of `split_evenly`.

    If a strategy uses links outside the groups of the fabric, shares follow link rates.
    """
    fair = np.zeros(len(wire_bytes))
    for links in layers:
        share = even[links]
        if (wire_bytes[links][share <= 0] > 0).any() or not share.any():
            share = rates[links].astype(np.float64)
        fair[links] = wire_bytes[links].sum() * (share / share.sum())
    return fair
