"""Ring and tree all-reduces of the same jobs among the workers alone, on the packet engine.

Every iteration is one run of the engine: the collectives of all jobs at once, after the slowest
worker of each job has computed. Ring: a reduce-scatter and an all-gather in 2(n - 1) steps. Tree:
two binary trees over the workers, each the mirror of the other, with half of the data each; sums go
up and results go down in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Floats, Ints
from ..fabrics.fabric import Fabric
from ..generate.from_pattern import offered_traffic
from ..generate.patterns import Demands
from ..generate.queue_pairs import Sending, queue_pairs
from ..packets.model.draws import drawn, purpose
from ..packets.model.model import Model, Workload
from ..packets.offers import workload_of
from ..packets.runs import run_packets
from ..strategies.registry import parse_packet_strategy
from ..traffic.traffic import ON_RECEIVED
from .jobs import PAYLOAD_BYTES, Job

PIECE_BYTES = 1 << 16
"""Of a tree: what a worker passes on at once."""
_JITTER = purpose("compute time")
_MODEL = Model(pfc=None)
"""The ideal that aggregation competes with: queues without a limit."""


class Collectives(NamedTuple):
    """What a run gave."""

    completion_ps: list[int | None]
    """Of each job, from its start; None: a message has no path to its worker."""
    packets: list[int]
    """Data packets of each job."""
    link_bytes: Ints
    hops: int


class _Plan(NamedTuple):
    """The messages of a collective, sorted by flow."""

    src: list[int]
    dst: list[int]
    """Of each flow."""
    messages: list[int]
    """Of each flow."""
    sizes: list[int]
    """Of each message, bytes."""
    after: list[int]
    """The message that must have arrived, -1 for none."""


def run_all_reduce(
    kind: str,
    jobs: Sequence[Job],
    fabric: Fabric,
    seed: int,
    jitter: float,
    stop: Event | None = None,
) -> Collectives:
    """All iterations of the jobs. kind: `ring` or `tree`. UsageError for messages that are too
    large for the engine."""
    computing = _computing_ps(jobs, seed, jitter)
    completion: list[int | None] = [0] * len(jobs)
    packets = [0] * len(jobs)
    carried = np.zeros(len(fabric.links.source), np.int64)
    hops = 0
    known: dict[tuple[int, ...], tuple[list[int], list[int], Ints, int]] = {}
    for number in range(max(job.iterations for job in jobs)):
        sizes = tuple(
            sum(job.steps[number].fragments) * PAYLOAD_BYTES
            if number < job.iterations and len(job.workers) > 1
            else 0
            for job in jobs
        )
        if any(sizes) and sizes not in known:
            known[sizes] = _one(kind, jobs, sizes, fabric, seed, stop)
        if stop is not None and stop.is_set():
            break
        took, count, on_links, moved = known.get(
            sizes, ([0] * len(jobs), [0] * len(jobs), np.zeros_like(carried), 0)
        )
        carried, hops = carried + on_links, hops + moved
        for at, job in enumerate(jobs):
            packets[at] += count[at]
            before = completion[at]
            if number < job.iterations and before is not None:
                done = before + int(computing[at][number]) + took[at]
                completion[at] = None if took[at] < 0 else done
    return Collectives(completion, packets, carried, hops)


def _computing_ps(jobs: Sequence[Job], seed: int, jitter: float) -> list[Floats]:
    """float64[iterations] of each job: compute time of the slowest worker, as in `begin_iteration`
    of `workers`."""
    slowest_of_jobs, first = [], 0
    spread = round(jitter * (1 << 16))
    for job in jobs:
        slowest = np.zeros(job.iterations)
        for at in range(len(job.workers)):
            factors = job.slowness[at] if job.slowness else (1.0,)
            for number, step in enumerate(job.steps):
                factor = 1.0
                if spread and job.took_ns is None:
                    factor += int(drawn(seed, _JITTER, first + at, number, spread)) / (1 << 16)
                factor *= factors[min(number, len(factors) - 1)]
                slowest[number] = max(slowest[number], factor * step.computed_ps[-1])
        slowest_of_jobs.append(slowest)
        first += len(job.workers)
    return slowest_of_jobs


def _one(
    kind: str,
    jobs: Sequence[Job],
    sizes: Sequence[int],
    fabric: Fabric,
    seed: int,
    stop: Event | None,
) -> tuple[list[int], list[int], Ints, int]:
    """(ps until the last message of each job arrives, -1 without a path; its packets; bytes per
    link; hops) of one collective of all jobs."""
    joined = _Plan([], [], [], [], [])
    owner: list[int] = []
    for number, (job, size) in enumerate(zip(jobs, sizes, strict=True)):
        if size:
            plan = (_ring if kind == "ring" else _tree)(job.workers, size)
            shift = len(joined.sizes)
            for column, more in zip(joined[:-1], plan[:-1], strict=True):
                column.extend(more)
            joined.after.extend(-1 if before < 0 else before + shift for before in plan.after)
            owner += [number] * len(plan.sizes)
    workload = _workload(joined, fabric)
    result = run_packets(workload, fabric, parse_packet_strategy("ecmp"), _MODEL, seed, stop=stop)
    received, of = result.received_ps, np.array(owner)
    took, packets = [], []
    for number in range(len(jobs)):
        arrivals = received[of == number]
        lost = len(arrivals) and arrivals.min() < 0
        took.append(-1 if lost else int(arrivals.max(initial=0)))
        packets.append(int(workload.packets[of == number].sum()))
    return took, packets, result.link_bytes, result.hops


def _workload(plan: _Plan, fabric: Fabric) -> Workload:
    n = len(plan.src)
    src, dst = np.array(plan.src, np.int64), np.array(plan.dst, np.int64)
    demand = Demands(
        src,
        dst,
        np.array(plan.messages, np.int64),
        np.full(n, max(plan.sizes), np.int64),
        np.zeros(n, np.int64),
        np.ones(n, np.int64),
    )
    pairs = queue_pairs(demand, Sending(), np.random.default_rng(1))
    units = np.concatenate([2 * np.arange(n), 2 * np.arange(n) + 1])
    flow = np.repeat(np.arange(n), plan.messages)
    after = np.array(plan.after, np.int32)
    return workload_of(
        src,
        dst,
        np.array(plan.sizes, np.int64),
        offered_traffic(pairs, fabric.addresses).take(units),
        _MODEL,
        flow=flow,
        after=after,
        on=np.full(len(flow), ON_RECEIVED, np.uint8),
    )


def _ring(workers: Sequence[int], size: int) -> _Plan:
    """Step s of a worker follows the arrival of step s - 1 of its predecessor."""
    n = len(workers)
    steps, chunk = 2 * (n - 1), -(-size // n)
    after = [
        -1 if step == 0 else (at - 1) % n * steps + step - 1
        for at in range(n)
        for step in range(steps)
    ]
    following = [*workers[1:], workers[0]]
    return _Plan(list(workers), following, [steps] * n, [chunk] * (n * steps), after)


def _tree(workers: Sequence[int], size: int) -> _Plan:
    """Worker i of a tree has the parent (i - 1) // 2. A piece goes up after that of the last child
    arrived, and down after it arrived from above."""
    half = -(-size // 2)
    pieces = -(-half // PIECE_BYTES)
    lengths = [PIECE_BYTES] * (pieces - 1) + [half - PIECE_BYTES * (pieces - 1)]
    n = len(workers)
    plan = _Plan([], [], [], [], [])
    for order in (list(workers), list(workers)[::-1]):
        base = len(plan.sizes)

        def up(child: int, base: int = base) -> int:
            return base + (child - 1) * pieces

        def down(child: int, base: int = base) -> int:
            return base + (n - 1 + child - 1) * pieces

        for goes_up in (True, False):
            for child in range(1, n):
                ends = order[child], order[(child - 1) // 2]
                plan.src.append(ends[0] if goes_up else ends[1])
                plan.dst.append(ends[1] if goes_up else ends[0])
                plan.messages.append(pieces)
                plan.sizes.extend(lengths)
                # From the last child: of the sender going up, of the root before it turns.
                top = child if goes_up else (child - 1) // 2
                last = min(2 * top + 2, n - 1)
                if not goes_up and top:
                    first = down(top)
                else:
                    first = up(last) if last > 2 * top else -1
                plan.after.extend(-1 if first < 0 else first + i for i in range(pieces))
    return plan
