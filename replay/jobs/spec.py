"""`--jobs` of `replay`: training jobs by their numbers, or from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_options
from ...analyzer.words import choices, parse_size
from ...kernels.kernel import Floats
from ..fabrics.fabric import Fabric
from .collectives import (
    ALL_REDUCES,
    MODELS,
    MOST_PS,
    PLAIN,
    Collective,
    Job,
    experts,
    hierarchical,
    uneven,
)
from .files import JobFile, JobFiles
from .tasks import PACKED, PLACEMENTS, FreeHosts, training

COLLECTIVES: Final = (*PLAIN, "hierarchical", "moe")
GRADIENT_BYTES: Final = 4
"""Of a parameter, as in `aggregate`."""
MOST_JOBS: Final = 256
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "count": (1, MOST_JOBS),
    "workers": (2, 1 << 16),
    "layers": (1, 1024),
    "iterations": (1, 10_000),
    "group": (1, 1 << 16),
    "qps": (1, 64),
    "stragglers": (0, 1 << 16),
}
_DEFAULTS: Final[Mapping[str, str]] = {
    "collective": "ring",
    "count": "1",
    "size": "64MiB",
    "scale": "1",
    "layers": "1",
    "iterations": "1",
    "compute": "0",
    "stragglers": "0",
    "slowdown": "2",
    "jitter": "0%",
    "qps": "1",
    "group": "8",
    "skew": "1",
    "expert": "0",
    "place": PACKED,
    "start": "0",
    "stagger": "0",
}
KEYS: Final = (*_DEFAULTS, "workers", "model", "ratio", "file", "priority")
FILE_KEYS: Final = ("file", "collective", "place", "start", "qps", "priority")
"""`collective`: how the all-reduces of Chakra traces are done."""


class _Plan(NamedTuple):
    """One `--jobs` option, checked."""

    collective: str
    alike: int
    workers: int | None
    """None: all free hosts."""
    sizes: tuple[int, ...]
    """Bytes of each layer, from the back of the model."""
    iterations: int
    compute_ps: int | None
    """None: by `ratio`."""
    ratio: float
    stragglers: int
    slowdown: float
    jitter: float
    qps: int
    group: int
    skew: float
    expert_ps: int
    place: str
    start_ps: int
    stagger_ps: int
    priority: int = 0
    file: JobFile | None = None


def parse_jobs(
    specs: Sequence[str], files: JobFiles | None = None, classes: Sequence[str] = ("data",)
) -> Callable[[Fabric, int], list[Job]]:
    """The jobs of the options, once they are placed on a fabric in the run of a seed.

    files: reads the files of jobs; what it has read before is not read again. classes: names of the
    classes of data. UsageError names the key; that of the result the job that does not fit.
    """
    files = files or JobFiles()
    plans: list[_Plan] = []
    for spec in specs:
        given = parse_options(spec, "--jobs")
        plans.append(_read(given, files, classes) if "file" in given else _checked(given, classes))
    if sum(plan.alike for plan in plans) > MOST_JOBS:
        raise UsageError(f"--jobs: at most {MOST_JOBS} jobs are possible")

    def placed(fabric: Fabric, seed: int) -> list[Job]:
        free = FreeHosts(fabric)
        jobs: list[Job] = []
        for plan in plans:
            for at in range(plan.alike):
                jobs.append(_placed(plan, at, len(jobs) + 1, free, fabric, seed))
        return jobs

    return placed


def _read(given: Options, files: JobFiles, classes: Sequence[str]) -> _Plan:
    """The plan of a job from a file."""
    for key in given:
        if key not in FILE_KEYS:
            raise UsageError(
                f"--jobs: {key} cannot be combined with file; {', '.join(FILE_KEYS)} can"
            )
    plan, path = _checked(given, classes), Path(given["file"])
    if plan.collective not in ALL_REDUCES:
        raise UsageError(f"--jobs: collective of a file is one of {', '.join(ALL_REDUCES)}")
    file = files.read(given["file"], plan.collective)
    if file.priority and "priority" not in given:
        plan = plan._replace(
            priority=_class(file.priority, classes, f"--jobs: {path.name}: priority")
        )
    return plan._replace(collective=path.name, file=file)


def _class(name: str, classes: Sequence[str], where: str) -> int:
    """The number of a class of data."""
    if name not in classes:
        raise UsageError(
            f"{where}: there is no class {name[:64]!r}; --priority names them: {', '.join(classes)}"
        )
    return classes.index(name)


def _checked(given: Options, classes: Sequence[str]) -> _Plan:
    given.check_known(KEYS, "--jobs has no key")
    values = given.with_defaults(_DEFAULTS)
    numbers = {key: values.whole(key, "", *_NUMBERS[key]) for key in _NUMBERS if key in values}
    name = values["collective"]
    if name not in COLLECTIVES:
        raise UsageError(f"--jobs: there is no collective {name!r}; {choices(name, COLLECTIVES)}")
    if values["place"] not in PLACEMENTS:
        raise UsageError(f"--jobs: place is {', '.join(PLACEMENTS)}, not {values['place']!r}")
    for key, only in (("group", "hierarchical"), ("expert", "moe")):
        if key in given and name != only:
            raise UsageError(f"--jobs: {key} is for collective={only}")
    if "skew" in given and name not in ("moe", "all-to-all"):
        raise UsageError("--jobs: skew is for collective=moe and collective=all-to-all")
    if "ratio" in given and "compute" in given:
        raise UsageError("--jobs: give compute or ratio, not both")
    skew = values.number("skew", least=0, most=8)
    if name == "all-to-all" and "skew" not in given:
        skew = 0.0
    return _Plan(
        name,
        numbers["count"],
        numbers.get("workers"),
        _sizes(given, values, numbers["layers"]),
        numbers["iterations"],
        None if "ratio" in given else _time(values, "compute"),
        values.number("ratio", "1"),
        numbers["stragglers"],
        values.number("slowdown", least=1, most=100),
        values.share("jitter", most_percent=1000),
        numbers["qps"],
        numbers["group"],
        skew,
        _time(values, "expert"),
        values["place"],
        _time(values, "start"),
        _time(values, "stagger"),
        _class(given["priority"], classes, "--jobs: priority") if "priority" in given else 0,
    )


def _sizes(given: Options, values: Options, layers: int) -> tuple[int, ...]:
    scale = values.number("scale")
    model = values.get("model")
    if model is None:
        total = max(layers, round(parse_size(values["size"], "--jobs: size") * scale))
        cuts = [total * i // layers for i in range(layers + 1)]
        return tuple(b - a for a, b in pairwise(cuts))
    if model not in MODELS:
        raise UsageError(f"--jobs: there is no model {model!r}; there are {', '.join(MODELS)}")
    for key in ("size", "layers"):
        if key in given:
            raise UsageError(f"--jobs: {key} cannot be combined with model={model}")
    sizes = [max(1, round(count * GRADIENT_BYTES * scale)) for count in MODELS[model]]
    return tuple(reversed(sizes))


def _placed(plan: _Plan, at: int, job: int, free: FreeHosts, fabric: Fabric, seed: int) -> Job:
    workers = len(free) if plan.workers is None else plan.workers
    name = f"job{job} {plan.collective}"
    if plan.file is not None:
        graph, notes, _ = plan.file
        hosts = free.take(graph.ranks, plan.place, name, seed * MOST_JOBS + job)
        return Job(
            name, graph, hosts, plan.start_ps, qps=plan.qps, notes=notes, priority=plan.priority
        )
    if workers < 2:
        raise UsageError(f"--jobs: {name}: {workers} free hosts are left; a job needs 2 workers")
    if plan.stragglers > workers:
        raise UsageError(f"--jobs: {name}: {workers} workers have no {plan.stragglers} stragglers")
    rng = np.random.default_rng([seed, job])
    compute = plan.compute_ps
    if compute is None:
        rate = int(fabric.links.rate_bits_per_second.min())
        compute = min(MOST_PS, round(sum(plan.sizes) * 8e12 / rate / plan.ratio))
    # Jobs of one option share hosts by the same rule in every run: only `random` draws.
    hosts = free.take(workers, plan.place, name, seed * MOST_JOBS + job)
    graph = training(
        workers,
        plan.sizes,
        plan.iterations,
        compute,
        _slowness(plan, workers, rng),
        _collective(plan, rng),
    )
    start = plan.start_ps + at * plan.stagger_ps
    return Job(
        name, graph, hosts, start,
        qps=plan.qps, iterations=plan.iterations, priority=plan.priority,
    )  # fmt: skip


def _slowness(plan: _Plan, workers: int, rng: np.random.Generator) -> Floats:
    """float64[iterations, workers]; the last workers are the stragglers."""
    slow = np.ones((plan.iterations, workers))
    slow[:, workers - plan.stragglers :] = plan.slowdown
    return slow * (1 + plan.jitter * rng.random((plan.iterations, workers)))


def _collective(plan: _Plan, rng: np.random.Generator) -> Collective:
    if plan.collective == "hierarchical":
        return hierarchical(plan.group)
    if plan.collective == "moe":
        return experts(plan.skew, plan.expert_ps, rng)
    if plan.collective == "all-to-all" and plan.skew:
        return uneven(plan.skew, rng)
    return PLAIN[plan.collective]


def _time(values: Options, key: str) -> int:
    time_ps = values.time_ps(key)
    if time_ps > MOST_PS:
        raise UsageError(f"--jobs: {key}={values[key]} is longer than an hour")
    return time_ps
