"""In-network aggregation: published figures of SwitchML, ATP, A2TP and ESA beside the model's.

    python benchmarks/reproductions/aggregation.py [--fragments N] [--jobs N ...] [--workers N ...]

First the figures that follow from published sizes (packet, slots, window), then the memory that a
job with a straggler holds (measurements published with A2TP's code). Then ESA and A2TP against ATP
over memory, jobs and workers, for each of the three assumptions that the abstract of ESA leaves
open: how long ATP takes to recover a split sum, when ESA releases a slot, and ageing. `paper`: in
the paper; `code`: derived from sizes in released code; all else is measured here.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bands import Bands

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.jobs import PAYLOAD_BYTES, WIRE_BYTES, parse_jobs, place
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions, new_run
from rocescope.replay.aggregation.schemes import atp
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.results import AggregationResult

PUBLISHED_ESA = 1.35
"""Average job completion time of ATP over ESA's, at most (arXiv 2201.06398, abstract)."""
PUBLISHED_SWITCHML = 2.27
"""Speed over NCCL with RDMA, at most (NSDI 2021): a bound, since NCCL is not an ideal ring."""
RATE = 100_000_000_000
MULTIPLES = (0.5, 1, 2, 4, 8, 16)
"""Slots of the switch over the windows of all jobs."""
WINDOW = 100
ATP = ("atp", "atp:rto=50us", "atp:rto=50ms,trigger=1", "atp:reminder=60us")
ESA = ("esa", "esa:ageing=no", "esa:release=completion", "esa:ageing=no,release=completion")
A2TP = (("atp", "a2tp"), ("atp:rto=50ms,trigger=1", "a2tp:rto=50ms,trigger=1"))
"""ATP and A2TP with the same timers: the paper's of ATP, those of A2TP's code."""
OTHERS = (*ATP, "a2tp", "a2tp:rto=50ms,trigger=1", *ESA)
PUBLISHED_HELD = 0.87
"""Share of 450 slots that a job with a straggler at 16 Gb/s holds alone: sample data of a Tofino
beside A2TP's code (EuroSys 2023)."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fragments", type=int, default=1000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    given = parser.parse_args()
    begin, bands = time.perf_counter(), Bands()
    sizes(bands)
    packets(bands)
    straggler(bands)
    sweep(bands, given.fragments, given.jobs, given.workers)
    print(f"\n{time.perf_counter() - begin:.0f} s")
    bands.end()


def fabric(hosts: int, delay: str = "500ns") -> str:
    return f"leaf-spine:leaves=1,spines=1,hosts={hosts},rate=100G,delay={delay}"


def run(
    jobs: list[str],
    memory: list[int],
    schemes: list[str],
    spec: str,
    loss: float = 0.0,
    jitter: float = 0.0,
) -> AggregationResult:
    network = parse_fabric(spec)
    placed = place(parse_jobs(jobs), network)
    conditions = Conditions(memory[0], jitter=jitter, loss=loss)
    return aggregation_result(parse_schemes(schemes), memory, placed, network, conditions, 1)


def means(result: AggregationResult) -> dict[tuple[str, int | None], float]:
    """Mean completion times in us by scheme and memory."""
    return {(s.name, s.slots): (s.mean_completion_ns or 0) / 1e3 for s in result.schemes}


def sizes(bands: Bands) -> None:
    """Slots that two jobs share: ATP's hash over 20,000 slots with windows of 1,200."""
    print("slots of a job that another job uses too, of 20,000 with windows of 1,200 (code)")
    for count, published in ((2, 0.058), (8, 0.34)):
        network = parse_fabric(fabric(8 * 3 + 8))
        placed = place(parse_jobs([f"count={count},workers=2,window=1200"]), network)
        state = new_run("atp", atp({}).conduct, placed, network, Conditions(20_000))
        index = state.world.server_index
        own = [set(row.tolist()) for row in index]
        shares = [
            len(mine & set().union(*(other for other in own if other is not mine))) / len(mine)
            for mine in own
        ]
        share = sum(shares) / len(shares)
        print(f"  {count} jobs: {share:6.1%}   published sizes give {published:.1%}")
        bands.within(f"shared slots of {count} jobs", share, published - 0.02, published + 0.02)


def packets(bands: Bands) -> None:
    """What the packet of 248 of 306 bytes, the window and the ring leave of 100 Gb/s."""
    count, jobs = 20_000, "workers=8,model=comm,fragments={},iterations=1,window={}"
    print("\ngoodput of a worker at 100 Gb/s")
    for scheme in ("atp", "switchml"):
        share = goodput(run([jobs.format(count, 1200)], [40_000], [scheme], fabric(9)), count)
        print(f"  {scheme:9} {share:6.1%}   published packet: {PAYLOAD_BYTES / WIRE_BYTES:.1%}")
        bands.within(f"{scheme}: goodput", share, 0.8, PAYLOAD_BYTES / WIRE_BYTES)
    # 2.5 us per link are 10 us to the PS and back: 406 slots of ATP's 308 B (code).
    for window, least, most in ((200, 0.3, 0.45), (420, 0.74, 0.811)):
        found = run([jobs.format(count, window)], [40_000], ["atp"], fabric(9, "2500ns"))
        share = goodput(found, count)
        print(f"  atp, window {window:,}, 10 us: {share:6.1%}   published: 406 slots fill the line")
        bands.within(f"atp: goodput with window {window}", share, least, most)

    found = means(run([jobs.format(count, 400)], [40_000], ["switchml", "atp", "ring"], fabric(9)))
    computing = count * WIRE_BYTES * 8e6 / RATE / 2
    for name in ("switchml", "atp"):
        ratio = (found["ring", None] - computing) / (found[name, 40_000] - computing)
        words = f"  {name} over a ring all-reduce of 8 workers: {ratio:.2f} times as fast"
        print(words + f"   SwitchML's paper: up to {PUBLISHED_SWITCHML} over NCCL")
        bands.within(f"{name} over ring", ratio, 1.2, PUBLISHED_SWITCHML)
    lossy = means(run([jobs.format(count, 400)], [40_000], ["switchml"], fabric(9), loss=0.01))
    slower = lossy["switchml", 40_000] / found["switchml", 40_000]
    words = f"  switchml with 1 % loss on each link: {slower:.1f} times as long"
    print(f"{words}   paper: throughput visibly drops")
    bands.holds("1 % loss slows SwitchML", slower > 1.1)


def goodput(result: AggregationResult, count: int) -> float:
    """Gradient bits of a worker over its time on the line, as a share of the rate."""
    computing = result.jobs[0].compute_ns
    took = (result.schemes[0].jobs[0].completion_ns or 0) - computing
    return count * PAYLOAD_BYTES * 8 / (max(took, 1) * RATE / 1e9)


def straggler(bands: Bands) -> None:
    """Two jobs of 4 workers with 450 slots; one worker of the second has 16 of 100 Gb/s."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "slow.yaml")
        file.write_text(f"fabric: {fabric(10, '1us')}\nslow: {{host6>leaf1: 16G}}\n")
        jobs = ["count=2,workers=4,iterations=1,window=400"]
        found = run(jobs, [450], [*OTHERS, "ideal"], str(file))
    computing = found.jobs[0].compute_ns
    print("\ntwo jobs of 4 workers, 450 slots, one worker of the second at 16 Gb/s")
    print(f"  {'':38}{'Gb/s of the jobs':>18}  slots that the second holds alone")
    for scheme in found.schemes:
        ends = [job.completion_ns or 0 for job in scheme.jobs]
        one, other = (20_000 * PAYLOAD_BYTES * 8 / (end - computing) for end in ends)
        words = f"  {scheme.name:38}{one:9.1f}{other:9.1f}"
        memory = scheme.occupancy
        if memory is not None:
            width = memory.bin_ns
            alone = memory.used_percent[int(ends[0] / width) + 1 : int(ends[1] / width)]
            if len(alone) > 10:
                held = sum(alone) / len(alone) / 100
                words += f"{held:9.0%}"
                if scheme.name == "a2tp:rto=50ms,trigger=1":
                    words += f"   published: {PUBLISHED_HELD:.0%}"
                    bands.within("slots of a job with a straggler", held, 0.7, 0.9)
                    bands.within("its goodput, Gb/s", other, 9, 16 * PAYLOAD_BYTES / WIRE_BYTES)
        print(words)


def sweep(bands: Bands, fragments: int, jobs: list[int], workers: list[int]) -> None:
    """ESA against ATP; the region in which the published factor lies."""
    ratios: dict[tuple[str, str], list[float]] = {}
    places: dict[tuple[str, str], list[str]] = {}
    abundant: list[float] = []
    scarce: list[float] = []
    past: dict[tuple[str, str], list[float]] = {pair: [] for pair in A2TP}
    for count, each, rows in cases(fragments, jobs, workers):
        print(f"\n{count} jobs of {each} workers, window {WINDOW}; mean JCT in us by slots")
        memory = [round(multiple * count * WINDOW) for multiple in MULTIPLES]
        print(f"  {'':38}" + "".join(f"{slots:>9,}" for slots in memory))
        for name in (*OTHERS, "switchml"):
            print(f"  {name:38}" + "".join(f"{rows[name, slots]:9.1f}" for slots in memory))
        for one in ATP:
            for other in ESA:
                found = [rows[one, slots] / rows[other, slots] for slots in memory]
                ratios.setdefault((one, other), []).extend(found)
                places.setdefault((one, other), []).extend(
                    f"{count} x {each}: {low:g}-{high:g}" for low, high in crossings(found)
                )
        for one, other in A2TP:
            past[one, other] += [rows[one, slots] / rows[other, slots] for slots in memory]
        default = [rows["atp", slots] / rows["esa", slots] for slots in memory]
        abundant.append(default[-1])
        scarce.append(default[0])
        ideal = rows["ideal", None]
        shown = " ".join(f"{ratio:.2f}" for ratio in default)
        print(f"  unlimited memory {ideal:.1f}; atp over esa: {shown}")
    print("\nmean JCT of ATP over ESA's: least, most; then jobs x workers, and the slots over all")
    print(f"windows between which the {PUBLISHED_ESA} of the paper lies")
    for (one, other), found in ratios.items():
        words = f"  {one:24} {other:36} {min(found):5.2f} {max(found):6.2f}  "
        print(words + ", ".join(places[one, other]))
    print("mean JCT of ATP over A2TP's: least, most")
    for (one, other), found in past.items():
        print(f"  {one:24} {other:36} {min(found):5.2f} {max(found):6.2f}")
    every = [ratio for found in ratios.values() for ratio in found]
    bands.within("the published factor in the sweep", PUBLISHED_ESA, min(every), max(every))
    for ratio in abundant:
        bands.within("atp over esa with abundant memory", ratio, 0.9, 1.1)
    bands.holds("esa is not worse than atp under contention", min(scarce) >= 1)
    same = ratios["atp:reminder=60us", "esa"]
    bands.within("esa's gain with equal recovery, at most", max(same), 0.9, PUBLISHED_ESA)


def crossings(ratios: list[float]) -> Iterator[tuple[float, float]]:
    """Neighbours in MULTIPLES with the published factor between their ratios."""
    for at in range(len(ratios) - 1):
        if (ratios[at] - PUBLISHED_ESA) * (ratios[at + 1] - PUBLISHED_ESA) <= 0:
            yield MULTIPLES[at], MULTIPLES[at + 1]


def cases(
    fragments: int, jobs: list[int], workers: list[int]
) -> Iterator[tuple[int, int, dict[tuple[str, int | None], float]]]:
    for count in jobs:
        for each in workers:
            specs = [
                f"count={count // 2},workers={each},model={model},fragments={fragments},"
                f"window={WINDOW}"
                for model in ("comm", "comp")
            ]
            memory = [round(multiple * count * WINDOW) for multiple in MULTIPLES]
            spec = fabric(count * (each + 1))
            schemes = [*OTHERS, "switchml", "ideal"]
            yield count, each, means(run(specs, memory, schemes, spec, jitter=0.2))


if __name__ == "__main__":
    main()
