"""Fair share of a link: its load if every switch split all traffic without collisions.

Fair shares depend on the sources and destinations of the traffic. Links to unused destinations
do not change the shares of other links; usable links count even if they are idle. With perfect
spraying every link has 1.00. This is the fluid ECMP (WCMP with different rates) of Zhou et al.,
EuroSys 2014.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...kernels.kernel import Floats, Ints
from ..fabrics.fabric import Fabric
from ..fabrics.weights import with_capacity_weights
from ..traffic.traffic import Traffic
from .spread import even_loads


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
    own = rates[forwarding.group_links]
    if (np.minimum.reduceat(own, starts) == np.maximum.reduceat(own, starts)).all():
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
