"""Rail-optimised: the n-th NIC of every server in a pod is wired to the n-th leaf of that pod.

Servers have one NIC per rail. Traffic within a rail of a pod crosses one leaf; other
traffic crosses the spines. With `spines=0` there are only rails (NICs of different rails
cannot reach each other).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....analyzer.errors import UsageError
from ..build import build, cables, check_size, joined, numbered
from ..fabric import Fabric
from ..parameters import COUNT, RATE_AND_DELAY, UPLINKS, Parameter, checked

PARAMETERS: Mapping[str, Parameter] = {
    "rails": Parameter(COUNT, 8, "NICs of a server, leaves of a pod", most=64),
    "servers": Parameter(COUNT, 4, "servers of a pod: NICs per leaf", most=1 << 14),
    "pods": Parameter(COUNT, 1, "pods (also called segments or groups)", most=1 << 12),
    "spines": Parameter(
        COUNT, 4, "spine switches, each wired to every leaf", least=0, most=1 << 14
    ),
    **RATE_AND_DELAY,
    **UPLINKS,
}


def rail(options: Mapping[str, str]) -> Fabric:
    """Leaves pod1.rail1 ..; hosts server1.nic1, server2.nic1, ... in port order, leaf by leaf."""
    p = checked("rail", options, PARAMETERS)
    rails, servers, pods = p.count("rails"), p.count("servers"), p.count("pods")
    spines, uplinks = p.count("spines"), p.count("uplinks")
    rate, delay = p.count("rate"), p.count("delay")
    if not spines and pods > 1:
        raise UsageError("rail: with spines=0 the pods are not connected; use spines or pods=1")
    leaves = pods * rails
    switches, hosts, trunk = leaves + spines, leaves * servers, leaves * spines * uplinks
    check_size("rail", hosts, hosts + trunk, switches, leaves)
    uplink_rate = p.uplink_rate(servers * rate, max(1, spines * uplinks))
    host, link = np.arange(hosts), np.arange(trunk)
    return build(
        "rail",
        [
            *(f"pod{i}.rail{j}" for i in range(1, pods + 1) for j in range(1, rails + 1)),
            *numbered("spine", spines),
        ],
        np.repeat(np.array([1, 2], np.int8), [leaves, spines]),
        [
            f"server{i * servers + s}.nic{j}"
            for i in range(pods)
            for j in range(1, rails + 1)
            for s in range(1, servers + 1)
        ],
        joined(
            cables(switches + host, host // servers, rate, delay),
            cables(
                link // max(1, spines * uplinks),
                leaves + link // uplinks % max(1, spines),
                uplink_rate,
                delay,
            ),
        ),
    )
