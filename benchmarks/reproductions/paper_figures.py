"""Figures 1, 7, 11 and 18 of "Load Balancing for AI Training Workloads" (arXiv 2507.21372).

    python benchmarks/reproductions/paper_figures.py

Public text tells what they show and in what order the schemes are, without the values of bars:
figure 1, finer granularity is better in a permutation; figure 7, the overload of the worst link of
each stage at 1 MB and 32 KB; figure 11, the best payload of packets, by a formula; figure 18, by
which factor the queues of host rotation exceed those of Ofan in larger networks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
from bands import Bands

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import layers_of
from rocescope.replay.flows.shares import split_evenly
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import EngineResult, Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

MODEL = Model(header_bytes=62, gap_bytes=20)
DROPPING = Model(
    header_bytes=62,
    gap_bytes=20,
    pfc=None,
    buffer_bytes=800_000,
    ecn_low_bytes=400_000,
    ecn_high_bytes=400_000,
)
"""The paper's buffers, and its marks for PLB."""
LARGE, SMALL = 1 << 20, 32 << 10
GRANULARITIES = {"flow": "ecmp", "subflow": "subflow:k=4", "packet": "switch-random"}
FLOWLETS = {"flow": "ecmp", "flowlet": "plb", "subflow": "subflow:k=4", "packet": "reps"}
SPREAD = {
    "round robin": "switch-rr:reshuffle=0,acks=own",
    "shortest queue": "jsq",
    "host rotation": "host-dr",
    "Ofan": "ofan",
}
PAYLOADS = (1024, 1448, 2048, 2896, 4096, 5792, 8192)
DELAY_PACKETS = 10
"""alpha of figure 11: packets that a message waits for beside its own."""
STAGES = ("leaf-spine", "spine-core", "core-spine", "spine-leaf")
SEEDS = 3


def fat_tree(k: int) -> Fabric:
    return parse_fabric(f"fat-tree:k={k},rate=800G,delay=500ns")


def ran(
    fabric: Fabric, spec: str, size: int, seed: int, model: Model = MODEL, recovery: str = "none"
) -> EngineResult:
    strategy = parse_packet_strategy(spec).in_run(seed - 1, fabric)
    load = collective("permutation", fabric, model, size, seed)
    transport = Transport(recovery=recovery)
    return run_packets(load, fabric, strategy, model, seed, transport=transport)


def mean_us(fabric: Fabric, size: int, model: Model) -> float:
    runs = [ran(fabric, "ofan", size, seed, model) for seed in range(1, SEEDS + 1)]
    return float(np.mean([run.completion_ps or 0 for run in runs])) / 1e6


def overloads(fabric: Fabric, spec: str, size: int) -> list[float]:
    """Per stage: load of the busiest link over its share of an even split, mean of the seeds."""
    found = []
    for seed in range(1, SEEDS + 1):
        load = collective("permutation", fabric, MODEL, size, seed)
        even = split_evenly(load.traffic, fabric)
        carried = ran(fabric, spec, size, seed).link_bytes
        layers = dict(zip(*layers_of(fabric, carried > 0)[:2], strict=True))
        found.append([float((carried / even)[layers[stage]].max()) for stage in STAGES])
    return [float(x) for x in np.mean(found, axis=0)]


def main() -> None:
    bands, fabric = Bands(), fat_tree(8)
    print("figure 1, permutation of 1 MiB: completion, us")
    mean = {}
    for name, spec in GRANULARITIES.items():
        times = [ran(fabric, spec, LARGE, seed).completion_ps or 0 for seed in range(1, 11)]
        mean[name] = float(np.mean(times)) / 1e6
        print(f"  {name:8} {spec:14} {mean[name]:7.2f}")
    bands.holds("finer is better", mean["packet"] < mean["subflow"] < mean["flow"])
    print("  with buffers of 800 kB that drop, ideal recovery, and PLB for flowlets:")
    for name, spec in FLOWLETS.items():
        runs = [ran(fabric, spec, LARGE, seed, DROPPING, "ideal") for seed in range(1, SEEDS + 1)]
        mean[name] = float(np.mean([run.completion_ps or 0 for run in runs])) / 1e6
        print(f"  {name:8} {spec:14} {mean[name]:7.2f}")
    bands.holds(
        "flowlets are worse than subflows, better than flows",
        mean["packet"] < mean["subflow"] < mean["flowlet"] < mean["flow"],
    )

    worst: dict[tuple[str, int], list[float]] = {}
    for size, words in ((LARGE, "1 MiB"), (SMALL, "32 KiB")):
        print(f"figure 7, {words}: worst link over its fair share\n  {'':15}", *STAGES)
        for name, spec in SPREAD.items():
            worst[name, size] = overloads(fabric, spec, size)
            print(f"  {name:15}" + "".join(f"{x:11.2f}" for x in worst[name, size]))
    up, down = STAGES.index("leaf-spine"), slice(2, 4)
    for name in ("round robin", "shortest queue"):
        stages = worst[name, LARGE]
        bands.within(f"{name}, 1 MiB: even on the way up from leaves", stages[up], 1, 1.1)
        bands.holds(f"{name}, 1 MiB: overloads links down", min(stages[down]) > stages[up] + 0.1)
    for name in ("host rotation", "Ofan"):
        bands.within(f"{name}, 1 MiB: even at every stage", max(worst[name, LARGE]), 1, 1.05)
    uneven = max(worst["host rotation", SMALL])
    bands.within("host rotation, 32 KiB: uneven", uneven, 1.5, 2)
    bands.holds("Ofan, 32 KiB: more even", max(worst["Ofan", SMALL]) < uneven - 0.2)
    print("figure 11: payload of packets, permutation with Ofan: completion, us")
    print(f"  {'message':>9}" + "".join(f"{payload:>9}" for payload in PAYLOADS))
    best = []
    for size in (1 << 18, 1 << 20, 1 << 22):
        took = {p: mean_us(fabric, size, replace(MODEL, payload_bytes=p)) for p in PAYLOADS}
        print(f"  {size:>9}" + "".join(f"{took[payload]:9.2f}" for payload in PAYLOADS))
        formula = math.sqrt((MODEL.header_bytes + MODEL.gap_bytes) * size / DELAY_PACKETS)
        nearest = min(PAYLOADS, key=lambda payload: abs(payload - formula))
        best.append(min(PAYLOADS, key=lambda payload: took[payload]))
        over = took[nearest] / took[best[-1]]
        bands.within(f"{size} B: payload {nearest} of the formula over the best", over, 1, 1.005)
    for few, more in pairwise(best):
        bands.within("four times the message: larger best payload", more / few, 1.4, 2.9)
    print("figure 18: largest queue of host rotation over that of Ofan, permutation of 1 MiB")
    ratios = {}
    for k in (4, 8, 16):
        tree = fat_tree(k)
        most = {
            spec: np.mean([ran(tree, spec, LARGE, s).link_max_packets.max() for s in (1, 2, 3)])
            for spec in ("host-dr", "ofan")
        }
        ratios[k] = float(most["host-dr"] / most["ofan"])
        print(
            f"  {tree.hosts:5} hosts: {most['host-dr']:.1f} / {most['ofan']:.1f} = {ratios[k]:.2f}"
        )
    bands.holds("the factor grows with the network", ratios[4] < ratios[8] < ratios[16])
    bands.within("1,024 hosts: host rotation over Ofan", ratios[16], 1.2, 2)
    bands.end()


if __name__ == "__main__":
    main()
