"""One MRC queue pair over many paths against 1 to 16 RoCE queue pairs, with and without losses.

    python benchmarks/reproductions/mrc_roce.py [--seeds 2]

The setting of arXiv 2605.04333 as far as it is known: 64 adapters of 400 Gb/s and a ring
all-reduce; MRC with four ports of 100 Gb/s, one queue pair over 256 paths, NSCC, trimming, no PFC;
RoCE with one port of 400 Gb/s, lossless, DCQCN; losses at random in all planes. Assumed: 8 leaves
of 8 adapters (256 paths make 64 uplinks of each leaf and plane), the order of the ring (random),
sizes, slices, timers. Printed: bytes of a host over completion time, as a share of its line rate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np
from bands import Bands
from common import ring

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.failures import LOSSY, Failures, LinkEvent
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.runs import run_many
from rocescope.replay.strategies.registry import parse_packet_strategy

MIB = 1 << 20
LINE_BITS = 400e9
PLANES = "multi-plane:planes=4,leaves={},spines={},hosts={},rate=100G,delay=500ns"
ONE = "leaf-spine:leaves={},spines={},hosts={},rate=400G,delay=500ns"
SPARE, TIGHT = (8, 64, 8), (4, 16, 16)
"""Leaves, spines (of a plane), hosts of a leaf: as many paths as the paper has; no spare uplink."""
PLANE_BDP = 8 * 4160 * 4
WHOLE_BDP = 4 * PLANE_BDP
MRC_MODEL = Model(
    buffer_bytes=16 * PLANE_BDP,
    trim_bytes=64,
    ecn_low_bytes=2 * PLANE_BDP // 10,
    ecn_high_bytes=8 * PLANE_BDP // 10,
)
"""ECN ramp from 0.2 to 0.8 of a plane's bandwidth-delay product (UET 1.0.3)."""
ROCE_MODEL = Model(ecn_low_bytes=2 * WHOLE_BDP // 10, ecn_high_bytes=8 * WHOLE_BDP // 10, pfc=None)
"""Lossless as with PFC, which never has to pause here."""
STEPS = {1: 16, 4: 8, 16: 4}
"""Steps of the ring by their size in MiB."""
BANDS = {0.0: (0.94, 1.0), 0.001: (0.85, 1.0), 0.01: (0.3, 0.9)}
"""MRC, by losses: share of the line rate for the largest steps."""
BANDS_OF_ROCE = {0.001: (0.45, 0.65), 0.01: (0.0, 0.4)}
"""RoCE, by losses: tolerable for large messages, and unusable."""
EXAMPLE_RTO_PS = 262_000_000
"""The timeout of the examples of MRC's public API (the default is not public)."""


def _mrc(rto_ps: int = 50_000_000, congestion: str = "nscc") -> Transport:
    return Transport(
        recovery="sack",
        reordering_packets=256,
        rto_ps=rto_ps,
        mpr_packets=4096,
        congestion=congestion,
    )


DCQCN = Transport(recovery="go-back-n", rto_ps=1_000_000_000, congestion="dcqcn")
ROCE = Transport(recovery="go-back-n", rto_ps=1_000_000_000)
"""1 ms: adapters wait for milliseconds (assumed)."""


class Case(NamedTuple):
    """One cell of a table."""

    transport: Transport
    qps: int
    mib: int
    slices: int
    loss: float = 0.0
    shape: tuple[int, int, int] = SPARE

    @property
    def sprays(self) -> bool:
        """MRC; else RoCE."""
        return self.transport.recovery == "sack"

    @property
    def fabric(self) -> str:
        return (PLANES if self.sprays else ONE).format(*self.shape)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    seeds = range(1, parser.parse_args().seeds + 1)
    bands = Bands()
    print("Nothing lost, steps of 4 MiB in 16 slices: share of the line rate")
    print(f"{'':40}{''.join(f'{qps:5} QP' for qps in (1, 2, 4, 8, 16))}")
    for shape in (SPARE, TIGHT):
        print("{} leaves, {} spines, {} hosts each".format(*shape))
        (mrc,) = _print_row("  MRC", [Case(_mrc(), 1, 4, 16, shape=shape)], seeds)
        for name, how in (("  RoCE", ROCE), ("  RoCE with DCQCN", DCQCN)):
            roce = _print_row(
                name, [Case(how, n, 4, 16, shape=shape) for n in (1, 2, 4, 8, 16)], seeds
            )
            bands.holds("1 queue pair of MRC is worth 16 of RoCE", mrc >= roce[-1] - 0.01)
            if shape == SPARE:
                what = name.strip()
                bands.within(f"{what}: 1 queue pair over 16", roce[0] / roce[-1], 0.3, 0.6)
                bands.within(f"{what}: 8 queue pairs over 16", roce[-2] / roce[-1], 0.95, 1.05)
    print("paper: RoCE with 1 QP about half of what is possible, little gain past 8 QPs;")
    print("       MRC with 1 QP more than RoCE with 16\n")

    sizes = tuple(STEPS)
    print("Packets lost at random in all planes, 8 leaves: share of the line rate by step size")
    print(f"{'':40}{''.join(f'{mib:4} MiB' for mib in sizes)}  paper")
    whole, example = _mrc(), _mrc(EXAMPLE_RTO_PS)
    for name, how, slices, loss, paper in (
        ("MRC, step by step", whole, 1, 0.0, "line rate"),
        ("MRC, step by step, 0.1 % lost", whole, 1, 0.001, "about line rate if large"),
        ("MRC, step by step, 1 % lost", whole, 1, 0.01, "about a third"),
        ("  without congestion control", _mrc(congestion="none"), 1, 0.01, ""),
        ("  timeout of 262 us", example, 1, 0.01, ""),
        ("MRC, 16 slices, 0.1 % lost", whole, 16, 0.001, "about line rate if large"),
        ("MRC, 16 slices, 1 % lost", whole, 16, 0.01, ""),
    ):
        row = [Case(how, 1, mib, slices, loss) for mib in sizes]
        shares = _print_row(name, row, seeds, paper)
        bands.holds(f"{name}: large steps do best", shares == sorted(shares))
        if how == whole and paper:
            least, most = BANDS[loss]
            bands.within(f"{name}: best share", shares[-1], least, most)
    for loss, paper in ((0.001, "tolerable if large"), (0.01, "unusable")):
        row = [Case(DCQCN, 16, mib, 16, loss) for mib in sizes]
        name = f"RoCE with DCQCN, 16 QP, {loss:.1%} lost"
        shares = _print_row(name, row, seeds, paper)
        bands.within(f"{name}: best share", shares[-1], *BANDS_OF_ROCE[loss])
    bands.end()


def _print_row(
    name: str, cases: Sequence[Case], seeds: Sequence[int], paper: str = ""
) -> list[float]:
    """The shares printed."""
    shares = _shares(cases, seeds)
    print(f"{name:40}{''.join(f'{share:8.1%}' for share in shares)}  {paper}".rstrip())
    return shares


def _shares(cases: Sequence[Case], seeds: Sequence[int]) -> list[float]:
    """Of every case the mean over the seeds."""
    fabrics = {case.fabric: parse_fabric(case.fabric) for case in cases}
    runs = [(case, seed) for case in cases for seed in seeds]

    def run(one: tuple[Case, int], stop: Event) -> FeedbackResult:
        case, seed = one
        fabric = fabrics[case.fabric]
        model = MRC_MODEL if case.sprays else ROCE_MODEL
        steps = STEPS[case.mib]
        evs = 4 * case.shape[1]
        return run_event_driven(
            ring(fabric, model, case.mib * MIB, steps, case.slices, case.qps, seed),
            fabric,
            parse_packet_strategy(f"mrc:evs={evs}" if case.sprays else "ecmp"),
            model,
            seed,
            transport=case.transport,
            failures=_losing(fabric, case.loss),
            until_ps=500_000_000_000,
            stop=stop,
        )

    found = dict(run_many(runs, run))
    shares = [_share(found[i], runs[i][0]) for i in range(len(runs))]
    return np.array(shares).reshape(len(cases), -1).mean(1).tolist()


def _losing(fabric: Fabric, chance: float) -> Failures:
    """Losses on the links from leaves to spines, which every packet between leaves takes once."""
    up = np.flatnonzero(fabric.links.layer == fabric.layers.index("leaf-spine"))
    return Failures(tuple(LinkEvent(0, int(link), LOSSY, chance) for link in up) if chance else ())


def _share(result: FeedbackResult, case: Case) -> float:
    done = result.engine.completion_ps
    return 0.0 if done is None else case.mib * MIB * STEPS[case.mib] * 8e12 / done / LINE_BITS


if __name__ == "__main__":
    main()
