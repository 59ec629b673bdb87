"""Streaming distributions: log-linear histograms, one per flow and kind, allocated on first use.

Buckets are exact below 32 and 1/16 of a power of two wide above, so a quantile
is within 6.25 percent of the true value; count, mean, minimum and maximum are
exact. (The scheme is that of HdrHistogram.) Histograms are additive, so the results of parts of a
capture merge into those of the whole.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...kernels.kernel import Int, Int32s, Ints, NamedTuple, UInt32s, inlined
from ..results.base import HistogramBin, Quantiles
from .per_flow import PerFlow, Pool, Rows

SUB_BUCKET_BITS = 4
BUCKETS = ((62 - SUB_BUCKET_BITS) << SUB_BUCKET_BITS) + (2 << SUB_BUCKET_BITS)
_BLOCK = 1 << SUB_BUCKET_BITS
"""Neighbouring buckets that take memory together: the values of most flows are in a few."""
_BLOCKS = BUCKETS // _BLOCK

COUNT, SUM, MIN, MAX = range(4)

_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_LARGEST = 2**63 - 1
_MAX_SUM = _LARGEST


class Histograms(NamedTuple):
    """The arrays a kernel writes to; see `HistogramPool`."""

    row: Int32s
    """int32[flows, kinds]: 1 + index of the histogram; 0 without one."""
    block: Int32s
    """int32[capacity, _BLOCKS]: 1 + block of counts of each histogram; 0 without one."""
    counts: UInt32s
    """uint32[blocks, _BLOCK]."""
    stats: Ints
    """int64[capacity, 4]: count, sum, minimum, maximum."""
    used: Ints
    """int64[2]: histograms and blocks handed out."""


@inlined
def bucket_of(value: Int) -> Int:
    """The bucket of a value >= 0."""
    if value < (2 << SUB_BUCKET_BITS):
        return value
    octave = 1  # bit length of the value minus SUB_BUCKET_BITS + 1
    rest = value >> (SUB_BUCKET_BITS + 1)
    for step in (32, 16, 8, 4, 2, 1):
        if rest >> step:
            rest >>= step
            octave += step
    return (octave << SUB_BUCKET_BITS) + (value >> octave)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """[low, high) of a bucket."""
    if bucket < (2 << SUB_BUCKET_BITS):
        return bucket, bucket + 1
    octave = (bucket >> SUB_BUCKET_BITS) - 1
    low = ((bucket & ((1 << SUB_BUCKET_BITS) - 1)) + (1 << SUB_BUCKET_BITS)) << octave
    return low, low + (1 << octave)


@inlined
def observe(histograms: Histograms, flow: Int, kind: Int, value: Int) -> None:
    """Count one value (a negative one, from a clock step, counts as 0)."""
    row = np.int64(histograms.row[flow, kind]) - 1
    if row < 0:
        row = histograms.used[0]
        histograms.used[0] += 1
        histograms.row[flow, kind] = row + 1
        histograms.stats[row, MIN] = _LARGEST
    value = max(value, 0)
    bucket = bucket_of(value)
    block = np.int64(histograms.block[row, bucket >> SUB_BUCKET_BITS])
    if block == 0:
        histograms.used[1] += 1
        block = histograms.used[1]
        histograms.block[row, bucket >> SUB_BUCKET_BITS] = block
    histograms.counts[block - 1, bucket & (_BLOCK - 1)] += np.uint32(1)
    histograms.stats[row, COUNT] += 1
    # Damaged timestamps may be centuries apart; the sum saturates.
    histograms.stats[row, SUM] = min(histograms.stats[row, SUM], _MAX_SUM - value) + value
    histograms.stats[row, MIN] = min(histograms.stats[row, MIN], value)
    histograms.stats[row, MAX] = max(histograms.stats[row, MAX], value)


class HistogramPool(PerFlow[Histograms]):
    """Histograms for `kinds` quantities of any number of flows.

    Capacity always covers every (flow, kind), so kernels never run out; unused histograms are in
    memory that is never touched.
    """

    layout: ClassVar = {
        "row": Rows(),
        "block": Pool(("row", None), used=0),
        "counts": Pool(("block", None), used=1),
        "stats": Pool(("row", None), used=0),
    }

    def __init__(self, kinds: int) -> None:
        super().__init__(
            Histograms(
                np.zeros((0, kinds), np.int32),
                np.zeros((0, _BLOCKS), np.int32),
                np.zeros((0, _BLOCK), np.uint32),
                np.zeros((0, 4), np.int64),
                np.zeros(2, np.int64),
            )
        )

    def add_all(self, other: HistogramPool) -> None:
        """Add the values of all flows of the other pool to our flow 0."""
        for flow, kind in zip(*np.nonzero(other.arrays.row), strict=True):
            row, mine = other._row(int(flow), int(kind)), self._own(0, int(kind))
            for at in np.flatnonzero(other.arrays.block[row]).tolist():
                self._counts_at(mine, at)[:] += other._counts_at(row, at)
            stats, added = self.arrays.stats[mine], other.arrays.stats[row]
            stats[COUNT] += added[COUNT]
            stats[SUM] = min(int(stats[SUM]) + int(added[SUM]), _MAX_SUM)
            stats[MIN] = min(stats[MIN], added[MIN])
            stats[MAX] = max(stats[MAX], added[MAX])

    def _own(self, flow: int, kind: int) -> int:
        """The histogram, handed out when new."""
        mine = self._row(flow, kind)
        if mine < 0:
            mine = int(self.arrays.used[0])
            self.arrays.used[0] += 1
            self.arrays.row[flow, kind] = mine + 1
            self.arrays.stats[mine, MIN] = _LARGEST
        return mine

    def _counts(self, row: int) -> Ints:
        """int64[BUCKETS]: all counts of a histogram."""
        counts = np.zeros((_BLOCKS, _BLOCK), np.int64)
        block = self.arrays.block[row]
        used = np.flatnonzero(block)
        counts[used] = self.arrays.counts[block[used] - 1]
        return counts.reshape(-1)

    def _counts_at(self, row: int, at: int) -> UInt32s:
        """A block of counts of a histogram, a view; handed out when new."""
        a = self.arrays
        if not a.block[row, at]:
            a.used[1] += 1
            a.block[row, at] = a.used[1]
        counts: UInt32s = a.counts[a.block[row, at] - 1]
        return counts

    def quantiles(self, flow: int, kind: int) -> Quantiles | None:
        """The distribution of one quantity of one flow; None without values."""
        row = self._row(flow, kind)
        if row < 0:
            return None
        count, total, low, high = self.arrays.stats[row].tolist()
        cumulative = np.cumsum(self._counts(row))
        ranks = [q * (count - 1) for q in _QUANTILES]
        buckets = np.searchsorted(cumulative, ranks, side="right").tolist()
        p50, p90, p99, p999 = (
            _quantile(cumulative, rank, bucket, low, high)
            for rank, bucket in zip(ranks, buckets, strict=True)
        )
        return Quantiles(count, low, total / count, p50, p90, p99, p999, high)

    def bins(self, flow: int, kind: int) -> list[HistogramBin]:
        """The non-empty buckets in ascending order."""
        row = self._row(flow, kind)
        if row < 0:
            return []
        counts = self._counts(row)
        return [
            HistogramBin(*bucket_bounds(b), int(counts[b])) for b in np.flatnonzero(counts).tolist()
        ]

    def maximum(self, flow: int, kind: int) -> int | None:
        """The largest value counted, exactly."""
        row = self._row(flow, kind)
        return None if row < 0 else int(self.arrays.stats[row, MAX])

    def _row(self, flow: int, kind: int) -> int:
        return int(self.arrays.row[flow, kind]) - 1 if flow < len(self.arrays.row) else -1


def _quantile(cumulative: Ints, rank: float, bucket: int, low: int, high: int) -> float:
    """Value of a rank inside a bucket, by linear interpolation."""
    start, stop = bucket_bounds(bucket)
    below = int(cumulative[bucket - 1]) if bucket else 0
    inside = int(cumulative[bucket]) - below
    value = start + (rank - below + 0.5) / inside * (stop - 1 - start)
    return float(min(max(value, low), high))
