"""The captured placement as a reference: its loads, its recovered seeds, sweeps of seeds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.measures.hops.vantage import parts_of, short_names
from ...kernels.kernel import Int32s, Ints
from ...version import VERSION
from ..fabrics.fabric import Fabric
from ..fabrics.mapping import map_hosts
from ..fabrics.switch_hashing import fields_of, hash_known, switch_hashing
from ..flows.loads import Placement
from ..flows.placement import Walk
from ..flows.shares import even_loads
from ..hashing.seeded import PerSwitch, SeedRange, switch_seeds
from ..results import AS_CAPTURED, Production, StrategyResult, SweepLayer, SweepResult
from ..seeds.recover import ALL_SEEDS, Wanted, is_explained, recover_all, settings_of
from ..seeds.search import findings
from ..seeds.sweep import Measure, Scores, Sweep, chance_of, sweep
from ..seeds.tapped import directions, read_taps
from ..strategies.base import Outcome
from ..traffic.traffic import Seen, Traffic
from .decision import seed_decided
from .flows import random_sweep, result_of
from .request import ReplayRequest
from .summaries import SHORT, Listed, fabric_summary, mapped, traffic_summary

_NUMBERED = re.compile(r"#([1-9][0-9]{0,4})\b")
_MOST_PAIRS = 4096
"""Pairs of hosts; the direction on a link is found for each."""


def as_captured(traffic: Traffic, fabric: Fabric, listed: Listed = SHORT) -> StrategyResult | None:
    """Loads of captured links; None unless all links from or to one switch were captured.

    A tap is the capture of a link if its name has the names of both ends: `leaf1-spine2`.
    """
    inside, _ = mapped(traffic, fabric)
    seen = inside.seen
    if seen is None or not len(seen.unit):
        return None
    links = links_of(seen.taps, fabric)
    link = _directed(inside, seen, links, fabric)
    rows = np.flatnonzero(link >= 0)
    covered = np.zeros(len(fabric.links.source), np.bool_)
    covered[links[links >= 0]] = True
    if not len(rows):
        return None
    bare = replace(inside, windows=None, messages=None, seen=None)
    parts = replace(
        bare.take(seen.unit[rows]), packets=seen.packets[rows], wire_bytes=seen.wire_bytes[rows]
    )
    placement = Placement(link[rows].reshape(-1, 1), np.zeros(len(rows), np.bool_))
    outcome = Outcome(parts, placement, {})
    result = result_of(AS_CAPTURED, outcome, fabric, offered=inside, covered=covered, listed=listed)
    if not any(layer.choice for layer in result.layers):
        return None
    left = int(np.count_nonzero(~covered))
    note = f"{left:,} links were not captured; they are left out"
    return msgspec.structs.replace(result, notes=[note]) if left else result


def links_of(taps: Sequence[str], fabric: Fabric) -> Ints:
    """int64[taps, 2]: the link that a tap captured, in both directions; -1 if its name tells none.

    A name has both ends, `leaf1-spine2`, with the number of one of several parallel links,
    `leaf1-spine2#2`; or device and port of a fabric that was read from devices, `leaf1-swp3`.
    """
    number = {name: i for i, name in enumerate(fabric.nodes.names)}
    port = links_by_port(fabric)
    links_of_taps = np.full((len(taps), 2), -1, np.int64)
    for tap, name in enumerate(short_names(taps)):
        parts = parts_of(name)
        ends = [number[part] for part in parts if part in number]
        if len(ends) == 1:
            device = fabric.nodes.names[ends[0]]
            links = {port[device, part] for part in parts if (device, part) in port}
            if len(links) == 1:
                link = links.pop()
                links_of_taps[tap] = link, link ^ 1
        if len(ends) != 2:
            continue
        numbered = _NUMBERED.search(name)
        for way, (source, target) in enumerate((ends, ends[::-1])):
            parallel = np.flatnonzero(
                (fabric.links.source == source) & (fabric.links.target == target)
            )
            which = int(numbered[1]) - 1 if numbered else 0
            if which < len(parallel) and (numbered or len(parallel) == 1):
                links_of_taps[tap, way] = parallel[which]
    return links_of_taps


def links_by_port(fabric: Fabric) -> dict[tuple[str, str], int]:
    """The link that leaves a device by a port, where the ports are known."""
    names, link_at = fabric.nodes.names, {}
    for cable, ports in enumerate(fabric.origin.ports if fabric.origin is not None else ()):
        for link, port in zip((2 * cable, 2 * cable + 1), ports, strict=True):
            if port:
                link_at[names[int(fabric.links.source[link])], port] = link
    return link_at


def _directed(traffic: Traffic, seen: Seen, links: Ints, fabric: Fabric) -> Int32s:
    """int32[rows of seen]: the link in the direction of the unit; -1 if it cannot go there."""
    link = np.full(len(seen.unit), -1, np.int32)
    source, target = traffic.src_host[seen.unit], traffic.dst_host[seen.unit]
    pairs, pair = np.unique(np.stack([source, target], axis=1), axis=0, return_inverse=True)
    if len(pairs) > _MOST_PAIRS:
        return link
    pair = pair.reshape(-1)
    bare = replace(traffic, windows=None, messages=None, seen=None)
    for number in range(len(pairs)):
        rows = np.flatnonzero(pair == number)
        probe = bare.take(seen.unit[rows[:1]])
        reachable = even_loads(probe, fabric, np.ones(1, np.int64)) > 0
        for way in (0, 1):
            there = links[seen.tap[rows], way]
            fits = (there >= 0) & reachable[there]
            link[rows[fits]] = there[fits]
    return link


# Hash settings of switches, recovered from the captures of their parallel links.


def with_recovered_seeds(
    request: ReplayRequest,
    fabric: Fabric,
    seeds: SeedRange = ALL_SEEDS,
    tell: Callable[[str, int, int], None] | None = None,
) -> tuple[Fabric, list[str]]:
    """The fabric with the recovered settings, and the names of the switches that have them.

    A switch is examined if all its links to the tier above were captured; a switch with hash
    settings in the fabric keeps them. UsageError if the flows do not show the sides of the links.
    tell: called with the hypothesis, the seeds tried and the number of seeds.
    """
    settings = list(fabric.hash_settings)
    names = [request.tap_names.get(path, os.path.basename(path)) for path in request.captures]
    tap_of = links_of(names, fabric)
    switches: list[str] = []
    for switch in range(fabric.switches):
        taps = _parallel_taps(switch, tap_of, fabric)
        if len(taps) < 2:
            continue
        paths = [request.captures[tap] for tap in taps]
        try:
            seen = read_taps(paths, tap_names=request.tap_names, ethers=request.ethers)
        except UnreadableInput:  # no flow on these links
            continue
        hosts = map_hosts(seen.names, fabric, request.map).hosts
        known = directions(seen)
        for direction, record in zip(
            known, recover_all(known, Wanted(seeds=seeds), paths, tell).switches, strict=True
        ):
            senders = hosts[np.unique(direction.seen.source)]
            behind = set(fabric.attachments.switch[senders].ravel().tolist()) - {-1}
            best = next((c for c in record.candidates if is_explained(c)), None)
            recovered = None if best is None else settings_of(best)
            if len(behind) != 1 or (senders < 0).any() or recovered is None:
                continue
            at = behind.pop()
            if not hash_known(settings[at]) and best is not None and best.seed is not None:
                settings[at] = replace(recovered, seed=best.seed, seed_recovered=True)
                switches.append(fabric.nodes.names[at])
    return replace(fabric, hash_settings=tuple(settings)), switches


def _parallel_taps(switch: int, tap_of: Ints, fabric: Fabric) -> list[int]:
    """The taps of all links from a switch to the tier above, in next-hop order; else none."""
    tier, links = fabric.nodes.tier, fabric.links
    above = (links.source == switch) & (tier[links.target] > tier[switch]) & links.up
    taps = [np.flatnonzero((tap_of == link).any(1)) for link in np.flatnonzero(above)]
    return [int(seen[0]) for seen in taps] if all(len(seen) == 1 for seen in taps) else []


# A sweep with its references and causes: the results of `rocescope sweep`.


def sweep_result(
    traffic: Traffic,
    fabric: Fabric,
    options: Mapping[str, str],
    seeds: SeedRange,
    per_switch: PerSwitch,
    measure: Measure,
    production: int | None,
    sources: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Sweep, compare with chance, and explain.

    options: of `switch_hashing`, without seeds. production: the seed in use; None for the
    seeds of the fabric, if it has any. UsageError if there is nothing to sweep.
    """
    if not seeds.seeds:
        raise UsageError(f"--seeds {seeds.first}:{seeds.end} contains no seed")
    traffic, warnings = mapped(traffic, fabric)
    hashing = switch_hashing(fabric, options, "sweep")
    walk, scores = Walk(traffic, fabric, hashing.settings), Scores(traffic, fabric, measure)
    in_use = _production_score(walk, scores, per_switch, production)
    swept = sweep(walk, scores, seeds, per_switch, in_use, progress)
    chance = random_sweep(traffic, fabric, scores)
    layers = [
        SweepLayer(
            layer=name,
            links=int(scores.links[i]),
            distribution=swept.layers[i].distribution(),
            chance=chance_of(chance.layers[i]),
            best_percent=scores.best(i),
            used_links=float(swept.used[i]),
            used_links_chance=float(chance.used[i]),
        )
        for i, name in enumerate(scores.names)
    ]
    chosen = _production(in_use, production, swept, seeds.seeds)
    by_chance = chance_of(chance.score)
    return SweepResult(
        version=VERSION,
        decision=seed_decided(
            swept.best[0], swept.score.distribution(), chosen, by_chance, measure
        ),
        traffic=traffic_summary(traffic, sources),
        fabric=fabric_summary(fabric),
        hash=", ".join(sorted({settings.model for settings in hashing.settings})),
        field_set=", ".join(sorted({fields_of(settings) for settings in hashing.settings})),
        seeds=[seeds.first, seeds.end, seeds.seeds],
        per_switch=per_switch,
        measure=measure,
        distribution=swept.score.distribution(),
        chance=by_chance,
        best=swept.best,
        worst=swept.worst,
        production=chosen,
        layers=layers,
        findings=findings(hashing.settings, walk.is_linear, layers, per_switch, seeds.seeds),
        warnings=warnings,
    )


def _production_score(
    walk: Walk, scores: Scores, per_switch: PerSwitch, production: int | None
) -> float | None:
    """The imbalance of the worst layer with the seeds in use; None if they are unknown."""
    if production is not None:
        row = switch_seeds(np.array([production], np.uint64), walk.fabric.switches, per_switch)
    else:
        known = walk.fabric.hash_settings
        if any(known[switch] is None for switch in walk.fabric.choosing_switches().tolist()):
            return None
        row = np.array([[0 if each is None else each.seed for each in known]], np.uint64)
    values, _ = scores.measured(walk, row)
    return float(values.max())


def _production(
    value: float | None, seed: int | None, swept: Sweep, seeds: int
) -> Production | None:
    if value is None:
        return None
    return Production(
        seed=seed,
        value=value,
        better_seeds=swept.below,
        equal_seeds=swept.equal,
        percentile=100 * (seeds - swept.below - swept.equal) / seeds,
    )
