"""Disciplines that need finite buffers or feedback: the 2 MB rows of the reference table.

    python benchmarks/reproductions/reactive.py [--seeds 5]

Permutation of 2 MB messages on the 128-host fat tree, buffers of 192 packets, ideal recovery
(docs/reproductions.md). ECN marks for REPS at 10 % of the buffer (arXiv 2507.21372).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

from common import FABRICS

from rocescope.replay.collectives import collective
from rocescope.replay.engine.many import run_many
from rocescope.replay.engine.model import EngineResult, Model, Workload
from rocescope.replay.engine.run import run_packets
from rocescope.replay.fabric import Fabric
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.failures import Failures
from rocescope.replay.strategies import parse_packet_strategy
from rocescope.replay.transport.parameters import Transport

BUFFER = 192 * 4160
REFERENCE_US = {
    "ecmp": 93.5,
    "host-spray:evs=256": 30.58,
    "reps": 30.38,
    "adaptive": 28.98,
    "adaptive-flowlet:gap=1us,load=0": 102.4,
}


class Run(NamedTuple):
    """One run, with feedback where the strategy needs it."""

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
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    fabric = parse_fabric(FABRICS["ft128"])
    finite = Model(buffer_bytes=BUFFER)
    marking = Model(buffer_bytes=BUFFER, ecn_low_bytes=BUFFER // 10, ecn_high_bytes=BUFFER // 10)
    runs = [
        Run(
            name,
            marking if name == "reps" else finite,
            collective("permutation", fabric, finite, 2_000_000, seed),
            fabric,
            seed,
            Transport(recovery="ideal"),
        )
        for name in REFERENCE_US
        for seed in seeds
    ]
    results = run_reactive(runs)
    print("2 MB permutation, 192-packet buffers: completion in us, min/mean/max")
    for i, (name, reference) in enumerate(REFERENCE_US.items()):
        own = results[i * len(seeds) : (i + 1) * len(seeds)]
        times = [(r.completion_ps or 0) / 1e6 for r in own]
        mean = sum(times) / len(times)
        off = 100 * (mean / reference - 1)
        print(
            f"{name:26} {min(times):7.2f} {mean:7.2f} {max(times):7.2f}  "
            f"{reference:7.2f} {off:+6.1f}%"
        )


if __name__ == "__main__":
    main()
