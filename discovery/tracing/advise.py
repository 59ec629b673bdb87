"""Small changes that relieve the busiest link between switches: advice that is never applied.

Three kinds are tried, each greedily: another UDP source port of single queue pairs, another hash
seed of one switch, routes to single hosts over one link. A change is kept if the busiest link of
all is relieved; bytes per rate are compared.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple, TypeVar

import numpy as np

from ...kernels.kernel import Bools, Floats, Int32s, Ints
from ...replay.compare.captured import links_by_port
from ...replay.fabrics.fabric import Address, Fabric
from ...replay.fabrics.routes import edge_per_host, with_ipv6
from ...replay.hashing.keys import address_text
from ...replay.traffic.traffic import Traffic
from ..asking import is_port
from .paths import TracedPaths, trace_paths
from .results import Advice, AdviceOption

T = TypeVar("T")
MOST_CHANGES = 16
_FLOWS, _PORTS, _SEEDS, _HOSTS = 12, 64, 64, 16
"""How many of each are tried per change."""
_MOST_CELLS = 1 << 24
_MOST_HOSTS = 4096
"""Routes to single hosts are tried on fabrics up to this size."""


class _Loads(NamedTuple):
    """Bytes per link, and seconds that they take on links between switches."""

    wire_bytes: Ints
    busy_ns: Floats

    @property
    def busiest(self) -> int:
        return int(self.busy_ns.argmax())

    @property
    def peak(self) -> float:
        return float(self.busy_ns.max())

    @property
    def score(self) -> tuple[float, float]:
        """Of two with equal peaks, the more even one: several links may be the busiest."""
        return self.peak, float((self.busy_ns**2).sum())


def advise(traffic: Traffic, fabric: Fabric) -> Advice:
    """Advice for the units with complete computed paths, without options if they put no load
    between switches.

    Captures are no evidence here: a changed flow was never captured.
    """
    traffic = replace(traffic, seen=None, windows=None, messages=None)
    paths = trace_paths(traffic, fabric)
    complete = ~paths.placement.dropped
    left_out = int(np.count_nonzero(~complete))
    nothing = Advice(fullest_link=None, busy_ns=None, flows_left_out=left_out, options=[])
    if not complete.any():
        return nothing
    traffic = traffic.take(complete)
    links = paths.placement.links[complete]
    now = _loads(links, traffic.wire_bytes, fabric)
    if now.peak == 0:
        return nothing
    kinds = [_source_ports(traffic, fabric, links, now), _seed(traffic, fabric, now)]
    if fabric.hosts <= _MOST_HOSTS:
        kinds.append(_routes(traffic, fabric, links, now))
    return Advice(
        fullest_link=fabric.link_name(now.busiest),
        busy_ns=now.peak,
        flows_left_out=left_out,
        options=sorted((option for option in kinds if option), key=lambda option: option.busy_ns),
    )


def _loads(links: Int32s, wire_bytes: Ints, fabric: Fabric) -> _Loads:
    carried = np.zeros(len(fabric.links.source) + 1, np.int64)
    np.add.at(carried, links, np.broadcast_to(wire_bytes[:, None], links.shape))
    return _of(carried[:-1], fabric)


def _of(carried: Ints, fabric: Fabric) -> _Loads:
    ends = fabric.links
    between = (ends.source < fabric.switches) & (ends.target < fabric.switches)
    return _Loads(carried, np.where(between, carried * 8e9 / ends.rate_bits_per_second, 0.0))


def _moved(
    loads: _Loads, before: Int32s, after: Int32s, wire_bytes: Ints, fabric: Fabric
) -> _Loads:
    """The loads after units moved from some links to others."""
    change = _loads(after, wire_bytes, fabric).wire_bytes
    change = change - _loads(before, wire_bytes, fabric).wire_bytes
    return _of(loads.wire_bytes + change, fabric)


def _shortest(changes: list[T], after: list[_Loads]) -> tuple[list[T], _Loads]:
    """The first changes that reach the lowest peak. after: loads after 0, 1, ... changes."""
    peaks = [loads.peak for loads in after]
    number = peaks.index(min(peaks))
    return changes[:number], after[number]


def _option(kind: str, changes: list[str], loads: _Loads, fabric: Fabric) -> AdviceOption | None:
    if not changes:
        return None
    return AdviceOption(
        kind=kind,
        changes=changes,
        fullest_link=fabric.link_name(loads.busiest),
        busy_ns=loads.peak,
    )


def _source_ports(
    traffic: Traffic, fabric: Fabric, links: Int32s, loads: _Loads
) -> AdviceOption | None:
    """Other source ports, one queue pair after the other."""
    rng, links, keys = np.random.default_rng(1), links.copy(), traffic.keys
    ports = keys.sport.astype(np.int64)
    moved: list[int] = []
    after = [loads]
    while len(moved) < MOST_CHANGES:
        on = np.flatnonzero((links == loads.busiest).any(1))
        on = on[~np.isin(on, moved)]
        tried = on[np.argsort(-traffic.wire_bytes[on], kind="stable")][:_FLOWS]
        number = max(1, min(_PORTS, _MOST_CELLS // max(1, len(tried) * len(loads.busy_ns))))
        rows = np.repeat(tried, number)
        if not len(rows):
            break
        fresh = rng.integers(0xC000, 0x10000, len(rows))
        paths = _with_ports(traffic, rows, fresh, fabric)
        best, best_row = loads, -1
        for i in np.flatnonzero(~paths.placement.dropped).tolist():
            row = rows[i : i + 1]
            new = _moved(
                loads, links[row], paths.placement.links[i : i + 1], traffic.wire_bytes[row], fabric
            )
            if new.score < best.score:
                best, best_row = new, i
        if best_row < 0:
            break
        unit = int(rows[best_row])
        own_path = paths.placement.links[best_row]
        links[unit] = -1
        links[unit, : len(own_path)] = own_path[: links.shape[1]]
        ports[unit], loads = fresh[best_row], best
        moved.append(unit)
        after.append(loads)
    moved, loads = _shortest(moved, after)
    changes = [
        f"queue pair to {address_text(keys.dst[unit])} QP 0x{int(keys.dest_qp[unit]):06x} at "
        f"{address_text(keys.src[unit])}: UDP source port {int(keys.sport[unit])} to "
        f"{int(ports[unit])} (mlx5: mlx5dv_modify_qp_udp_sport)"
        for unit in moved
    ]
    return _option("source ports", changes, loads, fabric)


def _with_ports(traffic: Traffic, rows: Ints, ports: Ints, fabric: Fabric) -> TracedPaths:
    units = traffic.take(rows)
    return trace_paths(
        replace(units, keys=units.keys._replace(sport=ports.astype(np.uint16))), fabric
    )


def _seed(traffic: Traffic, fabric: Fabric, loads: _Loads) -> AdviceOption | None:
    """Another seed of the switch before the busiest link, if it is a Linux router."""
    switch = int(fabric.links.source[loads.busiest])
    setting = fabric.hash_settings[switch]
    if setting is None or setting.model != "linux":
        return None
    rng, best, best_seed = np.random.default_rng(2), loads, 0
    for seed in rng.integers(1, 1 << 32, _SEEDS).tolist():
        settings = list(fabric.hash_settings)
        settings[switch] = replace(setting, seed=seed)
        paths = trace_paths(traffic, replace(fabric, hash_settings=tuple(settings)))
        new = _loads(paths.placement.links, traffic.wire_bytes, fabric)
        if new.peak < best.peak and not paths.placement.dropped.any():
            best, best_seed = new, seed
    change = f"{fabric.nodes.names[switch]}: sysctl -w net.ipv4.fib_multipath_hash_seed={best_seed}"
    return _option("seed", [change] if best_seed else [], best, fabric)


def _routes(traffic: Traffic, fabric: Fabric, links: Int32s, loads: _Loads) -> AdviceOption | None:
    """Routes to single hosts over one link of the switch before the busiest link."""
    port = {link: name for (_, name), link in links_by_port(fabric).items()}
    changed, links = edge_per_host(fabric), links.copy()
    if traffic.keys.ipv6.any():
        changed = replace(changed, forwarding=with_ipv6(changed.forwarding))
    changes: list[str] = []
    routed: set[tuple[int, int]] = set()
    after = [loads]
    while len(changes) < MOST_CHANGES:
        full = loads.busiest
        switch = int(fabric.links.source[full])
        on = (links == full).any(1)
        carried = np.bincount(
            traffic.dst_host[on], traffic.wire_bytes[on].astype(np.float64), fabric.hosts
        )
        best, kept = loads, None
        for host in np.argsort(-carried, kind="stable")[:_HOSTS].tolist():
            if not carried[host] or (switch, host) in routed:
                continue
            address = _address(traffic, fabric, host, on)
            six = address.version == 6
            units = np.flatnonzero((traffic.dst_host == host) & (traffic.keys.ipv6 == six))
            edge = int(changed.edge_of(np.array([host], np.int32), six)[0])
            others, _ = changed.group(switch, edge)
            for link in others[others != full].tolist():
                rerouted = _over(changed, switch, edge, link)
                paths = trace_paths(traffic.take(units), rerouted)
                if paths.placement.dropped.any():
                    continue
                new_links = np.full((len(units), links.shape[1]), -1, np.int32)
                width = min(links.shape[1], paths.placement.links.shape[1])
                new_links[:, :width] = paths.placement.links[:, :width]
                new = _moved(loads, links[units], new_links, traffic.wire_bytes[units], fabric)
                if new.score < best.score:
                    best, kept = new, (host, address, link, rerouted, units, new_links)
        if kept is None:
            break
        host, address, link, changed, units, new_links = kept
        links[units], loads = new_links, best
        routed.add((switch, host))
        after.append(loads)
        width = 32 if address.version == 4 else 128
        name = port.get(link, "")
        safe = is_port(name)  # the change is made to be pasted, and switches choose these names
        left_out = ", the name of the port is left out" if name and not safe else ""
        changes.append(
            f"{fabric.nodes.names[switch]}: ip route add {address}/{width} via ADDRESS"
            f"{f' dev {name}' if safe else ''} (ADDRESS: that of "
            f"{fabric.nodes.names[int(fabric.links.target[link])]}{left_out}; "
            f"host {fabric.host_name(host)})"
        )
    changes, loads = _shortest(changes, after)
    return _option("static routes", changes, loads, fabric)


def _address(traffic: Traffic, fabric: Fabric, host: int, on: Bools) -> Address:
    """The address of a host, of the family of its first unit of some."""
    first = int(np.flatnonzero(on & (traffic.dst_host == host))[0])
    known = fabric.address_of(host)
    if (known.version == 6) == bool(traffic.keys.ipv6[first]):
        return known
    return ip_address(address_text(traffic.keys.dst[first]))


def _over(fabric: Fabric, switch: int, edge: int, link: int) -> Fabric:
    """The fabric whose switch sends to an edge over one link; hosts have edges of their own."""
    old = fabric.forwarding
    group_of = old.group_of.copy()
    group_of[switch, edge] = len(old.group_start) - 1
    forwarding = old._replace(
        group_start=np.append(old.group_start, old.group_start[-1] + 1),
        group_links=np.append(old.group_links, np.int32(link)),
        group_weights=np.append(old.group_weights, 1),
        group_of=group_of,
    )
    return replace(fabric, forwarding=forwarding, routed=False)
