"""Ofan: switches rotate per destination switch, with a pointer for data and one for ACKs.

A leaf has a pointer per destination leaf, a spine one per destination pod: destinations that share
a way-point share a pointer. Every pointer has its own random start and order of ports.
Under asymmetry a pointer follows an interleaved weighted round robin of the weights that W-ECMP
would announce (those of `wcmp`), divided by their greatest common divisor.

Source: "Load Balancing for AI Training Workloads" (arXiv 2507.21372 v2), section 7 and appendix F.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ...analyzer.kernel import Int
from ..engine.draws import SHUFFLE, drawn
from ..engine.model import ACK, Workload
from ..engine.rules import Rules, chooser, no_label
from ..fabric import Fabric, edge_switches
from .base import known_options
from .packet_state import shuffled, state_of
from .wcmp import with_capacity_weights


@dataclass(frozen=True)
class Ofan:
    """No options."""

    options: Mapping[str, str]
    name: str = "ofan"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ())
        where = with_capacity_weights(fabric)
        pointers, keys = pointer_table(self.name, where)
        begins: list[list[int]] = [[], []]
        schedules: list[int] = []
        positions: list[list[int]] = [[], []]
        for number, (switch, edge) in enumerate(keys):
            _, weights = where.group(switch, edge)
            for kind in (0, 1):
                own = number << 1 | kind
                order = shuffled(len(weights), seed, SHUFFLE, own)
                schedule = interleaved(weights.tolist(), order)
                begins[kind].append(len(schedules))
                positions[kind].append(drawn(seed, SHUFFLE, own, 1 << 20, len(schedule)))
                schedules += [len(schedule), *schedule]
        state = state_of(
            [where.forwarding.group_of.shape[1], len(keys)],
            pointers,
            np.array(begins, np.int64),
            np.array(positions, np.int64),
            np.array(schedules, np.int64),
        )
        return Rules(
            _choose(),
            no_label(),
            state,
            parameters={"pointers": str(2 * len(keys))},
            fabric=where,
        )


def interleaved(weights: Sequence[int], order: Sequence[int]) -> list[int]:
    """Interleaved weighted round robin: in round r every port of weight above r, in this order.

    Weights [1600, 1600, 1600, 800] in the order [2, 1, 3, 0] give [2, 1, 3, 0, 2, 1, 0].
    """
    divisor = gcd(*weights)
    small = [weight // divisor for weight in weights]
    return [port for r in range(max(small)) for port in order if small[port] > r]


def pointer_table(name: str, fabric: Fabric) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
    """(pointer of every switch and edge, -1 without a choice; a (switch, edge) of each pointer).

    A switch of tier t has a pointer per part of the fabric that hangs together without the
    tiers above t. UsageError when the fabric has no tiers to speak of.
    """
    tier = fabric.nodes.tier[: fabric.switches].astype(np.int64)
    edges = edge_switches(fabric.attachments)
    if not (np.diff(fabric.forwarding.group_start) > 1).any() or tier.max() == tier.min():
        raise UsageError(f"{name} needs tiers of switches with a choice; {fabric.name} has none")
    parts = {int(t): _parts(fabric, tier, edges, int(t)) for t in np.unique(tier)}
    sizes = np.append(np.diff(fabric.forwarding.group_start), 0)  # item -1 serves group -1
    choice = sizes[fabric.forwarding.group_of] > 1
    table = np.full(choice.shape, -1, np.int32)
    numbers: dict[tuple[int, int, int], int] = {}
    keys: list[tuple[int, int]] = []
    for switch, edge in zip(*(c.tolist() for c in np.nonzero(choice)), strict=True):
        # Where links are down, edges of a part may have other groups: those need their own.
        group = int(fabric.forwarding.group_of[switch, edge])
        key = (switch, group, int(parts[int(tier[switch])][edge]))
        if key not in numbers:
            numbers[key] = len(keys)
            keys.append((switch, edge))
        table[switch, edge] = numbers[key]
    return table, keys


def _parts(
    fabric: Fabric, tier: NDArray[np.int64], edges: NDArray[np.int32], most: int
) -> NDArray[np.int64]:
    """int64[edges]: number of the part that each edge belongs to without tiers above `most`."""
    links = fabric.links
    inner = (links.source < fabric.switches) & (links.target < fabric.switches) & links.up
    a, b = links.source[inner], links.target[inner]
    low = (tier[a] <= most) & (tier[b] <= most)
    a, b = a[low], b[low]
    part = np.arange(fabric.switches)
    several = edges[(edges >= 0).sum(1) > 1]
    for row in several:  # hosts with several switches tie these together
        known = row[row >= 0]
        a = np.append(a, known[1:])
        b = np.append(b, np.repeat(known[:1], len(known) - 1))
    while True:
        before = part.copy()
        np.minimum.at(part, a, part[b])
        np.minimum.at(part, b, part[a])
        if (part == before).all():
            found: NDArray[np.int64] = part[edges.max(1)]
            return found


@chooser
def _choose(
    state: Int,
    links: Int,
    members: Int,
    first: Int,
    size: Int,
    switch: Int,
    edge: Int,
    packet: Int,
    label: Int,
    time: Int,
) -> Int:
    """State: edges, pointers; pointer table, begins of schedules, positions in them, schedules."""
    pointer = state[state[2] + switch * state[0] + edge]
    if packet & np.int64(ACK):
        pointer += state[1]
    schedule = state[5] + state[state[3] + pointer]
    at = state[4] + pointer
    position = state[at]
    following = position + 1
    state[at] = np.int64(0) if following == state[schedule] else following
    return state[schedule + 1 + position]
