"""Packet hops per second and core of the packet engine's two drivers, and its memory.

    python benchmarks/engine.py [--large]

A hop is one packet through one link's queue, ACK hops too. Times are CPU time of the thread that
runs, set-up of the run included, best of several. "times": over what the field's simulator
(htsim) does on such a core, which was measured apart and is not run here.
--large: a run of 100 million hops, and the memory it took.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

from rocescope.replay.collectives import collective
from rocescope.replay.engine.event_driven import run_event_driven
from rocescope.replay.engine.model import EngineResult, Model
from rocescope.replay.engine.runner import run_open_loop
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.strategies import parse_packet_strategy

MODEL = Model()
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    if parser.parse_args().large:
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
