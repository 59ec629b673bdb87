"""Bytes per unit and time window, only for windows with bytes of the unit."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...kernels.kernel import Array, Ints
from .traffic import Windows

MAX_CELLS = 1 << 22
"""Maximum of (unit, window) pairs; with more pairs the windows double in width."""

_WINDOW: Final = 0xFFFFFFFF


class WindowCells:
    """Sums, updated in batches; memory is bounded by units and `MAX_CELLS`."""

    def __init__(self, width_ns: int) -> None:
        self._width_ns = width_ns
        self._start_ns = 0
        self._key = np.zeros(0, np.int64)  # unit << 32 | window
        self._bytes = np.zeros(0, np.int64)
        self._waiting: list[tuple[Ints, Ints]] = []

    def add(self, unit: Array, time_ns: Ints, size: Array) -> None:
        """Add packets: the unit, time and bytes of each."""
        if not len(unit):
            return
        if not self._start_ns:
            self._start_ns = int(time_ns.min()) // self._width_ns * self._width_ns
        while (int(time_ns.max()) - self._start_ns) // self._width_ns >= 1 << 31:
            self._widen()
        # Late rows from before the first row count in its window.
        window = np.maximum(0, (time_ns - self._start_ns) // self._width_ns)
        key = unit.astype(np.int64) << 32 | window
        self._waiting.append(_summed(key, size.astype(np.int64)))
        if sum(len(key) for key, _ in self._waiting) > MAX_CELLS // 4:
            self._compact()
            while len(self._key) > MAX_CELLS and (self._key & _WINDOW).any():
                self._widen()

    def windows(self) -> Windows:
        """The sums so far."""
        self._compact()
        return Windows(
            width_ns=self._width_ns,
            start_ns=self._start_ns,
            unit=(self._key >> 32).astype(np.int32),
            window=(self._key & _WINDOW).astype(np.int32),
            wire_bytes=self._bytes,
        )

    def _compact(self) -> None:
        keys, sizes = zip((self._key, self._bytes), *self._waiting, strict=True)
        self._waiting = []
        self._key, self._bytes = _summed(np.concatenate(keys), np.concatenate(sizes))

    def _widen(self) -> None:
        self._compact()
        self._width_ns *= 2
        key = self._key >> 32 << 32 | (self._key & _WINDOW) >> 1
        self._key, self._bytes = _summed(key, self._bytes)


def _summed(key: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Distinct keys in order, and the sum of the values of each."""
    if not len(key):
        return key, value
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    return key[first], np.add.reduceat(value, first)
