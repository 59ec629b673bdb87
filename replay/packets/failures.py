"""Failures: changes of links and routing during a run of the event-driven driver.

A switch stops using its own failed links at once. Other switches learn after the convergence time
G: 0, finite, or never; then every switch weights its links by the paths beyond them (W-ECMP).
Hosts only see marks, trims, losses and timeouts, except for their own ports, whose loss is
reported to their peers (MRC's port status update). Model: arXiv 2507.21372, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bools, Int32s, Ints, NamedTuple
from ..fabrics.fabric import Fabric
from ..fabrics.forwarding import Forwarding, without_links
from ..fabrics.routes import with_path_weights
from .model.arrays import ATTACHED, fabric_arrays
from .model.draws import generator

LINK_DOWN, LINK_UP, LINK_RATE, LINK_LOSS, ROUTES, PEER_PORTS = range(6)
"""LINK_RATE: value is ps per byte, scaled by 2^20. LINK_LOSS: chance in 2^-32. ROUTES: `which` is
the new routing state. PEER_PORTS: all hosts learn the usable ports (mask) of a host."""


DOWN: Final = "down"
UP: Final = "up"
SLOW: Final = "slow"
LOSSY: Final = "lossy"
_CABLES: Final = 0x4641
"""Purpose of `generator`."""


class LinkEvent(NamedTuple):
    """A change of a link at a time."""

    time_ps: int
    link: int | str
    """Index of a one-way link, or a name (`Fabric.find_links`)."""
    what: str
    """down, up, slow, lossy."""
    value: float = 0.0
    """slow: bits per second. lossy: chance that a packet is lost, 0 to 1."""


@dataclass(frozen=True)
class Failures:
    """Events in any order."""

    events: tuple[LinkEvent, ...] = ()
    convergence_ps: int | None = None
    """G: time until the other switches learn of an event; None for never."""

    def __post_init__(self) -> None:
        if self.convergence_ps is not None and self.convergence_ps < 0:
            raise UsageError("convergence_ps must be 0 or more, or None for never")
        for event in self.events:
            if event.what not in (DOWN, UP, SLOW, LOSSY) or event.time_ps < 0:
                raise UsageError(f"{event}: use down, up, slow or lossy at a time from 0 on")
            if event.what == SLOW and event.value < 1e6:
                raise UsageError(f"{event.link}: slow needs a rate of 1 Mb/s or more")
            if event.what == LOSSY and not 0.0 <= event.value <= 1.0:
                raise UsageError(f"{event.link}: lossy needs a chance from 0 to 1")

    def known_before(self) -> list[int | str]:
        """Links that are down during the whole run, if routing converges at once (G = 0)."""
        if self.convergence_ps != 0:
            return []
        later = {event.link for event in self.events if event.time_ps > 0}
        return [
            event.link for event in self.events if event.what == DOWN and event.link not in later
        ]

    def __add__(self, other: Failures) -> Failures:
        """The events of both; the convergence time of the first."""
        return Failures(self.events + other.events, self.convergence_ps)


def cables(fabric: Fabric) -> Ints:
    """int64[n, 2]: both directions of every cable between switches."""
    source, target = fabric.links.source, fabric.links.target
    inner = np.flatnonzero((source < fabric.switches) & (target < fabric.switches))
    low = np.minimum(source[inner], target[inner]).astype(np.int64)
    high = np.maximum(source[inner], target[inner])
    by_cable = np.lexsort((inner, source[inner] > target[inner], high, low))
    order, pair = inner[by_cable], (low * fabric.switches + high)[by_cable]
    ends = np.flatnonzero(np.append(pair[1:] != pair[:-1], True)) + 1
    both = []
    for begin, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        half = (end - begin) // 2  # parallel cables: the n-th of each direction
        both.append(np.stack([order[begin : begin + half], order[begin + half : end]], 1))
    return np.concatenate(both) if both else np.zeros((0, 2), np.int64)


def random_cables(
    fabric: Fabric, share: float, seed: int, time_ps: int = 0, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Every cable between switches fails independently with probability `share`, both ways."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the share of links that fail must be 0 to 1, not {share}")
    all_cables = cables(fabric)
    failed = generator(seed, _CABLES).random(len(all_cables)) < share
    return outage(all_cables[failed].reshape(-1).tolist(), time_ps, until_ps)


def outage(
    links: Iterable[int | str], time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Links that go down together, and return unless `until_ps` is None."""
    events = [LinkEvent(time_ps, link, DOWN) for link in links]
    if until_ps is not None:
        events += [LinkEvent(until_ps, event.link, UP) for event in events]
    return tuple(events)


def flapping(
    links: Iterable[int | str], time_ps: int, until_ps: int, down_ps: int, up_ps: int
) -> tuple[LinkEvent, ...]:
    """Links that are down for `down_ps` and up for `up_ps` in turn; up at the end."""
    if down_ps <= 0 or up_ps <= 0:
        raise UsageError("a flapping link needs times for down and up above 0")
    names = tuple(links)
    events: list[LinkEvent] = []
    begin = time_ps
    while begin < until_ps:
        events += outage(names, begin, min(begin + down_ps, until_ps))
        begin += down_ps + up_ps
    return tuple(events)


class Scheduled(NamedTuple):
    """Failures as the input of the driver."""

    fabric: Fabric
    """Its forwarding has the groups of all routing states, concatenated."""
    routes: Int32s
    """int32[states, S, E]: `FabricArrays.route` of each state; state 0 is before all failures."""
    changes: Ints
    """int64[changes, 4]: (time, what, which, value), sorted by time; what: LINK_DOWN and others."""

    def without_routing(self) -> Scheduled:
        """For static routes: switches do not react."""
        keep = self.changes[:, 1] != ROUTES
        return self._replace(routes=self.routes[:1], changes=self.changes[keep])

    def rates(self, ps_per_byte_q20: Ints) -> tuple[Ints, Ints]:
        """Least and most time of a byte on each link, scaled by 2^20, from those at the start."""
        least, most = ps_per_byte_q20.copy(), ps_per_byte_q20.copy()
        changed = self.changes[self.changes[:, 1] == LINK_RATE]
        np.minimum.at(least, changed[:, 2], changed[:, 3])
        np.maximum.at(most, changed[:, 2], changed[:, 3])
        return least, most


def scheduled(fabric: Fabric, failures: Failures) -> Scheduled:
    """Resolve names and compute the routing states. UsageError for links that do not exist."""
    states = _States(fabric)
    rows: list[tuple[int, int, int, int]] = []
    codes = {DOWN: LINK_DOWN, UP: LINK_UP, SLOW: LINK_RATE, LOSSY: LINK_LOSS}
    turns: list[tuple[int, int, bool]] = []
    for event in failures.events:
        for link in _links(fabric, event.link):
            value = 0
            if event.what == SLOW:
                value = round(8e12 * (1 << 20) / event.value)
            elif event.what == LOSSY:
                value = min(round(event.value * 2**32), 2**32)
            else:
                turns.append((event.time_ps, link, event.what == UP))
            rows.append((event.time_ps, codes[event.what], link, value))
    rows += _port_status(fabric, turns)
    times = {time for time, _, _ in turns}
    if failures.convergence_ps:
        times |= {time + failures.convergence_ps for time in times}
    current = 0
    for time in sorted(times):
        now = _up_at(fabric, turns, time)
        known = failures.convergence_ps
        before = fabric.links.up if known is None else _up_at(fabric, turns, time - known)
        state = states.number(before, now)
        if state != current:
            rows.append((time, ROUTES, state, 0))
            current = state
    changes = np.array(sorted(rows), np.int64).reshape(-1, 4)
    return states.done(changes)


def _links(fabric: Fabric, link: int | str) -> list[int]:
    if isinstance(link, str):
        return [int(i) for i in fabric.find_links(link)]
    if not 0 <= link < len(fabric.links.source):
        raise UsageError(f"{fabric.name} has no link {link}")
    return [link]


def _up_at(fabric: Fabric, turns: list[tuple[int, int, bool]], time_ps: int) -> Bools:
    up = fabric.links.up.copy()
    for at, link, state in sorted(turns):
        if at <= time_ps:
            up[link] = state
    return up


def _port_status(
    fabric: Fabric, turns: list[tuple[int, int, bool]]
) -> list[tuple[int, int, int, int]]:
    """Times at which peers learn the usable ports of a host: after the delays of the links
    (assumed)."""
    access = fabric.attachments.access_link
    at = {int(access[h, p]): (h, p) for h, p in np.argwhere(access >= 0).tolist()}
    all_ports = (1 << fabric.ports) - 1
    masks: dict[int, int] = {}
    tiers = 2 * max(1, int(fabric.nodes.tier.max(initial=1)))
    later = tiers * int(np.median(fabric.links.delay_ns)) * 1_000
    rows = []
    for time, link, up in sorted(turns):
        if link in at:
            host, port = at[link]
            mask = masks.get(host, all_ports)
            masks[host] = mask | 1 << port if up else mask & ~(1 << port)
            rows.append((time + later, PEER_PORTS, host, masks[host]))
    return rows


class _States:
    """Routing states, each computed once, with the groups of all states in one table."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.numbers: dict[bytes, int] = {}
        self.parts: list[Forwarding] = [fabric.forwarding]

    def number(self, known: Bools, now: Bools) -> int:
        """The state in which switches see the links `known` up elsewhere, and `now` of theirs."""
        links = self.fabric.links
        inner = (links.source < self.fabric.switches) & (links.target < self.fabric.switches)
        known, now = known | ~inner, now | ~inner
        if (known >= links.up).all() and (now >= links.up).all():
            return 0
        key = known.tobytes() + now.tobytes()
        if key not in self.numbers:
            self.numbers[key] = len(self.parts)
            converged = self.fabric.forwarding
            if not (known >= links.up).all() and self.fabric.routed:
                converged = with_path_weights(
                    self.fabric.with_links(up=known & links.up)
                ).forwarding
            self.parts.append(_expanded(without_links(converged, now)))
        return self.numbers[key]

    def done(self, changes: Ints) -> Scheduled:
        routes, starts, first_group, first_link = [], [], 0, 0
        for part in self.parts:
            route = fabric_arrays(replace(self.fabric, forwarding=part)).route
            routes.append(np.where(route >= 0, route + first_group, route).astype(np.int32))
            starts.append(part.group_start[:-1] + first_link)
            first_group += len(part.group_start) - 1
            first_link += len(part.group_links)
        all_switches = Forwarding(
            np.append(np.concatenate(starts), first_link).astype(np.int64),
            np.concatenate([part.group_links for part in self.parts]),
            np.concatenate([part.group_weights for part in self.parts]),
            self.fabric.forwarding.group_of,
            ipv6_from=self.fabric.forwarding.ipv6_from,
        )
        return Scheduled(replace(self.fabric, forwarding=all_switches), np.stack(routes), changes)


def converged(fabric: Fabric, links: Iterable[int | str]) -> Fabric:
    """The fabric without these links, after all switches know and weight the remaining links."""
    after = fabric.down(links)
    if not after.routed:
        return after
    return replace(after, forwarding=_expanded(with_path_weights(after).forwarding))


def _expanded(forwarding: Forwarding) -> Forwarding:
    """Links of weight w repeated w times, interleaved (weighted round robin, paper App. F)."""
    start, links = [0], []
    for group in range(len(forwarding.group_start) - 1):
        part = slice(int(forwarding.group_start[group]), int(forwarding.group_start[group + 1]))
        members, weights = forwarding.group_links[part], forwarding.group_weights[part]
        for turn in range(int(weights.max(initial=0))):
            links.append(members[weights > turn])
        if not len(members):  # unused; strategies expect links in every group
            links.append(np.zeros(1, np.int32))
        start.append(start[-1] + max(1, int(weights.sum())))
    flat = np.concatenate([np.zeros(0, np.int32), *links]).astype(np.int32)
    return Forwarding(
        np.array(start, np.int64),
        flat,
        np.ones(len(flat), np.int64),
        forwarding.group_of,
        ipv6_from=forwarding.ipv6_from,
    )


def rho_max(fabric: Fabric, src: Int32s, dst: Int32s) -> float:
    """Share of the line rate at which every flow can send if flows are split evenly over their
    shortest paths: minimum over links of capacity over load (paper, section 6); at most 1.
    """
    fabric = with_path_weights(fabric)
    arrays = fabric_arrays(fabric)
    load = np.zeros(len(fabric.links.source))
    host_rate = fabric.links.rate_bits_per_second[arrays.access.max(1)].astype(np.float64)
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        edge = int(arrays.host_edge[d])
        ports = [p for p in range(arrays.access.shape[1]) if arrays.access[s, p] >= 0]
        level: dict[int, float] = {}
        for port in ports:
            switch = int(arrays.host_switch[s, port])
            level[switch] = level.get(switch, 0.0) + host_rate[s] / len(ports)
        while level:
            below: dict[int, float] = {}
            for switch, amount in level.items():
                group = int(arrays.route[switch, edge]) if edge >= 0 else -1
                if group == ATTACHED or group < 0:
                    continue
                members, weights = fabric.group(switch, edge)
                for link, weight in zip(members.tolist(), weights.tolist(), strict=True):
                    part = amount * weight / int(weights.sum())
                    load[link] += part
                    target = int(fabric.links.target[link])
                    below[target] = below.get(target, 0.0) + part
            level = below
    busy = load > 0
    share = fabric.links.rate_bits_per_second[busy] / load[busy]
    return float(min(1.0, share.min(initial=1.0)))
