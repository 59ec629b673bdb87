"""The time that packets show: single frames with a wild time stamp do not move it."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...kernels.kernel import Ints

LATEST: Final = 15
"""Packets whose median time is the present: up to seven wild ones among them do no harm."""


class PacketClock:
    """The median time of the latest packets, the lower one of two; memory is constant."""

    def __init__(self) -> None:
        self.latest: Ints = np.zeros(0, np.int64)
        """Times of the latest packets, ns, oldest first."""

    def update(self, time_ns: Ints) -> None:
        """Take in the times of further packets, in capture order."""
        if len(time_ns):
            self.latest = np.concatenate((self.latest, time_ns[-LATEST:]))[-LATEST:]

    @property
    def now_ns(self) -> int | None:
        """The present; None before the first packet."""
        if not len(self.latest):
            return None
        return int(np.sort(self.latest)[(len(self.latest) - 1) // 2])
