"""Leaf-spine: every leaf is wired to every spine, hosts to leaves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..build import build, cables, check_size, joined, numbered
from ..fabric import Fabric
from ..parameters import COUNT, RATE_AND_DELAY, UPLINKS, Parameter, checked

PARAMETERS: Mapping[str, Parameter] = {
    "leaves": Parameter(COUNT, 2, "leaf switches", most=1 << 16),
    "spines": Parameter(COUNT, 4, "spine switches", most=1 << 14),
    "hosts": Parameter(COUNT, 4, "hosts per leaf", most=1 << 14),
    **RATE_AND_DELAY,
    **UPLINKS,
}


def leaf_spine(options: Mapping[str, str]) -> Fabric:
    """Hosts host1 .. on leaf1 .., which reach each other over spine1 .. ."""
    p = checked("leaf-spine", options, PARAMETERS)
    leaves, spines, per_leaf = p.count("leaves"), p.count("spines"), p.count("hosts")
    uplinks, rate, delay = p.count("uplinks"), p.count("rate"), p.count("delay")
    hosts = leaves * per_leaf
    check_size("leaf-spine", hosts, hosts + leaves * spines * uplinks, leaves + spines, leaves)
    uplink_rate = p.uplink_rate(per_leaf * rate, spines * uplinks)
    host = np.arange(hosts)
    link = np.arange(leaves * spines * uplinks)
    return build(
        "leaf-spine",
        [*numbered("leaf", leaves), *numbered("spine", spines)],
        np.repeat(np.array([1, 2], np.int8), [leaves, spines]),
        numbered("host", hosts),
        joined(
            cables(leaves + spines + host, host // per_leaf, rate, delay),
            cables(
                link // (spines * uplinks), leaves + link // uplinks % spines, uplink_rate, delay
            ),
        ),
    )
