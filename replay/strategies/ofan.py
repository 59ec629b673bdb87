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
from ..engine.draws import SHUFFLE, drawn_each
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
        where = fabric if _even(fabric) else with_capacity_weights(fabric)
        pointers, keys = pointer_table(self.name, where)
        begins, positions, schedules = _schedules(where, keys, seed)
        state = state_of(
            [where.forwarding.group_of.shape[1], len(keys)],
            pointers,
            begins,
            positions,
            schedules,
        )
        return Rules(
            _choose(),
            no_label(),
            state,
            parameters={"pointers": str(2 * len(keys))},
            fabric=where,
        )


def _even(fabric: Fabric) -> bool:
    """Whether all links are up and those of a layer have one rate: all weights are equal."""
    links = fabric.links
    rates = {(int(a), int(b)) for a, b in zip(links.layer, links.rate_bits_per_second, strict=True)}
    return bool(links.up.all()) and len(rates) == len(set(links.layer.tolist()))


def _schedules(
    fabric: Fabric, keys: Sequence[tuple[int, int]], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(begin of the schedule of every pointer, first position, schedules with their lengths).

    Pointers for data first, then those for ACKs.
    """
    at = np.array(keys, np.int64).reshape(-1, 2)
    group = fabric.forwarding.group_of[at[:, 0], at[:, 1]]
    number = np.arange(len(keys))
    what = np.concatenate([number << 1, number << 1 | 1])
    group = np.tile(group, 2)
    sizes = np.diff(fabric.forwarding.group_start)[group]
    start, order = shuffled(sizes, seed, SHUFFLE, what)
    weights = fabric.forwarding.group_weights
    first = fabric.forwarding.group_start[group]
    parts, lengths = [], sizes.copy()
    if (weights == 1).all():
        parts = [np.insert(order, start[:-1], sizes)]
    for i in range(0 if parts else len(what)):
        own = order[start[i] : start[i + 1]]
        of_group = weights[first[i] : first[i] + sizes[i]]
        if (of_group != of_group[0]).any():
            own = np.array(interleaved(of_group.tolist(), own.tolist()), np.int64)
            lengths[i] = len(own)
        parts += [lengths[i : i + 1], own]
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 1)])[:-1]
    positions = np.zeros(len(what), np.int64)
    drawn_each(seed, SHUFFLE, what, 1 << 20, lengths, positions)
    return begins, positions, np.concatenate([np.zeros(0, np.int64), *parts])


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
