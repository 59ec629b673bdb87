"""Host destination rotation (DRB): a host uses the top switches in turn, per destination.

A pointer per (source, destination, data or ACK) counts packets; the label is the number of the
path, and each switch on the way up reads its digit of the label. Needs tiers, and hosts that know
the topology. Source: Cao et al., "Per-packet Load-balanced, Low-Latency Routing for Clos-based
Data Center Networks", CoNEXT 2013; "Host DR" of arXiv 2507.21372.
"""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Int32s, Ints
from ..fabrics.fabric import Fabric
from ..packets.model.draws import SHUFFLE, drawn_each
from ..packets.model.model import ACK, Workload, message_of
from ..packets.model.rules import Choice, Rules, Strategy, chooser, emitter
from .base import Configured, state_of

_MOST_PATHS = 1 << 30


class HostRotation(Configured, Strategy):
    """No options."""

    name = "host-dr"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known()
        if fabric.ports > 1:
            raise UsageError(f"{self.name} needs hosts with one port; {fabric.name} has more")
        digits = place_values(self.name, fabric)
        key = workload.src.astype(np.int64) * fabric.hosts + workload.dst
        pairs, first, pair = np.unique(key, return_index=True, return_inverse=True)
        src, dst = workload.src[first], workload.dst[first]
        paths = np.stack([paths_of(fabric, src, dst), paths_of(fabric, dst, src)])
        start = np.zeros_like(paths)
        for kind, row in enumerate(paths):
            drawn_each(seed, SHUFFLE, pairs, kind, row, start[kind])
        of_message = pair.reshape(-1)[workload.flow]
        state = state_of([len(pairs)], of_message, paths, start, digits)
        return Rules(_choose(), _emit(), state)


def place_values(name: str, fabric: Fabric) -> Ints:
    """int64[switches]: the place value of a switch's choice in the number of a path.

    It is 1 for leaves, the number of uplinks of a leaf in the next tier, and so on.
    UsageError when switches of a tier have groups of different sizes.
    """
    forwarding = fabric.forwarding
    sizes = np.diff(forwarding.group_start)
    tier = fabric.nodes.tier[: fabric.switches]
    value, worth = np.ones(fabric.switches, np.int64), 1
    for level in sorted(set(tier.tolist())):
        switches = np.flatnonzero(tier == level)
        groups = forwarding.group_of[switches]
        used = np.flatnonzero(np.bincount(groups[groups >= 0]))
        group_sizes = {int(n) for n in sizes[used] if n > 1}
        value[switches] = worth
        if len(group_sizes) > 1:
            raise UsageError(
                f"{name} needs the same number of uplinks in all switches of a tier; "
                f"{fabric.name} has {' and '.join(map(str, sorted(group_sizes)))}"
            )
        worth *= group_sizes.pop() if group_sizes else 1
    if worth > _MOST_PATHS:
        raise UsageError(f"{name}: {fabric.name} has {worth:,} paths, too many to number")
    return value


def paths_of(fabric: Fabric, source: Int32s, destination: Int32s) -> Ints:
    """int64[n]: shortest paths between hosts: product of the group sizes along the first path."""
    switch = fabric.attachments.switch[source, 0].astype(np.int64)
    edge = fabric.attachments.edge[destination]
    count = np.ones(len(source), np.int64)
    start = fabric.forwarding.group_start
    while True:
        group = np.where((switch >= 0) & (edge >= 0), fabric.forwarding.group_of[switch, edge], -1)
        moving = group >= 0
        if not moving.any():
            return count
        count[moving] *= start[group[moving] + 1] - start[group[moving]]
        link = fabric.forwarding.group_links[start[group[moving]]]
        switch[moving] = fabric.links.target[link]
        switch[~moving] = -1


@emitter
def _emit(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    """State: pairs; pair of every message, paths by kind and pair, next path by kind and pair,
    place values."""
    kind = np.int64(1) if packet & np.int64(ACK) else np.int64(0)
    at = kind * state[0] + state[state[1] + message_of(packet)]
    path = state[state[3] + at]
    following = path + 1
    state[state[3] + at] = np.int64(0) if following == state[state[2] + at] else following
    return path


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    worth = np.uint32(state[state[4] + at.switch])
    return np.int64(np.uint32(at.label) // worth % np.uint32(at.size))
