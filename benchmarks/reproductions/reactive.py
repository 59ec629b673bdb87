"""Disciplines that need finite buffers or feedback: the 2 MB rows of the reference table.

    python benchmarks/reproductions/reactive.py [--seeds 10]

Permutation of 2 MB messages on the 128-host fat tree, buffers of 192 packets, ideal recovery
(docs/reproductions.md). ECN marks for REPS at 10 % of the buffer (arXiv 2507.21372).
Below: the flowlets without losses, and with longer gaps. Drops are fair, so that no flow stands
still for a gap, and flows hardly ever move.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

from bands import Bands
from common import FABRICS

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.failures import Failures
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import EngineResult, Model, Workload
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.runs import run_many, run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

BUFFER = 192 * 4160
FLOWLETS_US = 102.4
REFERENCE_US = {
    "ecmp": 93.5,
    "host-spray:evs=256": 30.58,
    "reps": 30.38,
    "adaptive": 28.98,
    "adaptive-flowlet:gap=1us,load=0": FLOWLETS_US,
}
FLOWLETS = (("1us", False), ("100us", False), ("5us", True), ("20us", True))
"""Gaps of flowlets, and whether buffers are finite."""
NEAR = (0.92, 1.08)
"""Band over the reference; two means of ten seeds of ECMP differ by 5 to 8 percent by chance."""


class Run(NamedTuple):
    """One run, with feedback if the strategy needs it."""

    strategy: str
    model: Model
    load: Workload
    fabric: Fabric
    seed: int
    transport: Transport | None = None
    failures: Failures | None = None


def run_reactive(runs: Sequence[Run]) -> list[EngineResult]:
    """All runs on all cores, in their order."""

    def run(case: Run, stop: Event) -> EngineResult:
        return run_packets(
            case.load,
            case.fabric,
            parse_packet_strategy(case.strategy),
            case.model,
            case.seed,
            transport=case.transport,
            failures=case.failures,
            stop=stop,
        )

    found: dict[int, EngineResult] = {}
    for number, result in run_many(runs, run):
        found[number] = result
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(runs)} runs ", end="\r", file=sys.stderr)
    return [found[i] for i in range(len(runs))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    fabric = parse_fabric(FABRICS["ft128"])
    finite = Model(buffer_bytes=BUFFER)
    marking = Model(buffer_bytes=BUFFER, ecn_low_bytes=BUFFER // 10, ecn_high_bytes=BUFFER // 10)
    ideal = Transport(recovery="ideal")

    def times(name: str, model: Model) -> list[float]:
        runs = [
            Run(
                name,
                model,
                collective("permutation", fabric, model, 2_000_000, seed),
                fabric,
                seed,
                ideal,
            )
            for seed in seeds
        ]
        return [(result.completion_ps or 0) / 1e6 for result in run_reactive(runs)]

    bands = Bands()

    def check(what: str, own: list[float], reference: float) -> None:
        print(_line(what, own, reference))
        bands.within(f"{what}: over the reference", sum(own) / len(own) / reference, *NEAR)

    print("2 MB permutation, 192-packet buffers: completion in us")
    print(f"{'':34}{'min':>8}{'mean':>8}{'max':>8}{'reference':>11}  off by")
    for name, reference in REFERENCE_US.items():
        own = times(name, marking if name == "reps" else finite)
        check(name, own, reference)
    print("\nthe last with other gaps and buffers")
    for gap, is_finite in FLOWLETS:
        own = times(f"adaptive-flowlet:gap={gap},load=0", finite if is_finite else Model(pfc=None))
        buffers = "192-packet buffers" if is_finite else "lossless"
        check(f"gap {gap}, {buffers}", own, FLOWLETS_US)
    bands.end()


def _line(name: str, times: Sequence[float], reference: float) -> str:
    mean = sum(times) / len(times)
    return (
        f"{name:34}{min(times):8.2f}{mean:8.2f}{max(times):8.2f}"
        f"{reference:11.2f}  {100 * (mean / reference - 1):+.1f}%"
    )


if __name__ == "__main__":
    main()
