"""Kinds of fabrics: leaf-spine, fat tree, multi-plane, rails."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...analyzer.errors import UsageError
from .build import build, cables, check_size, joined, numbered
from .fabric import Fabric
from .parameters import COUNT, RATE_AND_DELAY, UPLINKS, Parameter, checked

# Three-tier fat tree of k-port switches (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008).
#
# k pods of k/2 leaves and k/2 spines; spine j of every pod is wired to the same k/2 cores.

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


# Leaf-spine: every leaf is wired to every spine, hosts to leaves.

LEAF_SPINE_PARAMETERS: Mapping[str, Parameter] = {
    "leaves": Parameter(COUNT, 2, "leaf switches", most=1 << 16),
    "spines": Parameter(COUNT, 4, "spine switches", most=1 << 14),
    "hosts": Parameter(COUNT, 4, "hosts per leaf", most=1 << 14),
    **RATE_AND_DELAY,
    **UPLINKS,
}


def leaf_spine(options: Mapping[str, str]) -> Fabric:
    """Hosts host1 .. on leaf1 .., which reach each other over spine1 .. ."""
    p = checked("leaf-spine", options, LEAF_SPINE_PARAMETERS)
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


# Multi-plane Clos: every host has a port in each of P separate leaf-spine planes.

MULTI_PLANE_PARAMETERS: Mapping[str, Parameter] = {
    "planes": Parameter(COUNT, 2, "planes; every host has one port in each", most=64),
    "leaves": Parameter(COUNT, 2, "leaf switches of a plane", most=1 << 16),
    "spines": Parameter(COUNT, 4, "spine switches of a plane", most=1 << 14),
    "hosts": Parameter(COUNT, 4, "hosts per leaf", most=1 << 14),
    **RATE_AND_DELAY,
    **UPLINKS,
}


def multi_plane(options: Mapping[str, str]) -> Fabric:
    """Switches plane1.leaf1 .., plane1.spine1 ..; `rate` is that of a host's port in one plane."""
    p = checked("multi-plane", options, MULTI_PLANE_PARAMETERS)
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


# Rail-optimised: the n-th NIC of every server in a pod is wired to the n-th leaf of that pod.
#
# Servers have one NIC per rail. Traffic within a rail of a pod crosses one leaf; other
# traffic crosses the spines. With `spines=0` there are only rails (NICs of different rails
# cannot reach each other).

RAIL_PARAMETERS: Mapping[str, Parameter] = {
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
    p = checked("rail", options, RAIL_PARAMETERS)
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
