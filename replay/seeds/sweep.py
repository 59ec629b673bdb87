"""Seed sweeps: imbalance over all seeds, in chunks.

Every core evaluates chunks of seeds whose arrays fit its caches. Results of a chunk
are added to tallies, so memory does not depend on the number of seeds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.measures.spraying import best_fim
from ...kernels.kernel import Floats, Int32s, Ints, NamedTuple, UInt64s, kernel
from ..fabrics.fabric import Fabric
from ..fabrics.mapping import map_hosts
from ..fabrics.parse import parse_fabric
from ..flows.loads import layers_of
from ..flows.placement import Walk
from ..flows.shares import even_loads, split_evenly
from ..hashing.seeded import PerSwitch, SeedRange, switch_seeds
from ..results import Bin, Chance, Distribution, SeedValue
from ..traffic.traffic import Traffic
from .tapped import Direction

# A small fabric with the captured links, so that the recovered hash can be replayed at once.


class SmallFabric(NamedTuple):
    """Options of `rocescope replay`."""

    fabric: str
    map: str


def small_fabric(observed: Sequence[Direction]) -> SmallFabric | None:
    """Two leaves and a spine per captured link, with the hosts of both sides on one leaf each; None
    if no rule maps them so, or there are more links or hosts than a fabric can have."""
    if not observed:
        return None
    names = sorted({observed[0].seen.names[i] for direction in observed for i in _ends(direction)})
    sides = [
        {direction.seen.names[i] for i in np.unique(ends)}
        for direction in observed
        for ends in (direction.seen.source, direction.seen.destination)
    ]
    hosts = max(len(side) for side in sides)
    spec = f"leaf-spine:leaves=2,spines={len(observed[0].seen.links)},hosts={hosts}"
    try:
        fabric = parse_fabric(spec)
    except UsageError:
        return None
    for rule in ("subnets", "order"):
        try:
            mapped = map_hosts(names, fabric, rule).hosts
        except UsageError:
            continue
        leaf = dict(zip(names, fabric.attachments.switch[mapped, 0].tolist(), strict=True))
        if (mapped >= 0).all() and all(len({leaf[name] for name in side}) == 1 for side in sides):
            return SmallFabric(spec, rule)
    return None


def _ends(direction: Direction) -> set[int]:
    return {*direction.seen.source.tolist(), *direction.seen.destination.tolist()}


# Work in numbered chunks on every core; the work releases the GIL.

_TELL_EVERY_S = 0.2


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def in_chunks(
    chunks: int,
    work: Callable[[int, int], None],
    tell: Callable[[], object] | None = None,
) -> None:
    """work(worker, number) for every chunk, with workers from 0 to cores() - 1.

    `tell` is called several times a second and at the end, on the calling thread. After an
    exception or interrupt no further chunk is started.
    """
    numbers = iter(range(chunks))
    lock, stopped = threading.Lock(), threading.Event()

    def loop(worker: int) -> None:
        while not stopped.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                work(worker, number)
            except BaseException:
                stopped.set()
                raise

    workers = max(1, min(cores(), chunks))
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(loop, worker) for worker in range(workers)]
        try:
            while wait(running, _TELL_EVERY_S).not_done:
                if tell is not None:
                    tell()
        finally:
            stopped.set()
        for future in running:
            future.result()
    if tell is not None:
        tell()


# Distributions of values in constant memory.

_BINS = 20_000
_SHOWN_BINS = 40
_MOST_DISTINCT = 64
QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


class Tally:
    """Values in fine bins from 0 to `most`, and one bin above; extremes and mean are exact."""

    def __init__(self, most: float) -> None:
        self._width = max(most, 1e-9) / _BINS
        self._counts = np.zeros(_BINS + 1, np.int64)
        self._sum = Fraction()
        """Exact: cores finish their parts in any order, and sums of floats depend on it."""
        self._min, self._max = np.inf, -np.inf
        self._distinct: set[float] | None = set()

    def add(self, values: Floats) -> None:
        """Count values; all are finite and at least 0."""
        if not len(values):
            return
        at = np.minimum((values / self._width).astype(np.int64), _BINS)
        self._counts += np.bincount(at, minlength=_BINS + 1)
        self._sum += Fraction(float(values.sum()))
        self._min = min(self._min, float(values.min()))
        self._max = max(self._max, float(values.max()))
        if self._distinct is not None:
            self._note(set(np.unique(values.round(9)).tolist()))

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally of the same range."""
        self._counts += other._counts
        self._sum += other._sum
        self._min, self._max = min(self._min, other._min), max(self._max, other._max)
        if other._distinct is None:
            self._distinct = None
        elif self._distinct is not None:
            self._note(other._distinct)

    def _note(self, values: set[float]) -> None:
        assert self._distinct is not None
        self._distinct |= values
        if len(self._distinct) > _MOST_DISTINCT:
            self._distinct = None

    @property
    def count(self) -> int:
        """Values counted."""
        return int(self._counts.sum())

    @property
    def mean(self) -> float:
        """The exact mean."""
        return float(self._sum / self.count)

    def quantile(self, percent: float) -> float:
        """The smallest value that this percentage does not exceed, to one bin width."""
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        at = int(np.searchsorted(self._counts.cumsum(), rank))
        return float(np.clip((at + 0.5) * self._width, self._min, self._max))

    def distribution(self) -> Distribution:
        """The record of the distribution."""
        return Distribution(
            min=self._min,
            mean=self.mean,
            max=self._max,
            quantiles={f"p{q}": self.quantile(q) for q in QUANTILES},
            resolution=self._width,
            histogram=self._histogram(),
            distinct=None if self._distinct is None else len(self._distinct),
        )

    def _histogram(self) -> list[Bin]:
        """Bins of equal width from the smallest to the largest value."""
        first, last = int(self._min / self._width), min(int(self._max / self._width), _BINS)
        step = max(1, -(-(last + 1 - first) // _SHOWN_BINS))
        return [
            Bin(
                low=at * self._width,
                high=(at + step) * self._width,
                count=int(self._counts[at : at + step].sum()),
            )
            for at in range(first, last + 1, step)
        ]


class Extremes:
    """The seeds with the smallest values (or largest), ties by the smaller seed."""

    def __init__(self, keep: int, largest: bool = False) -> None:
        self._keep = keep
        self._sign = -1.0 if largest else 1.0
        self._found: list[tuple[float, int]] = []

    def add(self, seeds: UInt64s, values: Floats) -> None:
        """Add seeds with their values."""
        signed = self._sign * values
        if len(signed) > self._keep:
            limit = np.partition(signed, self._keep - 1)[self._keep - 1]
            rows = np.flatnonzero(signed <= limit)
        else:
            rows = np.arange(len(signed))
        offered = [(float(signed[r]), int(seeds[r])) for r in rows]
        self._found = sorted(self._found + offered)[: self._keep]

    def merge(self, other: Extremes) -> None:
        """Add the seeds of another instance."""
        self._found = sorted(self._found + other._found)[: self._keep]

    def records(self) -> list[SeedValue]:
        """The seeds in order, the most extreme first."""
        return [SeedValue(seed=seed, value=self._sign * value) for value, seed in self._found]


Measure: TypeAlias = Literal["fim-flows", "fim-bytes", "max-over-mean"]
MEASURES: tuple[Measure, ...] = ("fim-flows", "fim-bytes", "max-over-mean")
_CHUNK_VALUES = 1 << 15
_KEPT = 10
_LARGEST_FACTOR = 64.0


class Sweep(NamedTuple):
    """The result of a sweep."""

    score: Tally
    """The imbalance of the worst layer of each seed."""
    layers: list[Tally]
    used: Floats
    """Share of links with traffic, mean over the seeds, per layer."""
    best: list[SeedValue]
    worst: list[SeedValue]
    below: int
    """Number of seeds whose score is below the reference."""
    equal: int


def chance_of(tally: Tally) -> Chance:
    """The result of a sweep with ideal random hashing, as the reference."""
    return Chance(mean=tally.mean, p05=tally.quantile(5), p95=tally.quantile(95), draws=tally.count)


class Scores:
    """Measures of all layers with a choice for rows of link loads."""

    def __init__(self, traffic: Traffic, fabric: Fabric, measure: Measure) -> None:
        ones = np.ones(len(traffic), np.int64)
        self.measure = measure
        counted = traffic.counted() if measure == "fim-flows" else ones
        self.amounts = counted if measure == "fim-flows" else traffic.wire_bytes
        """int64[units]: load that a unit adds to a link."""
        even = even_loads(traffic, fabric, counted)
        layers = layers_of(fabric, even > 0)
        self.number = np.full(len(fabric.links.source) + 1, -1, np.int32)
        """int32[links + 1]: index of a link among the measured links, -1 for other links;
        the last item, for no link, is -1."""
        self.names: list[str] = []
        self._placements: list[int] = []
        starts, fair = [0], []
        rates = fabric.links.rate_bits_per_second
        fluid = split_evenly(traffic, fabric) if measure == "max-over-mean" else even
        for name, links, choice in zip(*layers, strict=True):
            if choice:
                self.names.append(name)
                self._placements.append(round(float(even[links].sum())))
                self.number[links] = np.arange(starts[-1], starts[-1] + len(links))
                starts.append(starts[-1] + len(links))
                share = rates[links] / rates[links].sum()
                if measure == "max-over-mean":  # over the largest fair share
                    share = rates[links] * (fluid[links] / rates[links]).max() / fluid[links].sum()
                fair.append(share)
        self.starts = np.array(starts, np.int64)
        self.fair = np.concatenate([np.zeros(0), *fair])
        if not self.names:
            raise UsageError(
                f"no switch of {fabric.name} has a choice of links for this traffic: "
                "the hash has no effect"
            )

    @property
    def links(self) -> Ints:
        """int64[layers]: number of links in each layer."""
        return np.diff(self.starts)

    def most(self) -> float:
        """Upper limit of the fine bins; FIM is never above."""
        if self.measure == "max-over-mean":
            return _LARGEST_FACTOR
        shares = [self.fair[a:b] for a, b in zip(self.starts, self.starts[1:], strict=False)]
        return 100 * max(1 + 1 / (len(share) * float(share.min())) for share in shares)

    def best(self, layer: int) -> float | None:
        """The smallest FIM of flows of any placement; None for other measures."""
        if self.measure != "fim-flows":
            return None
        fair = self.fair[self.starts[layer] : self.starts[layer + 1]]
        weights = None if np.allclose(fair, fair[0]) else fair
        return best_fim(self._placements[layer], len(fair), weights)

    def measured(self, walk: Walk, seeds: UInt64s) -> tuple[Floats, Floats]:
        """float64[rows, layers] twice: the measure, and the share of links in use."""
        loads = np.zeros((len(seeds), len(self.fair)), np.int64)
        walk.run(seeds, lambda _hop, link: _add(link, self.number, self.amounts, loads))
        values = np.empty((len(seeds), len(self.names)))
        used = np.empty_like(values)
        _measure(loads, self.starts, self.fair, self.measure == "max-over-mean", values, used)
        return values.round(9), used  # equal loads compare as equal


def sweep(
    walk: Walk,
    scores: Scores,
    seeds: SeedRange,
    per_switch: PerSwitch,
    reference: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Evaluate all seeds on every core. progress: called with the seeds done and their number."""
    chunk = max(1, _CHUNK_VALUES // max(1, walk.units))
    parts = [_Part(scores, reference) for _ in range(cores())]

    def work(worker: int, number: int) -> None:
        last = min((number + 1) * chunk, seeds.seeds)
        chosen = seeds.part(number * chunk, last)
        by_switch = switch_seeds(chosen, walk.fabric.switches, per_switch)
        parts[worker].add(chosen, *scores.measured(walk, by_switch))

    def tell() -> None:
        if progress is not None:
            progress(sum(part.seeds for part in parts), seeds.seeds)

    in_chunks(-(-seeds.seeds // chunk), work, tell)
    joined = parts[0]
    for part in parts[1:]:
        joined.merge(part)
    return joined.finished()


class _Part:
    """The tallies of one thread."""

    def __init__(self, scores: Scores, reference: float | None) -> None:
        self._reference = reference
        self._score = Tally(scores.most())
        self._layers = [Tally(scores.most()) for _ in scores.names]
        self._used = np.zeros(len(scores.names))
        self._best, self._worst = Extremes(_KEPT), Extremes(_KEPT, largest=True)
        self._below = self._equal = 0
        self.seeds = 0
        """Seeds seen."""

    def add(self, seeds: UInt64s, values: Floats, used: Floats) -> None:
        self.seeds += len(seeds)
        worst = values.max(1)
        self._score.add(worst)
        for layer, tally in enumerate(self._layers):
            tally.add(values[:, layer])
        self._used += used.sum(0)
        self._best.add(seeds, worst)
        self._worst.add(seeds, worst)
        if self._reference is not None:
            equal = np.abs(worst - self._reference) < 1e-9
            self._equal += int(equal.sum())
            self._below += int(((worst < self._reference) & ~equal).sum())

    def merge(self, other: _Part) -> None:
        self._score.merge(other._score)
        for mine, theirs in zip(self._layers, other._layers, strict=True):
            mine.merge(theirs)
        self._used += other._used
        self._best.merge(other._best)
        self._worst.merge(other._worst)
        self._below += other._below
        self._equal += other._equal

    def finished(self) -> Sweep:
        return Sweep(
            self._score,
            self._layers,
            self._used / self._score.count,
            self._best.records(),
            self._worst.records(),
            self._below,
            self._equal,
        )


@kernel
def _add(link: Int32s, number: Int32s, amounts: Ints, loads: Ints) -> None:
    """Add every unit to the load of the link it takes; link -1 is the last item of `number`."""
    for r in range(link.shape[0]):
        for i in range(link.shape[1]):
            at = number[link[r, i]]
            if at >= 0:
                loads[r, at] += amounts[i]


@kernel
def _measure(
    loads: Ints, starts: Ints, fair: Floats, largest: bool, values: Floats, used: Floats
) -> None:
    """Per row and layer: FIM in percent, or with `largest` the largest load over the fair
    share; and the share of links in use."""
    for r in range(loads.shape[0]):
        for layer in range(len(starts) - 1):
            total, links, busy = np.int64(0), starts[layer + 1] - starts[layer], 0
            for i in range(starts[layer], starts[layer + 1]):
                total += loads[r, i]
                busy += loads[r, i] > 0
            deviation, most = 0.0, 0.0
            if total > 0:
                for i in range(starts[layer], starts[layer + 1]):
                    share = loads[r, i] / (fair[i] * total)
                    deviation += abs(share - 1)
                    most = max(most, share)
            used[r, layer] = busy / links
            values[r, layer] = most if largest else 100 * deviation / links
