"""Distributions of values in constant memory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...kernels.kernel import Floats, UInt64s
from ..results.sweep import Bin, Distribution, SeedValue

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
