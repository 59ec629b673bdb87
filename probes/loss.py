"""The fate of every frame at the probes: each one is counted exactly once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from ..kernels.kernel import Records


@dataclass(frozen=True, slots=True)
class Loss:
    """Counters of one tap, or of several, in the order of struct loss of ring.bpf.h."""

    seen: int = 0
    """Frames that passed the hook."""
    exported: int = 0
    """RoCE packets exported to the rings."""
    ring_full: int = 0
    """RoCE packets lost because their ring was full."""
    filtered: int = 0
    sampled_out: int = 0
    too_short: int = 0
    """Frames that end within their headers."""
    merged: int = 0
    """Exported frames that are merges of several frames on the wire (GRO, GSO)."""
    ultra_ethernet: int = 0
    """Packets of Ultra Ethernet (UDP port 4793), which are not exported."""

    @property
    def matched(self) -> int:
        """RoCE packets among the frames: each is counted as one of these four."""
        return self.exported + self.ring_full + self.filtered + self.sampled_out

    def __add__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Loss)))

    def __sub__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Loss)))


LOSS: Final = np.dtype([(field.name, "<u8") for field in fields(Loss)])
"""struct loss of ring.bpf.h."""


def total(counters: Records) -> Loss:
    """The sum over all CPUs (and taps) of an array of LOSS."""
    return Loss(**{field.name: int(counters[field.name].sum()) for field in fields(Loss)})
