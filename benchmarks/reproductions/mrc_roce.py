"""One MRC queue pair over many paths against 1 to 16 RoCE queue pairs, with and without losses.

    python benchmarks/reproductions/mrc_roce.py [--size 8MiB] [--large 32MiB] [--steps 3]

64 hosts of 800 Gb/s, steps of a permutation with barriers (a ring all-reduce in the sense of arXiv
2507.21372). MRC: eight ports of 100 Gb/s in eight planes. RoCE: one port of 800 Gb/s in one plane
with as many spines as fast, each queue pair on the path that a hash gives it, go-back-N.
arXiv 2605.04333 did this with 64 adapters of 400 Gb/s (four planes; RoCE with PFC and DCQCN).
Printed: bytes of a host over completion time, as a share of its line rate.
"""

from __future__ import annotations

import argparse
from threading import Event
from typing import NamedTuple

import numpy as np

from rocescope.analyzer.units import parse_size
from rocescope.replay.collectives import collective
from rocescope.replay.engine.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.engine.many import run_many
from rocescope.replay.engine.model import Model, Workload
from rocescope.replay.fabric import Fabric
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.failures import LOSSY, Failures, LinkEvent
from rocescope.replay.strategies import parse_packet_strategy
from rocescope.replay.transport.parameters import Transport

PLANES = "multi-plane:planes=8,leaves=4,spines=16,hosts=16,rate=100G,delay=500ns"
ONE = "leaf-spine:leaves=4,spines=16,hosts=16,rate=800G,delay=500ns"
LINE_BITS = 800e9
PLANE_BDP = 8 * 4160 * 4
WHOLE_BDP = 8 * PLANE_BDP
MRC_MODEL = Model(
    buffer_bytes=16 * PLANE_BDP,
    trim_bytes=64,
    ecn_low_bytes=2 * PLANE_BDP // 10,
    ecn_high_bytes=8 * PLANE_BDP // 10,
)
ROCE_MODEL = Model(ecn_low_bytes=2 * WHOLE_BDP // 10, ecn_high_bytes=8 * WHOLE_BDP // 10)
"""Lossless as with PFC, which never has to pause here."""
MRC = Transport(recovery="sack", reordering_packets=256, rto_ps=50_000_000, mpr_packets=4096)
ROCE = Transport(recovery="go-back-n", rto_ps=1_000_000_000)
ROCE_DCQCN = Transport(recovery="go-back-n", rto_ps=1_000_000_000, congestion="dcqcn")


class Case(NamedTuple):
    """One line of the table."""

    name: str
    paper: str
    fabric: str
    strategy: str
    model: Model
    transport: Transport
    qps: int = 1
    loss: float = 0.0
    """Of every packet between hosts under different leaves, once."""
    large: bool = False
    """One large message, at whose end waiting for the last losses counts for less."""


def _cases() -> list[Case]:
    def mrc(name: str, paper: str, loss: float = 0.0, large: bool = True) -> Case:
        return Case(name, paper, PLANES, "mrc", MRC_MODEL, MRC, 1, loss, large)

    def roce(name: str, paper: str, qps: int, how: Transport, loss: float = 0.0) -> Case:
        return Case(name, paper, ONE, "ecmp", ROCE_MODEL, how, qps, loss, loss > 0)

    return [
        mrc("MRC, 1 QP", "more than RoCE with 16", large=False),
        *(
            roce(f"RoCE, {qps} QP", "about half" if qps == 1 else "", qps, ROCE)
            for qps in (1, 2, 4, 8, 16)
        ),
        *(roce(f"RoCE and DCQCN, {qps} QP", "", qps, ROCE_DCQCN) for qps in (1, 16)),
        mrc("MRC, none lost *", "line rate"),
        mrc("MRC, 0.1 % lost *", "about line rate", 0.001),
        mrc("MRC, 1 % lost *", "about a third", 0.01),
        roce("RoCE, 16 QP, 0.1 % lost *", "tolerable if large", 16, ROCE, 0.001),
        roce("RoCE, 16 QP, 1 % lost *", "unusable", 16, ROCE, 0.01),
    ]


def _load(case: Case, fabric: Fabric, size: int, steps: int, seed: int) -> Workload:
    """Every step splits its message over the queue pairs."""
    load = collective("permutation", fabric, case.model, size, seed, messages=steps, qps=case.qps)
    step = np.arange(len(load.flow)) - load.flow_start[load.flow]
    return load._replace(phase=step.astype(np.int32))


def _losing(fabric: Fabric, chance: float) -> Failures:
    """Losses on the links from leaves to spines, which every packet between leaves takes once."""
    up = np.flatnonzero(fabric.links.layer == fabric.layers.index("leaf-spine"))
    return Failures(tuple(LinkEvent(0, int(link), LOSSY, chance) for link in up) if chance else ())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="8MiB")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--large", default="32MiB", help="one step where packets are lost")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    many = parse_size(options.size, "--size"), options.steps
    large = parse_size(options.large, "--large"), 1
    fabrics = {spec: parse_fabric(spec) for spec in (PLANES, ONE)}
    cases = _cases()
    runs = [(case, seed) for case in cases for seed in range(1, options.seeds + 1)]

    def run(one: tuple[Case, int], stop: Event) -> FeedbackResult:
        case, seed = one
        size, steps = large if case.large else many
        fabric = fabrics[case.fabric]
        return run_event_driven(
            _load(case, fabric, size, steps, seed),
            fabric,
            parse_packet_strategy(case.strategy),
            case.model,
            seed,
            transport=case.transport,
            failures=_losing(fabric, case.loss),
            until_ps=100_000_000_000,
            stop=stop,
        )

    found = dict(run_many(runs, run))
    print(
        f"{options.steps} steps of {options.size}, * one of {options.large}; {options.seeds} seeds"
    )
    print(f"{'':26}{'of line rate':>14}{'min to max':>16}{'lost':>8}{'again':>9}  paper")
    for i, case in enumerate(cases):
        own = [found[i * options.seeds + k] for k in range(options.seeds)]
        size, steps = large if case.large else many
        shares = [_share(result, size * steps) for result in own]
        spread = f"{min(shares):.0%} to {max(shares):.0%}"
        lost = sum(result.data_lost for result in own)
        again = sum(result.sent_again for result in own)
        mean = f"{sum(shares) / len(shares):.1%}"
        print(f"{case.name:26}{mean:>14}{spread:>16}{lost:8}{again:9}  {case.paper}")


def _share(result: FeedbackResult, host_bytes: int) -> float:
    done = result.engine.completion_ps
    return 0.0 if done is None else host_bytes * 8e12 / done / LINE_BITS


if __name__ == "__main__":
    main()
