"""Jobs: what they train, for how long, and on which hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import parse_options
from ..fabrics.fabric import Fabric
from ..jobs.collectives import MODELS, SYNTHETIC
from .state import MOST_WORKERS

PAYLOAD_BYTES: Final = 248
"""62 values of four bytes (ATP)."""
WIRE_BYTES: Final = 306
"""With 58 bytes of headers (ATP)."""
VALUES: Final = PAYLOAD_BYTES // 4
MOST_JOBS, MOST_FRAGMENTS, MOST_ITERATIONS, MOST_WINDOW = 256, 1 << 24, 10_000, 1 << 13
MOST_STEPS: Final = 1 << 20
MOST_SLOWDOWN: Final = 100
MOST_COMPUTE_PS: Final = 3600 * 10**12
"""Of an iteration; sums of times stay within int64."""
NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "count": (1, MOST_JOBS),
    "workers": (1, MOST_WORKERS),
    "iterations": (1, MOST_ITERATIONS),
    "fragments": (1, MOST_FRAGMENTS),
    "layers": (1, 1024),
    "window": (1, MOST_WINDOW),
    "racks": (1, 1024),
    "stragglers": (0, MOST_WORKERS),
}
DEFAULTS: Final[Mapping[str, str]] = {
    "count": "1",
    "workers": "8",
    "model": "comm",
    "iterations": "3",
    "fragments": "20000",
    "layers": "1",
    "ratio": "1",
    "scale": "1",
    "window": "400",
    "racks": "1",
    "stragglers": "0",
    "slowdown": "2",
    "overflow": "0",
    "start": "0",
    "stagger": "0",
}


class Step(NamedTuple):
    """An iteration."""

    fragments: tuple[int, ...]
    """Of each layer, in the order in which they are computed: from the back."""
    computed_ps: tuple[int, ...]
    """When each of these layers is computed, from the start of the iteration."""


@dataclass(frozen=True)
class Job:
    """One job on its hosts."""

    name: str
    workers: tuple[int, ...]
    """Hosts, sorted by rack."""
    server: int
    """Host of the parameter server."""
    steps: tuple[Step, ...]
    """The iterations, all with the same number of layers."""
    window: int
    start_ps: int
    slowness: tuple[tuple[float, ...], ...] = ()
    """Compute time over that of the step, of each worker, for all iterations or for each; empty:
    all 1."""
    took_ns: int | None = None
    """As captured, from its first message to the end of its last; compute times are then measured
    and do not vary. None: not captured."""
    overflow: float = 0.0
    """Share of fragments whose sum exceeds int32."""
    ranks: tuple[tuple[int, ...], ...] = ()
    """Of each worker, as logs of the captured job name them; empty: none is known."""

    @property
    def iterations(self) -> int:
        """Their number."""
        return len(self.steps)

    @property
    def total(self) -> int:
        """Fragments of all iterations."""
        return sum(sum(step.fragments) for step in self.steps)


class Plan(NamedTuple):
    """Jobs as asked for, without hosts."""

    name: str
    workers: int
    racks: int
    fragments: tuple[int, ...]
    ratio: float
    iterations: int
    window: int
    start_ps: int
    stragglers: int
    slowdown: float
    overflow: float


def parse_jobs(specs: Sequence[str], first: int = 1) -> list[Plan]:
    """The jobs of `--jobs` options, numbered from `first`. UsageError names the key."""
    plans: list[Plan] = []
    for spec in specs:
        plans += _parsed(spec)
    if len(plans) > MOST_JOBS:
        raise UsageError(f"--jobs: {len(plans):,} jobs exceed the maximum of {MOST_JOBS}")
    return [plan._replace(name=f"job{at} {plan.name}") for at, plan in enumerate(plans, first)]


def _parsed(spec: str) -> list[Plan]:
    given = parse_options(spec, "--jobs")
    if not given:
        raise UsageError("--jobs is empty; write for example --jobs workers=8,model=comm")
    given.check_known(DEFAULTS, "--jobs has no key")
    values = given.with_defaults(DEFAULTS)
    numbers = {key: values.whole(key, "", *NUMBERS[key]) for key in NUMBERS}
    model = values["model"]
    scale, ratio = values.number("scale"), values.number("ratio")
    if model in MODELS:
        for key in ("fragments", "layers"):
            if key in given:
                raise UsageError(f"--jobs: {key} is for {' and '.join(SYNTHETIC)}, not {model}")
        sizes = [max(1, round(size * scale / VALUES)) for size in MODELS[model]]
    elif model in SYNTHETIC:
        if "ratio" in given:
            raise UsageError(f"--jobs: the ratio of {model} is {SYNTHETIC[model]:g}")
        ratio = SYNTHETIC[model]
        total = max(numbers["layers"], round(numbers["fragments"] * scale))
        cuts = [total * i // numbers["layers"] for i in range(numbers["layers"] + 1)]
        sizes = [b - a for a, b in pairwise(cuts)]
    else:
        known = ", ".join((*SYNTHETIC, *MODELS))
        raise UsageError(f"--jobs: there is no model {model!r}; there are {known}")
    if sum(sizes) > MOST_FRAGMENTS:
        raise UsageError(
            f"--jobs: {sum(sizes):,} fragments per iteration exceed {MOST_FRAGMENTS:,}; use scale="
        )
    start, stagger = values.time_ps("start"), values.time_ps("stagger")
    slowdown = values.number("slowdown", least=1, most=MOST_SLOWDOWN)
    overflow = values.number("overflow", least=0, most=1)
    if numbers["stragglers"] > numbers["workers"]:
        raise UsageError(
            f"--jobs: {numbers['workers']} workers have no {numbers['stragglers']} stragglers"
        )
    if numbers["iterations"] * len(sizes) > MOST_STEPS:
        raise UsageError(f"--jobs: iterations times layers must be at most {MOST_STEPS:,}")
    return [
        Plan(
            model,
            numbers["workers"],
            numbers["racks"],
            tuple(reversed(sizes)),
            ratio,
            numbers["iterations"],
            numbers["window"],
            start + stagger * at,
            numbers["stragglers"],
            slowdown,
            overflow,
        )
        for at in range(numbers["count"])
    ]


def place(plans: Sequence[Plan], fabric: Fabric, others: Sequence[Job] = ()) -> list[Job]:
    """The jobs on hosts of their own: workers in as many racks as `racks` says, each PS in
    one of them. others: jobs that have hosts. UsageError when the fabric has too few hosts."""
    if fabric.ports != 1:
        raise UsageError(f"{fabric.name}: aggregation needs hosts with one port")
    switch = fabric.attachments.switch[:, 0]
    free: dict[int, list[int]] = {}
    taken = {host for job in others for host in (*job.workers, job.server)}
    for host in range(fabric.hosts):
        if switch[host] >= 0 and host not in taken:
            free.setdefault(int(switch[host]), []).append(host)
    rate = int(fabric.links.rate_bits_per_second.min())
    return [_placed(plan, free, fabric, rate) for plan in plans]


def _placed(plan: Plan, free: dict[int, list[int]], fabric: Fabric, rate: int) -> Job:
    if plan.racks > plan.workers:
        raise UsageError(f"--jobs: {plan.workers} workers do not fill {plan.racks} racks")
    cuts = [plan.workers * i // plan.racks for i in range(plan.racks + 1)]
    shares = [b - a for a, b in pairwise(cuts)]
    shares[0] += 1  # and the server
    hosts: list[int] = []
    used: set[int] = set()
    for share in [*sorted(shares[1:], reverse=True), shares[0]]:
        rack = max((r for r in free if r not in used), key=lambda r: len(free[r]), default=-1)
        if rack < 0 or len(free[rack]) < share:
            raise UsageError(
                f"{plan.name}: {plan.workers} workers and a server in {plan.racks} "
                f"{'rack' if plan.racks == 1 else 'racks'} do not fit the free hosts of "
                f"{fabric.name}"
            )
        used.add(rack)
        taken, free[rack] = free[rack][:share], free[rack][share:]
        hosts += taken
    server, workers = hosts[-1], hosts[:-1]
    total = sum(plan.fragments)
    compute = round(total * WIRE_BYTES * 8e12 / rate / plan.ratio)
    if compute > MOST_COMPUTE_PS:
        raise UsageError(f"{plan.name}: an iteration computes for over an hour; set scale or ratio")
    forward, layers = compute // 3, len(plan.fragments)
    done = [forward + (compute - forward) * (i + 1) // layers for i in range(layers)]
    order = sorted(workers, key=lambda h: (int(fabric.attachments.switch[h, 0]), h))
    late = plan.workers - plan.stragglers
    return Job(
        plan.name,
        tuple(order),
        server,
        (Step(plan.fragments, tuple(done)),) * plan.iterations,
        plan.window,
        plan.start_ps,
        tuple((plan.slowdown if at >= late else 1.0,) for at in range(plan.workers))
        if plan.stragglers
        else (),
        overflow=plan.overflow,
    )


def priorities(jobs: Sequence[Job], rate_bits_per_second: int) -> list[list[list[int]]]:
    """0 to 255 of each job, iteration and layer, for schemes with priorities (assumed, see
    docs/aggregation.md).

    The more a job communicates for the time that it has left, the higher: 0 to 223 on a logarithmic
    scale over all jobs and iterations; layers nearer the front of the model add up to 32.
    """
    scores: list[list[float]] = []
    for job in jobs:
        line = [
            max(1.0, sum(step.fragments) * WIRE_BYTES * 8e12 / rate_bits_per_second)
            for step in job.steps
        ]
        compute = [max(1, step.computed_ps[-1]) for step in job.steps]
        left = np.cumsum((np.array(line) + compute)[::-1])[::-1].tolist()
        scores.append(
            [float(np.log2(a / b / c)) for a, b, c in zip(line, compute, left, strict=True)]
        )
    low = min(min(row) for row in scores)
    span = max(max(row) for row in scores) - low
    return [
        [
            [
                (round(223 * (score - low) / span) if span else 112)
                + (32 * (layer + 1) // layers if layers > 1 else 0)
                for layer in range(layers)
            ]
            for score in row
        ]
        for layers, row in zip((len(job.steps[0].fragments) for job in jobs), scores, strict=True)
    ]
