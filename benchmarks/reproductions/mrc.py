"""MRC on an eight-plane, two-tier Clos during a collective: a spine reboots, links flap.

    python benchmarks/reproductions/mrc.py

64 hosts with eight 100 Gb/s ports; leaves (T0) and spines (T1) of eight planes. A ring all-reduce
as arXiv 2507.21372 sees it: a permutation, step by step with barriers. Beside it single-path RoCE
(lossless, go-back-N, ECMP, routing never reacts). Second table: what arXiv 2605.04333 says of it.
Writes docs/reproductions/entropy_values.svg.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from bands import Bands
from published_plots import log_log_plot

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks import links_of
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.failures import Failures, flapping, outage
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.packets.offers import collective
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRIC = "multi-plane:planes=8,leaves=4,spines=16,hosts=16,rate=100G,delay=500ns"
PATHS = 8 * 16
PACKET = 4160
BDP = 8 * PACKET * 4
MODEL = Model(
    buffer_bytes=16 * BDP, trim_bytes=64, ecn_low_bytes=2 * BDP // 10, ecn_high_bytes=8 * BDP // 10
)
"""ECN ramp from 0.2 to 0.8 of a plane's bandwidth-delay product (UET 1.0.3)."""
MRC = Transport(recovery="sack", reordering_packets=256, rto_ps=50_000_000)
MRC_NSCC = Transport(recovery="sack", reordering_packets=256, rto_ps=50_000_000, congestion="nscc")
ROCE = Transport(recovery="go-back-n", rto_ps=1_000_000_000)
"""1 ms: adapters wait for milliseconds (assumed)."""
BEGIN_PS, END_PS = 100_000_000, 250_000_000
FLAP_PS = 20_000_000
OUTAGES = -(-(END_PS - BEGIN_PS) // (2 * FLAP_PS))
FEWER_EVS = (8, 16, 32, 64, 96, 112)


class Case(NamedTuple):
    """One line of the first table."""

    name: str
    strategy: str = "mrc"
    transport: Transport = MRC
    failures: Failures = Failures()
    model: Model = MODEL


class Outcome(NamedTuple):
    """What came of it."""

    completion_us: float
    result: FeedbackResult
    uneven_packets: int
    """Packets that the plane with most carried over that with fewest, worst queue pair."""
    usual_us: float
    """Median time of a step."""
    last_us: float
    """Time of the last step."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="of 1 MiB each")
    options = parser.parse_args()
    fabric = parse_fabric(FABRIC)
    load = collective("permutation", fabric, MODEL, 1 << 20, 1, messages=options.steps)
    step = np.arange(len(load.flow)) - load.flow_start[load.flow]
    load = load._replace(phase=step.astype(np.int32))
    roce = Case("RoCE, all well", "ecmp", ROCE, model=Model(pfc=None))
    alone = _run(roce, fabric, load)
    spine = _busiest_spine(fabric, alone.result)  # so that RoCE, on a few paths, is hit too
    t1 = Failures(outage(fabric.find_links(spine).tolist(), BEGIN_PS, END_PS))
    at = fabric.attachments
    port = [int(at.access_link[0, 2]), int(at.exit_link[0, 2])]
    plane = links_of(fabric, "plane3").tolist()
    flapped = ("plane2.leaf1-plane2.spine1", "plane6.leaf3-plane6.spine9")
    links = [link for name in flapped for link in fabric.find_links(name).tolist()]
    flaps = Failures(flapping(links, BEGIN_PS, END_PS, FLAP_PS, FLAP_PS))
    cases = [
        Case("all well"),
        Case("spine reboots", failures=t1),
        Case("... with NSCC", transport=MRC_NSCC, failures=t1),
        Case("2 cables flap", failures=flaps),
        Case("a NIC's port is lost", failures=Failures(outage(port, BEGIN_PS))),
        Case("a plane is lost", failures=Failures(outage(plane, BEGIN_PS))),
        *(Case(f"{n} EVs, all well", f"mrc:evs={n}") for n in (*FEWER_EVS, PATHS)),
        *(Case(f"{n} EVs, spine reboots", f"mrc:evs={n}", failures=t1) for n in (8, 32)),
        Case("RoCE, spine reboots", "ecmp", ROCE, t1, Model(pfc=None)),
    ]
    print(f"{options.steps} steps of 1 MiB on {FABRIC}")
    print(f"96 entropy values of {PATHS} paths unless said, {len(load.src)} queue pairs; from")
    print(f"{BEGIN_PS // 10**6} us on, to {END_PS // 10**6} us: {spine} reboots, cables flap\n")
    print(f"{'':24}{'us':>9}{'lost':>7}{'again':>7}{'uneven':>9}{'last lost':>10}{'probes':>8}")
    done = {}
    for case in cases:
        done[case.name] = _run(case, fabric, load)
        print(_line(case.name, done[case.name]))
    print(_line(roce.name, alone))
    print("uneven: packets by the busiest plane over the idlest, worst queue pair")
    bands = Bands()
    _print_claims(bands, done, alone, options.steps)
    most = done[f"{PATHS} EVs, all well"].completion_us
    above = [100 * (done[f"{n} EVs, all well"].completion_us / most - 1) for n in FEWER_EVS]
    log_log_plot(
        "entropy_values",
        f"MRC: completion with fewer entropy values than all {PATHS} paths",
        ("entropy values per queue pair", "percent above"),
        [("all well", FEWER_EVS, above)],
    )
    bands.end()


def _run(case: Case, fabric: Fabric, load: Workload) -> Outcome:
    result = run_event_driven(
        load,
        fabric,
        parse_packet_strategy(case.strategy),
        case.model,
        1,
        transport=case.transport,
        failures=case.failures,
        until_ps=30_000_000_000,
    )
    ends = np.array([result.engine.completed_ps[load.phase == s].max() for s in set(load.phase)])
    steps = np.diff(np.append(0, np.sort(ends))) / 1e6
    uneven = (result.port_bytes.max(1) - result.port_bytes.min(1)).max() // PACKET
    done = (result.engine.completion_ps or np.nan) / 1e6
    return Outcome(done, result, int(uneven), float(np.median(steps)), float(steps[-1]))


def _busiest_spine(fabric: Fabric, result: FeedbackResult) -> str:
    carried = np.bincount(fabric.links.source, result.engine.link_bytes)[: fabric.switches]
    carried[fabric.nodes.tier[: fabric.switches] != 2] = 0
    return fabric.nodes.names[int(carried.argmax())]


def _line(name: str, done: Outcome) -> str:
    last = ""
    if done.result.tally.last_loss_ps and "flap" not in name:
        last = f"+{(done.result.tally.last_loss_ps - BEGIN_PS) / 1e6:.1f} us"
    one_port = name.startswith("RoCE")
    tally = done.result.tally
    return (
        f"{name:24}{done.completion_us:9.1f}{tally.data_lost:7}{tally.sent_again:7}"
        f"{'one port' if one_port else done.uneven_packets:>9}{last:>10}{tally.probes:8}"
    )


def _print_claims(bands: Bands, done: dict[str, Outcome], roce: Outcome, steps: int) -> None:
    """The paper's statements, the measured values and the assumptions."""
    well, reboots, flap = done["all well"], done["spine reboots"], done["2 cables flap"]
    few = done["8 EVs, spine reboots"].result, done["32 EVs, spine reboots"].result
    last = [(one.tally.last_loss_ps - BEGIN_PS) / 1e6 for one in (reboots.result, *few)]
    port, plane = done["a NIC's port is lost"], done["a plane is lost"]
    most = done[f"{PATHS} EVs, all well"].completion_us
    share = [done[f"{n} EVs, all well"].completion_us / most for n in (8, 32, 64, 96)]
    idle = roce.completion_us / well.completion_us
    bands.within("planes uneven, all ports up", well.uneven_packets, 0, 0)
    bands.within("planes uneven while a spine reboots", reboots.uneven_packets, 0, 1)
    bands.within("us until a dead path is out of use", max(last), 0, 50)
    hold_us = reboots.completion_us - well.completion_us
    bands.within("us that the reboot costs: about one timeout", hold_us, 0, 60)
    bands.within("plane lost: later steps", plane.last_us / well.usual_us, 1.0, 1.15)
    bands.within("port lost: later steps", port.last_us / well.usual_us, 1.0, 1.15)
    bands.within("96 entropy values over all", share[-1], 1.0, 1.1)
    bands.holds("fewer entropy values take longer", share == sorted(share, reverse=True))
    bands.within("single-path RoCE over MRC", idle, 8, 30)
    rows = (
        ("bytes of planes, all ports up", "equal [paper]",
         f"within {well.uneven_packets} packets of {steps * 32}"),
        ("... while a spine reboots", "equal [paper]", f"within {reboots.uneven_packets}"),
        ("a dead path is out of use after", "few tens of us [paper]",
         f"{min(last):.1f} to {max(last):.1f} us"),
        ("the reboot holds the job up for", "no effect on jobs [paper]",
         f"{reboots.completion_us - well.completion_us:.0f} us, one timeout (50 us, assumed)"),
        ("each flap holds it up for", "no effect on jobs [paper]",
         f"{(flap.completion_us - well.completion_us) / OUTAGES:.0f} us"),
        ("plane lost: later steps take", "8/7 = 1.14 [derived]",
         f"{plane.last_us / well.usual_us:.2f} of the usual {well.usual_us:.1f} us"),
        ("NIC's port lost: later steps", "at most 1.14 [derived]",
         f"{port.last_us / well.usual_us:.2f}"),
        ("8, 32, 64, 96 EVs take longer by", "little beyond 100 [readers]",
         ", ".join(f"{ratio:.2f}" for ratio in share)),
        ("single-path RoCE takes longer by", "at best 8 [derived]", f"{idle:.1f}"),
    )  # fmt: skip
    print(f"\n{'':34}{'theirs':28}measured here")
    for claim, theirs, ours in rows:
        print(f"{claim:34}{theirs:28}{ours}")
    print("assumed: probes every 100 us, 3 answers; timeout 50 us; a loss is known by 256 later")
    print("packets; planes in rounds; no congestion control unless said")


if __name__ == "__main__":
    main()
