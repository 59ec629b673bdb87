"""ECMP against static placement of the traced flows of 16 hosts with 400 Gb/s.

    python benchmarks/reproductions/static_routes.py [--seeds 100]

Published (FlowTracer, IEEE ICC 2025, abstract): leaf-spine, 16 nodes of 400 Gb/s, "a 30% reduction
in imbalance" of static routes against ECMP. The abstract tells neither the switches, the flows nor
the definition of the metric: fabrics, traffic and FIM below are this project's, and the published
figure is printed apart from ours. The last row is a run of real Linux routers (tests/data).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bands import Bands

from rocescope.discovery.tracing.trace import trace
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import Traffic

PUBLISHED_PERCENT = 30.0
STATIC = ("static", "assign")
CASES = (
    ("leaf-spine:leaves=2,spines=8,hosts=8,rate=400G", "permutation:qps=4,acks=no"),
    ("leaf-spine:leaves=2,spines=8,hosts=8,rate=400G", "all-to-all:acks=no"),
    ("leaf-spine:leaves=4,spines=4,hosts=4,rate=400G", "permutation:qps=4,acks=no"),
    ("leaf-spine:leaves=4,spines=4,hosts=4,rate=400G", "all-to-all:acks=no"),
    ("leaf-spine:leaves=4,spines=4,hosts=4,rate=400G", "ring-allreduce:qps=4,acks=no"),
)
RUN = Path(__file__).resolve().parents[2] / "tests" / "data" / "leafspine" / "r01_clean_write"
RUN_FABRIC, RUN_SEED = "leaf-spine:leaves=2,spines=4,hosts=2,rate=10G", 305_419_896


class Row(NamedTuple):
    """FIM of flows on the links from leaves to spines, in percent."""

    flows: int
    per_uplink: float
    ecmp: tuple[float, ...]
    """By seed."""
    static: float
    assign: float

    @property
    def mean(self) -> float:
        """ECMP's mean over the seeds."""
        return float(np.mean(self.ecmp))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    seeds = range(1, parser.parse_args().seeds + 1)
    bands = Bands()
    print("published: 30 % less imbalance with static routes; flows and metric are not told\n")
    print("ours: FIM of flows, leaf to spine, in percent; ECMP with another seed on every switch")
    print(
        f"{'fabric':25} {'pattern':28} {'flows':>5} {'per link':>8} {'ECMP':>5} {'5 to 95 %':>10} "
        f"{'chance':>6} {'static':>6} {'assign':>6} {'points':>7} {'percent':>7}"
    )
    for spec, pattern in CASES:
        request = ReplayRequest(spec, ("ecmp",), (), pattern=pattern)
        prepared = PreparedReplay(request)
        row = compared(prepared.read(), prepared.fabric, seeds)
        chance = uniform(prepared.read(), prepared.fabric)
        show(spec.partition(":")[2].removesuffix(",rate=400G"), pattern, row, chance)
        if not math.isnan(chance):
            bands.within(f"{spec} {pattern}: ECMP / chance", row.mean / chance, 0.93, 1.07)
            bands.within(f"{spec} {pattern}: assign", row.assign, 0.0, 1e-9)
        bands.holds(f"{spec} {pattern}: static is better than ECMP", row.static < row.mean)
    row = captured()
    show("captured Linux routers", "WRITE, 48 queue pairs", row, float("nan"))
    bands.within("captured run: ECMP", row.mean, 37.4, 37.6)
    bands.holds("captured run: static is better than ECMP", row.static < row.mean)
    print(f"\nchance reduces by {PUBLISHED_PERCENT:.0f} points with this many flows per link:")
    for links in (4, 8, 16):
        flows = min(range(links, 64 * links, links), key=lambda n: abs(expected(n, links) - 30))
        print(f"  {links:2} links: {flows // links} ({expected(flows, links):.1f} points)")
    bands.within("chance of 32 flows on 8 links", expected(32, 8), 36.45, 36.55)
    bands.end()


def compared(traffic: Traffic, fabric: Fabric, seeds: Sequence[int]) -> Row:
    """The traced flows under seeds of ECMP, and placed statically."""
    fims: list[float] = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 0x5354])
        own = tuple(
            HashSettings("linux", seed=int(rng.integers(1, 1 << 32)))
            for _ in range(fabric.switches)
        )
        found = fim_of(traffic, replace(fabric, hash_settings=own), ())
        fims.append(found["traced"])
    placed = fim_of(traffic, replace(fabric, hash_settings=own), STATIC)
    return row_of(traffic, fabric, tuple(fims), placed)


def captured() -> Row:
    """The run of real routers: their own seed, the flows as captured at the hosts."""
    fabric = parse_fabric(RUN_FABRIC)
    own = tuple(HashSettings("linux", seed=RUN_SEED) for _ in range(fabric.switches))
    files = sorted(map(str, RUN.glob("H*.pcap.xz")))
    traffic = traffic_from_capture(files, fabric, "order")
    placed = fim_of(traffic, replace(fabric, hash_settings=own), STATIC)
    return row_of(traffic, fabric, (placed["traced"],), placed)


def row_of(
    traffic: Traffic, fabric: Fabric, ecmp: tuple[float, ...], placed: dict[str, float]
) -> Row:
    """The flows that cross the spines count."""
    switch = fabric.attachments.switch[:, 0]
    crossing = switch[traffic.src_host] != switch[traffic.dst_host]
    flows = int((traffic.counted()[crossing]).sum())
    return Row(flows, flows / uplinks(fabric), ecmp, placed["static"], placed["assign"])


def fim_of(traffic: Traffic, fabric: Fabric, strategies: Sequence[str]) -> dict[str, float]:
    """FIM of flows per placement, by the trace of all flows."""
    own = [parse_strategy(name) for name in strategies]
    result = trace(traffic, fabric, own, ["generated"], most_flows=0)
    assert result.loads is not None
    assert result.complete_flows == result.flows_traced
    found = {}
    for one in result.loads.strategies:
        layer = next(layer for layer in one.layers if layer.layer == "leaf-spine")
        found[one.name] = layer.fim_flows_percent or 0.0
    return found


def uplinks(fabric: Fabric) -> int:
    """Links from leaves to spines."""
    return int(np.count_nonzero(fabric.links.layer == fabric.layers.index("leaf-spine")))


def uniform(traffic: Traffic, fabric: Fabric) -> float:
    """Chance if every leaf has as many flows to other leaves; else NaN."""
    leaf = fabric.attachments.switch[:, 0]
    crossing = (leaf[traffic.src_host] != leaf[traffic.dst_host]) & (traffic.counted() > 0)
    each = np.bincount(leaf[traffic.src_host[crossing]])
    if (each != each[0]).any():
        return float("nan")
    return expected(int(each[0]), uplinks(fabric) // len(each))


def expected(flows: int, links: int) -> float:
    """The mean FIM of uniform hashing, exact (de Moivre)."""
    mean, p = flows / links, 1 / links
    m = math.floor(mean) + 1
    each = math.comb(flows, m) * p**m * (1 - p) ** (flows - m + 1)
    return 100 * 2 * m * each / mean


def show(fabric: str, pattern: str, row: Row, chance: float) -> None:
    low, high = np.percentile(row.ecmp, [5, 95])
    spread = f"{low:.0f} to {high:.0f}" if len(row.ecmp) > 1 else ""
    points = row.mean - row.static
    print(
        f"{fabric:25} {pattern:28} {row.flows:5} {row.per_uplink:8.1f} {row.mean:5.1f} "
        f"{spread:>10} {'' if math.isnan(chance) else f'{chance:.1f}':>6} {row.static:6.1f} "
        f"{row.assign:6.1f} {points:7.1f} {100 * points / row.mean:7.0f}"
    )


if __name__ == "__main__":
    main()
