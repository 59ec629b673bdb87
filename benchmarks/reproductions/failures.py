"""One percent of the cables fail: disciplines under routing that converges at once, late or never.

    python benchmarks/reproductions/failures.py [--seeds 4] [--share 0.01]

128-host fat tree, 1 MiB permutation, ideal recovery, hosts send at rho_max (arXiv 2507.21372,
section 6). G: routing convergence. Printed: completion over the bound at that rate. The paper
has no numbers in its text, but an order: with slow convergence adaptive hosts win, with G = 0
hosts and switches are similar again.
"""

from __future__ import annotations

import argparse

from common import FABRICS
from reactive import BUFFER, Run, run_reactive

from rocescope.replay.collectives import collective
from rocescope.replay.engine.bounds import bounds
from rocescope.replay.engine.model import Model
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.failures import Failures, random_cables, rho_max
from rocescope.replay.transport.parameters import Transport

NAMES = ("reps", "bitmap", "host-spray", "adaptive", "switch-rr", "ofan")
CONVERGENCE_US: tuple[int | None, ...] = (0, 5, 10, 20, 50, None)
SIZE = 1 << 20
RTO_PS = 30_000_000
"""Ideal recovery needs none; the selection of entropy values learns by it (assumed)."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.01)
    options = parser.parse_args()
    fabric = parse_fabric(FABRICS["ft128"])
    marks = BUFFER // 10
    model = Model(buffer_bytes=BUFFER, ecn_low_bytes=marks, ecn_high_bytes=marks)
    seeds = range(1, options.seeds + 1)
    runs, bound_us = [], []
    for name in NAMES:
        for g in CONVERGENCE_US:
            for seed in seeds:
                load = collective("permutation", fabric, model, SIZE, seed)
                events = random_cables(fabric, options.share, seed)
                after = fabric.down([event.link for event in events])
                rate = rho_max(after, load.src, load.dst)
                transport = Transport(recovery="ideal", rate_share=rate, rto_ps=RTO_PS)
                failures = Failures(events, None if g is None else g * 1_000_000)
                runs.append(Run(name, model, load, fabric, seed, transport, failures))
                plain = bounds(load, fabric, model).completion_ps
                sending = int(load.packets.max()) * int(load.packet_bytes.max()) * 10
                bound_us.append((plain + sending * (1 / rate - 1)) / 1e6)
    results = run_reactive(runs)
    heads = ["G=never" if g is None else f"G={g}us" for g in CONVERGENCE_US]
    print(f"{options.share:.0%} of cables down: completion over the bound, mean of {len(seeds)}")
    print(f"{'':12}" + "".join(f"{head:>10}" for head in heads))
    at = 0
    for name in NAMES:
        cells = []
        for _ in CONVERGENCE_US:
            own = range(at, at + len(seeds))
            at += len(seeds)
            done = [results[i].completion_ps for i in own]
            ratios = [(d or 0) / 1e6 / bound_us[i] for i, d in zip(own, done, strict=True)]
            cells.append("late" if None in done else f"{sum(ratios) / len(ratios):.3f}")
        print(f"{name:12}" + "".join(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
