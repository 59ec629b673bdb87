"""Multi-plane Clos: every host has a port in each of P separate leaf-spine planes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..build import build, cables, check_size, joined
from ..fabric import Fabric
from ..parameters import COUNT, RATE_AND_DELAY, UPLINKS, Parameter, checked

PARAMETERS: Mapping[str, Parameter] = {
    "planes": Parameter(COUNT, 2, "planes; every host has one port in each", most=64),
    "leaves": Parameter(COUNT, 2, "leaf switches of a plane", most=1 << 16),
    "spines": Parameter(COUNT, 4, "spine switches of a plane", most=1 << 14),
    "hosts": Parameter(COUNT, 4, "hosts per leaf", most=1 << 14),
    **RATE_AND_DELAY,
    **UPLINKS,
}


def multi_plane(options: Mapping[str, str]) -> Fabric:
    """Switches plane1.leaf1 .., plane1.spine1 ..; `rate` is that of a host's port in one plane."""
    p = checked("multi-plane", options, PARAMETERS)
    planes, leaves, spines = p.count("planes"), p.count("leaves"), p.count("spines")
    per_leaf, uplinks = p.count("hosts"), p.count("uplinks")
    rate, delay = p.count("rate"), p.count("delay")
    in_plane, hosts, trunk = leaves + spines, leaves * per_leaf, leaves * spines * uplinks
    switches = planes * in_plane
    check_size("multi-plane", hosts, planes * (hosts + trunk), switches, leaves)
    uplink_rate = p.uplink_rate(per_leaf * rate, spines * uplinks)
    plane = np.arange(planes) * in_plane  # number of the first switch of each
    host = np.repeat(np.arange(hosts), planes)
    link = np.arange(trunk)
    leaf, spine = link // (spines * uplinks), leaves + link // uplinks % spines
    return build(
        "multi-plane",
        [
            f"plane{i}.{kind}{j}"
            for i in range(1, planes + 1)
            for kind, number in (("leaf", leaves), ("spine", spines))
            for j in range(1, number + 1)
        ],
        np.tile(np.repeat(np.array([1, 2], np.int8), [leaves, spines]), planes),
        [f"host{i}" for i in range(1, hosts + 1)],
        joined(
            cables(switches + host, np.tile(plane, hosts) + host // per_leaf, rate, delay),
            cables(
                (plane[:, None] + leaf).reshape(-1),
                (plane[:, None] + spine).reshape(-1),
                uplink_rate,
                delay,
            ),
        ),
        switch_planes=np.repeat(np.arange(planes), in_plane).astype(np.int16),
    )
