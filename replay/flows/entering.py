"""Where units enter a fabric: the port of their host, and the switch behind it."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int32s
from ...kernels.named import NamedTuple
from ..fabrics.fabric import Fabric
from ..traffic.ordinals import ordinals
from ..traffic.traffic import Traffic

MOST_HOPS = 64
"""Maximum number of switches on a path; a longer path is a loop in the tables of routers."""


class Start(NamedTuple):
    """Where units enter the fabric."""

    access: Int32s
    """int32[n]: first link, -1 if the destination cannot be reached."""
    switch: Int32s
    """int32[n]: the switch after it, -1 likewise."""
    edge: Int32s
    """int32[n]: edge of the destination host, -1 likewise."""


def enter(traffic: Traffic, fabric: Fabric) -> Start:
    """First links: a host with several usable ports uses them in turn, unit by unit."""
    n = len(traffic)
    access, switch = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    edge = np.full(n, -1, np.int32)
    known = np.flatnonzero((traffic.src_host >= 0) & (traffic.dst_host >= 0))
    if len(known) == 0:
        return Start(access, switch, edge)
    source, destination = traffic.src_host[known], traffic.dst_host[known]
    ipv6 = traffic.keys.ipv6[known]
    usable = fabric.usable_ports(source, destination, ipv6)
    count = usable.sum(1)
    reached = count > 0
    port = np.zeros(len(known), np.int64)
    if usable.shape[1] > 1:
        # The (turn mod count)-th usable port: the first column after that many usable ports.
        wanted = np.where(reached, ordinals(source) % np.maximum(count, 1), 0)
        port = ((usable.cumsum(1) > wanted[:, None]) & usable).argmax(1)
    chosen = known[reached]
    access[chosen] = fabric.attachments.access_link[source[reached], port[reached]]
    switch[chosen] = fabric.attachments.switch[source[reached], port[reached]]
    edge[chosen] = fabric.edge_of(destination, ipv6)[reached]
    return Start(access, switch, edge)
