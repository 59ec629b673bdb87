"""Largest queue against message size: linear, square-root and constant families.

    python benchmarks/reproductions/queue_growth.py [--seeds 3]

A permutation on the 128-host fat tree. Writes docs/reproductions/queue_growth.svg. The claims are
those of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), section 5; the
reference values are in docs/reproductions.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import PLOTS, Case, log_log_plot, run_all

PACKETS = (64, 256, 1024, 4096)
REFERENCE = {
    "switch-rr:reshuffle=0,acks=own": (150, 349, 589, 1446),
    "jsq": (28, 49, 215, 675),
    "switch-random": (22, 44, 82, 184),
    "host-dr": (7, 8, 8, 8),
    "ofan": (6, 7, 7, 7),
}
FAMILY = {
    "switch-rr:reshuffle=0,acks=own": "linear",
    "jsq": "linear",
    "switch-random": "square root",
    "host-dr": "constant",
    "ofan": "constant",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(1, parser.parse_args().seeds + 1)
    cases = [
        Case("ft128", name, "permutation", packets * 4096, seed)
        for name in REFERENCE
        for packets in PACKETS
        for seed in seeds
    ]
    results = iter(run_all(cases))
    lines = []
    print(f"{'largest queue in packets, mean':34} {'':>6} " + " ".join(f"{p:>6}" for p in PACKETS))
    for name, reference in REFERENCE.items():
        most = [
            float(np.mean([next(results).link_max_packets.max() for _ in seeds])) for _ in PACKETS
        ]
        fitted, theirs = (
            float(np.polyfit(np.log(PACKETS), np.log(values), 1)[0]) for values in (most, reference)
        )
        print(f"{name:34} {'':>6} " + " ".join(f"{value:6.0f}" for value in most), end="")
        print(f"  exponent {fitted:.2f} (theory: {FAMILY[name]})")
        print(f"{'':34} {'theirs':>6} " + " ".join(f"{v:6.0f}" for v in reference), end="")
        print(f"  exponent {theirs:.2f}")
        lines.append((name.partition(":")[0], PACKETS, most))
    log_log_plot(
        PLOTS / "queue_growth.svg",
        "Largest queue, permutation on 128 hosts",
        ("packets per message", "packets"),
        lines,
    )


if __name__ == "__main__":
    main()
