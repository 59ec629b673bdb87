"""Ofan: switches rotate per destination switch, with a pointer for data and one for ACKs.

A leaf has a pointer per destination leaf, a spine a pointer per destination pod: destinations with
a common way-point share a pointer. Every pointer has its own random start and order of ports.
Under asymmetry a pointer follows an interleaved weighted round robin of the W-ECMP weights
(shortest paths beyond every link), divided by their greatest common divisor. When routing
changes during a run, every pointer continues in a schedule of the new weights.

Source: "Load Balancing for AI Training Workloads" (arXiv 2507.21372 v2), section 7 and appendix F.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Int32s, Ints
from ..fabrics.fabric import Fabric, edge_switches
from ..fabrics.routes import with_path_weights
from ..packets.model.draws import SHUFFLE, drawn_each
from ..packets.model.model import ACK, Workload
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from .base import Configured, shuffled, state_of


class Ofan(Configured, Strategy):
    """No options."""

    name = "ofan"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known()
        where = fabric if _even(fabric) else with_path_weights(fabric)
        pointers, keys = pointer_table(self.name, where)
        begins, rows = _schedules(where, keys, seed)
        state = state_of([where.forwarding.group_of.shape[1], len(keys)], pointers, begins, rows)
        return Rules(
            _choose(),
            no_label(),
            state,
            parameters={"pointers": str(2 * len(keys))},
            fabric=where,
            rerouted=lambda changing, routes: _rerouted(self.name, changing, routes, seed),
        )


def _even(fabric: Fabric) -> bool:
    """Whether all links are up and each layer has one rate: all weights are equal."""
    links = fabric.links
    rates = {(int(a), int(b)) for a, b in zip(links.layer, links.rate_bits_per_second, strict=True)}
    return bool(links.up.all()) and len(rates) == len(set(links.layer.tolist()))


def _schedules(fabric: Fabric, keys: Sequence[tuple[int, int]], seed: int) -> tuple[Ints, Ints]:
    """(first item of every pointer's row; rows: position, length of the schedule, schedule).

    Pointers for data first, then pointers for ACKs.
    """
    at = np.array(keys, np.int64).reshape(-1, 2)
    group = fabric.forwarding.group_of[at[:, 0], at[:, 1]]
    number = np.arange(len(keys))
    what = np.concatenate([number << 1, number << 1 | 1])
    group = np.tile(group, 2)
    sizes = np.diff(fabric.forwarding.group_start)[group]
    start, order = shuffled(sizes, seed, what)
    weights = fabric.forwarding.group_weights
    first = fabric.forwarding.group_start[group]
    parts, lengths = [], sizes.copy()
    if (weights == 1).all():
        twice = np.repeat(start[:-1], 2)
        parts = [np.insert(order, twice, np.stack([0 * sizes, sizes], 1).ravel())]
    for i in range(0 if parts else len(what)):
        links_of_group = order[start[i] : start[i + 1]]
        of_group = weights[first[i] : first[i] + sizes[i]]
        if (of_group != of_group[0]).any():
            links_of_group = np.array(
                interleaved(of_group.tolist(), links_of_group.tolist()), np.int64
            )
            lengths[i] = len(links_of_group)
        parts += [np.array([0, lengths[i]]), links_of_group]
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 2)])[:-1]
    positions = np.zeros(len(what), np.int64)
    drawn_each(seed, SHUFFLE, what, 1 << 20, lengths, positions)
    rows = np.concatenate([np.zeros(0, np.int64), *parts])
    rows[begins] = positions
    return begins, rows


def interleaved(weights: Sequence[int], order: Sequence[int]) -> list[int]:
    """Interleaved weighted round robin: round r has the ports with a weight above r, in order.

    Weights [1600, 1600, 1600, 800] in the order [2, 1, 3, 0] give [2, 1, 3, 0, 2, 1, 0].
    """
    divisor = gcd(*weights)
    small = [weight // divisor for weight in weights]
    return [port for r in range(max(small)) for port in order if small[port] > r]


def _rerouted(name: str, fabric: Fabric, routes: Int32s, seed: int) -> Rules:
    """Rules for a run with several routing states: a schedule per pointer and state."""
    sizes = np.append(np.diff(fabric.forwarding.group_start), 0)  # item -1 serves no route
    table, keys = pointer_table(name, fabric, routes)
    pointers = len(keys)
    begins = np.zeros((len(routes), 2, pointers), np.int64)
    schedules: list[int] = []
    made: dict[tuple[int, int, int], int] = {}
    for epoch, kind, pointer in product(range(len(routes)), (0, 1), range(pointers)):
        group = int(routes[(epoch, *keys[pointer])])
        if group < 0 or sizes[group] < 2:
            continue
        what = (pointer, kind, group)
        if what not in made:
            made[what] = len(schedules)
            schedule = _schedule(fabric, group, seed, pointer << 1 | kind | group << 32)
            schedules += [len(schedule), *schedule]
        begins[epoch, kind, pointer] = made[what]
    epoch_of_first = np.zeros(len(fabric.forwarding.group_links), np.int64)
    for epoch in range(len(routes) - 1, -1, -1):
        groups = np.unique(routes[epoch][routes[epoch] >= 0])
        epoch_of_first[fabric.forwarding.group_start[groups[sizes[groups] > 0]]] = epoch
    flat = np.array([*schedules, 0], np.int64)
    number = np.tile(np.arange(pointers) << 1, 2) | np.repeat([0, 1], pointers)
    positions = np.zeros(2 * pointers, np.int64)
    lengths = np.maximum(flat[begins[0].reshape(-1)], 1)
    drawn_each(seed, SHUFFLE, number, 1 << 20, lengths, positions)
    state = state_of(
        [fabric.forwarding.group_of.shape[1], pointers],
        table,
        begins,
        positions,
        flat,
        epoch_of_first,
    )
    parameters = {"pointers": str(2 * pointers)}
    return Rules(_choose_rerouted(), no_label(), state, parameters=parameters, fabric=fabric)


def _schedule(fabric: Fabric, group: int, seed: int, what: int) -> list[int]:
    """Positions in a group, interleaved by weight, in a random order; a link that occurs n times
    has the sum of its weights."""
    part = slice(*fabric.forwarding.group_start[group : group + 2].tolist())
    links, weights = fabric.forwarding.group_links[part], fabric.forwarding.group_weights[part]
    _, first, which = np.unique(links, return_index=True, return_inverse=True)
    total = np.bincount(which.reshape(-1), weights).astype(np.int64)
    _, order = shuffled(np.array([len(first)]), seed, np.array([what]))
    return [int(first[port]) for port in interleaved(total.tolist(), order.tolist())]


def pointer_table(
    name: str, fabric: Fabric, routes: Int32s | None = None
) -> tuple[Int32s, list[tuple[int, int]]]:
    """(pointer of every switch and edge, -1 without a choice; one (switch, edge) per pointer).

    routes: int32[states, S, E], groups in all routing states; default the groups of `fabric`.

    A switch of tier t has a pointer per part of the fabric that is connected without the
    tiers above t. UsageError when the fabric has no tiers with a choice.
    """
    tier = fabric.nodes.tier[: fabric.switches].astype(np.int64)
    edges = edge_switches(fabric.attachments)
    if not (np.diff(fabric.forwarding.group_start) > 1).any() or tier.max() == tier.min():
        raise UsageError(f"{name} needs tiers of switches with a choice; {fabric.name} has none")
    parts = {int(t): _parts(fabric, tier, edges, int(t)) for t in set(tier.tolist())}
    sizes = np.append(np.diff(fabric.forwarding.group_start), 0)  # item -1 serves group -1
    groups = fabric.forwarding.group_of[None] if routes is None else np.maximum(routes, -1)
    choice = (sizes[groups] > 1).any(0)
    table = np.full(choice.shape, -1, np.int32)
    numbers: dict[tuple[int, bytes, int], int] = {}
    keys: list[tuple[int, int]] = []
    for switch, edge in zip(*(c.tolist() for c in np.nonzero(choice)), strict=True):
        # With links down, edges of one part may have different groups: each needs a pointer.
        key = (switch, groups[:, switch, edge].tobytes(), int(parts[int(tier[switch])][edge]))
        if key not in numbers:
            numbers[key] = len(keys)
            keys.append((switch, edge))
        table[switch, edge] = numbers[key]
    return table, keys


def _parts(fabric: Fabric, tier: Ints, edges: Int32s, most: int) -> Ints:
    """int64[edges]: part of each edge in the fabric without the tiers above `most`."""
    links = fabric.links
    inner = (links.source < fabric.switches) & (links.target < fabric.switches) & links.up
    a, b = links.source[inner], links.target[inner]
    low = (tier[a] <= most) & (tier[b] <= most)
    a, b = a[low], b[low]
    part = np.arange(fabric.switches)
    several = edges[(edges >= 0).sum(1) > 1]
    for row in several:  # a host connects all its switches
        known = row[row >= 0]
        a = np.append(a, known[1:])
        b = np.append(b, np.repeat(known[:1], len(known) - 1))
    while True:
        before = part.copy()
        np.minimum.at(part, a, part[b])
        np.minimum.at(part, b, part[a])
        if (part == before).all():
            part_of_edge: Ints = part[edges.max(1)]
            return part_of_edge


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    """State: edges, pointers; pointer table, positions of the pointers' rows, rows."""
    pointer = state[state[2] + at.switch * state[0] + at.edge]
    if at.packet & np.int64(ACK):
        pointer += state[1]
    row = state[4] + state[state[3] + pointer]
    position = state[row]
    following = position + 1
    state[row] = np.int64(0) if following == state[row + 1] else following
    return state[row + 2 + position]


@chooser
def _choose_rerouted(state: Ints, links: Ints, at: Choice) -> Int:
    """State: edges, pointers; pointer table, positions of schedules by routing state, positions in
    schedules, schedules, routing state of the group by its first member."""
    pointer = state[state[2] + at.switch * state[0] + at.edge]
    if at.packet & np.int64(ACK):
        pointer += state[1]
    routing = state[state[6] + at.first]
    schedule = state[5] + state[state[3] + 2 * state[1] * routing + pointer]
    last = state[4] + pointer
    position = state[last] % state[schedule]  # the previous schedule may be longer
    state[last] = position + 1
    return state[schedule + 1 + position]
