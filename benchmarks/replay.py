"""Sweeps and seed recovery: seconds, seeds per second, memory; beside the same in plain numpy.

Kernels are compiled before; each figure is the best of several runs. Limits are held to the
CPU time spread over all cores, which is the time on a quiet machine; the time it took at this
moment stands beside. `--full` scans all 2^32 Linux seeds as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.placement import Walk
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.linux import LinuxHash
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import Group, HashSettings
from rocescope.replay.seeds.search import search_linux
from rocescope.replay.seeds.sweep import Scores, sweep
from rocescope.replay.traffic.traffic import Traffic

FLOWS = 1_000
SEEDS = 10_000
SWEEP_CEILING_S = 2.0
RECOVER_CEILING_S = 240.0
MODELS = ("crc16-ccitt", "toeplitz", "linux", "jenkins")


def hashed_everywhere() -> Fabric:
    """Four pods of two leaves and two spines, four cores, two cables between any two of them:
    a flow between pods is hashed at its leaf, its spine, the core and the other spine."""
    lines = ["name: bench", "nodes:"]
    hosts = [f"host{i}" for i in range(1, 65)]
    for pod in range(1, 5):
        for kind, tier in (("leaf", 1), ("spine", 2)):
            lines += [f"  {kind}{pod}{i}: {{tier: {tier}}}" for i in (1, 2)]
    lines += [f"  core{i}: {{tier: 3}}" for i in range(1, 5)]
    lines += [f"  {host}: {{kind: host}}" for host in hosts] + ["links:"]
    for i, host in enumerate(hosts):
        lines.append(f"  - {{a: leaf{i // 16 + 1}{i // 8 % 2 + 1}, b: {host}, rate: 400G}}")
    for pod in range(1, 5):
        for i in (1, 2):
            for j in (1, 2):
                lines.append(f"  - {{a: leaf{pod}{i}, b: spine{pod}{j}, rate: 400G, count: 2}}")
            for core in range(2 * i - 1, 2 * i + 1):
                lines.append(f"  - {{a: spine{pod}{i}, b: core{core}, rate: 400G, count: 2}}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text("\n".join(lines) + "\n")
        return parse_fabric(str(path))


def random_traffic(fabric: Fabric, flows: int = FLOWS) -> Traffic:
    """Flows between hosts of different pods."""
    rng = np.random.default_rng(1)
    src = rng.integers(0, 64, flows)
    dst = (src + 16 + rng.integers(0, 32, flows)) % 64
    names = [str(fabric.address_of(host)) for host in range(64)]
    zeros = np.zeros(flows, np.int64)
    keys = packet_keys(
        [names[s] for s in src],
        [names[d] for d in dst],
        rng.integers(49152, 65536, flows),
        dest_qp=rng.integers(0, 1 << 24, flows),
    )
    hosts = [ends.astype(np.int32) for ends in (src, dst)]
    number = np.arange(flows, dtype=np.int32)
    return Traffic(keys, *hosts, number, zeros + 1, zeros + 4096, zeros, zeros)  # type: ignore[call-arg]


class Took(NamedTuple):
    """Seconds."""

    wall: float
    quiet: float
    """CPU time over the number of cores."""

    def __str__(self) -> str:
        return f"{self.quiet:.2f} s ({self.wall:.2f} now)"


def best_of(rounds: int, work: Callable[[], object]) -> Took:
    """The fastest of several rounds; a first one compiles."""
    work()
    took = []
    for _ in range(rounds):
        begun, cpu = time.perf_counter(), time.process_time()
        work()
        wall = time.perf_counter() - begun
        took.append(Took(wall, (time.process_time() - cpu) / len(os.sched_getaffinity(0))))
    return Took(min(t.wall for t in took), min(t.quiet for t in took))


def sweeps(rounds: int) -> None:
    """10,000 seeds x 1,000 flows, every flow hashed at four switches."""
    fabric = hashed_everywhere()
    traffic = random_traffic(fabric)
    scores = Scores(traffic, fabric, "fim-bytes")
    for model in MODELS:
        walk = Walk(traffic, fabric, [HashSettings(model)] * fabric.switches)
        for per_switch in ("equal", "different"):
            took = best_of(
                rounds, lambda w=walk, p=per_switch: sweep(w, scores, SeedRange(0, SEEDS), p)
            )
            name = f"sweep, {SEEDS:,} seeds x {FLOWS:,} flows x 4 hashed hops, {model}"
            figure(f"{name}, {per_switch} seeds", f"{took}", took.quiet <= SWEEP_CEILING_S)
    walk = Walk(traffic, fabric, [HashSettings("linux")] * fabric.switches)
    one = best_of(rounds, lambda: sweep(walk, scores, SeedRange(0, SEEDS), "different"))
    ten = best_of(1, lambda: sweep(walk, scores, SeedRange(0, 10 * SEEDS), "different"))
    figure(
        "  ten times the seeds: time", f"x {ten.quiet / one.quiet:.1f}", ten.quiet / one.quiet < 11
    )


def plain_numpy(rounds: int) -> None:
    """One choice of 10,000 seeds x 1,000 flows by numpy's whole-array operations."""
    fabric = hashed_everywhere()
    keys = random_traffic(fabric).keys
    base = bind(keys, HashSettings("crc16-ccitt")).values([0])[0]
    group = Group(np.ones(8, np.int64))

    def by_numpy() -> None:
        for seed in range(SEEDS):
            np.bincount((base ^ seed) % 8, minlength=8)

    bound = bind(keys, HashSettings("crc16-ccitt"))
    theirs = best_of(rounds, by_numpy)
    ours = best_of(rounds, lambda: bound.choose(range(SEEDS), group))
    figure("one hop of the sweep (CRC16, seed known): numpy", f"{theirs.wall:.2f} s")
    figure("  the same by rocescope, values and all", f"{ours.wall:.2f} s", ours.wall < theirs.wall)


def memory() -> None:
    """Peak memory of a process that sweeps, for few and many seeds."""
    peaks = []
    for seeds in (SEEDS, 50 * SEEDS):
        code = (
            "import json, resource, replay as r\n"
            "f = r.hashed_everywhere(); t = r.random_traffic(f, 100)\n"
            "w = r.Walk(t, f, [r.HashSettings('crc32')] * f.switches)\n"
            f"r.sweep(w, r.Scores(t, f, 'fim-bytes'), r.SeedRange(0, {seeds}), 'equal')\n"
            "print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
        )
        here = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True
        )
        peaks.append(json.loads(done.stdout) * 1024)
    what = f"sweep, peak memory of {50 * SEEDS:,} seeds over that of {SEEDS:,}"
    figure(what, f"{peaks[1] / 1e6:.0f} / {peaks[0] / 1e6:.0f} MB", peaks[1] < 1.1 * peaks[0])


def recovery(full: bool) -> None:
    """The search of a Linux seed by 30 flows over four links."""
    fabric = hashed_everywhere()
    keys = random_traffic(fabric, 30).keys
    bound = bind(keys, HashSettings("linux"))
    assert isinstance(bound, LinuxHash)
    group, seed = Group(np.ones(4, np.int64)), 0xC0FFEE42
    link = bound.choose([seed], group)[0].astype(np.int32)
    part = SeedRange(0, 1 << 28)
    search_linux(bound, group, link, SeedRange(0, 1000), None)
    begun, cpu = time.perf_counter(), time.process_time()
    search_linux(bound, group, link, part, None)
    took, spent = time.perf_counter() - begun, time.process_time() - cpu
    per_core = part.seeds / spent
    cores = len(os.sched_getaffinity(0))
    figure("recover-seed, Linux: M seeds/s per core", f"{per_core / 1e6:.0f}", per_core > 9e6)
    figure(f"  all 2^32 on {cores} quiet cores, foretold", f"{2**32 / per_core / cores:.0f} s")
    figure("  at this moment's load", f"{took * 16:.0f} s", took * 16 < RECOVER_CEILING_S)
    if full:
        begun = time.perf_counter()
        found = search_linux(bound, group, link, SeedRange(0, 1 << 32), None)
        took = time.perf_counter() - begun
        right = found.seeds.tolist() == [seed]
        figure("  all 2^32, measured", f"{took:.1f} s", right and took < RECOVER_CEILING_S)


def figure(what: str, value: str, good: bool | None = None) -> None:
    """One line of the report; `good`: whether a limit is met."""
    verdict = "" if good is None else "ok" if good else "MISSED"
    print(f"{what:82} {value:>18}  {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round each")
    parser.add_argument("--full", action="store_true", help="scan all 2^32 Linux seeds")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    sweeps(rounds)
    plain_numpy(rounds)
    memory()
    recovery(options.full)


if __name__ == "__main__":
    main()
