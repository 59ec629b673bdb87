"""Strategies compared flow by flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...kernels.kernel import Bools, Floats, Ints, NamedTuple
from ...version import VERSION
from ..fabrics.fabric import Fabric
from ..flows.loads import (
    Evenness,
    Layers,
    LinkLoads,
    evenness,
    layers_of,
    link_loads,
    most_at_once,
    over_time,
)
from ..flows.placement import Walk
from ..flows.shares import even_loads, fair_bytes, split_evenly
from ..hashing.keys import address_text
from ..hashing.seeded import SeedRange
from ..hashing.settings import HashSettings
from ..results import (
    Chance,
    CollidingFlow,
    Collision,
    DeviceLoad,
    FlowPath,
    LayerLoad,
    LayerOverTime,
    LinkLoad,
    ReplayResult,
    StrategyResult,
)
from ..seeds.sweep import Scores, Sweep, chance_of, sweep
from ..strategies.base import FlowStrategy, Outcome
from ..traffic.traffic import Traffic
from .summaries import SHORT, Listed, fabric_summary, mapped, titled, traffic_summary

CHANCE_DRAWS, LEAST_DRAWS = 1000, 50
_CHANCE_WORK = 1_000_000
"""Most draws times flows beyond LEAST_DRAWS: the more flows, the less draws differ."""
CHANCE_FIELDS = "5-tuple+flow-label+qpn"


def replay(
    traffic: Traffic,
    fabric: Fabric,
    strategies: Sequence[FlowStrategy],
    sources: Sequence[str],
    progress: Callable[[str], None] | None = None,
    listed: Listed = SHORT,
) -> ReplayResult:
    """Place the traffic with each strategy. UsageError if no flow is on the fabric."""
    traffic, warnings = mapped(traffic, fabric)
    results, known = [], KnownChances()
    for strategy in strategies:
        if progress is not None:
            progress(strategy.name)
        outcome = strategy.place(traffic, fabric)
        results.append(result_of(strategy.name, outcome, fabric, listed=listed, known=known))
    return ReplayResult(
        version=VERSION,
        traffic=traffic_summary(traffic, sources),
        fabric=fabric_summary(fabric),
        strategies=titled(results),
        warnings=warnings,
    )


def random_sweep(
    traffic: Traffic, fabric: Fabric, scores: Scores, draws: int | None = None
) -> Sweep:
    """The same traffic under ideal random hashing, independent on each switch.

    draws: default CHANCE_DRAWS, fewer for more than a thousand flows.
    """
    if draws is None:
        draws = min(CHANCE_DRAWS, max(LEAST_DRAWS, _CHANCE_WORK // max(1, len(traffic))))
    settings = [HashSettings("random-oracle", CHANCE_FIELDS)] * fabric.switches
    return sweep(Walk(traffic, fabric, settings), scores, SeedRange(0, draws), "different")


class KnownChances:
    """The FIM of flows with random placement per layer, of the traffic that was asked for last.

    Most strategies of a comparison place the same units.
    """

    def __init__(self) -> None:
        self._traffic: Traffic | None = None
        self._found: dict[str, Chance] = {}

    def of(self, traffic: Traffic, fabric: Fabric) -> dict[str, Chance]:
        """The chances of the layers in which hashing chooses links."""
        if traffic is not self._traffic:
            scores = Scores(traffic, fabric, "fim-flows")
            distributions = random_sweep(traffic, fabric, scores)
            names = zip(scores.names, distributions.layers, strict=True)
            self._traffic, self._found = traffic, {name: chance_of(t) for name, t in names}
        return self._found


class _NoChances(KnownChances):
    def of(self, traffic: Traffic, fabric: Fabric) -> dict[str, Chance]:
        return {}


NO_CHANCES: Final = _NoChances()
"""For results without the FIM of random placement, which takes most of their time."""


def result_of(
    name: str,
    outcome: Outcome,
    fabric: Fabric,
    offered: Traffic | None = None,
    covered: Bools | None = None,
    listed: Listed = SHORT,
    known: KnownChances | None = None,
) -> StrategyResult:
    """The loads of an outcome.

    offered: the traffic whose even split is fair, default that of the outcome. covered: links
    whose load is known; others are left out. known: of other results for the same fabric.
    """
    traffic, placement = outcome.traffic, outcome.placement
    offered = traffic if offered is None else offered
    loads = link_loads(placement, traffic, len(fabric.links.source))
    ones = np.ones(len(offered), np.int64)
    # A strategy may use links that the groups of the fabric do not use, and vice versa.
    every = even_loads(offered, fabric, ones) > 0
    reachable = every | (loads.flows > 0)
    layers = layers_of(fabric, reachable)
    if covered is not None:
        layers = _covered(layers, fabric, covered)
    rates = fabric.links.rate_bits_per_second
    fair = fair_bytes(split_evenly(offered, fabric), loads.wire_bytes, rates, layers.links)
    counted = offered.counted()
    reach = every if counted.all() else even_loads(offered, fabric, counted) > 0
    chances = (known or KnownChances()).of(offered, fabric) if any(layers.choice) else {}
    on = _Loaded(outcome, fabric, layers, loads, fair, reach)
    records = [_layer(on, chances, *layer) for layer in zip(*layers, strict=True)]
    chosen = [record for record in records if record.choice and record.flows]
    busy = loads.wire_bytes * 8e9 / rates
    worst, loaded = _worst(on, listed)
    dropped = int(np.count_nonzero(placement.dropped))
    notes = list(outcome.notes)
    if dropped:
        notes.append(f"{dropped:,} of {len(traffic):,} flows have no path to their host")
    return StrategyResult(
        name=name,
        title=name,
        parameters=outcome.parameters,
        fim_percent=max((r.fim_flows_percent or 0.0 for r in chosen), default=None),
        max_over_mean=max((r.max_over_mean or 0.0 for r in chosen), default=None),
        busiest_link=fabric.link_name(int(busy.argmax())) if busy.any() else None,
        lower_bound_ns=float(busy.max()),
        completion_time_ns=None,
        max_queue_packets=None,
        layers=records,
        links=_links(on),
        worst=worst,
        worst_omitted=loaded - len(worst),
        paths=_paths(outcome, fabric, listed.paths),
        paths_omitted=max(0, len(traffic) - listed.paths),
        solver=outcome.solver,
        switches=list(outcome.switches),
        notes=notes,
    )


def _covered(layers: Layers, fabric: Fabric, covered: Bools) -> Layers:
    """The links of the layers that can be compared: all from one switch, or all to one."""
    kept = []
    for name, links, choice in zip(*layers, strict=True):
        comparable = np.zeros(len(links), np.bool_)
        for ends in (fabric.links.source[links], fabric.links.target[links]):
            missing = np.unique(ends[~covered[links]])
            comparable |= ~np.isin(ends, missing)
        if comparable.any():
            kept.append((name, links[comparable], choice))
    return Layers(*map(tuple, zip(*kept, strict=True))) if kept else Layers((), (), ())


class _Loaded(NamedTuple):
    """An outcome with its loads, as the records of a result need them."""

    outcome: Outcome
    fabric: Fabric
    layers: Layers
    loads: LinkLoads
    fair: Floats
    reach: Bools

    def even(self, links: Ints) -> Evenness:
        """How evenly these links are loaded."""
        rates = self.fabric.links.rate_bits_per_second
        return evenness(self.loads, links, rates, self.fair, self.reach)


def _layer(
    on: _Loaded, chances: Mapping[str, Chance], name: str, links: Ints, choice: bool
) -> LayerLoad:
    return LayerLoad(
        layer=name,
        choice=choice,
        fim_chance_percent=chances.get(name),
        over_time=_over_time(on.outcome, on.fabric, links),
        devices=_devices(on, links) if choice else [],
        **on.even(links)._asdict(),
    )


def _devices(on: _Loaded, links: Ints) -> list[DeviceLoad]:
    """The links of a layer by source switch, for switches with several links."""
    source = on.fabric.links.source[links]
    devices = []
    for switch in np.unique(source).tolist():
        leaving = links[source == switch]
        if len(leaving) >= 2:
            even = on.even(leaving)._asdict()
            del even["wire_bytes"], even["idle_links"]
            devices.append(DeviceLoad(switch=on.fabric.nodes.names[switch], **even))
    return devices


def _over_time(outcome: Outcome, fabric: Fabric, links: Ints) -> LayerOverTime | None:
    windows, rates = outcome.traffic.windows, fabric.links.rate_bits_per_second[links]
    imbalances = None if windows is None else over_time(outcome.placement, windows, links, rates)
    if imbalances is None or windows is None:
        return None
    peak = imbalances.peak_bytes * 8e9 / windows.width_ns
    return LayerOverTime(
        window_ns=windows.width_ns,
        windows=imbalances.windows,
        fim_bytes_percent=imbalances.fim_bytes,
        max_over_mean=imbalances.max_over_mean,
        peak_bits_per_second=peak,
        peak_utilisation=peak / float(rates[imbalances.peak_link]),
        peak_link=fabric.link_name(int(links[imbalances.peak_link])),
    )


def _links(on: _Loaded) -> list[LinkLoad]:
    """Every link that a unit can reach, layer by layer."""
    records = []
    for name, links, _ in zip(*on.layers, strict=True):
        for link, share in zip(links.tolist(), on.fair[links].tolist(), strict=True):
            carried = int(on.loads.wire_bytes[link])
            records.append(
                LinkLoad(
                    name=on.fabric.link_name(link),
                    layer=name,
                    flows=int(on.loads.flows[link]),
                    wire_bytes=carried,
                    over_mean=carried / share if share else None,
                )
            )
    return records


def _worst(on: _Loaded, listed: Listed) -> tuple[list[Collision], int]:
    """(The busiest links of layers in which hashing chooses, relative to the largest fair share,
    the number of such links with load)."""
    collisions = []
    rates, loads, fair = on.fabric.links.rate_bits_per_second, on.loads, on.fair
    for name, links, choice in zip(*on.layers, strict=True):
        if choice and loads.wire_bytes[links].any():
            over = loads.wire_bytes[links] / fair[links]
            busy = loads.wire_bytes[links] / rates[links] / (fair[links] / rates[links]).max()
            collisions += [
                (-float(busy[at]), int(links[at]), float(over[at]), name)
                for at in np.argsort(-busy, kind="stable")
                if busy[at]
            ]
    shown = sorted(collisions)[: listed.links]
    return [_collision(on, listed.flows, *collision[1:]) for collision in shown], len(collisions)


def _paths(outcome: Outcome, fabric: Fabric, most: int) -> list[FlowPath]:
    """The paths of the largest units."""
    traffic, placement = outcome.traffic, outcome.placement
    shown = np.argsort(-traffic.wire_bytes, kind="stable")[:most]
    names = {
        link: fabric.link_name(link)
        for link in np.unique(placement.links[shown]).tolist()
        if link >= 0
    }
    keys = traffic.keys
    return [
        FlowPath(
            flow=int(traffic.flow[unit]),
            src=address_text(keys.src[unit]),
            dst=address_text(keys.dst[unit]),
            src_host=fabric.host_name(int(traffic.src_host[unit])),
            dst_host=fabric.host_name(int(traffic.dst_host[unit])),
            src_port=int(keys.sport[unit]),
            flow_label=int(keys.flow_label[unit]),
            dest_qp=int(keys.dest_qp[unit]),
            packets=int(traffic.packets[unit]),
            wire_bytes=int(traffic.wire_bytes[unit]),
            links=None
            if placement.dropped[unit]
            else [names[link] for link in placement.links[unit].tolist() if link >= 0],
            **_ranks(traffic, unit),
        )
        for unit in shown.tolist()
    ]


def _ranks(traffic: Traffic, unit: int) -> dict[str, Any]:
    """Both ranks and the communicator, as logs of the job name them."""
    owner = traffic.owners.get(int(traffic.flow[unit]))
    if owner is None:
        return {}
    sender, receiver = owner.ranks
    return {"src_rank": sender, "dst_rank": receiver, "comm": owner.comm}


def _collision(on: _Loaded, most: int, link: int, over: float, layer: str) -> Collision:
    fabric, traffic, placement = on.fabric, on.outcome.traffic, on.outcome.placement
    on_link = np.flatnonzero((placement.links == link).any(1) & ~placement.dropped)
    largest = on_link[np.argsort(-traffic.wire_bytes[on_link], kind="stable")][:most]
    at_once = None
    if traffic.windows is not None:
        at_once = most_at_once(placement, traffic.windows, link)
    return Collision(
        link=fabric.link_name(link),
        layer=layer,
        wire_bytes=int(on.loads.wire_bytes[link]),
        over_mean=over,
        flows=len(on_link),
        flows_at_once=at_once,
        largest=[
            CollidingFlow(
                flow=int(traffic.flow[unit]),
                src=fabric.host_name(int(traffic.src_host[unit])),
                dst=fabric.host_name(int(traffic.dst_host[unit])),
                src_port=int(traffic.keys.sport[unit]),
                dest_qp=int(traffic.keys.dest_qp[unit]),
                wire_bytes=int(traffic.wire_bytes[unit]),
                **_ranks(traffic, unit),
            )
            for unit in largest.tolist()
        ],
    )
