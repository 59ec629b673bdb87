"""Descriptions of fabrics: spec strings, YAML, containerlab, GraphML, tables of routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import choices
from ...kernels.kernel import NamedTuple
from .build import build, cables, check_size, joined, numbered
from .fabric import Fabric
from .parameters import (
    COUNT,
    DURATION,
    RATE,
    RATE_AND_DELAY,
    UPLINKS,
    Changes,
    Parameter,
    checked,
    rate_text,
    split_options,
)

FILES = "a YAML, containerlab or GraphML file, or linux:FOLDER"
_FILE_PARAMETERS = RATE_AND_DELAY
"""Options of a file: rate and delay of links without them."""


def parse_fabric(spec: str) -> Fabric:
    """The fabric that a spec describes.

    `KIND:key=value,...` with KIND one of `KINDS`, or a file (YAML, containerlab, GraphML),
    or `linux:FOLDER`; `,down=LINK` and `,slow=LINK:RATE` may follow any of them, and
    `,rate=RATE,delay=TIME` a file. Raises UsageError, for files with the line.
    """
    kind, _, rest = spec.partition(":")
    if kind in KINDS:
        options, changes = split_options(rest, kind)
        return changed(KINDS[kind].make(options), changes, spec.removesuffix(":"))
    name, _, rest = spec.partition(",")
    path = Path(name.removeprefix("linux:"))
    if not name or not path.exists():
        if name.startswith("linux:") or path.suffix or "/" in name:
            raise UsageError(f"there is no file {path}")
        raise UsageError(
            f"{spec!r} is not a fabric: {choices(kind, KINDS, 'give')} with parameters, {FILES}"
        )
    options, changes = split_options(rest, name)
    values = checked(name, options, _FILE_PARAMETERS)
    rate, delay = values.count("rate"), values.count("delay")
    if name.startswith("linux:"):
        from .linux_tables import linux_fabric

        return changed(linux_fabric(path, rate, delay), changes, spec)
    if path.suffix == ".graphml":
        from .files import read_graphml

        fabric, in_file = read_graphml(path, rate, delay)
    else:
        fabric, in_file = _of_yaml(path, rate, delay)
    return changed(changed(fabric, in_file, fabric.name), changes, fabric.name)


def _of_yaml(path: Path, rate: int, delay: int) -> tuple[Fabric, Changes]:
    from .files import containerlab, is_containerlab
    from .sources import load_yaml
    from .yaml_file import yaml_fabric

    source = load_yaml(path, FILES)
    if is_containerlab(source):
        return containerlab(source, rate, delay), Changes()
    return yaml_fabric(source, parse_fabric)


def changed(fabric: Fabric, changes: Changes, name: str) -> Fabric:
    """The fabric with links down or slow, and a name."""
    fabric = replace(fabric, name=name)
    if changes.slow:
        rates = fabric.links.rate_bits_per_second.copy()
        for link, rate in changes.slow:
            rates[fabric.find_links(link)] = rate
        fabric = fabric.with_links(rate_bits_per_second=rates)
    return fabric.down(changes.down) if changes.down else fabric


def parameter_help(kind: str) -> str:
    """The parameters of a kind of spec, one per line."""
    lines = [f"{kind}:key=value,... with"]
    for key, parameter in KINDS[kind].parameters.items():
        default = "" if parameter.default is None else f" (default {_shown(parameter)})"
        lines.append(f"  {key:<16} {parameter.help}{default}")
    lines.append(f"  {'down':<16} links or nodes that are down, joined by +: leaf1-spine2+spine3")
    lines.append(f"  {'slow':<16} links with another rate: leaf1-spine2:100G")
    return "\n".join(lines)


def _shown(parameter: Parameter) -> str:
    assert parameter.default is not None
    if parameter.kind == RATE:
        return rate_text(int(parameter.default))
    return f"{parameter.default}ns" if parameter.kind == DURATION else f"{parameter.default}"


# Kinds of fabrics in spec strings.

# Three-tier fat tree of k-port switches (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008).
#
# k pods of k/2 leaves and k/2 spines; spine j of every pod is wired to the same k/2 cores.

FAT_TREE_PARAMETERS: Mapping[str, Parameter] = {
    "k": Parameter(COUNT, 4, "ports per switch, an even number", least=2, most=256),
    "hosts": Parameter(COUNT, None, "hosts per leaf, default k/2", most=1 << 14),
    **RATE_AND_DELAY,
    "uplink_rate": UPLINKS["uplink_rate"],
    "oversubscription": UPLINKS["oversubscription"],
}


def fat_tree(options: Mapping[str, str]) -> Fabric:
    """Hosts in port order: pod by pod, leaf by leaf."""
    p = checked("fat-tree", options, FAT_TREE_PARAMETERS)
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


class Kind(NamedTuple):
    """A kind of fabric in spec strings."""

    make: Callable[[Mapping[str, str]], Fabric]
    parameters: Mapping[str, Parameter]


KINDS: Mapping[str, Kind] = {
    "leaf-spine": Kind(leaf_spine, LEAF_SPINE_PARAMETERS),
    "fat-tree": Kind(fat_tree, FAT_TREE_PARAMETERS),
    "multi-plane": Kind(multi_plane, MULTI_PLANE_PARAMETERS),
    "rail": Kind(rail, RAIL_PARAMETERS),
}
