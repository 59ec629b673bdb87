"""All-to-all on the 128-host fat tree: every discipline over the lower bound.

    python benchmarks/reproductions/all_to_all.py [--kib 64] [--seeds 2]

arXiv 2507.21372, figure 1: packet disciplines within 1 percent of the bound; flowlets, subflows and
ECMP behind, ECMP last. Short messages between all pairs at once: 64 KiB each is a minute's work.
"""

from __future__ import annotations

import argparse

from common import FABRICS
from reactive import Run, run_reactive

from rocescope.replay.collectives import collective
from rocescope.replay.engine.bounds import bounds
from rocescope.replay.engine.model import Model
from rocescope.replay.fabrics import parse_fabric

BUFFER = 192 * 4160
PACKETS = ("ofan", "host-dr", "switch-rr", "adaptive", "host-spray", "reps")
FLOWS = ("plb", "subflow:n=4", "ecmp")
PLAIN = Model()
MARKING = Model(ecn_low_bytes=BUFFER // 10, ecn_high_bytes=BUFFER // 10)  # paper: REPS 10 %
HALF = Model(ecn_low_bytes=BUFFER // 2, ecn_high_bytes=BUFFER // 2)  # paper: PLB 50 %
MODELS = {"reps": MARKING, "plb": HALF}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    fabric, size = parse_fabric(FABRICS["ft128"]), options.kib << 10
    load = collective("all-to-all", fabric, PLAIN, size, 1)
    bound = bounds(load, fabric, PLAIN).completion_ps / 1e6
    print(f"all-to-all, {options.kib} KiB per pair, lossless: lower bound {bound:.2f} us")
    names = (*PACKETS, *FLOWS)
    runs = [
        Run(name, MODELS.get(name, PLAIN), load, fabric, seed)
        for name in names
        for seed in range(1, options.seeds + 1)
    ]
    results = run_reactive(runs)
    for i, name in enumerate(names):
        own = results[i * options.seeds : (i + 1) * options.seeds]
        mean = sum((r.completion_ps or 0) for r in own) / len(own) / 1e6
        late = any(r.completion_ps is None for r in own)
        print(
            f"{name:12} {mean:9.2f} us {100 * (mean / bound - 1):+7.2f}% {'late' if late else ''}"
        )


if __name__ == "__main__":
    main()
