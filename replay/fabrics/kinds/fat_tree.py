"""Three-tier fat tree of k-port switches (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008).

k pods of k/2 leaves and k/2 spines; spine j of every pod is wired to the same k/2 cores.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....analyzer.errors import UsageError
from ..build import build, cables, check_size, joined, numbered
from ..fabric import Fabric
from ..parameters import COUNT, RATE_AND_DELAY, UPLINKS, Parameter, checked

PARAMETERS: Mapping[str, Parameter] = {
    "k": Parameter(COUNT, 4, "ports per switch, an even number", least=2, most=256),
    "hosts": Parameter(COUNT, None, "hosts per leaf, default k/2", most=1 << 14),
    **RATE_AND_DELAY,
    "uplink_rate": UPLINKS["uplink_rate"],
    "oversubscription": UPLINKS["oversubscription"],
}


def fat_tree(options: Mapping[str, str]) -> Fabric:
    """Hosts in port order: pod by pod, leaf by leaf."""
    p = checked("fat-tree", options, PARAMETERS)
    k, rate, delay = p.count("k"), p.count("rate"), p.count("delay")
    if k % 2:
        raise UsageError(f"fat-tree: k must be even, not {k}")
    half = k // 2
    per_leaf = half if p.numbers["hosts"] is None else p.count("hosts")
    leaves, cores = k * half, half * half
    switches, hosts, trunk = 2 * leaves + cores, leaves * per_leaf, leaves * half
    check_size("fat-tree", hosts, hosts + 2 * trunk, switches, leaves)
    uplink_rate = p.uplink_rate(per_leaf * rate, half)
    host, link = np.arange(hosts), np.arange(trunk)
    switch, port = link // half, link % half  # of each leaf or spine and its uplinks
    pod, position = switch // half, switch % half
    return build(
        "fat-tree",
        [*numbered("leaf", leaves), *numbered("spine", leaves), *numbered("core", cores)],
        np.repeat(np.array([1, 2, 3], np.int8), [leaves, leaves, cores]),
        numbered("host", hosts),
        joined(
            cables(switches + host, host // per_leaf, rate, delay),
            cables(switch, leaves + pod * half + port, uplink_rate, delay),
            cables(leaves + switch, 2 * leaves + position * half + port, uplink_rate, delay),
        ),
    )
