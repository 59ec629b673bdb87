"""Links that fail while packets are replayed, and routing that notices sooner or later.

A switch stops using its own dead links at once. The others learn after the convergence time G:
0, finite, or never; then every switch weighs its links by the paths behind them (W-ECMP).
Hosts see nothing of it but marks, trims, losses and timeouts, except for their own ports, whose
loss their peers are told of (MRC's port status update). Model: arXiv 2507.21372, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ..fabrics.fabric import Fabric
from ..fabrics.forwarding import Forwarding, without_links
from ..fabrics.weights import with_path_weights

DOWN: Final = "down"
UP: Final = "up"
SLOW: Final = "slow"
LOSSY: Final = "lossy"


class LinkEvent(NamedTuple):
    """What happens to a link at a time."""

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
    """G: until the other switches have learnt of it; None for never."""

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
        """Links that are down from the start on, when routing converges at once (G = 0)."""
        if self.convergence_ps != 0:
            return []
        later = {event.link for event in self.events if event.time_ps > 0}
        return [
            event.link for event in self.events if event.what == DOWN and event.link not in later
        ]

    def __add__(self, other: Failures) -> Failures:
        """Both; the convergence time is that of the first."""
        return Failures(self.events + other.events, self.convergence_ps)


def cables(fabric: Fabric) -> NDArray[np.int64]:
    """int64[n, 2]: both directions of every cable between switches."""
    source, target = fabric.links.source, fabric.links.target
    inner = np.flatnonzero((source < fabric.switches) & (target < fabric.switches))
    low = np.minimum(source[inner], target[inner]).astype(np.int64)
    high = np.maximum(source[inner], target[inner])
    order = inner[np.lexsort((inner, source[inner] > target[inner], high, low))]
    pair = (low * fabric.switches + high)[
        np.lexsort((inner, source[inner] > target[inner], high, low))
    ]
    ends = np.flatnonzero(np.append(pair[1:] != pair[:-1], True)) + 1
    both = []
    for begin, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        half = (end - begin) // 2  # parallel cables: the n-th there with the n-th back
        both.append(np.stack([order[begin : begin + half], order[begin + half : end]], 1))
    return np.concatenate(both) if both else np.zeros((0, 2), np.int64)


def random_cables(
    fabric: Fabric, share: float, seed: int, time_ps: int = 0, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Every cable between switches fails by itself with probability `share`, both ways."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the share of links that fail must be 0 to 1, not {share}")
    all_cables = cables(fabric)
    failed = np.random.default_rng([seed, 0x4641]).random(len(all_cables)) < share
    return outage(all_cables[failed].reshape(-1).tolist(), time_ps, until_ps)


def outage(
    links: Iterable[int | str], time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Links that go down together, and come back unless `until_ps` is None."""
    events = [LinkEvent(time_ps, link, DOWN) for link in links]
    if until_ps is not None:
        events += [LinkEvent(until_ps, event.link, UP) for event in events]
    return tuple(events)


def flapping(
    links: Iterable[int | str], time_ps: int, until_ps: int, down_ps: int, up_ps: int
) -> tuple[LinkEvent, ...]:
    """Links that are down for `down_ps`, up for `up_ps`, and so on; up in the end."""
    if down_ps <= 0 or up_ps <= 0:
        raise UsageError("a flapping link needs times for down and up above 0")
    names = tuple(links)
    events: list[LinkEvent] = []
    begin = time_ps
    while begin < until_ps:
        events += outage(names, begin, min(begin + down_ps, until_ps))
        begin += down_ps + up_ps
    return tuple(events)


def reboot(
    fabric: Fabric, switch: str, time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """A switch and all its links are gone for a while."""
    return outage(fabric.find_links(switch).tolist(), time_ps, until_ps)


def port_loss(
    fabric: Fabric, host: int, port: int, time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """A NIC port of a host loses its cable: in a multi-plane fabric one plane for this host."""
    if not (0 <= host < fabric.hosts and 0 <= port < fabric.ports):
        raise UsageError(f"{fabric.name} has no host {host} with a port {port}")
    at = fabric.attachments
    links = [int(at.access_link[host, port]), int(at.exit_link[host, port])]
    return outage([link for link in links if link >= 0], time_ps, until_ps)


def plane_loss(
    fabric: Fabric, plane: int, time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """All links of the switches of a plane."""
    inside = np.flatnonzero(fabric.nodes.plane[: fabric.switches] == plane)
    if not len(inside):
        raise UsageError(f"{fabric.name} has no plane {plane}")
    of = np.isin(fabric.links.source, inside) | np.isin(fabric.links.target, inside)
    return outage(np.flatnonzero(of).tolist(), time_ps, until_ps)


class Scheduled(NamedTuple):
    """Failures as the driver takes them."""

    fabric: Fabric
    """Its forwarding has the groups of all routing states, one after the other."""
    routes: NDArray[np.int32]
    """int32[states, S, E]: like `FabricArrays.route`; state 0 is that before anything failed."""
    changes: NDArray[np.int64]
    """int64[changes, 4]: (time, what, which, value) of engine/feedback_state.py, by time."""

    def without_routing(self) -> Scheduled:
        """Switches with static routes: nobody reacts."""
        from .hosts.feedback_state import ROUTES

        keep = self.changes[:, 1] != ROUTES
        return self._replace(routes=self.routes[:1], changes=self.changes[keep])


def scheduled(fabric: Fabric, failures: Failures, seed: int = 0) -> Scheduled:
    """Resolve names and compute the routing states. UsageError for links that do not exist."""
    from .hosts.feedback_state import LINK_DOWN, LINK_LOSS, LINK_RATE, LINK_UP, ROUTES

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


def _up_at(fabric: Fabric, turns: list[tuple[int, int, bool]], time_ps: int) -> NDArray[np.bool_]:
    up = fabric.links.up.copy()
    for at, link, state in sorted(turns):
        if at <= time_ps:
            up[link] = state
    return up


def _port_status(
    fabric: Fabric, turns: list[tuple[int, int, bool]]
) -> list[tuple[int, int, int, int]]:
    """When peers learn by which ports a host can be reached: after the links' delays (assumed)."""
    from .hosts.feedback_state import PEER_PORTS

    access = fabric.attachments.access_link
    at = {int(access[h, p]): (h, p) for h, p in np.argwhere(access >= 0).tolist()}
    whole = (1 << fabric.ports) - 1
    masks: dict[int, int] = {}
    tiers = 2 * max(1, int(fabric.nodes.tier.max(initial=1)))
    later = tiers * int(np.median(fabric.links.delay_ns)) * 1_000
    rows = []
    for time, link, up in sorted(turns):
        if link in at:
            host, port = at[link]
            mask = masks.get(host, whole)
            masks[host] = mask | 1 << port if up else mask & ~(1 << port)
            rows.append((time + later, PEER_PORTS, host, masks[host]))
    return rows


class _States:
    """Routing states, each computed once; groups of all of them in one table."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.numbers: dict[bytes, int] = {}
        self.parts: list[Forwarding] = [fabric.forwarding]

    def number(self, known: NDArray[np.bool_], now: NDArray[np.bool_]) -> int:
        """State in which the others know `known`, and each switch its own links of `now`."""
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

    def done(self, changes: NDArray[np.int64]) -> Scheduled:
        from .model.arrays import fabric_arrays

        routes, starts, first_group, first_link = [], [], 0, 0
        for part in self.parts:
            route = fabric_arrays(replace(self.fabric, forwarding=part)).route
            routes.append(np.where(route >= 0, route + first_group, route).astype(np.int32))
            starts.append(part.group_start[:-1] + first_link)
            first_group += len(part.group_start) - 1
            first_link += len(part.group_links)
        whole = Forwarding(
            np.append(np.concatenate(starts), first_link).astype(np.int64),
            np.concatenate([part.group_links for part in self.parts]),
            np.concatenate([part.group_weights for part in self.parts]),
            self.fabric.forwarding.group_of,
        )
        return Scheduled(replace(self.fabric, forwarding=whole), np.stack(routes), changes)


def converged(fabric: Fabric, links: Iterable[int | str]) -> Fabric:
    """The fabric after these links went down and all switches know and weigh what is left."""
    after = fabric.down(links)
    if not after.routed:
        return after
    return replace(after, forwarding=_expanded(with_path_weights(after).forwarding))


def _expanded(forwarding: Forwarding) -> Forwarding:
    """Links of weight w w times, turn by turn (interleaved weighted round robin, paper App. F)."""
    start, links = [0], []
    for group in range(len(forwarding.group_start) - 1):
        part = slice(int(forwarding.group_start[group]), int(forwarding.group_start[group + 1]))
        members, weights = forwarding.group_links[part], forwarding.group_weights[part]
        for turn in range(int(weights.max(initial=0))):
            links.append(members[weights > turn])
        if not len(members):  # no switch uses it; strategies expect links in every group
            links.append(np.zeros(1, np.int32))
        start.append(start[-1] + max(1, int(weights.sum())))
    flat = np.concatenate([np.zeros(0, np.int32), *links]).astype(np.int32)
    return Forwarding(
        np.array(start, np.int64), flat, np.ones(len(flat), np.int64), forwarding.group_of
    )


def rho_max(fabric: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32]) -> float:
    """Share of the line rate at which every flow can send when each is split evenly over its
    shortest paths: the slowest link's capacity over the flows on it (paper, section 6); at most 1.
    """
    from .model.arrays import ATTACHED, fabric_arrays

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
