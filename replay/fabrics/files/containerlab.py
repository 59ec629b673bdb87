"""A containerlab topology as a fabric (https://containerlab.dev/manual/topo-def-file/).

Hosts are nodes with the label or group `host` (or server, gpu, nic, client), otherwise nodes
whose name starts with one of these words. Tiers come from a label `tier`, a group leaf, spine or
core, otherwise from the distance to hosts. Rates come from the options of the spec, because
topologies have none.
"""

from __future__ import annotations

import re

import numpy as np

from ....analyzer.errors import UsageError
from ..build import build, cables
from ..fabric import TIER_NAMES, Fabric
from ..tiers import tiers_by_distance
from .yaml_source import Source

_HOST = re.compile(r"(host|server|srv|gpu|nic|client|h)s?([-_.]?\d+)?", re.IGNORECASE)
_NOT_NODES = ("host", "mgmt-net", "macvlan", "dummy", "vxlan", "vxlan-stitch")
"""Node names of endpoints outside the topology."""


def is_containerlab(source: Source) -> bool:
    """Whether a document has the `topology` of a containerlab file."""
    return source.is_mapping and "topology" in source.mapping("keys")


def containerlab(source: Source, rate_bits_per_second: int, delay_ns: int) -> Fabric:
    """The fabric of a topology. UsageError names file and line."""
    top = source.mapping("a containerlab file")
    topology = top["topology"].mapping("nodes and links")
    for key in ("nodes", "links"):
        if key not in topology:
            raise top["topology"].wrong(f"the topology has no {key}")
    nodes = topology["nodes"].mapping("nodes")
    roles = {name: _role(name, place) for name, place in nodes.items()}
    hosts = [name for name, role in roles.items() if role == "host"]
    switches = [name for name, role in roles.items() if role != "host"]
    if not hosts:
        raise topology["nodes"].wrong(
            "no node is a host: give hosts the group 'host' (group: host) or a name like host1"
        )
    if not switches:
        raise topology["nodes"].wrong("every node is a host: give switches a group such as leaf")
    number = {name: i for i, name in enumerate([*switches, *hosts])}
    ends = [e for link in topology["links"].items("links") if (e := _ends(link, number))]
    if not ends:
        raise topology["links"].wrong("no link connects two nodes")
    a, b = np.array(ends, np.int64).T
    wires = cables(a, b, rate_bits_per_second, delay_ns)
    tiers = [_tier(roles[name]) for name in switches]
    name = top["name"].text("a name") if "name" in top else source.path
    try:
        return build(name, switches, tiers_by_distance(tiers, wires, len(switches)), hosts, wires)
    except UsageError as error:
        raise topology["links"].wrong(str(error)) from None


def _tier(role: str) -> int | None:
    if role in TIER_NAMES:
        return TIER_NAMES.index(role)
    return int(role) if role.isdecimal() and int(role) <= 100 else None


def _role(name: str, place: Source) -> str:
    """`host`, the name or number of a tier, or "" if unknown."""
    values = place.mapping("the settings of a node")
    labels = values["labels"].mapping("labels") if "labels" in values else {}
    for source, key in ((labels, "tier"), (labels, "role"), (values, "group")):
        if key in source and not source[key].is_empty:
            text = source[key].text(key).lower()
            if _HOST.fullmatch(text):
                return "host"
            return text.removesuffix("s") if text.removesuffix("s") in TIER_NAMES else text
    return "host" if _HOST.fullmatch(name) else ""


def _ends(link: Source, number: dict[str, int]) -> tuple[int, int] | None:
    """The two nodes of a link; None for a link that leaves the topology."""
    values = link.mapping("endpoints")
    if "endpoints" in values:
        texts = values["endpoints"].items('two endpoints such as "leaf1:eth1"')
        names = [(t, t.text("an endpoint").partition(":")[0]) for t in texts]
    else:
        raise link.wrong('a link needs endpoints: ["leaf1:eth1", "spine1:eth1"]')
    if len(names) != 2:
        raise link.wrong("a link has two endpoints")
    found = []
    for place, name in names:
        if name in number:
            found.append(number[name])
        elif name not in _NOT_NODES:
            raise place.wrong(f"there is no node {name!r} in nodes")
    return (found[0], found[1]) if len(found) == 2 else None
