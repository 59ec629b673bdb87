"""All-to-all among 128 hosts: completion over the bound by discipline.

    python benchmarks/reproductions/all_to_all.py [--size 1048576]

Claim of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), section 4: packet schemes
within 1 percent of the bound; flowlets (PLB), subflows and flows behind, in this order. PLB needs
marks (at half of a buffer of 192 packets, as there) and runs on the event-driven driver; `flowlet`
beside it draws a new link in switches. Subflows and flows are lossless here, which favours them.
"""

from __future__ import annotations

import argparse

from bands import Bands
from common import FABRICS, Case, run_all
from reactive import BUFFER, Run, run_reactive

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective

PACKETS = ("ofan", "host-dr", "switch-rr", "adaptive", "switch-random", "host-spray")
BEHIND = ("flowlet", "subflow", "ecmp")
MARKS = BUFFER // 2
MARKING = Model(buffer_bytes=BUFFER, ecn_low_bytes=MARKS, ecn_high_bytes=MARKS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1 << 20)
    size = parser.parse_args().size
    where, model = parse_fabric(FABRICS["ft128"]), Model(pfc=None)
    load = collective("all-to-all", where, model, size, 1)
    bound = bounds(load, where, model)
    print(f"lower bound {bound.completion_ps / 1e6:.1f} us ({bound.kind})")
    names = (*PACKETS, *BEHIND)
    results = run_all([Case("ft128", name, "all-to-all", size, 1) for name in names])
    results += run_reactive([Run("plb", MARKING, load, where, 1, Transport(recovery="ideal"))])
    bands, over = Bands(), {}
    for name, result in zip((*names, "plb"), results, strict=True):
        over[name] = 100 * ((result.completion_ps or 0) / bound.completion_ps - 1)
        if name in PACKETS:
            bands.within(f"{name}: percent over the bound", over[name], 0, 1)
        most = int(result.link_max_packets.max())
        print(f"{name:14} +{over[name]:6.2f} %  largest queue {most:5} packets")
    behind = [max(over[name] for name in PACKETS), over["plb"], over["subflow"], over["ecmp"]]
    same = behind == sorted(behind)
    print(f"packets, plb, subflow, ecmp: {'the same' if same else 'another'} order as in the paper")
    bands.holds("packets, plb, subflow, ecmp: the order of the paper", same)
    bands.end()


if __name__ == "__main__":
    main()
