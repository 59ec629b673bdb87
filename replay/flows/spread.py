"""Traffic split evenly over every equal-cost group: the links it can reach, and their
loads with perfect hashing."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Floats, Int32s, Ints, kernel
from ..fabrics.fabric import Attachments, Fabric
from ..fabrics.forwarding import Groups
from ..traffic.ordinals import rows_by
from ..traffic.traffic import Traffic
from .entering import MOST_HOPS, enter


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


@kernel
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
