"""Packet hops per second and core of the packet engine's two drivers, and its memory.

    python benchmarks/engine.py [--large | --more | --cores]

A hop is one packet through one link's queue, ACK hops too. Times are CPU time of the thread that
runs, set-up of the run included, best of several. "times": over what the field's simulator
(htsim) does on such a core, which was measured apart and is not run here.
--large: a run of 100 million hops, and the memory it took. --more: all other strategies, and
transports and failures, on 128 hosts. --cores: the same eight runs on one core and on all.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace

from rocescope.replay.compare.packets import Load, replay_packets
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.failures import Failures, random_cables
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import EngineResult, Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.registry import parse_packet_strategy

MODEL = Model(pfc=None)
GOAL = {"open loop": 15.0, "events": 5.0}
FIELD = {128: 1.1, 1024: 0.4}
"""Million hops per second of htsim by hosts (measured, docs/reproductions.md)."""
STRATEGIES = {
    "open loop": ("switch-random", "switch-rr", "ofan", "host-dr", "jsq", "ecmp"),
    "events": ("switch-random", "ofan", "reps", "plb"),
}


def speed(hosts: int, driver: str, strategy: str, packets: int, times: int) -> float:
    """Million hops per second, the best of several runs; the first one loads the kernels."""
    k = {128: 8, 1024: 16}[hosts]
    fabric = parse_fabric(f"fat-tree:k={k},rate=800G,delay=500ns")
    load = collective("permutation", fabric, MODEL, packets * 4096, 1)
    runs: dict[str, Callable[[], EngineResult]] = {
        "open loop": lambda: run_open_loop(load, fabric, parse_packet_strategy(strategy), MODEL, 1),
        "events": lambda: (
            run_event_driven(load, fabric, parse_packet_strategy(strategy), MODEL, 1).engine
        ),
    }
    best = 0.0
    for _ in range(times):
        begun = time.thread_time()
        result = runs[driver]()
        best = max(best, result.hops / (time.thread_time() - begun) / 1e6)
    return best


TREE = "fat-tree:k=8,rate=800G,delay=500ns"
CLOS = "leaf-spine:leaves=8,spines=16,hosts=16,rate=800G,delay=500ns"
PLANES = "multi-plane:planes=8,leaves=8,spines=16,hosts=16,rate=100G,delay=500ns"
LOSSES = Model(buffer_bytes=800_000, ecn_low_bytes=80_000, ecn_high_bytes=320_000)
SACK = Transport(recovery="sack", reordering_packets=512)
MORE: tuple[tuple[str, str, str, Transport, Model, float], ...] = (
    *(
        ("open loop", TREE, name, Transport(), MODEL, 0.0)
        for name in ("host-spray", "adaptive", "flowlet", "adaptive-flowlet", "subflow")
    ),
    ("open loop", CLOS, "conga", Transport(), MODEL, 0.0),
    *(("events", TREE, name, Transport(), MODEL, 0.0) for name in ("bitmap", "jsq", "ecmp")),
    ("events", CLOS, "conga", Transport(), MODEL, 0.0),
    ("events", PLANES, "mrc", Transport(), MODEL, 0.0),
    ("events", PLANES, "mrc", replace(SACK, congestion="nscc"), LOSSES, 0.0),
    ("events", TREE, "reps", SACK, LOSSES, 0.0),
    ("events", TREE, "reps", replace(SACK, congestion="nscc"), LOSSES, 0.0),
    ("events", TREE, "reps", replace(SACK, congestion="dcqcn"), LOSSES, 0.0),
    ("events", TREE, "plb", Transport(recovery="ideal"), MODEL, 0.01),
    ("events", TREE, "ofan", Transport(recovery="ideal"), MODEL, 0.01),
)
"""Driver, fabric, strategy, how hosts send, queues, share of the cables that fail."""


def more() -> None:
    """One line for each of MORE."""
    for driver, spec, name, transport, model, failing in MORE:
        fabric = parse_fabric(spec)
        load = collective("permutation", fabric, model, 1024 * 4096, 1)
        strategy = parse_packet_strategy(name)
        failures = Failures(random_cables(fabric, failing, 1)) if failing else None
        best = 0.0
        for _ in range(4):
            begun = time.thread_time()
            if driver == "open loop":
                result = run_open_loop(load, fabric, strategy, model, 1)
            else:
                result = run_event_driven(
                    load, fabric, strategy, model, 1, transport=transport, failures=failures
                ).engine
            best = max(best, result.hops / (time.thread_time() - begun) / 1e6)
        told = ", ".join(f"{k}={v}" for k, v in transport.described().items() if v != "none")
        told += f", {failing:.0%} of the cables down" if failing else ""
        verdict = "" if best >= GOAL[driver] else "  below the goal"
        print(f"{driver:10} {name:17} {best:6.1f}{verdict}  {told}", flush=True)


def on_cores() -> None:
    """Seconds of eight runs (four strategies, two seeds) by the number of threads."""
    fabric = parse_fabric(TREE)
    chosen = [parse_packet_strategy(name) for name in ("ofan", "switch-random", "jsq", "reps")]

    def load(run: int) -> Load:
        return Load(collective("permutation", fabric, MODEL, 1024 * 4096, run))

    took = []
    for threads in (1, os.cpu_count() or 1) * 2:  # the first round compiles
        begun = time.monotonic()
        replay_packets(load, fabric, chosen, MODEL, ["permutation"], runs=2, threads=threads)
        took.append((threads, time.monotonic() - begun))
    for threads, seconds in took[2:]:
        print(f"{threads} threads: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    only = parser.add_mutually_exclusive_group()
    for name in ("large", "more", "cores"):
        only.add_argument(f"--{name}", action="store_true")
    wanted = parser.parse_args()
    if wanted.more:
        more()
        return
    if wanted.cores:
        on_cores()
        return
    if wanted.large:
        fabric = parse_fabric("fat-tree:k=8,rate=800G,delay=500ns")
        load = collective("permutation", fabric, MODEL, 65_536 * 4096, 1)
        begun = time.thread_time()
        result = run_open_loop(
            load, fabric, parse_packet_strategy("ofan"), MODEL, 1, keep_arrivals=True
        )
        took = time.thread_time() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{result.hops / 1e6:.0f} M hops in {took:.1f} s CPU, {peak:.0f} MiB at most")
        return
    print("million packet hops per second and core; times: over the field's simulator, which does")
    print(f"{FIELD[128]} at 128 hosts and {FIELD[1024]} at 1,024 on such a core (measured, htsim)")
    print(
        f"{'driver':10} {'strategy':14} {'128 hosts':>10} {'times':>6} {'1,024 hosts':>12} "
        f"{'times':>6} {'share':>6}"
    )
    for driver, strategies in STRATEGIES.items():
        for strategy in strategies:
            small = speed(128, driver, strategy, 1024, 4)
            large = speed(1024, driver, strategy, 256, 3)
            verdict = "" if small >= GOAL[driver] and large >= small / 2 else "  below the goal"
            numbers = (
                f"{small:10.1f} {small / FIELD[128]:6.1f} {large:12.1f} "
                f"{large / FIELD[1024]:6.1f} {large / small:6.2f}"
            )
            print(f"{driver:10} {strategy:14} {numbers}{verdict}", flush=True)


if __name__ == "__main__":
    main()
