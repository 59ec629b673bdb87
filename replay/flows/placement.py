"""The placement of whole flows on the links of a fabric.

A `Walk` handles many seeds at once: row r is the whole traffic with the r-th choice of
seeds. A plain placement is a walk with one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import (
    Bools,
    Int32s,
    Ints,
    NamedTuple,
    UInt16s,
    UInt32s,
    UInt64s,
    kernel,
    subkernel,
)
from ..fabrics.fabric import Attachments, Fabric
from ..fabrics.forwarding import Forwarding, Groups
from ..hashing.bound import BoundHash
from ..hashing.models import bind
from ..hashing.reduction import PackedGroups, choose_by_unit
from ..hashing.settings import Group, HashSettings, equal_cost
from ..traffic.traffic import Traffic
from .loads import MOST_HOPS, IngressVariants, Placement, Start, enter, hashes_ingress

Choose: TypeAlias = Callable[[Int32s, Int32s, Int32s, UInt16s], None]
"""Called with the switch of every row and unit, its ingress link, its group (-1
none), and the members to set."""
Visit: TypeAlias = Callable[[int, Int32s], None]
"""Called at every hop with its number and the link of every row and unit, -1 for none."""


@dataclass(frozen=True)
class _Hashing:
    """Switches with equal hash settings except the seed."""

    bound: BoundHash
    packed: PackedGroups
    """The different groups."""
    switches: Bools
    """bool[switches]: which ones."""
    ingress: IngressVariants | None


class Walk:
    """Traffic on a fabric whose switches hash by `settings`, one per switch.

    It is immutable, so threads may share it.
    """

    def __init__(self, traffic: Traffic, fabric: Fabric, settings: Sequence[HashSettings]) -> None:
        self.units = len(traffic)
        self.fabric = fabric
        self.start = enter(traffic, fabric)
        self._traffic = traffic
        groups, kind_of = _different_groups(fabric.forwarding)
        self._groups = groups
        self._kind_of = np.append(kind_of, np.int32(-1))  # the last item serves group -1
        self._hashings = [self._hashing(kind, settings) for kind in _kinds(settings)]

    def _hashing(self, kind: HashSettings, settings: Sequence[HashSettings]) -> _Hashing:
        ingress = None
        if hashes_ingress(kind):
            ingress = IngressVariants(self.fabric, self._traffic, kind)
            bound = ingress.bound
        else:
            bound = bind(self._traffic.keys, kind)
        same = np.array([replace(s, seed=0) == kind for s in settings], np.bool_)
        return _Hashing(bound, bound.pack(self._groups), same, ingress)

    @property
    def is_linear(self) -> bool:
        """Whether every switch hashes linearly in its seed."""
        return all(hashing.bound.is_linear for hashing in self._hashings)

    def run(self, seeds: UInt64s, visit: Visit) -> None:
        """One walk per row of `seeds`: uint64[rows] (equal on all switches) or [rows, switches]."""
        walk(self._traffic, self.fabric, self.start, len(seeds), self.chooser(seeds), visit)

    def chooser(self, seeds: UInt64s) -> Choose:
        """The choices of the switches under seeds as of `run`."""
        known: dict[int, UInt32s] = {}

        def choose(node: Int32s, came_by: Int32s, group: Int32s, member: UInt16s) -> None:
            for number, hashing in enumerate(self._hashings):
                values = self._values(number, hashing, seeds, node, came_by, known)
                self._choose(hashing, values, node, group, member)

        return choose

    def _values(
        self,
        number: int,
        hashing: _Hashing,
        seeds: UInt64s,
        node: Int32s,
        came_by: Int32s,
        known: dict[int, UInt32s],
    ) -> UInt32s:
        """uint32[rows, units]: hash values at the current switches; `known` keeps values
        that are the same at every hop."""
        everywhere = seeds.ndim == 1
        if everywhere and hashing.ingress is None:
            if number not in known:
                known[number] = np.empty(node.shape, np.uint32)
                hashing.bound.fill(seeds, known[number])
            return known[number]
        which = np.empty(node.shape, np.int32)
        _which_seed(node, 0 if everywhere else self.fabric.switches, which)
        if hashing.ingress is not None:
            return hashing.ingress.values(seeds.ravel(), which, came_by)
        values = np.empty(node.shape, np.uint32)
        hashing.bound.fill_at(seeds.ravel(), which, values)
        return values

    def _choose(
        self, hashing: _Hashing, values: UInt32s, node: Int32s, group: Int32s, member: UInt16s
    ) -> None:
        """The members chosen by the switches with the same hash settings."""
        group = self._kind_of[group]
        if len(self._hashings) == 1:
            choose_by_unit(values, hashing.packed, group, member)
            return
        group_of_settings = np.where(hashing.switches[node], group, -1).astype(np.int32)
        chosen = np.empty_like(member)
        choose_by_unit(values, hashing.packed, group_of_settings, chosen)
        np.copyto(member, chosen, where=group_of_settings >= 0)


def _different_groups(forwarding: Forwarding) -> tuple[list[Group], Int32s]:
    """(the different groups by weights and buckets, int32[groups]: which of them each group is).

    A large fabric has as many groups as leaves times leaves, and few different ones. A group that
    lost all its links stays in the list; no switch chooses from it.
    """
    number: dict[tuple[bytes, bytes], int] = {}
    groups: list[Group] = []
    start, weights = forwarding.group_start.tolist(), forwarding.group_weights
    kind_of = np.empty(len(start) - 1, np.int32)
    for i in range(len(start) - 1):
        group, buckets = weights[start[i] : start[i + 1]], forwarding.buckets.get(i)
        key = group.tobytes(), b"" if buckets is None else buckets.tobytes()
        if key not in number:
            number[key] = len(groups)
            groups.append(Group(group, buckets) if len(group) else equal_cost(1))
        kind_of[i] = number[key]
    return groups or [equal_cost(1)], kind_of


def walk(
    traffic: Traffic,
    fabric: Fabric,
    start: Start,
    rows: int,
    choose: Choose,
    visit: Visit,
) -> None:
    """Walk all units `rows` times at once; `choose` sets the members of switches with a choice."""
    shape = (rows, len(traffic))
    node = np.array(np.broadcast_to(start.switch, shape))
    link = np.array(np.broadcast_to(start.access, shape))
    came_by = np.empty(shape, np.int32)
    group, member = np.empty(shape, np.int32), np.empty(shape, np.uint16)
    groups = fabric.forwarding.groups
    visit(0, link)
    for hop in range(1, MOST_HOPS + 2):
        came_by[:] = link
        moving, choosing = _look_up(
            node, start.edge, traffic.dst_host, fabric.attachments, groups, group, link
        )
        if not moving:
            return
        member[:] = 0
        if choosing:
            choose(node, came_by, group, member)
        _follow(group, member, groups, fabric.links.target, fabric.switches, link, node)
        visit(hop, link)


def _kinds(settings: Sequence[HashSettings]) -> list[HashSettings]:
    """The different settings, ignoring seeds."""
    kinds: list[HashSettings] = []
    for settings_of_switch in settings:
        kind = replace(settings_of_switch, seed=0)
        if kind not in kinds:
            kinds.append(kind)
    return kinds


@subkernel
def _look_up(
    node: Int32s,
    edge: Int32s,
    host: Int32s,
    attached: Attachments,
    groups: Groups,
    group: Int32s,
    link: Int32s,
) -> tuple[bool, bool]:
    """Set the group of every unit (-1 none) or its exit link (-1 none).

    Returns whether a unit continues, and whether a unit has several links to choose from.
    """
    moving, choosing = False, False
    for r in range(node.shape[0]):
        for i in range(node.shape[1]):
            group[r, i] = -1
            link[r, i] = -1
            switch = node[r, i]
            if switch < 0:
                continue
            for port in range(attached.switch.shape[1]):
                if attached.switch[host[i], port] == switch:
                    link[r, i] = attached.exit_link[host[i], port]
            if link[r, i] < 0:
                g = groups.of[switch, edge[i]]
                group[r, i] = g
                if g < 0:
                    continue
                choosing |= groups.start[g + 1] - groups.start[g] > 1
            moving = True
    return moving, choosing


@subkernel
def _follow(
    group: Int32s,
    member: UInt16s,
    groups: Groups,
    target: Int32s,
    switches: int,
    link: Int32s,
    node: Int32s,
) -> None:
    """Take the chosen link; `node` becomes the switch after it, -1 after the last."""
    for r in range(node.shape[0]):
        for i in range(node.shape[1]):
            g = np.int64(group[r, i])
            node[r, i] = -1
            if g >= 0:
                taken = groups.links[groups.start[g] + np.int64(member[r, i])]
                link[r, i] = taken
                if target[taken] < switches:
                    node[r, i] = target[taken]


@kernel
def _which_seed(node: Int32s, switches: int, which: Int32s) -> None:
    """Index of row r's seed for its switch in the flattened seeds; any value for finished units.

    switches: 0 when a row has one seed for all switches.
    """
    for r in range(node.shape[0]):
        for i in range(node.shape[1]):
            if switches == 0:
                which[r, i] = r
            else:
                which[r, i] = r * switches + max(node[r, i], np.int32(0))


def place(traffic: Traffic, fabric: Fabric, settings: Sequence[HashSettings]) -> Placement:
    """The path of every unit if each switch hashes with its own settings and seed."""
    seeds = np.array([[s.seed for s in settings]], np.uint64)
    columns: list[Int32s] = []
    Walk(traffic, fabric, settings).run(seeds, lambda _hop, link: columns.append(link[0].copy()))
    return finished(columns, traffic, fabric)


def place_by(traffic: Traffic, fabric: Fabric, choose: Choose) -> Placement:
    """The path of every unit if `choose` decides, for one row."""
    columns: list[Int32s] = []
    start = enter(traffic, fabric)
    walk(traffic, fabric, start, 1, choose, lambda _hop, link: columns.append(link[0].copy()))
    return finished(columns, traffic, fabric)


def finished(columns: Sequence[Int32s], traffic: Traffic, fabric: Fabric) -> Placement:
    """A placement of links hop by hop; units that do not end at their host are dropped."""
    links = np.stack(columns, axis=1)
    last = np.take_along_axis(links, np.maximum((links >= 0).sum(1) - 1, 0)[:, None], 1)[:, 0]
    end = np.where(last >= 0, fabric.links.target[last], -1)
    return Placement(links, end != traffic.dst_host + fabric.switches)


# All equal-cost paths between two points of a fabric, for strategies that assign paths.

MOST_PATHS = 1 << 22
"""Maximum number of paths of all pairs together."""


class PathChoices(NamedTuple):
    """The possible paths of each unit between switches."""

    pair: Int32s
    """int32[units]: row of `first`; -1 if the host cannot be reached."""
    first: Ints
    """int64[pairs + 1]: start of the paths of each pair in `links`."""
    links: Int32s
    """int32[paths, hops]: the links between switches, -1 after the last."""
    switch: Ints
    """int64[pairs]: start of the paths of each pair."""
    edge: Ints
    """int64[pairs]: edge of the destination hosts of each pair."""


def path_choices(traffic: Traffic, fabric: Fabric) -> PathChoices:
    """The equal-cost paths of every unit, from its first switch to one of its destination's.

    UsageError if there are too many to enumerate.
    """
    start = enter(traffic, fabric)
    edges = fabric.forwarding.group_of.shape[1]
    reached = start.switch >= 0
    key = np.where(reached, start.switch.astype(np.int64) * edges + start.edge, -1)
    keys, pair = np.unique(key, return_inverse=True)
    number = (pair - int((keys < 0).any())).astype(np.int32)
    number[~reached] = -1
    paths: list[list[int]] = []
    first = [0]
    keys = keys[keys >= 0]
    for known_key in keys.tolist():
        _extend(fabric, known_key // edges, known_key % edges, [], paths)
        first.append(len(paths))
    hops = max((len(path) for path in paths), default=0)
    links = np.full((len(paths), hops), -1, np.int32)
    for row, path in zip(links, paths, strict=True):
        row[: len(path)] = path
    return PathChoices(number, np.array(first, np.int64), links, keys // edges, keys % edges)


def _extend(
    fabric: Fabric, switch: int, edge: int, so_far: list[int], paths: list[list[int]]
) -> None:
    """Add to `paths` every further path from a switch."""
    members, _ = fabric.group(switch, edge)
    if not len(members):
        paths.append(so_far)
        if len(paths) > MOST_PATHS:
            raise UsageError(f"{fabric.name} has more than {MOST_PATHS:,} paths for this traffic")
        return
    if len(so_far) >= MOST_HOPS:
        raise UsageError(f"the routes of {fabric.name} form a loop")
    for link in members.tolist():
        _extend(fabric, int(fabric.links.target[link]), edge, [*so_far, link], paths)


def links_of_paths(
    traffic: Traffic, fabric: Fabric, choices: PathChoices, path: Ints
) -> list[Int32s]:
    """The links of every unit hop by hop, as columns; unit i takes path[i] (-1: none)."""
    n = len(traffic)
    start = enter(traffic, fabric)
    columns = [np.where(path >= 0, start.access, -1).astype(np.int32)]
    inner = np.where(path[:, None] >= 0, choices.links[path], -1)
    last = np.where(path >= 0, start.switch, -1)
    for hop in range(inner.shape[1]):
        last = np.where(inner[:, hop] >= 0, fabric.links.target[inner[:, hop]], last)
    exits = np.where(path >= 0, fabric.exit_link_at(last, np.maximum(traffic.dst_host, 0)), -1)
    padded = np.concatenate([inner, np.full((n, 1), -1, np.int32)], axis=1)
    padded[np.arange(n), (inner >= 0).sum(1)] = exits
    return columns + [np.ascontiguousarray(c, dtype=np.int32) for c in padded.T]
