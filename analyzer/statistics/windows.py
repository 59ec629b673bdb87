"""Sums in equal time windows: any time span in memory bounded by the rows counted.

Windows are aligned to multiples of their width since the Unix epoch. Only windows with rows take
memory: one wild time costs one window, not all windows up to it. When the span would need too many
windows, neighbours are merged and the width doubles. The result depends only on the rows, not on
their order or the batch boundaries, so the sums of parts merge exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ...kernels.kernel import Int, Int32s, Ints, NamedTuple, inlined, kernel, subkernel
from ..wire.registry import salt
from .per_flow import Kept, longer, untouched

WIDTH, FIRST, LAST, LIMIT, USED, SALT = range(6)
"""Items of `WindowedSums.state`: window width in ns; in multiples of the width since the epoch, the
earliest and latest window with rows; most windows from the one to the other; windows with rows; a
random odd factor of the hash table."""

MAX_WIDTH_NS: Final = 1 << 60
"""Widest initial window, about 36 years."""
_MIN_WINDOWS: Final = 8  # with fewer windows the width for int64 times could exceed int64
_FEW_CELLS: Final = 1 << 20
_WINDOWS_PER_USED: Final = 4

_MAX: Final = int(np.iinfo(np.int64).max)
_MIN: Final = int(np.iinfo(np.int64).min)


@inlined
def same_window(time: Int, window_start: Int, width: Int) -> bool:
    """Whether a time is in the window that starts at `window_start` (exact for all times)."""
    return bool(np.uint64(time - window_start) < np.uint64(width))


class WindowArrays(NamedTuple):
    """The arrays of `WindowedSums`, for kernels."""

    state: Ints
    slots: Int32s
    windows: Ints
    sums: Ints


@subkernel
def window_row(window: Int, state: Ints, slots: Int32s, windows: Ints) -> Int:
    """The row of a window in the sums, -1 when the caller must make room with `cover`."""
    mask = np.uint64(len(slots) - 1)
    h = np.uint64(window) * np.uint64(state[SALT])
    at = (h ^ (h >> np.uint64(32))) & mask
    while slots[at] != 0:
        row = np.int64(slots[at]) - 1
        if windows[row] == window:
            return row
        at = (at + np.uint64(1)) & mask
    first, last = min(state[FIRST], window), max(state[LAST], window)
    row = state[USED]
    if row == len(windows) or np.uint64(last - first) >= np.uint64(state[LIMIT]):
        return np.int64(-1)
    state[FIRST], state[LAST], state[USED] = first, last, row + 1
    slots[at] = row + 1
    windows[row] = window
    return row


@kernel
def _rehash(state: Ints, slots: Int32s, windows: Ints) -> None:
    """Enter the used windows into empty slots."""
    used = state[USED]
    state[USED] = 0
    for i in range(used):
        window_row(windows[i], state, slots, windows)


def _write_held(row: Ints, values: Ints) -> None:
    """Write the values other than 0 to zeros: memory that is not written costs nothing.

    Columns are often flows, and most flows have few windows.
    """
    held = np.flatnonzero(values)
    row[held] = values[held]


class WindowedSums:
    """int64 sums per window and column; kernels write `sums`, whose rows `window_row` finds.

    At most `max_windows` windows from the first to the last, and about `max_cells` sums in total if
    given. A kernel stops at a time without a row for its caller to `cover` it.
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
        factor = int(salt(1)[0] >> np.uint64(1)) | 1
        self.state = np.array([width_ns, _MAX, _MIN, 0, 0, factor], np.int64)
        self.state[LIMIT] = self._limit()
        self.windows = np.zeros(_MIN_WINDOWS, np.int64)
        """int64[rows]: the window of each row of `sums`."""
        self.slots = np.zeros(4 * _MIN_WINDOWS, np.int32)
        """Hash table of `window_row`: a row plus one, 0 when free."""
        self.sums = np.zeros((_MIN_WINDOWS, columns), np.int64)
        """int64[rows, columns+], in the order in which the windows had their first row."""

    def count(self, rows: Callable[[Int, WindowArrays], Int], time_ns: Ints) -> None:
        """Count rows with these times: `rows` begins at a row, and returns the first row without a
        place or their number."""
        row: Int = 0
        while True:
            row = rows(row, WindowArrays(self.state, self.slots, self.windows, self.sums))
            if row == len(time_ns):
                return
            self.cover(int(time_ns[row]))

    @property
    def width_ns(self) -> int:
        """Present width of a window; it may double later."""
        return int(self.state[WIDTH])

    @property
    def start_ns(self) -> int:
        """Start of the earliest window, 0 without rows."""
        return int(self.state[FIRST]) * self.width_ns if self.state[USED] else 0

    def values(self) -> Ints:
        """The sums from the earliest to the latest window, int64[windows, columns]."""
        return self.dense()[2]

    def column(self, column: int) -> list[int]:
        """One column of `values`; zeros for one that has no rows yet."""
        used = int(self.state[USED])
        dense = np.zeros(int(self.state[LAST] - self.state[FIRST]) + 1 if used else 0, np.int64)
        if column < self.columns:
            dense[self.windows[:used] - self.state[FIRST]] = self.sums[:used, column]
        return [int(value) for value in dense]

    def dense(self, sparing: bool = False) -> tuple[int, int, Ints]:
        """(width in ns, start in ns, int64[windows, columns]).

        `sparing`: where few of many windows have rows, wider windows, so that the size is bounded
        by the windows with rows.
        """
        used, width = int(self.state[USED]), self.width_ns
        if not used:
            return width, 0, np.zeros((0, self.columns), np.int64)
        limit = self._max_windows
        if sparing:
            few = max(_MIN_WINDOWS, _FEW_CELLS // max(self.columns, 1))
            limit = max(few, _WINDOWS_PER_USED * used)
        first, last = int(self.state[FIRST]), int(self.state[LAST])
        while last - first >= limit:
            width, first, last = 2 * width, first // 2, last // 2
        window, sums = self.windows[:used], self.sums
        if width != self.width_ns:
            window, sums = self._merged(width)
        values = np.zeros((last - first + 1, self.columns), np.int64)
        if self.columns < len(window):  # row by row would take long, and save little
            values[window - first] = sums[: len(window), : self.columns]
        else:
            for at, row in zip((window - first).tolist(), sums, strict=False):
                _write_held(values[at], row[: self.columns])
        return width, first * width, values

    def cover(self, time_ns: int) -> None:
        """Make room for the window of this time."""
        window = time_ns // self.width_ns
        self._fit(self.width_ns, window, window)
        used = int(self.state[USED])
        if used == len(self.windows):
            self._resize(2 * used)

    def widen(self, columns: int) -> None:
        """Grow to at least this many columns."""
        if columns <= self.columns:
            return
        self.columns = columns
        rows, have = self.sums.shape
        if columns > have:
            # Taps appear one by one: with spare columns few of them copy all the sums.
            room = max(columns, have + have // 2) if self.state[USED] else columns
            sums = np.zeros((rows, room), np.int64)
            sums[:, :have] = self.sums
            self.sums = sums
        self.state[LIMIT] = self._limit()
        if self.state[USED]:
            self._fit(self.width_ns, int(self.state[FIRST]), int(self.state[LAST]))

    def keep(self, kept: Kept) -> None:
        """Columns are flows: only these stay."""
        columns = kept.of(self.sums.shape[1])
        sums = untouched(self.sums)
        for row, before in zip(sums, self.sums, strict=True):
            _write_held(row, before[columns])
        self.sums = sums

    def add(self, other: WindowedSums, column_map: Int32s) -> None:
        """Add sums with the same initial width; the other's column c is our `column_map[c]`."""
        used = int(other.state[USED])
        if not used:
            return
        narrow, wide = sorted((self.width_ns, other.width_ns))
        if wide % narrow or (wide // narrow) & (wide // narrow - 1):
            raise ValueError("windows to merge must have the same initial width")
        if len(column_map):
            self.widen(int(column_map.max()) + 1)
        self._fit(other.width_ns, int(other.state[FIRST]), int(other.state[LAST]))
        mine, theirs = int(self.state[USED]), other._merged(self.width_ns)
        self._resize(mine + len(theirs[0]))
        new = np.setdiff1d(theirs[0], self.windows[:mine])
        self.windows[mine : mine + len(new)] = new
        self.state[USED] = used = mine + len(new)
        self._rehash()
        order = np.argsort(self.windows[:used])
        rows = order[np.searchsorted(self.windows[:used], theirs[0], sorter=order)]
        np.add.at(self.sums, (rows[:, None], column_map[None, :]), theirs[1][:, : len(column_map)])

    def _limit(self) -> int:
        if self._max_cells is None:
            return self._max_windows
        return max(_MIN_WINDOWS, min(self._max_windows, self._max_cells // self.columns))

    def _fit(self, width: int, first: int, last: int) -> None:
        """Widen the windows until first..last of this width fit in addition to those with rows."""
        target = max(width, self.width_ns)
        first, last = first * width // target, last * width // target
        if self.state[USED]:
            first = min(first, int(self.state[FIRST]) * self.width_ns // target)
            last = max(last, int(self.state[LAST]) * self.width_ns // target)
        while last - first >= self.state[LIMIT]:
            target, first, last = 2 * target, first // 2, last // 2
        if target != self.width_ns:
            window, sums = self._merged(target)
            self.state[WIDTH], self.state[USED] = target, len(window)
            self.windows[: len(window)], self.sums[:] = window, 0
            self.sums[: len(window)] = sums
            self._rehash()

    def _resize(self, rows: int) -> None:
        """Grow to this many rows."""
        if rows > len(self.sums):
            self.sums, self.windows = longer(self.sums, rows), longer(self.windows, rows)
            self._rehash()

    def _rehash(self) -> None:
        slots = 1 << (2 * len(self.windows) - 1).bit_length()
        self.slots = np.zeros(slots, np.int32)
        self.state[FIRST], self.state[LAST] = _MAX, _MIN
        _rehash(self.state, self.slots, self.windows)

    def _merged(self, width: int) -> tuple[Ints, Ints]:
        """The windows with rows if each had `width`, a multiple of the present one; their sums."""
        used = int(self.state[USED])
        order = np.argsort(self.windows[:used])
        window = self.windows[order] // (width // self.width_ns)
        begins = np.flatnonzero(np.r_[True, window[1:] != window[:-1]])[:used]
        return window[begins], np.add.reduceat(self.sums[order], begins, axis=0)
