"""Sums in equal time windows: any time span in bounded memory.

Windows are aligned to multiples of their width since the Unix epoch. A time outside adds windows on
its side; when there would be too many, neighbours are merged and the width doubles. The result
depends only on the earliest and latest time, not on the order of the rows or the batch boundaries,
so the sums of parts merge exactly.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...kernels.kernel import Int32s, Ints, inlined

WIDTH, ORIGIN, FIRST, LAST = range(4)
"""Items of `WindowedSums.state`: window width in ns; then, in multiples of the width since the
epoch, the window of row 0 of `sums`, and the earliest and latest window with rows."""

MAX_WIDTH_NS: Final = 1 << 60
"""Widest initial window, about 36 years."""
_MIN_WINDOWS: Final = 8  # with fewer windows the width for int64 times could exceed int64

_MAX: Final = int(np.iinfo(np.int64).max)
_MIN: Final = int(np.iinfo(np.int64).min)


@inlined
def same_window(time: Any, window_start: Any, width: Any) -> Any:
    """Whether a time is in the window that starts at `window_start` (exact for all times)."""
    return np.uint64(time - window_start) < np.uint64(width)


class WindowedSums:
    """int64 sums per window and column; kernels write `sums` and `state`.

    At most `max_windows` windows, and about `max_cells` sums in total if given. A kernel stops at a
    time outside `sums` for its caller to `cover` it.
    """

    def __init__(
        self, width_ns: int, columns: int, max_windows: int, max_cells: int | None = None
    ) -> None:
        if not 1 <= width_ns <= MAX_WIDTH_NS or max_windows < _MIN_WINDOWS:
            raise ValueError(f"no {max_windows} windows of {width_ns} ns: too narrow, wide or few")
        self._max_windows = max_windows
        self._max_cells = max_cells
        self.columns = columns
        """Columns in use; `sums` may have more."""
        self.state = np.array([width_ns, 0, _MAX, _MIN], np.int64)
        self.sums = np.zeros((0, columns), np.int64)

    @property
    def width_ns(self) -> int:
        """Present width of a window; it may double later."""
        return int(self.state[WIDTH])

    @property
    def start_ns(self) -> int:
        """Start of the earliest window, 0 without rows."""
        return int(self.state[FIRST]) * self.width_ns if len(self.values()) else 0

    def values(self) -> Ints:
        """The sums from the earliest to the latest window with rows, int64[windows, columns+]."""
        _, origin, first, last = (int(v) for v in self.state)
        return self.sums[first - origin : last - origin + 1] if first <= last else self.sums[:0]

    def cover(self, time_ns: int) -> None:
        """Extend `sums` to the window of this time."""
        window = time_ns // self.width_ns
        self._fit(self.width_ns, window, window)

    def widen(self, columns: int) -> None:
        """Grow to at least this many columns."""
        if columns <= self.columns:
            return
        self.columns = columns
        rows, have = self.sums.shape
        if columns > have:
            # Taps appear one by one: with spare columns few of them copy all the sums.
            room = max(columns, have + have // 2) if rows else columns
            sums, kept = np.zeros((rows, room), np.int64), self.values()
            begin = int(self.state[FIRST] - self.state[ORIGIN]) if len(kept) else 0
            sums[begin : begin + len(kept), :have] = kept
            self.sums = sums
        if len(self.values()) > self._limit():
            self._fit(self.width_ns, int(self.state[FIRST]), int(self.state[LAST]))

    def merge(self, other: WindowedSums, column_map: Int32s) -> None:
        """Add sums with the same initial width; the other's column c is our `column_map[c]`."""
        if not len(other.values()):
            return
        narrow, wide = sorted((self.width_ns, other.width_ns))
        if wide % narrow or (wide // narrow) & (wide // narrow - 1):
            raise ValueError("windows to merge must have the same initial width")
        if len(column_map):
            self.widen(int(column_map.max()) + 1)
        self._fit(other.width_ns, int(other.state[FIRST]), int(other.state[LAST]))
        at, added = _merged(other, self.width_ns)
        rows = (at - int(self.state[ORIGIN]))[:, None]
        np.add.at(self.sums, (rows, column_map[None, :]), added[:, : len(column_map)])

    def _limit(self) -> int:
        if self._max_cells is None:
            return self._max_windows
        return max(_MIN_WINDOWS, min(self._max_windows, self._max_cells // self.columns))

    def _fit(self, width: int, first: int, last: int) -> None:
        """Cover windows first..last of this width in addition to those covered."""
        used = len(self.values())
        target = max(width, self.width_ns)
        first, last = first * width // target, last * width // target
        if used:
            first = min(first, int(self.state[FIRST]) * self.width_ns // target)
            last = max(last, int(self.state[LAST]) * self.width_ns // target)
        while last - first >= self._limit():
            target, first, last = 2 * target, first // 2, last // 2
        origin = int(self.state[ORIGIN])
        limit, have = self._limit(), len(self.sums)
        if target != self.width_ns or first < origin or last >= origin + have or have > limit:
            rows = min(limit, 2 * (last - first + 1))
            leftwards = used and target == self.width_ns and first < origin
            origin = max(last - rows + 1, _MIN) if leftwards else first
            sums = np.zeros((rows, self.sums.shape[1]), np.int64)
            if used and target == self.width_ns:
                at_row = int(self.state[FIRST]) - origin
                sums[at_row : at_row + used] = self.values()
            elif used:
                at, merged = _merged(self, target)
                sums[at - origin] = merged
            self.sums = sums
        self.state[:] = target, origin, first, last


def _merged(source: WindowedSums, width: int) -> tuple[Ints, Ints]:
    """The windows of `width`, a multiple of the width of `source`, with the sums of `source`."""
    values = source.values()
    window = (int(source.state[FIRST]) + np.arange(len(values))) // (width // source.width_ns)
    begins = np.flatnonzero(np.diff(window, prepend=window[0] - 1))
    return window[begins], np.add.reduceat(values, begins, axis=0)
