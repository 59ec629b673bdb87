"""MRC on an eight-plane, two-tier Clos during a collective: a spine reboots, links flap.

    python benchmarks/reproductions/mrc.py

64 hosts with eight 100 Gb/s ports; leaves (T0) and spines (T1) of eight planes. A ring all-reduce
as arXiv 2507.21372 sees it: a permutation, step by step with barriers. Beside it single-path RoCE
(lossless, go-back-N, ECMP, routing never reacts). arXiv 2605.04333 says: a path is bypassed
in a few tens of microseconds; all planes carry the same bytes.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from rocescope.replay.collectives import collective
from rocescope.replay.engine.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.engine.model import Model, Workload
from rocescope.replay.fabric import Fabric
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.failures import Failures, flapping, reboot
from rocescope.replay.strategies import parse_packet_strategy
from rocescope.replay.transport.parameters import Transport

FABRIC = "multi-plane:planes=8,leaves=4,spines=16,hosts=16,rate=100G,delay=500ns"
BDP = 8 * 4160 * 4
MODEL = Model(
    buffer_bytes=16 * BDP, trim_bytes=64, ecn_low_bytes=2 * BDP // 10, ecn_high_bytes=8 * BDP // 10
)
"""ECN ramp from 0.2 to 0.8 of a plane's bandwidth-delay product (UET 1.0.3)."""
MRC = Transport(recovery="sack", reordering_packets=256, rto_ps=50_000_000)
ROCE = Transport(recovery="go-back-n", rto_ps=1_000_000_000)
"""1 ms: adapters wait for milliseconds (assumed)."""
BEGIN_PS, END_PS = 100_000_000, 250_000_000


class Case(NamedTuple):
    """One line of the table."""

    name: str
    strategy: str
    transport: Transport
    failures: Failures
    model: Model = MODEL


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="of 1 MiB each")
    options = parser.parse_args()
    fabric = parse_fabric(FABRIC)
    load = collective("permutation", fabric, MODEL, 1 << 20, 1, messages=options.steps)
    step = np.arange(len(load.flow)) - load.flow_start[load.flow]
    load = load._replace(phase=step.astype(np.int32))
    nothing = Failures()
    roce = Case("RoCE, all well", "ecmp", ROCE, nothing, Model())
    alone = _run(roce, fabric, load)
    spine = _busiest_spine(fabric, alone)  # so that RoCE, on a few paths, is hit too
    t1 = Failures(reboot(fabric, spine, BEGIN_PS, END_PS))
    flaps = Failures(
        flapping(
            fabric.find_links("plane2.leaf1-plane2.spine1").tolist()
            + fabric.find_links("plane6.leaf3-plane6.spine9").tolist(),
            BEGIN_PS,
            END_PS,
            20_000_000,
            20_000_000,
        )
    )
    cases = [
        Case("all well", "mrc", MRC, nothing),
        Case("spine reboots", "mrc", MRC, t1),
        Case("links flap", "mrc", MRC, flaps),
        *(Case(f"all well, {n} EVs", f"mrc:evs={n}", MRC, nothing) for n in (8, 16, 32, 64)),
        *(Case(f"reboot, {n} EVs", f"mrc:evs={n}", MRC, t1) for n in (8, 32)),
        Case("RoCE, spine reboots", "ecmp", ROCE, t1, Model()),
    ]
    print(
        f"{options.steps} steps on {FABRIC}; {len(load.src)} queue pairs, {len(load.flow)} messages"
    )
    print(f"{'':22}{'us':>9}{'lost':>7}{'again':>7}{'planes':>8}{'bypassed':>10}{'probes':>8}")
    print(f"{spine} reboots from {BEGIN_PS // 10**6} to {END_PS // 10**6} us")
    for case in cases:
        print(_line(case, _run(case, fabric, load)))
    print(_line(roce, alone))


def _run(case: Case, fabric: Fabric, load: Workload) -> FeedbackResult:
    return run_event_driven(
        load,
        fabric,
        parse_packet_strategy(case.strategy),
        case.model,
        1,
        transport=case.transport,
        failures=case.failures,
        until_ps=30_000_000_000,
    )


def _busiest_spine(fabric: Fabric, result: FeedbackResult) -> str:
    carried = np.bincount(fabric.links.source, result.engine.link_bytes)[: fabric.switches]
    carried[fabric.nodes.tier[: fabric.switches] != 2] = 0
    return fabric.nodes.names[int(carried.argmax())]


def _line(case: Case, result: FeedbackResult) -> str:
    done = result.engine.completion_ps
    spread = float((result.port_bytes.max(1) / np.maximum(result.port_bytes.mean(1), 1)).max())
    bypassed = ""
    if result.last_loss_ps and "flap" not in case.name:
        bypassed = f"{(result.last_loss_ps - BEGIN_PS) / 1e6:.1f} us"
    return (
        f"{case.name:22}{'late' if done is None else f'{done / 1e6:.1f}':>9}{result.data_lost:7}"
        f"{result.sent_again:7}{spread:8.4f}{bypassed:>10}{result.probes:8}"
    )


if __name__ == "__main__":
    main()
