"""All-to-all among 128 hosts: completion over the bound by discipline.

    python benchmarks/reproductions/all_to_all.py [--size 1048576]

Claim of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), section 4: packet schemes
within 1 percent of the bound; flowlets, subflows and flows behind, in this order.
"""

from __future__ import annotations

import argparse

from common import FABRICS, Case, run_all

from rocescope.replay.collectives import collective
from rocescope.replay.engine.bounds import bounds
from rocescope.replay.engine.model import Model
from rocescope.replay.fabrics import parse_fabric

PACKETS = ("ofan", "host-dr", "switch-rr", "adaptive", "switch-random", "host-spray")
BEHIND = ("flowlet", "subflow", "ecmp")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1 << 20)
    size = parser.parse_args().size
    where, model = parse_fabric(FABRICS["ft128"]), Model()
    bound = bounds(collective("all-to-all", where, model, size, 1), where, model)
    print(f"lower bound {bound.completion_ps / 1e6:.1f} us ({bound.kind})")
    names = (*PACKETS, *BEHIND)
    results = run_all([Case("ft128", name, "all-to-all", size, 1) for name in names])
    over = {}
    for name, result in zip(names, results, strict=True):
        over[name] = 100 * ((result.completion_ps or 0) / bound.completion_ps - 1)
        within = "" if name in BEHIND or over[name] <= 1 else "  NOT within 1 percent"
        most = int(result.link_max_packets.max())
        print(f"{name:14} +{over[name]:6.2f} %  largest queue {most:5} packets{within}")
    behind = [over[name] for name in BEHIND]
    print("same order behind" if behind == sorted(behind) else "another order behind")


if __name__ == "__main__":
    main()
