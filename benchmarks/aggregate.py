"""In-network aggregation: million packet hops per second and core, by scheme.

    python benchmarks/aggregate.py [--fragments N] [--runs N]

8 jobs of 8 workers and a PS on one switch, 20,000 fragments, 3 iterations, half of the jobs heavy
in communication, with 4,096 slots. CPU time of one core, kernels compiled before, best of several
runs; a hop is a packet through one queue. Exit code 1 below 3 million hops per second.
"""

from __future__ import annotations

import argparse
import sys
import time

from rocescope.replay.aggregation.jobs import parse_jobs, place
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes import AllReduce
from rocescope.replay.fabrics.parse import parse_fabric

FABRIC = "leaf-spine:leaves=1,spines=1,hosts=72,rate=100G,delay=2500ns"
LEAST = 3e6


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fragments", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    fabric = parse_fabric(FABRIC)
    kinds = [f"count=4,model={model},fragments={{}}" for model in ("comm", "comp")]
    jobs, few = (
        place(parse_jobs([kind.format(count) for kind in kinds]), fabric)
        for count in (given.fragments, 500)
    )
    print(f"{'scheme':10}{'hops':>12}{'seconds':>9}{'M hops/s':>10}")
    slow = []
    for scheme in parse_schemes(()):
        if isinstance(scheme, AllReduce):
            continue
        simulate(scheme, few, fabric, Conditions(4096))
        best, hops = float("inf"), 0
        for _ in range(given.runs):
            begin = time.process_time()
            hops = simulate(scheme, jobs, fabric, Conditions(4096)).hops
            best = min(best, time.process_time() - begin)
        print(f"{scheme.name:10}{hops:12,}{best:9.2f}{hops / best / 1e6:10.2f}", flush=True)
        if hops / best < LEAST:
            slow.append(scheme.name)
    if slow:
        print(f"below {LEAST / 1e6:.0f} million hops per second: {', '.join(slow)}")
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
