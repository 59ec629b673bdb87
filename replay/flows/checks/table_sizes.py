"""Table sizes of the switches of a fabric: routes and groups of ECMP, entries of static SRv6.

Static SRv6 (micro-segments, arXiv 2605.04333): a switch has one entry for its own segment and one
per neighbour, so a leaf reads the spine or the host from the address, a spine the leaf; they
never change when links fail. How the segments are numbered is not public: one each is assumed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from ....analyzer.results.base import about
from ...fabrics.fabric import Fabric, tier_name


class TableSize(msgspec.Struct, frozen=True, kw_only=True):
    """The largest table sizes of a switch of a tier."""

    tier: str
    routes: Annotated[int, about("sets of hosts behind other switches")]
    groups: Annotated[int, about("equal-cost groups of more than one link")]
    members: Annotated[int, about("links in these groups")]
    static_srv6: Annotated[
        int, about("entries: its own segment and one per link, parallel ones together")
    ]


def table_sizes(fabric: Fabric) -> list[TableSize]:
    """One record per tier, leaves first."""
    switches, links, forwarding = fabric.switches, fabric.links, fabric.forwarding
    routes = (forwarding.group_of >= 0).sum(1)
    sizes = np.diff(forwarding.group_start)
    wide = np.flatnonzero(sizes > 1)
    owner = links.source[forwarding.group_links[forwarding.group_start[wide]]]
    groups = np.bincount(owner, minlength=switches)
    members = np.bincount(owner, weights=sizes[wide], minlength=switches)
    inner = links.up & (links.source < switches)
    nodes = len(fabric.nodes.names)
    pairs = np.unique(links.source[inner].astype(np.int64) * nodes + links.target[inner])
    static = 1 + np.bincount(pairs // nodes, minlength=switches)
    tier = fabric.nodes.tier[:switches]
    return [
        TableSize(
            tier=tier_name(one),
            routes=int(routes[tier == one].max()),
            groups=int(groups[tier == one].max()),
            members=int(members[tier == one].max()),
            static_srv6=int(static[tier == one].max()),
        )
        for one in sorted(set(tier.tolist()))
    ]
