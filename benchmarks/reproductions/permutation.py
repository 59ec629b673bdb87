"""Completion of a 1 MiB permutation under every discipline, beside the reference table.

    python benchmarks/reproductions/permutation.py [--seeds 10]

Source of the reference: docs/reproductions.md. Host rotation, Ofan and the lower bound must be
within 3 percent of its mean, the random disciplines within 8 percent.
"""

from __future__ import annotations

import argparse

from common import FABRICS, Case, run_all

from rocescope.replay.collectives import collective
from rocescope.replay.engine.bounds import bounds
from rocescope.replay.engine.model import Model
from rocescope.replay.fabrics import parse_fabric

SIZE = 1 << 20
REFERENCE_US = {  # mean of 10 seeds on ft128 and ls128
    "switch-rr:reshuffle=0,acks=own": (31.86, 21.92),
    "switch-rr:reshuffle=0,acks=shared": (25.01, 18.71),
    "switch-rr": (19.65, 16.57),
    "jsq": (19.59, 16.64),
    "switch-random": (19.22, 16.77),
    "host-dr": (17.44, 15.21),
    "ofan": (17.31, 15.13),
}
BOUND_US = (16.97, 14.91)
TIE = 0.01
"""Reference means closer than this say nothing about the ranking: seeds differ by more."""
EXACT = ("host-dr", "ofan")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    for column, fabric in enumerate(FABRICS):
        where, model = parse_fabric(FABRICS[fabric]), Model()
        load = collective("permutation", where, model, SIZE, 1)
        bound = bounds(load, where, model).completion_ps / 1e6
        print(f"\n{fabric}: lower bound {bound:.2f} us, reference {BOUND_US[column]:.2f} us")
        print(f"{'':34} {'min':>6} {'mean':>6} {'max':>6}  {'reference':>9}  {'off by':>7}")
        cases = [
            Case(fabric, name, "permutation", SIZE, seed) for name in REFERENCE_US for seed in seeds
        ]
        results = run_all(cases)
        means = {}
        for i, (name, reference) in enumerate(REFERENCE_US.items()):
            own = results[i * len(seeds) : (i + 1) * len(seeds)]
            times = [(result.completion_ps or 0) / 1e6 for result in own]
            means[name] = sum(times) / len(times)
            off = 100 * (means[name] / reference[column] - 1)
            within = abs(off) <= (3 if name in EXACT else 8)
            print(
                f"{name:34} {min(times):6.2f} {means[name]:6.2f} {max(times):6.2f}  "
                f"{reference[column]:9.2f}  {off:+6.1f}%  {'' if within else 'OUTSIDE'}"
            )
        swapped = [
            f"{a} before {b}"
            for a in means
            for b in means
            if means[a] < means[b] and REFERENCE_US[a][column] > (1 + TIE) * REFERENCE_US[b][column]
        ]
        print(f"ranking differs: {', '.join(swapped)}" if swapped else "same ranking")


if __name__ == "__main__":
    main()
